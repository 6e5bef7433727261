/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/latemount.h - files of ours over files of a sandbox that runs already, as mounts: what a start would have put there.
 *
 * In root mode alone: whoever could mount something in a rootless sandbox gave that up when its init began, and with it the right to copy a mount of the host's.
 */
#ifndef CAY_SANDBOX_LATEMOUNT_H
#define CAY_SANDBOX_LATEMOUNT_H

#include "store/job.h"

/**
 * latemount_verb() - the job `lay` {"pid","uid_base","mounts":[{"source","target"}]} -> {"laid":[target]}.
 *
 * Every source is laid, read-only, over the file that the sandbox sees at its target; targets that it does not have are left out.
 * Return: 0 or an error. Context: the job joins the sandbox's mount namespace and must end then.
 */
int latemount_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

#endif

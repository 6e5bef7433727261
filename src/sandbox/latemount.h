/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/latemount.h - files of ours over files of a sandbox that runs already, as mounts: what a start would have put there.
 */
#ifndef CAY_SANDBOX_LATEMOUNT_H
#define CAY_SANDBOX_LATEMOUNT_H

#include "store/job.h"

/**
 * latemount_verb() - the job `lay` {"pid","keeper","uid_base","rootless","mounts":[{"source","target"}]} -> {"laid":[target]}.
 *
 * Every source is laid, read-only, over the file that the sandbox sees at its target; targets that it does not have are left out.
 * Return: 0 or an error. Context: root, or rootless the user outside of all namespaces (SPAWN_JOB_ABOVE); the job joins the sandbox's mount namespace and must end then.
 */
int latemount_verb(struct job *job, json_t **ok, struct err *err) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/program.h - run a program of the machine (mkfs) for a job. */
#ifndef CAY_STORE_PROGRAM_H
#define CAY_STORE_PROGRAM_H

#include "base/err.h"

/**
 * program_run() - run @argv (argv[0] absolute) with an environment of its own and none of our descriptors, and wait for it.
 * @err: %ERR_HOST with the program's own words when it fails.
 * Context: blocks.
 */
int program_run(const char *const *argv, struct err *err) attr_must_use;

#endif

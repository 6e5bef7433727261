/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: base/fault.h - named fault points for crash tests.
 *
 * fault("store.commit.before_rename") does nothing unless the environment says CAY_FAULT=NAME[:HIT][=kill|error|hold], where HIT (default 1)
 * is the hit that acts, with a + behind it all from that one on. "kill" (the default) sends SIGKILL to the caller; "error" makes the call return -EIO; "hold" stops the caller
 * until somebody sends it SIGCONT: a race becomes certain. Up to four of them with commas between, each with hits of its own.
 * CAY_FAULT_LOG=FILE appends the name of every point that is passed: a test lists them all and then kills at each. Hits are then counted over all processes that write
 * that file, otherwise by each for itself; and whoever acts appends the name once more before, with a ! before it.
 */
#ifndef CAY_BASE_FAULT_H
#define CAY_BASE_FAULT_H

#include "base/attr.h"

#define FAULT_VARIABLES 3

/** fault_environment() - fill @env with the settings above, what CAY_WITHOUT withholds (sys/feature.h), and a NULL: for a program that is started with nothing else. Borrowed. */
void fault_environment(char *env[FAULT_VARIABLES + 1]);

/** fault() - a point at which a test may kill or fail the process. Return: 0, or -EIO when told to fail here. */
int fault(const char *name);

/** fault_at() - does CAY_FAULT name a point whose name begins with @prefix? For who is to be less patient in such a test. */
bool fault_at(const char *prefix);

#endif

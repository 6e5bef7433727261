/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cayd/caller.h - what a server in the background does not keep of whoever happened to start it. */
#ifndef CAY_PROG_CAYD_CALLER_H
#define CAY_PROG_CAYD_CALLER_H

/**
 * caller_leave() - it serves all, for as long as it lives, and all that it starts inherits from it: resource limits, niceness and scheduling, processors and memory to use, priority of input and output,
 * execution domain, timer slack and out-of-memory score are those of the machine from here on, not of the one `cay` that needed a server first. Limits and niceness that may not be changed without root stay, and are logged. Context: before
 * anything is started.
 */
void caller_leave(void);

#endif

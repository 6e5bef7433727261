/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/asker.h - asking in advance (docs/design/0006, "Filters"): what a thread cannot be asked any more when the system call filter is there that it is about to install, and
 * what it cannot change any more either. A process of the keeper's stops it in front of that call, asks, makes the call in it, and lets it go.
 *
 * What is asked is whether a state is as it is in every new process. Then it is so in all that come from there, too, as long as that filter is theirs, which is for ever.
 */
#ifndef CAY_CHECKPOINT_ASKER_H
#define CAY_CHECKPOINT_ASKER_H

#include "base/attr.h"
#include "checkpoint/capturer.h"
#include "checkpoint/filter_run.h"

/* what may be known so: bits. ASKED_NO_TIMERS: no interval timer is set (setitimer(2)) */
#define ASKED_NO_TIMERS 1U
#define ASKED_ALL       ASKED_NO_TIMERS

/* the upper half of a fifth argument of a call that installs a filter, which has none: the lower half is what the restorer that makes the call knows of its process, as the bits above */
#define ASKED_TOLD 0x59414321ULL

/** asked_lasts() - what of the bits above stays so under the filters @chain, because one of them refuses every call that changes it, whatever its arguments. */
uint32_t asked_lasts(const struct filter_program *chain, uint32_t n);

/** asked_refused() - what of the bits above nobody can be asked under the filters @chain. */
uint32_t asked_refused(const struct filter_program *chain, uint32_t n);

/** struct asker_order - whom to ask; all of it borrowed. */
struct asker_order {
	const struct seccomp_notif *notice; /* of the call, which waits */
	int listener;                       /* where it does */
	const struct filter_program *chain; /* the filters that the thread has already */
	uint32_t n_chain;
	struct capture_place place;
};

/** struct asker_answer - sent once, before the call is made again. */
struct asker_answer {
	uint32_t quiet; /* bits as above */
};

/**
 * asker_start() - start a process that asks. Where it has begun the call of @o->notice is answered, and comes again when it has sent its answer; where it ends without one the call comes
 * again as well, and where it could not begin the call still waits. @ret_sock: SOCK_SEQPACKET, the caller's; at its end the process is to be waited for (__WALL).
 *
 * Return: its pid or -errno. Context: the thread of the notice is the only one of its process.
 */
pid_t asker_start(const struct asker_order *o, int *ret_sock) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/instant.h - how whoever has stopped a sandbox and the job that captures its files tell each other, straight, because all of the sandbox stands still meanwhile.
 *
 *   keeper: instant_join() -> (all are stopped) instant_begin() -> instant_keep() -> (descriptor readable) instant_captured()
 *   job:    instant_open() -> instant_await() -> captures -> instant_done(): kept, or once more from instant_await() on
 * One byte a message, and behind CAPTURED when that was. Who closes without a word has given up: the keeper this try, the job all of it.
 */
#ifndef CAY_STORE_INSTANT_H
#define CAY_STORE_INSTANT_H

#include "base/attr.h"

#define INSTANT_PATH_SIZE 108 /* of a unix socket */

/* Why a group is not frozen in time, for who asked for the snapshot. It passes. */
#define INSTANT_RESTLESS \
	"a process does not stand still: it is long in closing what it had, or waits for a device"

/** struct instant - the job's side; INSTANT_NONE when there is none. */
struct instant {
	char path[INSTANT_PATH_SIZE];
	int listener, peer;
};

#define INSTANT_NONE \
	{ \
		.listener = -1, .peer = -1 \
	}

/** instant_open() - let a keeper find this job, which captures for template @id, below runtime directory @run. Return: 0 or -errno. */
int instant_open(struct instant *i, const char *run, const char *id) attr_must_use;

/** instant_await() - until all are stopped. Blocks. Return: 0 or -errno. */
int instant_await(struct instant *i) attr_must_use;

/** instant_done() - all is captured. Blocks until it is known what becomes of it. Return: 1 when it is kept, 0 when it was for nothing, -errno. */
int instant_done(struct instant *i) attr_must_use;

/** instant_close() - give up, or be through. Idempotent. */
void instant_close(struct instant *i);

/** instant_join() - a keeper's side: the job that captures for template @id. Return: descriptor or -errno. */
int instant_join(const char *run, const char *id) attr_must_use;

/** instant_begin() - all are stopped. Return: 0, also to a job that has given up: instant_captured() says so, and why is the job's to say. Or -errno. */
int instant_begin(int fd) attr_must_use;

/** instant_keep() - what is captured now is kept. Return: as instant_begin(). */
int instant_keep(int fd) attr_must_use;

/** instant_captured() - @fd can be read: are the files captured? Else the job has given up. @at_ns: since when (monotonic), 0 = unknown, untouched when they are not; may be NULL. */
bool instant_captured(int fd, uint64_t *at_ns);

#endif

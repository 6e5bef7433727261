/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/locks.c - file locks, taken again before anything runs: those of a description by the opener, those of a process by itself, when it has
 * closed the last descriptor of the file that is not its own (a close of any gives all up).
 */
#include "prog/cay-template/fork.h"

#define F_SETLK     6
#define F_OFD_SETLK 37
#define LOCK_SHARED 1
#define LOCK_ALONE  2
#define LOCK_NOWAIT 4

static void take(int fd, const struct image_lock *lock)
{
	struct {
		int16_t type, whence;
		int32_t pad;
		uint64_t start, length;
		int32_t pid, pad2;
	} range = { .type = lock->exclusive != 0, .start = lock->start, .length = lock->length };
	long rc;

	if (lock->kind == IMAGE_LOCK_FLOCK)
		rc = CALL2(__NR_flock, fd,
			(lock->exclusive != 0 ? LOCK_ALONE : LOCK_SHARED) | LOCK_NOWAIT);
	else
		rc = CALL3(__NR_fcntl, fd, lock->kind == IMAGE_LOCK_POSIX ? F_SETLK : F_OFD_SETLK,
			&range);
	(void)fork_must(rc, "take a file lock again");
}

void locks_take(int fd, const struct image_description *d)
{
	for (uint32_t i = 0; i < d->n_locks; i++)
		take(fd, IMAGE_ROW(struct image_lock, TABLE_LOCKS, d->first_lock + i));
}

void locks_become(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_locks; i++) {
		const struct image_lock *lock =
			IMAGE_ROW(struct image_lock, TABLE_LOCKS, p->first_lock + i);

		take(lock->fd, lock);
	}
}

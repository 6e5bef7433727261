/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/locks.c - file locks, taken again before anything runs: those of a description by the opener, those of a process by itself, when it has
 * closed the last descriptor of the file that is not its own (a close of any gives all up).
 */
#include "prog/cay-template/fork.h"

#include <asm-generic/errno-base.h>

#define F_SETLK     6
#define F_OFD_SETLK 37
#define LOCK_SHARED 1
#define LOCK_ALONE  2
#define LOCK_NOWAIT 4

/* Return: whether it is to be had. */
static bool take(int fd, const struct image_lock *lock)
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
	if (rc != -EAGAIN)
		(void)fork_must(rc, "take a file lock again");
	return rc == 0;
}

void locks_take(int fd, const struct image_description *d)
{
	for (uint32_t i = 0; i < d->n_locks; i++) {
		if (!take(fd, IMAGE_ROW(struct image_lock, TABLE_LOCKS, d->first_lock + i)))
			fork_fail_by_name(d, TEMPLATE_LOCKED);
	}
}

static const struct image_description *description_of(const struct image_process *p, int fd)
{
	const struct image_fd *f = IMAGE_ROW(struct image_fd, TABLE_FDS, p->first_fd);
	uint32_t i = 0;

	while (i < p->n_fds && f[i].fd != fd)
		i++;
	if (i == p->n_fds)
		fork_fail("find the file of a lock", -EBADF);
	return IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, f[i].description);
}

void locks_become(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_locks; i++) {
		const struct image_lock *lock =
			IMAGE_ROW(struct image_lock, TABLE_LOCKS, p->first_lock + i);

		if (!take(lock->fd, lock))
			fork_fail_by_name(description_of(p, lock->fd), TEMPLATE_LOCKED);
	}
}

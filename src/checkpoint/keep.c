/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/keep.h"
#include "checkpoint/alive.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define PIECE       (64ULL << 20) /* of which it is said that it is done */
#define GUESS_LEAST (4ULL << 20)  /* less is copied before a thread has begun */

static void *room(uint64_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	/* a page of two megabytes is filled as fast as hundreds of small ones are made */
	(void)madvise(at, length, MADV_HUGEPAGE);
	return at;
}

/* What the process may not read itself: through /proc/PID/mem. */
static int copy_closed(pid_t host, uint64_t from, char *to, uint64_t length)
{
	cleanup_fd int fd = -1;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/mem", host);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && length > 0) {
		ssize_t n = pread(fd, to, length, (off_t)from);

		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		to += n;
		from += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return fd < 0 ? -errno : 0;
}

int keep_copy(pid_t host, uint64_t from, char *to, uint64_t length)
{
	while (length > 0) {
		struct iovec local = { to, length }, remote = { (void *)(uintptr_t)from, length };
		ssize_t n = process_vm_readv(host, &local, 1, &remote, 1, 0);

		if (n <= 0)
			return copy_closed(host, from, to, length);
		to += n;
		from += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return 0;
}

static int copy(pid_t host, uint64_t from, char *to, uint64_t length)
{
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < length; at += PIECE) {
		rc = keep_copy(host, from + at, to + at, length - at < PIECE ? length - at : PIECE);
		alive();
	}
	return rc;
}

int keep_pages(struct keep *k, pid_t host, uint64_t start, uint64_t end)
{
	struct kept *more = realloc(k->list, (k->n + 1) * sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	k->list = more;
	more[k->n] = (struct kept){ .start = start, .end = end, .copy = room(end - start) };
	if (more[k->n].copy == NULL)
		return -ENOMEM;
	return copy(host, start, more[k->n++].copy, end - start);
}

void keep_fini(struct keep *k)
{
	for (size_t i = 0; i < k->n; i++)
		(void)munmap(k->list[i].copy, k->list[i].end - k->list[i].start);
	free(k->list);
	*k = (struct keep){ 0 };
}

struct shared_memory *shared_memories_find(
	const struct shared_memories *s, uint64_t device, uint64_t inode)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i].device == device && s->list[i].inode == inode)
			return &s->list[i];
	}
	return NULL;
}

static struct shared_memory *new_object(struct shared_memories *s, uint64_t device, uint64_t inode)
{
	struct shared_memory *more = realloc(s->list, (s->n + 1) * sizeof(*more));

	if (more == NULL)
		return NULL;
	s->list = more;
	more[s->n] = (struct shared_memory){ .device = device, .inode = inode };
	return &more[s->n++];
}

static int make_room(struct shared_memory *m, uint64_t size)
{
	char *bigger;

	if (size <= m->room)
		return 0;
	bigger = room(size);
	if (bigger == NULL)
		return -ENOMEM;
	if (m->room > 0) {
		memcpy(bigger, m->copy, m->have);
		(void)munmap(m->copy, m->room);
	}
	m->copy = bigger;
	m->room = size;
	return 0;
}

/* All of the instant that is there already: nothing, or what was guessed rightly. */
static void take_guess(struct shared_memories *s, struct shared_memory *m)
{
	if (m->guess == 0)
		return;
	/* also one that was wrong is still being copied there */
	ahead_finish(&s->ahead);
	if (m->guess_right && ahead_holds(&s->ahead, m->copy, m->guess_length))
		m->have = m->guess_length;
	m->guess = 0;
}

int shared_memories_add(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);
	uint64_t end = offset + length;
	int rc;

	if (m == NULL)
		m = new_object(s, device, inode);
	if (m == NULL)
		return -ENOMEM;
	if (s->ahead.gone)
		take_guess(s, m);
	if (end > m->size)
		m->size = end;
	if (offset > m->have || end <= m->have)
		return 0;
	rc = make_room(m, end);
	if (rc == 0)
		rc = copy(host, address + (m->have - offset), m->copy + m->have, end - m->have);
	if (rc == 0)
		m->have = end;
	return rc;
}

void shared_memories_guess(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);

	if (m == NULL || m->guess != 0 || offset != 0 || length < GUESS_LEAST || m->have < length)
		return;
	m->guess = host;
	m->guess_address = address;
	m->guess_length = length;
}

void shared_memories_stale(struct shared_memories *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct shared_memory *m = &s->list[i];

		m->have = m->size = 0;
		if (m->guess != 0 && ahead_add(&s->ahead, m->guess, m->guess_address, m->copy,
					     m->guess_length) < 0)
			m->guess = 0;
	}
	ahead_start(&s->ahead);
}

void shared_memories_go(struct shared_memories *s)
{
	ahead_go(&s->ahead);
}

void shared_memories_confirm(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);

	if (m != NULL && m->guess == host && m->guess_address == address && offset == 0 &&
		length >= m->guess_length)
		m->guess_right = true;
}

void shared_memories_fini(struct shared_memories *s)
{
	ahead_fini(&s->ahead);
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i].room > 0)
			(void)munmap(s->list[i].copy, s->list[i].room);
	}
	free(s->list);
	*s = (struct shared_memories){ 0 };
}

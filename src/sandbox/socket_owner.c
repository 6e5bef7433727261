/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/socket_owner.h"
#include "base/clock.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTING \
	4096 /* bytes of a directory at once: some 170 descriptors, between two looks at the clock */
#define CHECK_EVERY 32
#define ANCESTORS   8

struct search {
	char target[32]; /* what the link of a descriptor reads as */
	size_t n_target;
	uint64_t end_ns; /* of clock_thread_ns() */
};

static bool is_late(const struct search *s)
{
	return clock_thread_ns() >= s->end_ns;
}

static bool is_it(const struct search *s, int dir, const char *name)
{
	char text[sizeof(s->target)];
	ssize_t n = readlinkat(dir, name, text, sizeof(text));

	return n == (ssize_t)s->n_target && memcmp(text, s->target, s->n_target) == 0;
}

/* Return: 1 when it is among the @n bytes of entries, 0, -ETIME. */
static int look_through(
	const struct search *s, int dir, const char *entries, size_t n, size_t *seen)
{
	const struct dirent64 *e;

	for (size_t at = 0; at < n; at += e->d_reclen) {
		e = (const struct dirent64 *)(const void *)(entries + at);
		if (e->d_name[0] == '.')
			continue;
		if (++*seen % CHECK_EVERY == 0 && is_late(s))
			return -ETIME;
		if (is_it(s, dir, e->d_name))
			return 1;
	}
	return 0;
}

/* @proc: descriptor of /proc/PID. Return: 1 when it has the socket, 0 when not or when it may not be looked at, -ETIME. */
static int has_socket(const struct search *s, int proc)
{
	cleanup_fd int dir = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char entries[LISTING];
	size_t seen = 0;
	int rc = 0;

	while (rc == 0 && dir >= 0 && seen < SOCKET_OWNER_FDS) {
		ssize_t n;

		if (is_late(s))
			return -ETIME;
		n = getdents64(dir, entries, sizeof(entries));
		if (n <= 0)
			return 0;
		rc = look_through(s, dir, entries, (size_t)n, &seen);
	}
	return rc;
}

static int compare_pids(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

/* Return: 1 and @ret, 0 when this one has it not, -ETIME. */
static int try_process(const struct search *s, int32_t pid, struct process *ret)
{
	cleanup_fd int proc = -1;
	char path[32];
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = proc < 0 ? 0 : has_socket(s, proc);
	/* a descriptor of /proc/PID stays with that process: what is read through it is of who had the socket, and whose pid this was until now */
	return rc <= 0 ? rc : process_describe(proc, pid, ret) == 0;
}

/* What several have is of whom they have it from. Numbers do not say that: they begin anew when they have all been given. */
static void prefer_parent(
	const struct search *s, const int32_t *pids, size_t n, struct process *ret)
{
	for (int i = 0; i < ANCESTORS; i++) {
		struct process parent;

		if (bsearch(&ret->parent, pids, n, sizeof(*pids), compare_pids) == NULL ||
			is_late(s) || try_process(s, ret->parent, &parent) <= 0)
			return;
		*ret = parent;
	}
}

int socket_owner_find(const struct cgroup *cg, const char *leaf, uint32_t inode, uint64_t limit_ns,
	struct process *ret)
{
	struct search s = { .end_ns = clock_thread_ns() + limit_ns };
	int32_t pids[SOCKET_OWNER_PROCESSES];
	int n = cgroup_leaf_pids(cg, leaf, pids, SOCKET_OWNER_PROCESSES), rc = 0;

	if (n < 0)
		return n;
	s.n_target = (size_t)snprintf(s.target, sizeof(s.target), "socket:[%u]", inode);
	qsort(pids, (size_t)n, sizeof(*pids), compare_pids);
	for (int i = 0; i < n && rc == 0; i++)
		rc = is_late(&s) ? -ETIME : try_process(&s, pids[i], ret);
	if (rc > 0)
		prefer_parent(&s, pids, (size_t)n, ret);
	return rc > 0 ? 0 : rc < 0 ? rc : -ESRCH;
}

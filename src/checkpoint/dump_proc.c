/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_proc.c - files of /proc about a process: each that has one opens it for itself in a fork, when all are there. One of a process or thread that has ended is opened before, of
 * another one that ends.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t dump_proc_owner(const char *path, const char **ret_rest)
{
	char *end;
	uint64_t pid;

	if (!str_starts(path, "/proc/") || path[6] < '0' || path[6] > '9')
		return 0;
	pid = strtoull(path + 6, &end, 10);
	*ret_rest = end;
	return *end == '\0' || *end == '/' ? pid : 0;
}

/* The thread of @pid that it is about. @rest: as above, moved behind it. */
static uint64_t proc_thread(uint64_t pid, const char **rest)
{
	uint64_t thread = pid;
	char *end;

	if (str_starts(*rest, "/task/")) {
		thread = strtoull(*rest + 6, &end, 10);
		*rest = end;
	}
	return thread;
}

static bool is_account(const char *rest)
{
	return str_starts(rest, "/io") && rest[3] == '\0';
}

/* Is it opened by a process that has all its threads and is who it will be? */
static bool is_opened_late(uint64_t pid, const char *rest)
{
	return proc_thread(pid, &rest) != pid || is_account(rest);
}

/* Who is only watched is not known by its threads. */
static bool has_thread(const struct tracee *t, uint64_t inner)
{
	for (size_t i = 0; i < t->n_threads; i++)
		if ((uint64_t)t->threads[i].inner == inner)
			return true;
	return t->n_threads == 0;
}

/* By itself. What may be in a set of epoll is needed before. */
static bool can_open_late(const struct subject *s, uint64_t thread, const char *rest)
{
	return has_thread(&s->p->tracee, thread) &&
	       ((s->st.st_mode & S_IROTH) != 0 || is_account(rest)) &&
	       !str_starts(rest, "/mount") && !str_starts(rest, "/fdinfo/");
}

/* Is it of a kind that is open to everybody, and about no memory? */
static bool is_public(const struct subject *s, const char *rest)
{
	static const char *const memory[] = { "/maps", "/smaps", "/smaps_rollup", "/numa_maps" };

	for (size_t i = 0; i < ARRAY_SIZE(memory); i++)
		if (str_starts(rest, memory[i]))
			return false;
	return (s->st.st_mode & S_IROTH) != 0;
}

/* May whoever is to open it do so by its name, and as it was opened? */
static bool is_reached(const struct subject *s)
{
	char root[2]; /* with one of its own it has no /proc then */

	return readlinkat(s->p->tracee.proc, "root", root, sizeof(root)) == 1 &&
	       (s->flags & O_ACCMODE) == O_RDONLY;
}

/*
 * Can who is being restored open it? First all processes are there with their first threads, not the others; none is dumpable, so only what everybody may read is open to it,
 * and of others nothing of their memory (ptrace(2), "Ptrace access mode checking").
 */
static bool can_open_again(
	const struct dump *d, const struct subject *s, uint64_t pid, const char *rest)
{
	bool own = pid == (uint64_t)s->p->tracee.inner, late = is_opened_late(pid, rest);
	uint64_t thread = proc_thread(pid, &rest);

	if (!dump_has_pid(d, pid) || !is_reached(s))
		return false;
	if (late)
		return own && can_open_late(s, thread, rest);
	return (own ? (s->st.st_mode & S_IROTH) != 0 : is_public(s, rest)) &&
	       !str_starts(rest, "/fdinfo/"); /* whose number may not be placed yet */
}

/* Has whom it is about ended? Nothing can be read of it any more then, and another may have the number. */
static bool is_of_ended(const struct dump *d, const struct subject *s, uint64_t pid)
{
	char byte;

	return S_ISREG(s->st.st_mode) &&
	       (!dump_has_pid(d, pid) || !dump_is_called(s->p, s->target, &s->st)) &&
	       pread(s->copy, &byte, 1, 0) < 0 && errno == ESRCH;
}

/* It is opened of a process that only waits for that, and ends. */
static bool can_open_of_ended(const struct subject *s, uint64_t pid, const char *rest)
{
	(void)proc_thread(pid, &rest);
	return is_reached(s) && is_public(s, rest) && !str_starts(rest, "/fdinfo/");
}

static int refuse(const struct subject *s, struct err *err)
{
	return subject_refuse(
		s, err, "a file of a process in /proc, which cannot be carried over yet");
}

int dump_proc(const struct dump *d, struct subject *s, struct err *err)
{
	const char *rest;
	uint64_t pid = dump_proc_owner(s->target, &rest);

	if (pid == 0)
		return 0;
	s->out.kind = DESCRIPTION_PROC;
	s->out.b = is_of_ended(d, s, pid);
	if (s->out.b != 0)
		return can_open_of_ended(s, pid, rest) ? 1 : refuse(s, err);
	s->out.a = is_opened_late(pid, rest);
	return can_open_again(d, s, pid, rest) ? 1 : refuse(s, err);
}

int dump_proc_again(const struct dump *d, const struct subject *s,
	const struct image_description *known, struct err *err)
{
	const char *rest;
	uint64_t pid = dump_proc_owner(s->target, &rest);

	if (known->b != 0 || (pid != 0 && can_open_again(d, s, pid, rest)))
		return 0;
	return refuse(s, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_pidfds.c - descriptors of processes and of threads (PIDFD_THREAD, Linux 6.9). Each process that has one opens its own when all processes are there with their
 * first threads (image_opened_by_each()); one of a thread when it has its own threads (image_opened_late()), and nobody knows whether others have theirs.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Its number on the machine. */
static unsigned long long host_of(const struct subject *s)
{
	return proc_number(buf_cstr(&s->info), "Pid", 10, 0);
}

/* An examination does not look for those that have ended, and is not told of them by their group. */
static bool leads_itself(const struct subject *s)
{
	cleanup_buf struct buf text = BUF_INIT(1 << 16);
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/%llu/status", host_of(s));
	return file_read_at(AT_FDCWD, path, &text) == 0 &&
	       proc_number(buf_cstr(&text), "Tgid", 10, 0) == host_of(s);
}

static bool is_first_of_any(const struct dump *d, const struct subject *s, uint64_t inner)
{
	return dump_has_pid(d, inner) || (d->examination != NULL && leads_itself(s));
}

/* By the kernel's own list: who is only watched is not known by its threads. */
static bool is_own_thread(const struct subject *s)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "task/%llu", host_of(s));
	return faccessat(s->p->tracee.proc, path, F_OK, 0) == 0;
}

int dump_pidfd_again(const struct dump *d, const struct subject *s,
	const struct image_description *known, struct err *err)
{
	if (known->a == 0 || (known->b & IMAGE_OF_THREAD) == 0 || is_first_of_any(d, s, known->a) ||
		is_own_thread(s))
		return 0;
	return subject_refuse(s, err,
		"of a thread of another process (PIDFD_THREAD), which cannot be carried over yet");
}

int dump_pidfd(struct dump *d, struct subject *s, struct err *err)
{
	const char *text = buf_cstr(&s->info);
	uint64_t numbers[32];
	size_t n = proc_numbers(text, "NSpid", 10, numbers, ARRAY_SIZE(numbers));
	const char *pid = proc_value(text, "Pid");

	if (pid == NULL)
		return subject_refuse(s, err, "of a process of which the kernel tells nothing");
	s->out.kind = DESCRIPTION_PIDFD;
	/* -1 when the process was waited for */
	s->out.a = *pid == '-' || n == 0 ? 0 : numbers[n - 1];
	s->out.b = s->out.flags & (O_NONBLOCK | IMAGE_OF_THREAD);
	return dump_pidfd_again(d, s, &s->out, err);
}

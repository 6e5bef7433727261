/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/tracee_closed.c - processes that are not dumpable and were restored. What the kernel asks for /proc/PID/mem and its like is a privilege over the user namespace in which
 * their memory was made, which is the template's, and a dumper has none there. Who was seized by somebody that has it can be read word by word all the same (ptrace_access_vm() asks
 * for what the tracer was when it seized), and made dumpable by a call of its own. That is made at an instruction in the page that every restored process keeps.
 */
#include "base/str.h"
#include "checkpoint/image.h"
#include "checkpoint/tracee_parts.h"
#include "sys/file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define CODE_SIZE 64 /* of the page: its first call is within */

/* Who has given up its memory, on the way to its end, has files in /proc that are the host's root's as well. */
static bool has_memory(const struct tracee *t)
{
	cleanup_buf struct buf sizes = BUF_INIT(4096);

	return file_read_at(t->proc, "statm", &sizes) >= 0 && !str_starts(buf_cstr(&sizes), "0 ");
}

bool tracee_is_closed(const struct tracee *t)
{
	cleanup_fd int fd = openat(t->proc, "mem", O_RDONLY | O_CLOEXEC);

	return fd < 0 && (errno == EACCES || errno == EPERM) && has_memory(t);
}

static int find_call(struct tracee *t)
{
	unsigned char code[CODE_SIZE];
	int rc = tracee_read_words(t, WINDOW_RESIDUE, code, sizeof(code));

	for (size_t i = 0; rc == 0 && i + 1 < sizeof(code); i++) {
		if (code[i] == 0x0f && code[i + 1] == 0x05) {
			t->syscall_at = WINDOW_RESIDUE + i;
			return 0;
		}
	}
	return -ENOEXEC;
}

int tracee_open(struct tracee *t)
{
	long was;
	int rc;

	if (!tracee_is_closed(t))
		return 0;
	rc = find_call(t);
	if (rc < 0)
		return rc;
	was = TRACEE_CALL(t, 0, SYS_prctl, PR_GET_DUMPABLE);
	if (was < 0)
		return (int)was;
	t->dumpable = (uint32_t)was;
	t->opened = true; /* before: whoever is torn out of the call closes it */
	return (int)TRACEE_CALL(t, 0, SYS_prctl, PR_SET_DUMPABLE, 1);
}

int tracee_close(struct tracee *t)
{
	int rc;

	if (!t->opened)
		return 0;
	/* 2 is the kernel's to give: who had it has less. Who is torn out of the call tries again */
	rc = (int)TRACEE_CALL(t, 0, SYS_prctl, PR_SET_DUMPABLE, 0);
	t->opened = rc != 0 && rc != -ESRCH;
	return t->opened ? rc : 0;
}

int tracee_read_words(const struct tracee *t, uint64_t address, void *to, size_t n)
{
	for (size_t at = 0; at < n; at += sizeof(long)) {
		size_t now = n - at < sizeof(long) ? n - at : sizeof(long);
		long word;

		errno = 0;
		word = ptrace(PTRACE_PEEKDATA, t->host, (void *)(uintptr_t)(address + at), NULL);
		if (errno != 0)
			return -errno;
		memcpy((char *)to + at, &word, now);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/memory_coder.h"
#include "checkpoint/template_wire.h"
#include "codec/pagechunk.h"
#include "sys/cred.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN        0
#define OUT       1
#define PIPE_SIZE (1 << 20)
#define NOBODY    65534

static unsigned char raw[PAGECHUNK_MAX], stored[PAGECHUNK_MAX];

/* exit_group() is not among what remains allowed. */
static attr_noreturn void leave(int status)
{
	for (;;)
		(void)syscall(SYS_exit, status);
}

/* Return: whether all came; false also at the end of the input. */
static bool take(void *to, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = read(IN, (char *)to + done, n - done);

		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

static void give(const void *from, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t put = write(OUT, (const char *)from + done, n - done);

		if (put <= 0)
			leave(1);
		done += (size_t)put;
	}
}

static void pack_part(struct pagechunk_coder *c, uint64_t left)
{
	while (left > 0) {
		size_t n = left < PAGECHUNK_MAX ? (size_t)left : PAGECHUNK_MAX;
		const unsigned char *bytes;
		struct pagechunk_head head;

		if (!take(raw, n))
			leave(1);
		memset(raw + n, 0, PAGECHUNK_MAX - n);
		pagechunk_pack(c, raw, n, &head, &bytes);
		give(&head, sizeof(head));
		give(bytes, head.stored);
		left -= n;
	}
}

static attr_noreturn void pack_main(struct pagechunk_coder *c)
{
	struct template_stream parts;

	if (!take(&parts, sizeof(parts)))
		leave(1);
	give(&parts, sizeof(parts));
	pack_part(c, parts.image);
	pack_part(c, parts.plan);
	pack_part(c, parts.pages);
	leave(0);
}

static attr_noreturn void unpack_main(struct pagechunk_coder *c)
{
	struct pagechunk_head head;

	while (take(&head, sizeof(head))) {
		if (pagechunk_check(&head) < 0 || !take(stored, head.stored) ||
			pagechunk_unpack(c, &head, stored, raw) < 0)
			leave(1);
		give(raw, head.raw);
	}
	leave(0);
}

static void confine(void)
{
	/* a single-uid namespace has no other ids; there the filter alone has to do */
	(void)!setgroups(0, NULL);
	(void)!setresgid(NOBODY, NOBODY, NOBODY);
	(void)!setresuid(NOBODY, NOBODY, NOBODY);
	(void)!cred_set_caps(0);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (raw_close_range(OUT + 1, ~0U, 0) < 0)
		_exit(120);
#ifndef __SANITIZE_ADDRESS__
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) < 0)
		_exit(121);
#endif
}

static attr_noreturn void coder_main(int in, int out, bool pack)
{
	struct pagechunk_coder *c = pagechunk_coder_new(pack);

	(void)signal(SIGPIPE, SIG_DFL);
	in = fcntl(in, F_DUPFD, 10);
	out = fcntl(out, F_DUPFD, 10);
	if (in < 0 || out < 0 || dup2(in, IN) < 0 || dup2(out, OUT) < 0)
		_exit(122);
	confine();
	if (pack)
		pack_main(c);
	unpack_main(c);
}

int memory_coder_start(struct memory_coder *c, bool pack)
{
	int in[2], out[2];
	pid_t pid;

	*c = (struct memory_coder)MEMORY_CODER_INIT;
	if (pipe2(in, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(out, O_CLOEXEC) < 0) {
		int rc = -errno;

		(void)close(in[0]);
		(void)close(in[1]);
		return rc;
	}
	/* as large as we may: less waiting for each other */
	(void)fcntl(in[1], F_SETPIPE_SZ, PIPE_SIZE);
	(void)fcntl(out[1], F_SETPIPE_SZ, PIPE_SIZE);
	pid = fork();
	if (pid == 0)
		coder_main(in[0], out[1], pack);
	(void)close(in[0]);
	(void)close(out[1]);
	*c = (struct memory_coder){ .pid = pid, .in = in[1], .out = out[0] };
	return pid < 0 ? -EAGAIN : 0;
}

void memory_coder_end(struct memory_coder *c)
{
	fd_close(&c->in);
	fd_close(&c->out);
	if (c->pid > 0)
		(void)waitpid(c->pid, NULL, 0);
	c->pid = 0;
}

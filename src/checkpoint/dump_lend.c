/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_lend.c - before the stop: shared memory without a name is opened here, too. So its holes are known, and in the pause what is large is copied past the caches, out
 * of a mapping of ours, instead of page by page out of a process. Nobody but the host's root may open it: the template does, and rootless may not. What is not lent is copied out
 * of the process.
 */
#include "checkpoint/dump.h"
#include "sys/fdpass.h"

#include <sys/resource.h>

static int ask(const struct template_lend *order, int *ret_status)
{
	struct template_message m = { 0 };
	int fd = -1;
	size_t n;

	*ret_status = -EPIPE;
	if (fdpass_send(DUMP_TEMPLATE_FD, order, sizeof(*order), NULL, 0) < 0 ||
		fdpass_recv(DUMP_TEMPLATE_FD, &m, sizeof(m), &fd, 1, &n) != sizeof(m))
		return -1;
	*ret_status = m.status;
	return n == 1 ? fd : -1;
}

/* What is in a file system may have got another name, and is not lent then. */
static bool may_others(const struct dump *d, const struct shared_memory *m, int status)
{
	return status != -EPIPE && (status != -EPERM || m->device != d->memory_devices[0]);
}

/* The most are for descriptors of the sandbox. */
static size_t most(void)
{
	struct rlimit limit = { 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	return (size_t)(limit.rlim_cur / 4);
}

void dump_lend(struct dump *d)
{
	size_t n = d->shared.n < most() ? d->shared.n : most();
	bool more = true;

	for (size_t i = 0; more && i < n; i++) {
		struct shared_memory *m = &d->shared.list[i];
		const struct template_lend order = { .kind = TEMPLATE_LEND,
			.pid = m->seen,
			.start = m->seen_address,
			.end = m->seen_address + m->seen_length };
		int status = 0;
		cleanup_fd int fd = ask(&order, &status);

		if (fd >= 0)
			shared_memory_lent(m, fd);
		more = may_others(d, m, status);
	}
}

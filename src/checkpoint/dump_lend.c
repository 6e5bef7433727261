/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_lend.c - before the stop: shared memory without a name is mapped here, too, so that in the pause it is copied past the caches instead of page by page out of a
 * process. Nobody but the host's root may open it: the template does, and rootless may not. What is not lent is copied out of the process.
 */
#include "checkpoint/dump.h"
#include "sys/fdpass.h"

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

void dump_lend(struct dump *d)
{
	int status = 0;

	for (size_t i = 0; status != -EPERM && status != -EPIPE && i < d->shared.n; i++) {
		struct shared_memory *m = &d->shared.list[i];
		const struct template_lend order = { .kind = TEMPLATE_LEND,
			.pid = m->guess,
			.start = m->guess_address,
			.end = m->guess_address + m->guess_length };
		cleanup_fd int fd = m->guess != 0 ? ask(&order, &status) : -1;

		if (fd >= 0)
			shared_memory_lent(m, fd);
	}
}

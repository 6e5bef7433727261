/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_hand.c - memory that the template reads through descriptors of ours.
 *
 * In root mode the template is root of the host and opens what it reads itself. Rootless it is the user, to whom /proc gives the processes of the sandbox's root alone; we have
 * capabilities over all of them. What is not handed over, because there is too much of it, it reads by process_vm_readv(): that gives relatives a copy each of the pages that
 * they share, out of the sandbox's memory, and does not read what the process may not read itself.
 */
#include "checkpoint/dump.h"
#include "sys/fdpass.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

_Static_assert(TEMPLATE_HAND_MAX <= FDPASS_MAX, "they go in one message");

/** struct handing - what goes with the next message. */
struct handing {
	struct template_memory order;
	int fds[TEMPLATE_HAND_MAX];
	bool over; /* the template takes no more */
};

/* As seen here: whoever is not of this namespace is nobody. */
static bool is_our_user(int peer)
{
	struct ucred who;
	socklen_t n = sizeof(who);

	return getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

static void hand(struct handing *h)
{
	struct template_message m = { 0 };
	size_t none;

	if (h->order.n > 0)
		h->over =
			fdpass_send(DUMP_TEMPLATE_FD, &h->order, sizeof(h->order), h->fds,
				h->order.n) < 0 ||
			fdpass_recv(DUMP_TEMPLATE_FD, &m, sizeof(m), NULL, 0, &none) != sizeof(m) ||
			m.kind != TEMPLATE_DONE;
	while (h->order.n > 0)
		(void)close(h->fds[--h->order.n]);
}

static void add(struct handing *h, pid_t host)
{
	char path[32];
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d", host);
	if (stat(path, &st) < 0 || st.st_uid == geteuid())
		return;
	(void)snprintf(path, sizeof(path), "/proc/%d/mem", host);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return; /* it has ended, which the template will see too */
	h->fds[h->order.n] = fd;
	h->order.pids[h->order.n++] = host;
	if (h->order.n == TEMPLATE_HAND_MAX)
		hand(h);
}

void dump_hand_memories(const struct dump *d)
{
	struct handing h = { .order = { .kind = TEMPLATE_MEMORY } };

	if (!is_our_user(DUMP_TEMPLATE_FD))
		return;
	for (size_t i = 0; !h.over && i < d->n; i++) {
		if (!d->processes[i].tracee.zombie)
			add(&h, dump_source(&d->processes[i])->host);
	}
	hand(&h);
}

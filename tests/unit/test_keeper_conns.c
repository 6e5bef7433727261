/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/keeper.h"
#include "t.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define RING_SIZE (1U << 20)

/* One client of one command, whose ring is full. Return: is poll told to say when its socket takes more, or is all sent? */
static bool pump_full_ring(int fd)
{
	static char bytes[RING_SIZE];
	struct keeper *k = xnew(struct keeper);
	struct exec *e = xnew(struct exec);
	struct conn *c = xnew(struct conn);
	struct attachment *a = xnew(struct attachment);

	list_init(&k->conns);
	list_init(&k->execs);
	list_init(&k->held);
	list_init(&k->waiters);
	list_init(&c->attachments);
	*e = (struct exec){ .channel = 1, .state = EXEC_RUNNING };
	ring_init(&e->ring, RING_SIZE);
	ring_add(&e->ring, RING_STDOUT, bytes, sizeof(bytes));
	*a = (struct attachment){ .channel = 1, .credit = UINT64_MAX };
	c->fd = fd;
	c->out = (struct buf)BUF_INIT(64U << 20);
	list_append(&k->execs, &e->node);
	list_append(&k->conns, &c->node);
	list_append(&c->attachments, &a->node);
	keeper_pump(k);
	return c->out.n > 0 || a->next == e->ring.end;
}

TEST(what_is_taken_while_the_keeper_writes_leaves_nothing_behind_untold)
{
	static char bytes[65536];
	int ends[2], status;
	pid_t child;

	check_int(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
	child = fork();
	if (child == 0) {
		(void)setenv("CAY_FAULT",
			"keeper.pump.full"
			"=hold",
			1);
		_exit(pump_full_ring(ends[0]) ? 0 : 1);
	}
	check_int(waitpid(child, &status, WUNTRACED), child);
	check(WIFSTOPPED(status));
	while (recv(ends[1], bytes, sizeof(bytes), 0) > 0)
		;
	check_int(kill(child, SIGCONT), 0);
	check_int(waitpid(child, &status, 0), child);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	(void)close(ends[0]);
	(void)close(ends[1]);
}

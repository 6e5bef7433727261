/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/seed.h"
#include "base/fault.h"
#include "base/str.h"
#include "sys/fdpass.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <sys/prctl.h>

_Static_assert(sizeof(SEED_NAME) == ID_LEN + 1, "an id takes its place");

struct seed_order {
	char id[ID_LEN + 1];
};

int seed_clone(int sock, const char *id, int control, int group)
{
	int fds[2] = { control, group }, pid = 0;
	struct seed_order order = { 0 };
	size_t none;
	int rc = str_copy(order.id, sizeof(order.id), id);

	if (rc < 0)
		return rc;
	if (fdpass_send(sock, &order, sizeof(order), fds, group >= 0 ? 2 : 1) < 0 ||
		fdpass_recv(sock, &pid, sizeof(pid), NULL, 0, &none) != sizeof(pid))
		return -ENOTCONN;
	return pid;
}

static char program
	[16]; /* as its clones are called, which are what they would be without it; see prctl(2), PR_GET_NAME */

/* As if it had been executed. @go: closed without a word if nobody will hear of us, and another one is executed for the same order. */
static void become(int sock, char *name, const struct seed_order *order, int control, int go)
{
	char byte;

	if (read(go, &byte, 1) != 1)
		_exit(0);
	memcpy(name, order->id, ID_LEN);
	(void)prctl(PR_SET_NAME, program, 0, 0, 0);
	(void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	(void)setsid();
	if (dup2(control, sock) < 0 || raw_close_range((unsigned int)sock + 1, ~0U, 0) < 0)
		_exit(127);
}

/* Return: 0 in the clone; in the seed its pid or -errno, when that has been answered. */
static int obey(int sock, char *name, const struct seed_order *order, const int *fds, size_t n_fds)
{
	struct clone_args args = { .flags = CLONE_PARENT };
	int go[2], pid;

	if (n_fds == 0 || pipe2(go, O_CLOEXEC) < 0)
		_exit(0);
	if (n_fds == 2) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned int)fds[1];
	}
	pid = raw_clone3(&args);
	if (pid == 0) {
		(void)close(go[1]);
		become(sock, name, order, fds[0], go[0]);
		return 0;
	}
	(void)fault("seed.cloned");
	if (fdpass_send(sock, &pid, sizeof(pid), NULL, 0) < 0)
		_exit(0);
	(void)!write(go[1], "", 1);
	(void)close(go[0]);
	(void)close(go[1]);
	return pid;
}

void seed_wait(int sock, char *name)
{
	BUG_ON(!str_eq(name, SEED_NAME));
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		_exit(127);
	(void)prctl(PR_GET_NAME, program, 0, 0, 0);
	(void)prctl(PR_SET_NAME, "cay-seed", 0, 0, 0);
	for (;;) {
		struct seed_order order;
		int fds[2] = { -1, -1 };
		size_t n_fds = 0;

		if (fdpass_recv(sock, &order, sizeof(order), fds, ARRAY_SIZE(fds), &n_fds) !=
			sizeof(order))
			_exit(0);
		if (obey(sock, name, &order, fds, n_fds) == 0)
			return;
		for (size_t i = 0; i < n_fds; i++)
			(void)close(fds[i]);
	}
}

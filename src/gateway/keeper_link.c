/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/keeper_link.h"
#include "base/str.h"
#include "gateway/control.h"
#include "gateway/owner.h"
#include "sys/fdpass.h"

#include <fcntl.h>

int keeper_link_start(struct gateway *gw, int fds[LINK_SOCKETS])
{
	struct link_message m;
	size_t n_fds = 0;
	ssize_t n = fdpass_recv(LINK_FD, &m, sizeof(m), fds, LINK_SOCKETS, &n_fds);

	if (n != sizeof(m) || m.kind != LINK_START || n_fds != LINK_SOCKETS)
		return n < 0 ? (int)n : -EPROTO;
	gw->keeper_version = m.version;
	m.id[ID_LEN] = '\0';
	return id_valid(m.id) ? str_copy(gw->sandbox, sizeof(gw->sandbox), m.id) : -EPROTO;
}

static void take_process(struct link_message *m)
{
	m->process.comm[LINK_COMM_SIZE - 1] = '\0';
	owner_told_process(
		m->cgroup, m->inode, m->process.pid, m->process.inner_pid, m->process.comm);
}

static void take(struct gateway *gw, struct link_message *m, int *fd)
{
	if (m->kind == LINK_CLIENT && *fd >= 0) {
		control_open(gw, TAKE_FD(*fd));
	} else if (m->kind == LINK_EXEC) {
		m->id[ID_LEN] = '\0';
		owner_told(gw, m->cgroup, m->id);
	} else if (m->kind == LINK_PROCESS) {
		take_process(m);
	}
}

static void on_readable(uv_poll_t *poll, attr_unused int status, attr_unused int events)
{
	struct gateway *gw = poll->data;
	cleanup_fd int fd = -1;
	struct link_message m;
	size_t n_fds = 0;
	ssize_t n = fdpass_recv(LINK_FD, &m, sizeof(m), &fd, 1, &n_fds);

	if (n == -EAGAIN)
		return;
	if (n != sizeof(m)) { /* the keeper is gone, and the sandbox with it */
		(void)uv_poll_stop(poll);
		uv_stop(gw->loop);
		return;
	}
	take(gw, &m, &fd);
}

int keeper_link_watch(struct gateway *gw)
{
	static uv_poll_t poll;
	int rc = fcntl(LINK_FD, F_SETFL, O_NONBLOCK) < 0 ? -errno
							 : uv_poll_init(gw->loop, &poll, LINK_FD);

	poll.data = gw;
	return rc < 0 ? rc : uv_poll_start(&poll, UV_READABLE, on_readable);
}

int keeper_link_ask(uint64_t cgroup)
{
	const struct link_message m = { .kind = LINK_WHO, .cgroup = cgroup };

	return fdpass_send(LINK_FD, &m, sizeof(m), NULL, 0);
}

int keeper_link_ask_process(const struct gateway *gw, uint64_t cgroup, uint32_t inode)
{
	const struct link_message m = { .kind = LINK_WHICH, .inode = inode, .cgroup = cgroup };

	return gw->keeper_version < 1 ? -EOPNOTSUPP : fdpass_send(LINK_FD, &m, sizeof(m), NULL, 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/lives.h"
#include "base/log.h"
#include "base/str.h"
#include "sys/fdpass.h"

#include <sys/socket.h>

/* @r: its kind, and what goes with that. */
static int request_send(struct server *srv, struct spawn_request r, const char *id, int fd)
{
	r.magic = SPAWN_MAGIC;
	r.version = SPAWN_VERSION;
	if (str_copy(r.id, sizeof(r.id), id) < 0)
		return -EINVAL;
	return fdpass_send(srv->spawn_fd, &r, sizeof(r), &fd, fd >= 0 ? 1 : 0);
}

int spawner_start(
	struct server *srv, struct spawn_request what, const char *id, int *ret_fd, struct err *err)
{
	int pair[2], rc;

	if (srv->spawn_fd < 0)
		return err_raise(err, ERR_UNAVAILABLE, "cay-spawn has ended");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_raise_sys(err, -errno, "make a socket pair");
	rc = request_send(srv, what, id, pair[1]);
	(void)close(pair[1]);
	if (rc < 0) {
		(void)close(pair[0]);
		return err_raise_sys(err, rc, "ask cay-spawn");
	}
	*ret_fd = pair[0];
	return 0;
}

void spawner_cleanup(struct server *srv, const char *id)
{
	if (srv->spawn_fd >= 0)
		(void)!request_send(srv, (struct spawn_request){ .kind = SPAWN_CLEANUP }, id, -1);
}

static void handle(struct server *srv, const struct spawn_event *e)
{
	if (e->kind == SPAWN_EVENT_READY) {
		(void)!str_copy(srv->cgroup, sizeof(srv->cgroup),
			e->status == SPAWN_CGROUP_NONE ? "none" : "v2");
		srv->limits_held = e->status == SPAWN_CGROUP_V2;
		return;
	}
	if (e->dirty)
		log_error("spawn", "processes of '%s' could not be killed", e->id);
	if (!keeper_on_spawn_event(srv, e) && !live_on_spawn_event(srv, e))
		(void)job_on_spawn_event(srv, e);
}

static void on_readable(uv_poll_t *poll, int status, attr_unused int events)
{
	struct server *srv = poll->data;
	struct spawn_event e;

	for (;;) {
		ssize_t n = status < 0 ? 0 : recv(srv->spawn_fd, &e, sizeof(e), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n == (ssize_t)sizeof(e) && e.magic == SPAWN_MAGIC &&
			e.version == SPAWN_VERSION) {
			e.id[sizeof(e.id) - 1] = '\0';
			handle(srv, &e);
			continue;
		}
		log_error("spawn", "cay-spawn has ended");
		srv->failed = !srv->ending;
		(void)uv_poll_stop(poll);
		fd_close(&srv->spawn_fd);
		keepers_unreported(srv);
		lives_unreported(srv);
		jobs_unreported(srv);
		server_stop(srv);
		return;
	}
}

int spawner_init(struct server *srv)
{
	int rc = uv_poll_init(srv->loop, &srv->spawn_poll, srv->spawn_fd);

	srv->spawn_poll.data = srv;
	return rc < 0 ? rc : uv_poll_start(&srv->spawn_poll, UV_READABLE, on_readable);
}

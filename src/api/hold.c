/* SPDX-License-Identifier: Apache-2.0 */
#include "api/hold.h"
#include "api/lives.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/devices.h"
#include "sys/fdpass.h"

#include <poll.h>

#define HOLD_NS (10 * NS_PER_S)

/* --- holding --- */

/* @paths: @size bytes, one for each of the @n descriptors, which become ours. */
static void keep(struct hold *h, const char *paths, size_t size, const int *fds, size_t n)
{
	const char *path = paths;

	h->places = xalloc(n * sizeof(*h->places) + 1);
	for (size_t i = 0; i < n; i++) {
		if (path < paths + size) {
			h->places[h->n++] = (struct hold_place){ str_dup(path), fds[i] };
			path += strlen(path) + 1;
		} else {
			(void)close(fds[i]);
		}
	}
}

/* One message: which sandbox it is, and what keep() takes. */
static void receive(struct server *srv, int peer)
{
	cleanup_free char *text = xalloc(HELD_TEXT_SIZE + 1);
	int fds[HELD_MAX];
	size_t n_fds, id_size;
	ssize_t n = fdpass_recv(peer, text, HELD_TEXT_SIZE, fds, HELD_MAX, &n_fds);
	bool whole = n > 0 && strlen(text) < (size_t)n;
	struct sandbox *sb = whole ? sandbox_by_id(srv, text) : NULL;

	if (n <= 0)
		return;
	id_size = strlen(text) + 1;
	if (sb != NULL && sb->hold_wanted) {
		hold_drop(sb);
		keep(&sb->held, text + id_size, (size_t)n - id_size, fds, n_fds);
	}
	for (size_t i = 0; i < n_fds && (sb == NULL || !sb->hold_wanted); i++)
		(void)close(fds[i]);
}

/* Keepers connect and send before they answer. Those of other sandboxes may be among them. */
static void receive_all(struct server *srv)
{
	struct pollfd p = { .fd = srv->hold_listener, .events = POLLIN };

	while (poll(&p, 1, 0) == 1) {
		cleanup_fd int peer = fdpass_accept(srv->hold_listener);

		if (peer < 0)
			return;
		receive(srv, peer);
	}
}

/* Once it is needed. Return: whether it is there. */
static bool listens(struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/" HELD_SOCKET, srv->own_run);

	if (srv->hold_listener >= 0)
		return true;
	(void)unlink(path);
	srv->hold_listener = fdpass_listen(path);
	return srv->hold_listener >= 0;
}

void hold_take(struct sandbox *sb)
{
	struct err ignored;

	hold_drop(sb);
	if (!listens(sb->srv))
		return;
	sb->hold_wanted = true;
	if (framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "hold"),
		    clock_now_ns() + HOLD_NS, NULL, &ignored) == 0)
		receive_all(sb->srv);
	sb->hold_wanted = false;
}

void hold_drop(struct sandbox *sb)
{
	for (size_t i = 0; i < sb->held.n; i++) {
		fd_close(&sb->held.places[i].fd);
		free(sb->held.places[i].path);
	}
	free(sb->held.places);
	sb->held = (struct hold){ 0 };
}

static void drop_one(struct sandbox *sb, attr_unused const void *unused)
{
	if (!sb->locked)
		hold_drop(sb);
}

void hold_drop_all(struct server *srv)
{
	sandbox_for_all(srv, drop_one, NULL);
}

void hold_end(struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/" HELD_SOCKET, srv->own_run);

	if (srv->hold_listener >= 0)
		(void)unlink(path);
}

/* --- claiming --- */

/* In one message, on a connection of its own: the keeper deals with it before it starts. */
static int send_all(struct sandbox *sb, const struct live *l)
{
	cleanup_buf struct buf frame = BUF_INIT(FRAME_PAYLOAD_MAX);
	cleanup_fd int sock = keeper_connect(sb->srv, sb->id);
	cleanup_free char *text = NULL;
	json_t *places = json_array(), *request;
	int fds[HELD_MAX];

	for (size_t i = 0; i < sb->held.n; i++) {
		(void)json_array_append_new(places, json_string(sb->held.places[i].path));
		fds[i] = sb->held.places[i].fd;
	}
	request = json_pack(
		"{s:i,s:s,s:s,s:o}", "id", 1, "verb", "claim", "template", l->id, "places", places);
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	frame_encode(&frame, FRAME_REQUEST, 0, text, strlen(text));
	if (buf_failed(&frame))
		return -E2BIG;
	return sock < 0 ? sock : fdpass_send(sock, frame.p, frame.n, fds, sb->held.n);
}

void hold_give(struct sandbox *sb, const struct live *l)
{
	int rc = sb->held.n > 0 ? send_all(sb, l) : 0;

	if (rc < 0)
		log_warn("sandbox", "what is held for sandbox '%s' is not: %s", sb->name,
			strerrordesc_np(-rc));
	hold_drop(sb);
}

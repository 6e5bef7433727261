/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper.c - the loop: connections, exec output, children, deadlines. What the verbs do is in keeper_verbs.c.
 *
 * Invariants
 *  (1) a finished exec stays until the limits below are passed, so that a client can read its end later;
 *  (2) bytes leave the ring only when no attached client still needs them (exec.h (3));
 *  (3) an unclaimed sandbox (READY) ends with its connection: nobody else can ever claim it;
 *  (4) a claimed sandbox ends only by `stop`, by a signal to this process, or when PID 1 is gone and cayd says so.
 */
#include "sandbox/keeper.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define CONN_OUT_MAX    (64U << 20) /* events and replies; attached output stops far below */
#define CONN_OUT_HIGH   (256U << 10)
#define CONN_IN_MAX     (FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE + 65536U)
#define FINISHED_MAX    256         /* execs */
#define FINISHED_BYTES  (16U << 20) /* of their rings */
#define CHUNK           65536U
#define KILL_TIMEOUT_MS 10000

/* --- state --- */

static const struct {
	const char *name;
	unsigned int next; /* bit set of allowed successors */
} states[KEEPER_STATE_COUNT] = {
	[KEEPER_NEW] = { "new", 1U << KEEPER_READY | 1U << KEEPER_STOPPING },
	[KEEPER_READY] = { "ready", 1U << KEEPER_RUNNING | 1U << KEEPER_STOPPING },
	[KEEPER_RUNNING] = { "running", 1U << KEEPER_PAUSED | 1U << KEEPER_STOPPING },
	[KEEPER_PAUSED] = { "paused", 1U << KEEPER_RUNNING | 1U << KEEPER_STOPPING },
	[KEEPER_STOPPING] = { "stopping", 0 },
};

const char *keeper_state_name(enum keeper_state state)
{
	return states[state].name;
}

void keeper_move(struct keeper *k, enum keeper_state to)
{
	BUG_ON((states[k->state].next & 1U << to) == 0);
	k->state = to;
}

/* --- sending --- */

void keeper_send_json(struct conn *c, enum frame_type type, uint16_t channel, json_t *object)
{
	cleanup_free char *text = NULL;

	BUG_ON(object == NULL);
	text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (text == NULL || strlen(text) > FRAME_PAYLOAD_MAX) {
		c->broken = true;
		return;
	}
	frame_encode(&c->out, type, channel, text, strlen(text));
	if (buf_failed(&c->out))
		c->broken = true;
}

void keeper_reply(struct conn *c, json_int_t request, json_t *ok)
{
	if (c != NULL)
		keeper_send_json(c, FRAME_REPLY, 0,
			json_pack("{s:I, s:o}", "id", request, "ok",
				ok != NULL ? ok : json_object()));
	else
		json_decref(ok);
}

void keeper_reply_error(struct conn *c, json_int_t request, const struct err *err)
{
	/* a message may quote bytes of the payload: keep what is valid text */
	bool text = str_utf8_valid(err->msg, strlen(err->msg));

	if (c == NULL)
		return;
	keeper_send_json(c, FRAME_REPLY, 0,
		json_pack("{s:I, s:{s:s, s:s, s:s, s:i}}", "id", request, "error", "code",
			err_code_name(err->code), "message",
			text ? err->msg : "the reason is not valid text", "hint", err->hint,
			"errno", err->sys));
}

json_t *keeper_hello(const struct keeper *k)
{
	json_t *execs = json_array(), *hello;

	list_for_each (&k->execs, pos, next)
		(void)json_array_append_new(
			execs, exec_describe(list_entry(pos, struct exec, node)));
	hello = json_pack("{s:i, s:s, s:s, s:s, s:i, s:b, s:o, s:I}", "protocol", KEEPER_PROTOCOL,
		"version", CAY_VERSION, "sandbox", k->id, "state", keeper_state_name(k->state),
		"init_pid", k->box.init_pid, "init_gone", k->init_gone, "execs", execs, "unacked",
		(json_int_t)json_array_size(k->events));
	BUG_ON(hello == NULL);
	return hello;
}

/* --- events --- */

static struct conn *primary_conn(const struct keeper *k)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		if (c->primary && !c->broken)
			return c;
	}
	return NULL;
}

static void send_events(struct keeper *k)
{
	struct conn *c = primary_conn(k);

	while (c != NULL && !c->broken && k->events_sent < json_array_size(k->events))
		keeper_send_json(c, FRAME_EVENT, 0,
			json_incref(json_array_get(k->events, k->events_sent++)));
}

static void queue_event(struct keeper *k, const char *type, const char *exec, json_t *data)
{
	json_t *e = json_pack("{s:I, s:s, s:I, s:o}", "n", (json_int_t)k->event_next++, "type",
		type, "time_ns", (json_int_t)clock_wall_ns(), "data", data);

	BUG_ON(e == NULL);
	(void)json_object_set_new(e, "exec", exec != NULL ? json_string(exec) : json_null());
	(void)json_array_append_new(k->events, e);
}

void keeper_event(struct keeper *k, const char *type, const char *exec, json_t *data)
{
	if (data == NULL)
		data = json_object();
	if (json_array_size(k->events) >= KEEPER_EVENTS_MAX) {
		k->events_lost++;
		json_decref(data);
		return;
	}
	if (k->events_lost > 0) {
		queue_event(k, "events.lost", NULL,
			json_pack(
				"{s:I, s:s}", "n", (json_int_t)k->events_lost, "source", "keeper"));
		k->events_lost = 0;
	}
	queue_event(k, type, exec, data);
	send_events(k);
}

/* --- execs --- */

struct exec *keeper_find_exec(const struct keeper *k, uint16_t channel)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->channel == channel)
			return e;
	}
	return NULL;
}

/* Oldest byte that some attached client still needs; the end when there is none. */
static uint64_t needed_from(const struct keeper *k, const struct exec *e)
{
	uint64_t keep = UINT64_MAX;

	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		list_for_each (&c->attachments, at, at_next) {
			struct attachment *a = list_entry(at, struct attachment, node);

			if (a->channel == e->channel && a->next < keep)
				keep = a->next;
		}
	}
	return keep != UINT64_MAX ? keep : e->ring.end;
}

static void report_end(struct keeper *k, struct exec *e)
{
	const char *kind = json_string_value(json_object_get(e->status, "status"));

	if (str_eq(kind, "oom") || str_eq(kind, "limit"))
		keeper_event(k, "limit.hit", e->id,
			json_pack("{s:s, s:O}", "limit", str_eq(kind, "oom") ? "memory" : "pids",
				"evidence", json_object_get(e->status, "evidence")));
	keeper_event(k, "exec.ended", e->id, json_incref(e->status));
}

static void forget_old_execs(struct keeper *k)
{
	size_t n = 0, bytes = 0;

	for (struct list *pos = k->execs.prev, *before = pos->prev; pos != &k->execs;
		pos = before, before = pos->prev) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->state != EXEC_ENDED)
			continue;
		n++;
		bytes += e->ring.cap;
		/* a clients' attachment keeps its exec; so does a descendant that is still in its group */
		if ((n > FINISHED_MAX || bytes > FINISHED_BYTES) &&
			needed_from(k, e) == e->ring.end &&
			!cgroup_leaf_populated(&k->box.cgroup, e->leaf)) {
			(void)!cgroup_leaf_remove(&k->box.cgroup, e->leaf);
			k->output_forgotten += e->ring.end;
			exec_free(e);
		}
	}
}

static void end_exec(struct keeper *k, struct exec *e, const struct death *d)
{
	/* "killed" and "timeout" say that the whole tree is gone: its other members die a moment after the first */
	if (e->killed || e->timed_out)
		(void)!cgroup_leaf_wait_empty(&k->box.cgroup, e->leaf, KILL_TIMEOUT_MS);
	/* what an attached client has not got yet stays; only without one may the oldest output give way */
	(void)exec_read(e, &e->out, RING_STDOUT, needed_from(k, e));
	(void)exec_read(e, &e->err, RING_STDERR, needed_from(k, e));
	if (needed_from(k, e) == e->ring.end)
		exec_drain(e);
	exec_ended(e, &k->box, d->wait_status, d->cpu_us);
	report_end(k, e);
	if (!cgroup_leaf_populated(&k->box.cgroup, e->leaf))
		(void)!cgroup_leaf_remove(&k->box.cgroup, e->leaf);
}

static void init_ended(struct keeper *k, int wait_status)
{
	k->init_gone = true;
	if (k->state == KEEPER_RUNNING || k->state == KEEPER_PAUSED)
		keeper_event(
			k, "sandbox.died", NULL, json_pack("{s:i}", "wait_status", wait_status));
}

static void child_ended(struct keeper *k, const struct death *d)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->state == EXEC_RUNNING && e->pid == d->pid) {
			end_exec(k, e, d);
			return;
		}
	}
	if (d->pid == k->box.init_pid)
		init_ended(k, d->wait_status);
	else if (d->pid == k->box.starter.pid)
		k->box.starter.pid = 0;
	else /* a program that ended before the starter's answer named its pid */
		k->early[k->n_early++ % KEEPER_EARLY_MAX] = *d;
}

static void reap_children(struct keeper *k)
{
	struct rusage usage;
	struct death d;

	while ((d.pid = wait4(-1, &d.wait_status, WNOHANG, &usage)) > 0) {
		d.cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
			   (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
		child_ended(k, &d);
	}
	forget_old_execs(k);
}

static void read_signals(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGTERM && k->state != KEEPER_STOPPING)
			keeper_move(k, KEEPER_STOPPING);
	}
	reap_children(k);
}

int keeper_kill_all(struct keeper *k)
{
	uint64_t deadline = clock_now_ns() + KILL_TIMEOUT_MS * NS_PER_MS;

	list_for_each (&k->execs, pos, next)
		list_entry(pos, struct exec, node)->killed = true;
	if (k->box.init_pid == 0)
		return 0;
	box_kill(&k->box);
	/* PID 1 cannot end before we have reaped the children that we have in its pid namespace */
	while (!k->init_gone) {
		struct pollfd p = { .fd = k->signal_fd, .events = POLLIN };
		uint64_t now = clock_now_ns();

		if (now >= deadline)
			return -ETIMEDOUT;
		(void)poll(&p, 1, (int)((deadline - now) / NS_PER_MS) + 1);
		read_signals(k);
	}
	return box_wait_empty(&k->box, KILL_TIMEOUT_MS);
}

static bool take_early(struct keeper *k, pid_t pid, struct death *ret)
{
	for (size_t i = 0; i < KEEPER_EARLY_MAX; i++) {
		if (k->early[i].pid == pid) {
			*ret = k->early[i];
			k->early[i].pid = 0;
			return true;
		}
	}
	return false;
}

/* The starter answered the oldest pending request. */
static void finish_launch(struct keeper *k)
{
	struct launch_reply reply;
	struct pending *p;
	struct death death;
	struct exec *e;
	int rc = starter_launch_reply(&k->box.starter, &reply);

	if (list_empty(&k->pendings)) {
		fd_close(&k->box.starter.sock); /* the starter is gone */
		return;
	}
	p = list_entry(k->pendings.next, struct pending, node);
	e = p->exec;
	list_remove(&p->node);
	if (rc < 0) {
		(void)err_raise(&reply.err, ERR_STATE, "the sandbox is dying: its starter is gone");
		reply.pid = 0;
		fd_close(&k->box.starter.sock);
	}
	if (reply.err.code != ERR_NONE) {
		(void)!cgroup_leaf_remove(&k->box.cgroup, e->leaf);
		keeper_reply_error(p->conn, p->request, &reply.err);
		exec_free(e);
		json_decref(p->argv);
	} else {
		exec_started(e, reply.pid);
		(void)json_object_set_new(p->argv, "pid", json_integer(reply.pid));
		keeper_event(k, "exec.started", e->id, p->argv);
		keeper_reply(p->conn, p->request, json_pack("{s:i}", "pid", reply.pid));
		if (take_early(k, reply.pid, &death))
			end_exec(k, e, &death);
	}
	free(p);
}

static void check_deadlines(struct keeper *k)
{
	uint64_t now = clock_now_ns();

	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->deadline_ns == 0 || now < e->deadline_ns || e->state == EXEC_STARTING)
			continue;
		e->deadline_ns = 0;
		if (e->state == EXEC_RUNNING)
			e->timed_out = true;
		exec_kill(e, &k->box);
	}
}

/* --- connections --- */

static struct conn *conn_new(struct keeper *k, int fd, bool primary)
{
	struct conn *c = xnew(struct conn);

	c->fd = fd;
	c->in = (struct buf)BUF_INIT(CONN_IN_MAX);
	c->out = (struct buf)BUF_INIT(CONN_OUT_MAX);
	c->primary = primary;
	list_init(&c->attachments);
	list_append(&k->conns, &c->node);
	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	keeper_send_json(c, FRAME_REPLY, 0,
		json_pack("{s:i, s:{s:o}}", "id", 0, "ok", "hello", keeper_hello(k)));
	return c;
}

static void conn_free(struct keeper *k, struct conn *c)
{
	list_for_each (&k->pendings, pos, next) {
		struct pending *p = list_entry(pos, struct pending, node);

		if (p->conn == c)
			p->conn = NULL;
	}
	list_for_each (&c->attachments, at, at_next) {
		struct attachment *a = list_entry(at, struct attachment, node);

		list_remove(&a->node);
		free(a);
	}
	if (c->primary) {
		k->events_sent =
			0; /* the next primary connection gets them all again and acknowledges */
		if (k->state < KEEPER_RUNNING)
			keeper_move(k, KEEPER_STOPPING);
	}
	list_remove(&c->node);
	fd_close(&c->fd);
	buf_free(&c->in);
	buf_free(&c->out);
	free(c);
}

static void conn_read(struct keeper *k, struct conn *c)
{
	char *room = buf_room(&c->in, 65536);
	struct frame f;
	ssize_t n, used;
	size_t done = 0;

	if (room == NULL) {
		c->broken = true;
		return;
	}
	n = read(c->fd, room, 65536);
	if (n <= 0) {
		c->broken = n == 0 || (errno != EAGAIN && errno != EINTR);
		return;
	}
	c->in.n += (size_t)n;
	while (!c->broken && (used = frame_decode(c->in.p + done, c->in.n - done, &f)) != 0) {
		if (used < 0) {
			c->broken = true;
			return;
		}
		keeper_handle(k, c, &f);
		done += (size_t)used;
	}
	buf_consume(&c->in, done);
}

static void conn_write(struct conn *c)
{
	while (!c->broken && c->out.n > 0) {
		ssize_t n = send(c->fd, c->out.p, c->out.n, MSG_NOSIGNAL);

		if (n < 0) {
			c->broken = errno != EAGAIN && errno != EINTR;
			return;
		}
		buf_consume(&c->out, (size_t)n);
	}
}

static void send_gap(struct conn *c, struct attachment *a, uint64_t to)
{
	unsigned char gap[16];

	frame_put_u64(gap, a->next);
	frame_put_u64(gap + 8, to);
	frame_encode(&c->out, FRAME_GAP, a->channel, gap, sizeof(gap));
	a->next = to;
}

/* Send as much output as connection and credit take; then the final status, which ends the attachment. Return: is there more to do at once? */
static bool pump_attachment(struct keeper *k, struct conn *c, struct attachment *a)
{
	struct exec *e = keeper_find_exec(k, a->channel);
	uint64_t before = a->next;

	if (e == NULL || e->state == EXEC_STARTING)
		return false;
	if (a->next < e->ring.start)
		send_gap(c, a, e->ring.start);
	while (c->out.n < CONN_OUT_HIGH && a->credit > 0) {
		enum ring_stream stream;
		const char *bytes;
		size_t n = ring_read(&e->ring, a->next,
			a->credit < CHUNK ? (size_t)a->credit : CHUNK, &stream, &bytes);

		if (n == 0)
			break;
		frame_encode_output(&c->out, stream == RING_STDOUT ? FRAME_STDOUT : FRAME_STDERR,
			a->channel, a->next, bytes, n);
		a->next += n;
		if (a->credit != UINT64_MAX)
			a->credit -= n;
	}
	if (e->state != EXEC_ENDED || a->next != e->ring.end)
		return a->next != before;
	/* output that was held back for this client comes before the status */
	bool more = exec_read(e, &e->out, RING_STDOUT, a->next);
	more = exec_read(e, &e->err, RING_STDERR, a->next) || more;
	if (more)
		return true;
	(void)json_object_set_new(e->status, "output_bytes", json_integer((json_int_t)e->ring.end));
	keeper_send_json(c, FRAME_STATUS, a->channel, json_incref(e->status));
	list_remove(&a->node);
	free(a);
	return false;
}

/* Tell every client of an exec how much of its input was taken. */
static void send_windows(struct keeper *k)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		list_for_each (&c->attachments, at, at_next) {
			struct attachment *a = list_entry(at, struct attachment, node);
			struct exec *e = keeper_find_exec(k, a->channel);
			unsigned char bytes[4];

			if (e == NULL || e->input_taken == a->input_told)
				continue;
			frame_put_u32(bytes, (uint32_t)(e->input_taken - a->input_told));
			frame_encode(&c->out, FRAME_WINDOW, a->channel, bytes, sizeof(bytes));
			a->input_told = e->input_taken;
		}
	}
}

static void pump(struct keeper *k)
{
	send_windows(k);
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		list_for_each (&c->attachments, at, at_next) {
			struct attachment *a = list_entry(at, struct attachment, node);

			while (!c->broken && pump_attachment(k, c, a)) {
				conn_write(c);
				if (c->out.n > 0)
					break; /* poll says when it goes on */
			}
		}
		conn_write(c);
	}
}

static void accept_conn(struct keeper *k)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct stat run;
	int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
		stat(k->config.run, &run) < 0 || (peer.uid != 0 && peer.uid != run.st_uid)) {
		(void)close(fd);
		return;
	}
	(void)conn_new(k, fd, false);
}

int keeper_listen(struct keeper *k, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/keepers/%s.sock",
		k->config.run, k->id);
	cleanup_fd int fd = -1;

	if (n < 0 || (size_t)n >= sizeof(address.sun_path))
		return err_raise(err, ERR_INVALID,
			"runtime directory '%s': the path is too long for a socket", k->config.run);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_raise_sys(err, -errno, "make the keeper's socket");
	(void)unlink(address.sun_path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		chmod(address.sun_path, 0666) < 0 || listen(fd, 64) < 0)
		return err_raise_sys(err, -errno, "listen on '%s'", address.sun_path);
	k->listen_fd = TAKE_FD(fd);
	return 0;
}

/* --- the loop --- */

struct watch {
	struct pollfd *fds;
	size_t n, cap;
};

static void watch_add(struct watch *w, int fd, short events)
{
	if (w->n == w->cap) {
		w->cap = w->cap != 0 ? w->cap * 2 : 64;
		w->fds = realloc(w->fds, w->cap * sizeof(*w->fds));
		if (w->fds == NULL)
			abort();
	}
	w->fds[w->n++] = (struct pollfd){ .fd = fd, .events = events };
}

static void watch_exec(const struct keeper *k, struct watch *w, struct exec *e)
{
	bool room;
	short out;

	e->watched = e->out >= 0 || e->err >= 0 || e->in >= 0;
	if (!e->watched)
		return;
	room = ring_space(&e->ring, needed_from(k, e)) > 0;
	out = (short)((room ? POLLIN : 0) | (e->tty && e->input.n > 0 ? POLLOUT : 0));
	/* a descriptor without wish is left out: it would report its hang-up for ever */
	watch_add(w, out != 0 ? e->out : -1, out);
	watch_add(w, room ? e->err : -1, POLLIN);
	watch_add(w, e->input.n > 0 ? e->in : -1, POLLOUT);
}

static void watch_all(const struct keeper *k, struct watch *w)
{
	w->n = 0;
	watch_add(w, k->signal_fd, POLLIN);
	watch_add(w, k->listen_fd, POLLIN);
	watch_add(w, k->state >= KEEPER_RUNNING ? k->box.starter.sock : -1, POLLIN);
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		watch_add(w, c->fd, (short)(POLLIN | (c->out.n > 0 ? POLLOUT : 0)));
	}
	list_for_each (&k->execs, pos, next)
		watch_exec(k, w, list_entry(pos, struct exec, node));
}

static int next_timeout_ms(const struct keeper *k)
{
	uint64_t first = UINT64_MAX, now;

	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->deadline_ns != 0 && e->deadline_ns < first)
			first = e->deadline_ns;
	}
	if (first == UINT64_MAX)
		return -1;
	now = clock_now_ns();
	if (first <= now)
		return 0;
	return (int)((first - now) / NS_PER_MS > INT_MAX / 2 ? INT_MAX / 2
							     : (first - now) / NS_PER_MS + 1);
}

/* Walks the same objects in the same order as watch_all(): new ones are only appended, old ones only freed at the end of a round. */
static void dispatch(struct keeper *k, const struct watch *w)
{
	size_t i = 3;
	bool starter = w->fds[2].revents != 0, children = w->fds[0].revents != 0,
	     incoming = w->fds[1].revents != 0;

	for (struct list *pos = k->conns.next; pos != &k->conns && i < w->n; pos = pos->next, i++) {
		struct conn *c = list_entry(pos, struct conn, node);

		if ((w->fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
			conn_read(k, c);
	}
	for (struct list *pos = k->execs.next; pos != &k->execs && i + 2 < w->n; pos = pos->next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (!e->watched)
			continue;
		if ((w->fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
			(void)exec_read(e, &e->out, RING_STDOUT, needed_from(k, e));
		if (w->fds[i + 1].revents != 0)
			(void)exec_read(e, &e->err, RING_STDERR, needed_from(k, e));
		exec_write(e);
		i += 3;
	}
	if (starter)
		finish_launch(k);
	if (children)
		read_signals(k);
	if (incoming)
		accept_conn(k);
}

static void close_broken(struct keeper *k)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		if (c->broken)
			conn_free(k, c);
	}
}

static void loop(struct keeper *k)
{
	struct watch w = { 0 };

	while (k->state != KEEPER_STOPPING) {
		watch_all(k, &w);
		if (poll(w.fds, w.n, next_timeout_ms(k)) < 0 && errno != EINTR)
			break;
		dispatch(k, &w);
		check_deadlines(k);
		pump(k);
		close_broken(k);
	}
	free(w.fds);
}

static int read_config(
	struct keeper *k, const char *id, const struct keeper_settings *s, struct err *err)
{
	cleanup_buf struct buf map = BUF_INIT(4096);
	unsigned long inside, outside, count = 0;

	k->config = (struct box_config){ .state = s->state, .run = s->run, .tag = s->tag };
	if (s->state == NULL || s->run == NULL || s->tag == NULL || s->mode == NULL)
		return err_raise(
			err, ERR_INTERNAL, "CAY_STATE, CAY_RUN, CAY_TAG and CAY_MODE must be set");
	if (str_copy(k->id, sizeof(k->id), id) < 0 || !id_valid(id))
		return err_raise(err, ERR_INVALID, "sandbox id '%s' is malformed", id);
	k->config.rootless = str_eq(s->mode, "rootless");
	k->config.no_limits_ok = s->accept_no_limits != NULL && str_eq(s->accept_no_limits, "1");
	if (file_read_at(AT_FDCWD, "/proc/self/uid_map", &map) == 0 && !buf_failed(&map))
		(void)!sscanf(buf_cstr(&map), "%lu %lu %lu", &inside, &outside, &count);
	k->config.single_id = k->config.rootless &&
			      strchr(buf_cstr(&map), '\n') == strrchr(buf_cstr(&map), '\n') &&
			      count < 65536;
	return 0;
}

static int open_programs(struct keeper *k, const char *dir, struct err *err)
{
	char path[PATH_MAX];
	ssize_t n;

	if (dir == NULL) {
		n = readlink("/proc/self/exe", path, sizeof(path) - 1);
		if (n < 0)
			return err_raise_sys(err, -errno, "find our own program");
		path[n] = '\0';
		*strrchr(path, '/') = '\0';
		dir = path;
	}
	k->config.program_dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return k->config.program_dir < 0 ? err_raise_sys(err, -errno, "open '%s'", dir) : 0;
}

static int make_signal_fd(struct keeper *k)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	/* a program that closes its input must not take us along: blocked, so that write(2) says EPIPE; an ignored signal would pass execve */
	(void)sigaddset(&set, SIGPIPE);
	if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return -errno;
	k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return k->signal_fd < 0 ? -errno : 0;
}

/* Nobody else would reap it. */
static void end_starter(struct keeper *k)
{
	fd_close(&k->box.starter.sock);
	if (k->box.starter.pid > 0 && kill(k->box.starter.pid, SIGKILL) == 0)
		(void)waitpid(k->box.starter.pid, NULL, 0);
}

int keeper_main(const char *id, int fd, const struct keeper_settings *settings)
{
	static struct keeper k;
	struct err err = { 0 };
	char path[PATH_MAX];

	list_init(&k.conns);
	list_init(&k.execs);
	list_init(&k.pendings);
	k.listen_fd = k.signal_fd = -1;
	k.box.init_pidfd = -1;
	k.events = json_array();
	k.event_next = 1;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || read_config(&k, id, settings, &err) < 0 ||
		open_programs(&k, settings->programs, &err) < 0 || make_signal_fd(&k) < 0) {
		log_error("keeper", "start: %s", err.msg);
		return 1;
	}
	(void)conn_new(&k, fd, true);
	loop(&k);
	if (keeper_kill_all(&k) < 0)
		log_error("keeper", "sandbox '%s': processes are left after SIGKILL", k.id);
	end_starter(&k);
	pump(&k);
	(void)snprintf(path, sizeof(path), "%s/keepers/%s.sock", k.config.run, k.id);
	if (k.listen_fd >= 0)
		(void)unlink(path);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper.c - the loop, the state, the events. Programs are in keeper_execs.c, connections in keeper_conns.c, what the verbs do in keeper_verbs.c.
 *
 * Invariants
 *  (1) a finished exec stays until the limits below are passed, so that a client can read its end later;
 *  (2) bytes leave the ring only when no attached client still needs them (exec.h (3));
 *  (3) an unclaimed sandbox (READY) ends with its connection, since nobody else can ever claim it, and with the first of its parts that ends;
 *  (4) a claimed sandbox ends only by `stop`, by a signal to this process, or when PID 1 is gone and cayd says so.
 */
#include "sandbox/keeper.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/image.h"
#include "sandbox/protocol.h"
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

#define STATUS_PIECE 512 /* execs: far less than a frame takes */

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

void keeper_stop(struct keeper *k)
{
	if (k->state != KEEPER_STOPPING)
		keeper_move(k, KEEPER_STOPPING);
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

static json_t *describe_error(const struct err *err)
{
	/* a message may quote bytes of the payload: keep what is valid text */
	bool text = str_utf8_valid(err->msg, strlen(err->msg));

	return json_pack("{s:s, s:s, s:s, s:i}", "code", err_code_name(err->code), "message",
		text ? err->msg : "the reason is not valid text", "hint", err->hint, "errno",
		err->sys);
}

void keeper_reply_error(struct conn *c, json_int_t request, const struct err *err)
{
	if (c != NULL)
		keeper_send_json(c, FRAME_REPLY, 0,
			json_pack("{s:I, s:o}", "id", request, "error", describe_error(err)));
}

void keeper_exec_failed(
	struct keeper *k, const struct start_request *by, const char *exec, const struct err *err)
{
	if (by->conn != NULL && by->conn->primary && !by->conn->broken)
		keeper_reply_error(by->conn, by->id, err);
	else
		keeper_event(
			k, "exec.failed", exec, json_pack("{s:o}", "error", describe_error(err)));
}

json_t *keeper_hello(const struct keeper *k)
{
	json_t *hello = json_pack("{s:i, s:i, s:s, s:s, s:s, s:b, s:i, s:i, s:b, s:b, s:I}",
		"protocol", KEEPER_PROTOCOL, "image", (int)IMAGE_VERSION, "version", CAY_VERSION,
		"sandbox", k->id, "state", keeper_state_name(k->state), "gateway",
		keeper_gateway_running(k), "init_pid", k->box.init_pid, "fork_pid", k->fork_pid,
		"init_gone", k->box.init_gone, "held", k->fork_parent >= 0, "unacked",
		(json_int_t)json_array_size(k->events));

	BUG_ON(hello == NULL);
	if (k->lost != NULL)
		(void)json_object_set_new(hello, "lost",
			json_pack("{s:s,s:s}", "reason", k->lost, "code",
				err_code_name(k->lost_code)));
	return hello;
}

static json_t *describe_exec(const struct exec *e, bool brief)
{
	return brief ? json_pack("{s:s}", "exec", e->id) : exec_describe(e);
}

json_t *keeper_status(const struct keeper *k, bool brief)
{
	json_t *status = keeper_hello(k), *execs = json_array();

	list_for_each (&k->execs, pos, next)
		(void)json_array_append_new(
			execs, describe_exec(list_entry(pos, struct exec, node), brief));
	(void)json_object_set_new(status, "execs", execs);
	return status;
}

static int by_channel(const void *a, const void *b)
{
	const struct exec *const *x = a, *const *y = b;

	return (int)(*x)->channel - (int)(*y)->channel;
}

/* In the order of their channels; @ret_n: how many. Return: to be freed. */
static const struct exec **execs_above(const struct keeper *k, uint16_t above, size_t *ret_n)
{
	const struct exec **found;
	size_t n = 0;

	list_for_each (&k->execs, pos, next)
		n += list_entry(pos, struct exec, node)->channel > above;
	found = xalloc((n + 1) * sizeof(const struct exec *));
	*ret_n = n;
	list_for_each (&k->execs, pos, next) {
		const struct exec *e = list_entry(pos, struct exec, node);

		if (e->channel > above)
			found[--n] = e;
	}
	qsort(found, *ret_n, sizeof(const struct exec *), by_channel);
	return found;
}

json_t *keeper_status_piece(const struct keeper *k, bool brief, uint16_t above)
{
	json_t *status = keeper_hello(k), *execs = json_array();
	size_t n;
	cleanup_free const struct exec **found = execs_above(k, above, &n);

	for (size_t i = 0; i < n && i < STATUS_PIECE; i++)
		(void)json_array_append_new(execs, describe_exec(found[i], brief));
	(void)json_object_set_new(status, "execs", execs);
	if (n > STATUS_PIECE)
		(void)json_object_set_new(
			status, "above", json_integer(found[STATUS_PIECE - 1]->channel));
	return status;
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

void keeper_event_always(struct keeper *k, const char *type, const char *exec, json_t *data)
{
	if (k->events_lost > 0) {
		queue_event(k, "events.lost", NULL,
			json_pack(
				"{s:I, s:s}", "n", (json_int_t)k->events_lost, "source", "keeper"));
		k->events_lost = 0;
	}
	queue_event(k, type, exec, data != NULL ? data : json_object());
	send_events(k);
}

void keeper_event(struct keeper *k, const char *type, const char *exec, json_t *data)
{
	if (json_array_size(k->events) >= KEEPER_EVENTS_MAX) {
		k->events_lost++;
		json_decref(data);
		return;
	}
	keeper_event_always(k, type, exec, data);
}

/* --- the loop --- */

/* Places in every round; connections follow. */
enum {
	WATCH_SIGNALS,
	WATCH_LISTENER,
	WATCH_STARTER,
	WATCH_GATEWAY,
	WATCH_TCP, /* who knocks */
	WATCH_UDP,
	WATCH_LOG,
	WATCH_DUMPER,
	WATCH_INSTANT,
	WATCH_FORK,    /* parent of processes of a template */
	WATCH_STARTED, /* refused system calls of programs that were started here */
	WATCH_FORKED,
	WATCH_ASKERS,
	WATCH_FIXED = WATCH_ASKERS + KEEPER_ASKERS
};

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

	e->watched = e->out >= 0 || e->err >= 0 || e->in >= 0 ? w->n : 0;
	if (e->watched == 0)
		return;
	room = ring_space(&e->ring, keeper_needed_from(k, e)) > 0;
	out = (short)((room ? POLLIN : 0) | (e->tty && e->input.n > 0 ? POLLOUT : 0));
	/* a descriptor without wish is left out: it would report its hang-up for ever */
	watch_add(w, out != 0 ? e->out : -1, out);
	watch_add(w, room ? e->err : -1, POLLIN);
	watch_add(w, e->input.n > 0 ? e->in : -1, POLLOUT);
}

/* The gateway's messages, or, while there is none, those who knock. */
static void watch_gateway(const struct keeper *k, struct watch *w)
{
	const struct network *n = &k->box.network;
	bool knocks = k->state >= KEEPER_RUNNING && k->gateway.pid == 0 &&
		      keeper_gateway_next_ns(k) == UINT64_MAX;

	watch_add(w, k->gateway.sock, POLLIN);
	watch_add(w, knocks ? n->tcp : -1, POLLIN);
	watch_add(w, knocks ? n->udp : -1, POLLIN);
	watch_add(w, knocks ? n->log : -1, POLLIN);
}

static void watch_all(struct keeper *k, struct watch *w)
{
	w->n = 0;
	watch_add(w, k->signal_fd, POLLIN);
	watch_add(w, k->listen_fd, POLLIN);
	watch_add(w, k->state >= KEEPER_READY ? k->box.starter.sock : -1, POLLIN);
	watch_gateway(k, w);
	watch_add(w, k->capture.released ? k->capture.dumper : -1, POLLIN);
	watch_add(w, k->instant, POLLIN);
	watch_add(w, k->fork_sock, POLLIN);
	watch_add(w, k->told.listeners[LISTENER_STARTED], POLLIN);
	watch_add(w, k->told.listeners[LISTENER_FORKED], POLLIN);
	for (size_t i = 0; i < KEEPER_ASKERS; i++)
		watch_add(w, k->askers[i].pid != 0 ? k->askers[i].sock : -1, POLLIN);
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		bool says = c->out.n > 0 && !keeper_is_quiet(k, c);

		watch_add(w, c->fd, (short)(POLLIN | (says ? POLLOUT : 0)));
	}
	list_for_each (&k->waiters, pos, next) {
		struct waiter *waiter = list_entry(pos, struct waiter, node);

		/* what it says before its pid is known has to wait */
		waiter->watched = waiter->pid != 0 && waiter->sock >= 0 ? w->n : 0;
		if (waiter->watched != 0)
			watch_add(w, waiter->sock,
				0); /* its end: nothing else is worth waking up for */
	}
	list_for_each (&k->execs, pos, next)
		watch_exec(k, w, list_entry(pos, struct exec, node));
}

static int next_timeout_ms(const struct keeper *k)
{
	uint64_t first = k->memory.begun_ns != 0 ? k->memory.due_ns : UINT64_MAX, now;
	uint64_t gateway = keeper_gateway_next_ns(k), told = keeper_told_next_ns(k);

	first = gateway < first ? gateway : first;
	first = told < first ? told : first;
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (keeper_deadline_counts(k, e) && e->deadline_ns < first)
			first = e->deadline_ns;
	}
	if (k->capture_deadline_ns != 0 && k->capture_deadline_ns < first)
		first = k->capture_deadline_ns;
	if (k->loan.due_ns != 0 && k->loan.due_ns < first)
		first = k->loan.due_ns;
	if (!list_empty(&k->held) &&
		list_entry(k->held.next, struct attachment, node)->expires_ns < first)
		first = list_entry(k->held.next, struct attachment, node)->expires_ns;
	if (first == UINT64_MAX)
		return -1;
	now = clock_now_ns();
	if (first <= now)
		return 0;
	return (int)((first - now) / NS_PER_MS > INT_MAX / 2 ? INT_MAX / 2
							     : (first - now) / NS_PER_MS + 1);
}

/* Is there something to read, still? A verb of this round may have taken it, or another socket have come into its place: to read would wait for ever. */
static bool has_word(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Connections stand as in watch_all(): new ones are only appended, old ones only freed at the end of a round. */
static void dispatch(struct keeper *k, const struct watch *w)
{
	size_t i = WATCH_FIXED;
	bool starter = w->fds[WATCH_STARTER].revents != 0,
	     children = w->fds[WATCH_SIGNALS].revents != 0,
	     incoming = w->fds[WATCH_LISTENER].revents != 0,
	     copied = w->fds[WATCH_DUMPER].revents != 0,
	     captured = w->fds[WATCH_INSTANT].revents != 0,
	     forked = w->fds[WATCH_FORK].revents != 0,
	     refused[] = { w->fds[WATCH_STARTED].revents != 0, w->fds[WATCH_FORKED].revents != 0 };

	for (struct list *pos = k->conns.next; pos != &k->conns && i < w->n; pos = pos->next, i++) {
		struct conn *c = list_entry(pos, struct conn, node);

		if ((w->fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
			(void)keeper_conn_read(k, c);
	}
	list_for_each (&k->waiters, pos, next) {
		struct waiter *waiter = list_entry(pos, struct waiter, node);

		if (waiter->watched != 0 && waiter->sock >= 0 &&
			w->fds[waiter->watched].revents != 0)
			keeper_read_waiter(k, waiter);
	}
	keeper_try_again(k);
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);
		const struct pollfd *p = &w->fds[e->watched];

		if (e->watched == 0)
			continue;
		if ((p[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
			(void)keeper_read_output(k, e, RING_STDOUT, keeper_needed_from(k, e));
		if (p[1].revents != 0)
			(void)keeper_read_output(k, e, RING_STDERR, keeper_needed_from(k, e));
		exec_write(e);
	}
	/* before children: what somebody tried is told before its end */
	if (w->fds[WATCH_GATEWAY].revents != 0)
		keeper_gateway_read(k);
	if (w->fds[WATCH_TCP].revents != 0 || w->fds[WATCH_UDP].revents != 0 ||
		w->fds[WATCH_LOG].revents != 0)
		keeper_gateway_wanted(k);
	for (size_t at = 0; at < LISTENERS; at++) {
		if (refused[at])
			keeper_read_told(k, &k->told.listeners[at]);
	}
	for (size_t at = 0; at < KEEPER_ASKERS; at++) {
		if (w->fds[WATCH_ASKERS + at].revents != 0 && k->askers[at].pid != 0)
			keeper_read_asker(k, &k->askers[at]);
	}
	if (starter && has_word(k->box.starter.sock))
		keeper_read_starter(k);
	if (captured && has_word(k->instant))
		keeper_read_instant(k);
	if (copied && has_word(k->capture.dumper))
		keeper_read_capture(k);
	if (forked && has_word(k->fork_sock))
		keeper_read_fork(k);
	if (children)
		keeper_read_signals(k);
	if (incoming)
		keeper_accept(k);
}

/* At the end of a round: whoever waits for an answer has it by now. */
static void read_memory(struct keeper *k)
{
	uint64_t now = clock_now_ns();

	if (k->memory.begun_ns != 0 && k->memory.due_ns <= now)
		meter_add(&k->memory, now, cgroup_memory(&k->box.cgroup));
}

/* What nobody waits for. */
static void clear_up(struct keeper *k)
{
	if (k->state >= KEEPER_RUNNING) {
		starter_placed(&k->box.starter);
		box_started(&k->box);
	}
	keeper_remove_leaves(k);
	if (k->want_spare)
		keeper_want_spare(k);
	k->want_spare = false;
}

static void loop(struct keeper *k)
{
	struct watch w = { 0 };

	while (k->state != KEEPER_STOPPING) {
		watch_all(k, &w);
		if (poll(w.fds, w.n, next_timeout_ms(k)) < 0 && errno != EINTR)
			break;
		dispatch(k, &w);
		keeper_check_deadlines(k);
		keeper_told_close(k, NULL, clock_now_ns());
		keeper_pump(k);
		keeper_close_broken(k);
		clear_up(k);
		read_memory(k);
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

static int find_programs(struct keeper *k, const char *dir, struct err *err)
{
	static char own[PATH_MAX];
	int rc;

	k->config.programs = dir != NULL ? dir : own;
	rc = dir != NULL ? 0 : file_own_dir(own, sizeof(own));
	return rc < 0 ? err_raise_sys(err, rc, "find our own program") : 0;
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

/* Nobody else would reap them: what is in the groups when we have ended delays their removal. */
static void end_starter(struct keeper *k)
{
	const pid_t both[] = { k->box.starter.pid, k->box.starter.placer_pid };

	starter_placed(&k->box.starter);
	fd_close(&k->box.starter.sock);
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		if (both[i] > 0 && kill(both[i], SIGKILL) == 0)
			(void)waitpid(both[i], NULL, 0);
	}
}

int keeper_main(const char *id, int fd, const struct keeper_settings *settings)
{
	static struct keeper k;
	struct err err = { 0 };
	char path[PATH_MAX];

	list_init(&k.conns);
	list_init(&k.execs);
	list_init(&k.waiters);
	k.listen_fd = k.signal_fd = k.fork_sock = k.fork_parent = k.instant = -1;
	k.capture = k.ahead = (struct capture)CAPTURE_INIT;
	k.capture_numbers = -1;
	list_init(&k.held);
	k.box.u2 = k.box.pids_max = -1;
	k.box.network = (struct network)NETWORK_NONE;
	k.box.starter = (struct starter)STARTER_NONE;
	k.gateway.sock = -1;
	k.writer = (struct answer_writer)ANSWER_WRITER_NONE;
	for (size_t i = 0; i < LISTENERS; i++)
		k.told.listeners[i] = -1;
	k.events = json_array();
	k.event_next = 1;
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || read_config(&k, id, settings, &err) < 0 ||
		find_programs(&k, settings->programs, &err) < 0 || make_signal_fd(&k) < 0) {
		log_error("keeper", "start: %s", err.msg);
		return 1;
	}
	(void)keeper_conn_new(&k, fd, true);
	loop(&k);
	if (keeper_kill_all(&k) < 0)
		log_error("keeper", "sandbox '%s': processes are left after SIGKILL", k.id);
	end_starter(&k);
	(void)answer_writer_end(&k.writer);
	keeper_told_close(&k, NULL, UINT64_MAX);
	fd_close(&k.gateway.sock); /* by which it ends too */
	keeper_pump(&k);
	(void)snprintf(path, sizeof(path), "%s/keepers/%s.sock", k.config.run, k.id);
	if (k.listen_fd >= 0)
		(void)unlink(path);
	return 0;
}

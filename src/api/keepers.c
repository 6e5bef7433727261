/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/keepers.c - connections to keepers: prepared ones (kept in keeper_pool.c), those of sandboxes, and those that an earlier cayd left behind.
 *
 * Life: started (cay-spawn) -> hello -> prepare -> prepared, in the pool -> claimed by a sandbox -> ended -> reaped. One whose connection dies unasked takes its
 * sandbox with it (sandbox_keeper_lost).
 */
#include "api/identity.h"
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/protocol.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PREPARE_NS       (20 * NS_PER_S)
#define END_NS           (20 * NS_PER_S)
#define CONNECT_AGAIN_NS (20 * NS_PER_MS)
/* It answers nobody while it waits for its dumper: a minute for a step, half a one until all are let go (checkpoint/capturer.c). */
#define ADOPT_NS (100 * NS_PER_S)

static void keeper_free_check(struct keeper *k)
{
	if (k->refs > 0 || !k->closed)
		return;
	json_decref(k->hello_doc);
	json_decref(k->foreseen);
	free(k);
}

void keeper_unref(struct keeper *k)
{
	if (k == NULL)
		return;
	k->refs--;
	keeper_free_check(k);
}

static void on_closed(struct stream *s)
{
	struct keeper *k = container_of(container_of(s, struct framelink, s), struct keeper, link);

	k->closed = true;
	keeper_free_check(k);
}

/* --- what keepers send --- */

void keeper_died(struct keeper *k, const json_t *said)
{
	const char *reason = json_string_value(json_object_get(said, "reason"));
	const json_t *code = json_object_get(said, "code");

	log_debug("keeper", "init of sandbox '%s' is gone", k->id);
	if (reason != NULL) {
		/* keepers of before do not say one */
		k->lost_code = code != NULL ? err_code_parse(json_string_value(code)) : ERR_NONE;
		(void)!str_copy(k->lost, sizeof(k->lost), reason);
	}
	k->failed = true;
	sandbox_keeper_lost(k->sandbox);
}

static void take_event(struct keeper *k, const json_t *event)
{
	const char *type = json_string_value(json_object_get(event, "type"));
	const char *exec = json_string_value(json_object_get(event, "exec"));
	json_t *data = json_object_get(event, "data");
	struct sandbox *sb = k->sandbox;
	struct exec *e;
	struct event out = { .sandbox = sb->id, .epoch = sandbox_epoch(sb), .exec = exec };

	if (type == NULL || (exec != NULL && !id_valid(exec)))
		return;
	out.time_ns = (uint64_t)json_integer_value(json_object_get(event, "time_ns"));
	out.type = event_type_parse(type);
	e = exec != NULL ? exec_by_id(sb, exec) : NULL;
	if (str_eq(type, "exec.unchanged")) { /* for the run that asked */
		if (e != NULL)
			e->unchanged = true;
		return;
	}
	/* what the kernel says of processes comes first: see events/process_source.h */
	process_source_drain(k->srv->processes);
	if (str_eq(type, "exec.started")) {
		if (e == NULL || !e->reaped)
			process_source_bind(k->srv->processes, sb->id,
				(pid_t)json_integer_value(json_object_get(data, "pid")), exec);
		if (e != NULL) /* its answer may have gone to an earlier server */
			exec_has_started(e, data);
	}
	if (str_eq(type, "sandbox.died")) {
		keeper_died(k, data);
		return;
	}
	if (out.type == EVENT_EXEC_ENDED && e != NULL && e->comes_back)
		return;                      /* by us, and it goes on */
	if (out.type == EVENT_EXEC_FAILED) { /* whoever asked for it has gone: an earlier server */
		if (e != NULL && !e->ended)
			exec_was_refused(e, json_object_get(data, "error"));
		return;
	}
	if (str_eq(type, "keeper.adopted")) /* all that waited has come */
		execs_settle(sb, json_object_get(k->hello_doc, "execs"));
	if (str_eq(type, "gateway.started"))
		gateway_appeared(sb);
	if (str_eq(type, "gateway.ended"))
		gateway_ended(sb);
	if (str_eq(type, "sandbox.started") || str_eq(type, "sandbox.stopped") ||
		str_eq(type, "keeper.adopted"))
		return; /* said by cayd itself, with more */
	if (str_eq(type, "exec.started")) {
		out.data = json_pack("{s:O}", "pid", json_object_get(data, "pid"));
		if (out.data == NULL)
			out.data = json_object();
	} else if (out.type == EVENT_KEEPER) {
		out.data = json_pack(
			"{s:s,s:O}", "type", type, "data", data != NULL ? data : json_null());
	} else {
		out.data = json_incref(data);
	}
	mishaps_take(&sb->mishaps, out.type, out.data);
	if (e != NULL && e->created_n != 0)
		out.cause = json_pack("{s:I}", "event", (json_int_t)e->created_n);
	if (out.type == EVENT_EXEC_ENDED && e != NULL && e->ended) {
		/* was journalled before the last cayd died, or announced */
		json_decref(out.data);
		json_decref(out.cause);
	} else {
		if (out.type == EVENT_EXEC_ENDED && e != NULL)
			exec_announce_end(e, out.time_ns, data);
		(void)journal_add(k->srv->journal, &out);
	}
	if (out.type == EVENT_EXEC_ENDED && e != NULL)
		exec_has_ended(e, data);
}

static void on_event(struct keeper *k, const struct frame *f)
{
	json_t *event = frame_json(f);
	json_int_t n = json_integer_value(json_object_get(event, "n"));

	if (event != NULL && k->sandbox != NULL)
		take_event(k, event);
	if (n > 0)
		server_acknowledge(k->srv, &k->ack, (uint64_t)n);
	json_decref(event);
}

static void on_hello(struct keeper *k, const struct frame *f)
{
	json_t *reply = frame_json(f);
	json_t *hello = json_object_get(json_object_get(reply, "ok"), "hello");

	if (hello == NULL)
		hello = json_object_get(reply, "hello");
	if (hello != NULL && !k->hello) {
		k->hello = true;
		k->hello_doc = json_incref(hello);
		waiters_wake(&k->changed);
	}
	json_decref(reply);
}

static void on_frame(struct framelink *l, const struct frame *f)
{
	struct keeper *k = container_of(l, struct keeper, link);
	struct exec *e;

	if (f->type == FRAME_REPLY) {
		on_hello(k, f);
	} else if (f->type == FRAME_EVENT) {
		on_event(k, f);
	} else if (k->sandbox != NULL) {
		e = exec_by_channel(k->sandbox, f->channel);
		if (e != NULL && e->sink != NULL)
			e->sink->frame(e->sink, f);
	}
}

/* Whoever follows one of its commands runs at once, and may be the one that removes it. */
static void tell_lost(struct sandbox *sb)
{
	(void)sandbox_ref(sb);
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (e->sink != NULL)
			e->sink->lost(e->sink);
	}
	sandbox_keeper_lost(sb);
	sandbox_unref(sb);
}

static void on_dead(struct framelink *l)
{
	struct keeper *k = container_of(l, struct keeper, link);

	k->failed = true;
	if (k->lost[0] == '\0')
		(void)!str_copy(
			k->lost, sizeof(k->lost), "its keeper ended, and with it all processes");
	if (k->error.code == ERR_NONE)
		(void)err_raise(
			&k->error, ERR_INTERNAL, "the keeper of sandbox '%s' has ended", k->id);
	if (k->sandbox != NULL)
		tell_lost(k->sandbox);
	keeper_pool_lost(k);
	waiters_wake(&k->changed);
}

/* --- starting --- */

static struct keeper *keeper_alloc(struct server *srv, const char *id)
{
	struct keeper *k = xnew(struct keeper);

	(void)!str_copy(k->id, sizeof(k->id), id);
	k->srv = srv;
	k->refs = 1;
	k->link.on_frame = on_frame;
	k->link.on_dead = on_dead;
	k->link.peer = "keeper";
	waiters_init(&k->changed);
	k->ack.link = &k->link;
	list_init(&k->ack.node);
	list_append(&srv->keepers, &k->node);
	list_init(&k->pool_node);
	map_add(&srv->keepers_by_id, &k->by_id, k->id);
	return k;
}

/* Older ones may know fewer verbs, and say so; one of a protocol that came later may take anything for something else. */
static int check_protocol(const struct keeper *k, struct err *err)
{
	json_int_t protocol = json_integer_value(json_object_get(k->hello_doc, "protocol"));

	if (protocol > 0 && protocol <= KEEPER_PROTOCOL)
		return 0;
	return err_raise(err, ERR_UNSUPPORTED,
		"the keeper of '%s' speaks version %lld of the protocol of keepers, this server %d",
		k->id, (long long)protocol, KEEPER_PROTOCOL);
}

/* Done ahead of time too: what its sandbox wants, or what most new sandboxes ask for. */
static json_t *prepare_request(struct keeper *k)
{
	struct server *srv = k->srv;
	const char *kind;
	json_t *request = json_pack("{s:s,s:i}", "verb", "prepare", "slot", (int)k->slot), *expect,
	       *fork;

	if (k->sandbox != NULL) {
		(void)json_object_set_new(request, "expect", sandbox_spec(k->sandbox));
		return request;
	}
	if (srv->mask == NULL) {
		json_decref(TAKE_PTR(k->foreseen));
		return request;
	}
	fork = json_object_get(k->foreseen, "expect");
	expect = fork != NULL ? json_copy(fork)
			      : json_pack("{s:s,s:[s],s:o}", "image", "host", "lower", srv->mask,
					"limits", sandbox_limits(srv, NULL, &kind, NULL));
	(void)json_object_set_new(expect, "id", json_string(k->id));
	if (fork != NULL)
		(void)json_object_set_new(request, "point", json_string(IDENTITY_FILE));
	else if (k->foreseen != NULL)
		(void)json_object_set_new(expect, "mounts", json_pack("[O]", k->foreseen));
	(void)json_object_set_new(
		request, "foresee", json_boolean(fork == NULL && k->foreseen != NULL));
	(void)json_object_set_new(request, "expect", expect);
	return request;
}

/* Its own fiber: wait for the hello, prepare. */
static void prepare_main(void *arg)
{
	struct keeper *k = arg;
	uint64_t deadline = clock_now_ns() + PREPARE_NS;
	int rc = 0;

	while (!k->hello && !k->failed && rc == 0)
		rc = waiters_wait(&k->changed, deadline);
	if (rc < 0 && !k->failed)
		(void)err_raise(&k->error, ERR_TIMEOUT, "the keeper did not say hello in time");
	else if (!k->failed && (rc = check_protocol(k, &k->error)) == 0)
		rc = framelink_call(&k->link, prepare_request(k), deadline, NULL, &k->error);
	if (rc < 0)
		k->failed = true;
	k->prepared = !k->failed;
	k->srv->pool.starting--;
	waiters_wake(&k->changed);
	waiters_wake(&k->srv->pool.changed);
	keeper_unref(k);
}

struct keeper *keeper_new(struct server *srv, const char *id, int slot, struct err *err)
{
	struct id made = id_new();
	struct keeper *k;
	int fd, own_slot = slot >= 0 ? slot : slot_take(srv);

	if (own_slot < 0) {
		(void)err_raise(err, ERR_LIMIT, "no more than %u sandboxes fit", SLOT_COUNT);
		return NULL;
	}
	if (id == NULL)
		id = made.s;
	while (srv->pool.starting >= STARTING_MAX)
		(void)waiters_wait(&srv->pool.changed, 0); /* each of them has a deadline */
	if (spawner_start(srv, (struct spawn_request){ .kind = SPAWN_SANDBOX }, id, &fd, err) < 0) {
		if (slot < 0)
			slot_free(srv, (uint32_t)own_slot);
		return NULL;
	}
	k = keeper_alloc(srv, id);
	k->slot = (uint32_t)own_slot;
	if (framelink_open(&k->link, srv->loop, fd) < 0)
		abort();
	k->refs++;
	srv->pool.starting++;
	fiber_start(prepare_main, k);
	return k;
}

int keeper_ready(struct keeper *k, struct err *err)
{
	while (!k->prepared && !k->failed)
		(void)waiters_wait(&k->changed, 0); /* prepare_main() has the deadline */
	if (!k->failed)
		return 0;
	if (err != NULL)
		*err = k->error;
	return err_code_http(k->error.code) >= 500 ? -EIO : -EINVAL;
}

/* --- ending --- */

/*
 * It may be the end of what had this id before: of what an earlier server left, cleared away (no pid) while the sandbox starts anew, or of a keeper that could not be killed in
 * time. cay-spawn finishes the clean-up of an id before it starts another keeper of it.
 */
static bool is_end_of(const struct keeper *k, const struct spawn_event *e)
{
	return e->pid != 0 ? e->pid == k->pid : k->adopted || k->pid != 0;
}

bool keeper_on_spawn_event(struct server *srv, const struct spawn_event *e)
{
	struct map_node *node = map_find(&srv->keepers_by_id, e->id);
	struct keeper *k = node != NULL ? map_entry(node, struct keeper, by_id) : NULL;
	const struct sandbox *sb;

	if (k == NULL)
		return false;
	if (e->kind == SPAWN_EVENT_STARTED) {
		k->pid = e->pid;
		process_source_follow(srv->processes, k->id, e->pid);
		sb = sandbox_by_id(srv, k->id);
		if (sb != NULL) /* it has run before */
			process_source_epoch(srv->processes, k->id, sandbox_epoch(sb));
	} else if (e->kind == SPAWN_EVENT_FAILED) {
		(void)err_raise_sys(&k->error, -e->status, "start a keeper");
		k->failed = k->reaped = true;
	} else if (e->kind == SPAWN_EVENT_ENDED && is_end_of(k, e)) {
		log_debug("keeper", "%s ended, wait status %d", k->id, e->status);
		k->reaped = true;
		if (!k->adopted || e->pid == 0)
			process_source_drain(srv->processes);
	}
	waiters_wake(&k->changed);
	return true;
}

/* cay-spawn reports it; where that has ended itself the end of the connection is all that is seen, and the next one clears up. */
static bool has_ended(const struct keeper *k)
{
	return k->reaped || (k->srv->spawn_fd < 0 && k->link.dead);
}

void keepers_unreported(struct server *srv)
{
	list_for_each (&srv->keepers, node, next)
		waiters_wake(&list_entry(node, struct keeper, node)->changed);
}

static void let_go(struct keeper *k)
{
	k->sandbox = NULL;
	list_remove(&k->node);
	list_remove(&k->ack.node);
	map_remove(&k->srv->keepers_by_id, &k->by_id);
	framelink_close(&k->link, on_closed);
}

void keeper_end(struct keeper *k, bool save)
{
	uint64_t deadline = clock_now_ns() + END_NS;
	struct framecall call;

	if (!k->link.dead) {
		framelink_call_begin(
			&k->link, &call, json_pack("{s:s,s:b}", "verb", "stop", "save", (int)save));
		(void)!framelink_call_end(&k->link, &call, deadline, NULL, NULL);
	}
	/* one that is not a child of our cay-spawn: its end shows as the end of the connection */
	while (k->adopted && !k->link.dead && waiters_wait(&k->changed, deadline) == 0)
		;
	if (k->adopted)
		spawner_cleanup(k->srv, k->id);
	while (!has_ended(k) && waiters_wait(&k->changed, deadline) == 0)
		;
	if (!has_ended(k)) {
		log_error("keeper", "%s did not end: killing it", k->id);
		spawner_cleanup(k->srv, k->id);
		deadline = clock_now_ns() + END_NS;
		while (!has_ended(k) && waiters_wait(&k->changed, deadline) == 0)
			;
	}
	process_source_drain(k->srv->processes);
	process_source_forget(k->srv->processes, k->id);
	let_go(k);
}

/* --- connecting --- */

/* As many as may wait at its door do, and it takes none of them in: connect() would wait too, and with it all of the server. */
static int connect_patiently(int fd, const struct sockaddr_un *address, uint64_t deadline)
{
	struct waiters turn;

	waiters_init(&turn);
	while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
		if (errno != EAGAIN)
			return -errno;
		if (clock_now_ns() >= deadline)
			return -ETIMEDOUT;
		(void)waiters_wait(&turn, clock_now_ns() + CONNECT_AGAIN_NS);
	}
	return fcntl(fd, F_SETFL, 0) < 0 ? -errno : 0;
}

static int connect_by(struct server *srv, const char *id, uint64_t deadline)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return -errno;
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s/keepers/%s.sock", srv->own_run,
		    id) >= (int)sizeof(address.sun_path))
		return -ENAMETOOLONG;
	rc = connect_patiently(fd, &address, deadline);
	return rc < 0 ? rc : TAKE_FD(fd);
}

int keeper_connect(struct server *srv, const char *id)
{
	return connect_by(srv, id, clock_now_ns() + CALL_NS);
}

/* Its status as of the beginning, and all its execs, in as many pieces as that takes; keepers of before say all at once. @deadline: 0 = as long as it is there. */
static int all_pieces(struct keeper *k, bool brief, uint64_t deadline, json_t **ret)
{
	json_t *all = NULL, *execs = json_array();
	json_int_t above = -1, next = 0;
	int rc = 0;

	while (rc == 0 && next > above) {
		json_t *piece = NULL;

		above = next;
		rc = framelink_call(&k->link,
			json_pack("{s:s,s:b,s:I}", "verb", "status", "brief", (int)brief, "above",
				above),
			deadline, &piece, NULL);
		next = json_integer_value(json_object_get(piece, "above"));
		if (rc == 0 && json_array_extend(execs, json_object_get(piece, "execs")) < 0)
			rc = -EPROTO;
		if (rc == 0 && all == NULL)
			all = json_incref(piece);
		json_decref(piece);
	}
	(void)json_object_set_new(all, "execs", execs);
	if (rc == 0)
		*ret = all;
	else
		json_decref(all);
	return rc;
}

/* With all its execs; older keepers list them in the hello. */
static int ask_status(struct keeper *k, uint64_t deadline)
{
	json_t *status = NULL;
	int rc;

	if (json_object_get(k->hello_doc, "execs") != NULL)
		return 0;
	rc = all_pieces(k, false, deadline, &status);
	if (rc < 0)
		return rc;
	json_decref(k->hello_doc);
	k->hello_doc = status;
	return 0;
}

int keeper_holds(struct keeper *k, uint64_t deadline_ns, json_t **ret)
{
	json_t *ok = NULL, *row;
	size_t i;
	int rc = all_pieces(k, true, deadline_ns, &ok);

	if (rc < 0)
		return rc;
	*ret = json_object();
	json_array_foreach (json_object_get(ok, "execs"), i, row)
		(void)json_object_set_new(
			*ret, json_string_value(json_object_get(row, "exec")), json_true());
	json_decref(ok);
	return 0;
}

struct keeper *keeper_adopt(struct server *srv, const char *id, struct err *err)
{
	uint64_t deadline = clock_now_ns() + ADOPT_NS;
	int fd = connect_by(srv, id, deadline), rc = 0;
	struct keeper *k;

	if (fd < 0) {
		(void)err_raise_sys(err, fd, "connect to the keeper of '%s'", id);
		return NULL;
	}
	k = keeper_alloc(srv, id);
	keeper_claim(k);
	k->adopted = true;
	if (framelink_open(&k->link, srv->loop, fd) < 0)
		abort();
	while (!k->hello && !k->failed && rc == 0)
		rc = waiters_wait(&k->changed, deadline);
	if (rc == 0 && !k->failed && check_protocol(k, err) < 0) {
		let_go(k);
		keeper_unref(k);
		return NULL;
	}
	if (rc == 0 && !k->failed)
		rc = ask_status(k, deadline);
	if (rc == 0 && !k->failed)
		return k;
	(void)err_raise(err, ERR_UNAVAILABLE, "the keeper of '%s' does not answer", id);
	keeper_end(k, false);
	keeper_unref(k);
	return NULL;
}

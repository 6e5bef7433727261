/* SPDX-License-Identifier: Apache-2.0 */
#include "api/credentials.h"
#include "api/exec_past.h"
#include "api/heads.h"
#include "api/idle.h"
#include "api/memories.h"
#include "api/nameservers.h"
#include "api/pump.h"
#include "api/requester.h"
#include "api/secret_store.h"
#include "api/steps.h"
#include "api/suspend.h"
#include "api/telling.h"
#include "base/ablate.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define HOUSEKEEPING_MS  250
#define DRAIN_NS         (45 * NS_PER_S) /* with the others less than systemd's patience of 90 s */
#define WRITE_NS         (20 * NS_PER_S)
#define UNMOUNT_NS       (5 * NS_PER_S)
#define UNMOUNT_AGAIN_NS (20 * NS_PER_MS)
#define RETIRE_NS        (60 * NS_PER_S)

/* --- slots --- */

void slot_mark(struct server *srv, uint32_t slot)
{
	if (slot < SLOT_COUNT)
		srv->slots[slot / 8] |= (unsigned char)(1U << slot % 8);
}

void slot_free(struct server *srv, uint32_t slot)
{
	if (slot < SLOT_COUNT)
		srv->slots[slot / 8] &= (unsigned char)~(1U << slot % 8);
}

/* Round robin: a range that was freed just now is the last to be given out again. */
int slot_take(struct server *srv)
{
	static uint32_t next;

	for (uint32_t i = 0; i < SLOT_COUNT; i++) {
		uint32_t slot = (next + i) % SLOT_COUNT;

		if ((srv->slots[slot / 8] & 1U << slot % 8) == 0) {
			slot_mark(srv, slot);
			next = slot + 1;
			return (int)slot;
		}
	}
	return -1;
}

/* --- events --- */

uint64_t server_event(struct server *srv, struct sandbox *sb, enum event_type type,
	const char *exec, json_t *data)
{
	struct event e = { .type = type, .exec = exec, .data = data };
	struct exec *owner;

	if (sb != NULL) {
		e.sandbox = sb->id;
		e.epoch = sandbox_epoch(sb);
		owner = exec != NULL ? exec_by_id(sb, exec) : NULL;
		if (owner != NULL && owner->created_n != 0)
			e.cause = json_pack("{s:I}", "event", (json_int_t)owner->created_n);
	}
	if (e.cause == NULL)
		e.cause = requester_cause(type);
	return journal_add(srv->journal, &e);
}

void server_acknowledge(struct server *srv, struct event_ack *ack, uint64_t n)
{
	ack->n = n > ack->n ? n : ack->n;
	if (list_empty(&ack->node))
		list_append(&srv->acks, &ack->node);
}

static void send_acks(struct server *srv)
{
	list_for_each (&srv->acks, node, next) {
		const struct event_ack *ack = list_entry(node, struct event_ack, node);
		char text[96];

		list_remove(node);
		if (ack->link->dead)
			continue;
		/* id 0: no answer wanted */
		(void)snprintf(text, sizeof(text), "{\"id\":0,\"verb\":\"ack\",\"n\":%lu}", ack->n);
		framelink_send(ack->link, FRAME_REQUEST, 0, text, strlen(text));
	}
}

void server_flush(struct server *srv)
{
	int rc = journal_flush(srv->journal);

	/* tried in each turn of the loop, and told when it changes */
	if (rc < 0 && rc != srv->flushed)
		log_error("events", "write the journal: %s", strerrordesc_np(-rc));
	else if (rc == 0 && srv->flushed < 0)
		log_notice("events", "the journal is written again");
	srv->flushed = rc;
	if (rc == 0)
		send_acks(srv);
}

static void on_prepare(uv_prepare_t *handle)
{
	struct server *srv = handle->data;

	server_flush(srv);
	if (journal_last(srv->journal) != srv->events_seen) {
		srv->events_seen = journal_last(srv->journal);
		waiters_wake(&srv->events_changed);
	}
}

struct retiring {
	struct server *srv;
	json_t *ids;  /* of all sandboxes */
	bool forgets; /* has begun to write to the catalogue */
};

static bool is_alive(void *ctx, const char *sandbox)
{
	return json_object_get(((struct retiring *)ctx)->ids, sandbox) != NULL;
}

/* All of a segment in one transaction: it may be the last of ten thousand sandboxes. */
static void forget_head(void *ctx, const char *sandbox)
{
	struct retiring *r = ctx;

	r->forgets = r->forgets || catalogue_begin(r->srv->catalogue, false, NULL) == 0;
	if (r->forgets)
		(void)catalogue_delete(r->srv->catalogue, CATALOGUE_HEADS, sandbox, NULL);
}

static void commit_forgotten(void *ctx)
{
	struct retiring *r = ctx;

	if (r->forgets)
		(void)!catalogue_commit(r->srv->catalogue, NULL);
	r->forgets = false;
}

void server_retire_events(struct server *srv)
{
	struct retiring ctx = { srv, json_object(), false };
	struct journal_retire r = {
		.alive = is_alive, .forget = forget_head, .forgotten = commit_forgotten, .ctx = &ctx
	};
	int rc;

	list_for_each (&srv->sandboxes, node, next)
		(void)json_object_set_new(
			ctx.ids, list_entry(node, struct sandbox, node)->id, json_true());
	rc = journal_retire(srv->journal, clock_wall_ns(), &r);
	json_decref(ctx.ids);
	if (rc < 0)
		log_error("events", "retire old events: %s", strerrordesc_np(-rc));
	if (r.segments > 0)
		(void)server_event(srv, NULL, EVENT_EVENTS_RETIRED, NULL,
			json_pack("{s:I,s:I,s:I,s:s}", "first_n", (json_int_t)r.first_n, "last_n",
				(json_int_t)r.last_n, "bytes", (json_int_t)r.bytes, "reason",
				r.reason));
}

static void on_housekeeping(uv_timer_t *timer)
{
	struct server *srv = timer->data;

	if (clock_now_ns() >= srv->retire_due_ns) {
		srv->retire_due_ns = clock_now_ns() + RETIRE_NS;
		server_retire_events(srv);
	}
	process_source_drain(srv->processes);
	snapshots_settle(srv);
	chains_settle(srv);
	reserve_fill(srv);
	idle_settle(srv);
	nameservers_settle(srv);
	uncounted_settle(srv);
	(void)catalogue_settle(srv->catalogue, clock_now_ns());
	if (journal_dirty(srv->journal) || json_array_size(srv->buried) > 0 ||
		!list_empty(&srv->unsaved))
		heads_write(srv);
}

static void on_process_events(uv_poll_t *poll, attr_unused int status, attr_unused int events)
{
	struct server *srv = poll->data;

	process_source_drain(srv->processes);
}

void server_watch_processes(struct server *srv)
{
	bool wanted = false;

	if (process_source_fd(srv->processes) < 0)
		return;
	list_for_each (&srv->sandboxes, node, next) {
		wanted = list_entry(node, struct sandbox, node)->state == SANDBOX_RUNNING;
		if (wanted)
			break;
	}
	if (wanted && !uv_is_active((uv_handle_t *)&srv->process_poll))
		(void)uv_poll_start(&srv->process_poll, UV_READABLE, on_process_events);
	else if (!wanted)
		(void)uv_poll_stop(&srv->process_poll);
}

/* --- who may connect --- */

/* As the kernel knows it: who is asked by name may be a directory on the network, and nobody else is served meanwhile. */
static bool in_group(struct http_conn *conn, gid_t wanted)
{
	cleanup_free gid_t *groups = NULL;
	size_t n = 0;

	if (wanted == (gid_t)-1)
		return false;
	if (http_peer_gid(conn) == wanted)
		return true;
	if (stream_peer_groups(http_stream(conn), &groups, &n) < 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (groups[i] == wanted)
			return true;
	}
	return false;
}

static bool admit(void *ctx, struct http_conn *conn)
{
	const struct server *srv = ctx;
	uid_t uid = http_peer_uid(conn);

	if (uid == 0 || uid == srv->uid)
		return true;
	return !srv->rootless && in_group(conn, srv->group);
}

/* --- starting --- */

int server_unread(const struct loading *l, const char *table, const char *id)
{
	(void)err_raise(l->err, ERR_CORRUPT,
		"row '%s' of the table '%s' in the catalogue cannot be read, and without it its files would be removed",
		id, table);
	return err_hint(l->err, -EBADMSG,
		"put the catalogue back from a copy, or give the row and its files up: sqlite3 %s/cay.db \"DELETE FROM %s WHERE id = '%s'\"",
		l->srv->state, table, id);
}

json_t *server_known_ids(struct server *srv)
{
	json_t *ids = json_array();

	list_for_each (&srv->sandboxes, node, next)
		(void)json_array_append_new(
			ids, json_string(list_entry(node, struct sandbox, node)->id));
	list_for_each (&srv->keepers, node, next)
		(void)json_array_append_new(
			ids, json_string(list_entry(node, struct keeper, node)->id));
	return ids;
}

json_t *server_known_epochs(struct server *srv)
{
	json_t *epochs = json_object();

	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		(void)json_object_set_new(
			epochs, sb->id, json_integer((json_int_t)sandbox_epoch(sb)));
	}
	return epochs;
}

/*
 * Files that the catalogue does not know go; a seal that was cut short is undone. Not while keepers of the pool exist. Where nobody could look for seals nothing starts: a sandbox
 * would be started on empty trees.
 */
static int store_recover(struct server *srv)
{
	json_t *ok = NULL, *problem;
	size_t i;

	if (job_run(srv,
		    json_pack("{s:s,s:o,s:o,s:o,s:o,s:o*,s:o}", "verb", "recover", "layers",
			    server_known_layers(srv), "sandboxes", server_known_ids(srv), "epochs",
			    server_known_epochs(srv), "memories", server_known_memories(srv),
			    "images", server_known_images(srv), "seals", seals_known(srv)),
		    NULL, NULL, &ok, &srv->storage_error) < 0) {
		log_error("store", "recover: %s", srv->storage_error.msg);
		json_decref(srv->storage);
		srv->storage = NULL;
		return -EIO;
	}
	json_array_foreach (json_object_get(ok, "problems"), i, problem)
		log_error("store", "recover: %s", json_string_value(problem));
	seals_kept(srv, json_object_get(ok, "kept"));
	seals_unmade(srv, json_object_get(ok, "unmade"));
	json_decref(ok);
	return 0;
}

/* Does the catalogue know anything that has files in the pool? Then none is made anew in its place. */
static bool has_files(const struct server *srv)
{
	return !list_empty(&srv->sandboxes) || !list_empty(&srv->snapshots) ||
	       !list_empty(&srv->images);
}

/* Return: 1: the storage is there for the first time, and nobody has seen to it; 0; or an error. */
static int storage_run(struct server *srv, json_t *request, struct err *err)
{
	json_t *ok = NULL;
	int first, rc;

	(void)json_object_set_new(request, "expected", json_boolean(has_files(srv)));
	rc = job_run(srv, request, NULL, NULL, &ok, err);

	if (rc < 0)
		return rc;
	first = srv->storage == NULL ? 1 : 0;
	json_decref(srv->storage);
	srv->storage = ok;
	return first;
}

static void become_ready(struct server *srv)
{
	srv->ready = true;
	waiters_wake(&srv->became_ready);
	keeper_refill(srv);
}

/* The storage has come after the start: what the last server left in it is seen to before anybody uses it. Requests wait, and nothing starts. */
static int storage_came(struct server *srv, struct err *err)
{
	int rc;

	srv->ready = false;
	sandboxes_settle_suspend(srv);
	rc = store_recover(srv);
	if (rc < 0)
		*err = srv->storage_error;
	become_ready(srv);
	return rc;
}

int server_storage_init(struct server *srv, json_t *request, struct err *err)
{
	int rc = storage_run(srv, json_incref(request), err);

	if (rc < 0 && err->code == ERR_BUSY) {
		/* a pool that has to be mounted anew is held by the prepared keepers too, and for suspended sandboxes */
		keeper_drop_pool(srv);
		hold_drop_all(srv);
		rc = storage_run(srv, json_incref(request), err);
	}
	json_decref(request);
	if (rc == 1)
		rc = storage_came(srv, err);
	else
		keeper_refill(srv);
	return rc;
}

int server_storage_check(const struct server *srv, struct err *err)
{
	if (srv->storage != NULL && !srv->ready)
		return err_raise(err, ERR_BUSY,
			"the storage has just come, and what the last server left in it is being seen to");
	if (srv->storage != NULL)
		return 0;
	*err = srv->storage_error;
	err_context(err, "the storage could not be prepared when the server started");
	if (err->hint[0] != '\0')
		return -EIO;
	return err_hint(err, -EIO,
		"'cay doctor' says what this machine lacks; run 'cay storage init' when the reason is gone");
}

/* Nobody has a mask mounted: keepers are given theirs by @srv->mask, and those of an earlier server are adopted, or awaited, before the first one is made. */
static bool mask_is_alone(struct server *srv)
{
	if (!srv->recovered || srv->mask != NULL || !list_empty(&srv->keepers))
		return false;
	list_for_each (&srv->sandboxes, node, next) {
		if (sandbox_runs(list_entry(node, struct sandbox, node)))
			return false;
	}
	return true;
}

/* Takes @mounted. */
static int make_mask(struct server *srv, json_t *mounted, struct err *err)
{
	json_t *ok = NULL, *hide;
	const char *dir;
	int rc;

	log_debug("store", "the mask of the host image is made");
	hide = json_array();
	(void)json_array_append_new(hide, json_string(srv->state));
	rc = job_run(srv,
		json_pack("{s:s,s:s,s:o,s:b}", "verb", "mask", "run", srv->run, "hide", hide,
			"alone", (int)mask_is_alone(srv)),
		NULL, NULL, &ok, err);
	dir = json_string_value(json_object_get(ok, "dir"));
	if (rc >= 0 && dir == NULL)
		rc = err_raise(err, ERR_INTERNAL, "the mask job named no directory");
	if (rc >= 0) {
		free(srv->mask);
		srv->mask = str_dup(dir);
		json_decref(srv->mask_for);
		srv->mask_for = json_incref(mounted);
	}
	json_decref(ok);
	json_decref(mounted);
	return rc < 0 ? rc : 0;
}

/* Return: what @srv->mask has to be made for, a new reference; NULL: it is as it should be. */
static json_t *mask_wanted(struct server *srv)
{
	json_t *mounted;

	if (srv->mask != NULL && !srv->rootless)
		return NULL;
	mounted = srv->rootless ? mounted_in_host(srv) : json_null();
	if (srv->mask == NULL || !json_equal(mounted, srv->mask_for))
		return mounted;
	json_decref(mounted);
	return NULL;
}

int server_make_mask(struct server *srv, struct err *err)
{
	json_t *wanted;
	int rc;

	if (ablated("mask_layer"))
		return 0;
	while ((wanted = mask_wanted(srv)) != NULL && srv->masking) {
		json_decref(wanted);
		(void)waiters_wait(&srv->mask_tried, 0); /* the job has a deadline */
	}
	if (wanted == NULL)
		return 0;
	srv->masking = true;
	rc = make_mask(srv, wanted, err);
	srv->masking = false;
	waiters_wake(&srv->mask_tried);
	return rc;
}

/* Groups of keepers that nobody knows: pool keepers of a server that was killed (they end by themselves), jobs. */
static void bury_strangers(struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/keepers", srv->own_run);
	DIR *dir = opendir(path);
	const struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		char id[ID_LEN + 1];

		/* ID.sock of a keeper; ID.tpl, ID.state of a template */
		if (strlen(entry->d_name) <= ID_LEN || entry->d_name[ID_LEN] != '.')
			continue;
		memcpy(id, entry->d_name, ID_LEN);
		id[ID_LEN] = '\0';
		if (id_valid(id) && sandbox_by_id(srv, id) == NULL)
			spawner_cleanup(srv, id);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

static void startup_main(void *arg)
{
	struct server *srv = arg;
	struct err err;
	int rc;

	reserve_fill(srv);
	bury_strangers(srv);
	exec_saved_sweep(srv);
	credentials_sweep(srv);
	execs_past_clear(srv);
	telling_settle(srv);
	images_tell_again(srv);
	secrets_tell_again(srv);
	snapshots_tell_again(srv);
	rc = storage_run(
		srv, json_pack("{s:s,s:s}", "verb", "storage", "op", "init"), &srv->storage_error);
	if (rc < 0)
		log_err("store", &srv->storage_error);
	sandboxes_recover(srv);
	srv->recovered = true;
	if (rc >= 0)
		rc = store_recover(srv);
	if (rc == 0)
		steps_sweep(srv);
	if (rc == 0 && server_make_mask(srv, &err) < 0)
		log_error("store", "mask: %s", err.msg);
	become_ready(srv);
}

void server_busy(struct server *srv)
{
	srv->busy++;
}

void server_idle(struct server *srv)
{
	if (--srv->busy == 0)
		waiters_wake(&srv->idle);
}

/* On a connection that was there before; new ones find no socket. */
static void refuse_stopping(struct http_conn *conn)
{
	struct err err;

	(void)err_raise(&err, ERR_SHUTTING_DOWN, "the server is shutting down; nothing was done");
	(void)err_hint(&err, 0, "ask again: the next server answers");
	api_reply_error(conn, &err);
}

/* Requests that come during recovery wait for its end. */
static void dispatch(struct http_conn *conn, void *ctx)
{
	struct server *srv = ctx;

	if (srv->stopping) {
		refuse_stopping(conn);
		return;
	}
	server_busy(srv);
	while (!srv->ready)
		(void)waiters_wait(&srv->became_ready, 0);
	api_dispatch(conn, srv);
	(void)!http_taken(conn); /* who has not got its answer yet is worked for */
	server_idle(srv);
}

static int open_all(struct server *srv, struct err *err)
{
	cleanup_free char *db = str_dupf("%s/cay.db", srv->own_state),
			  *events = str_dupf("%s/events", srv->own_state);
	int rc = catalogue_open(db, srv->rootless, &srv->catalogue, err);

	if (rc == 0)
		rc = journal_open(events, &srv->journal, err);
	if (rc == 0) {
		rc = journal_keep_load(srv->journal);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "read the rules of the event log");
	}
	if (rc == 0)
		rc = sandboxes_load(srv, err);
	if (rc == 0)
		rc = execs_load(srv, err);
	if (rc == 0)
		rc = execs_past_load(srv, err);
	if (rc == 0)
		rc = snapshots_load(srv, err);
	if (rc == 0)
		rc = images_load(srv, err);
	if (rc == 0)
		rc = secrets_load(srv, err);
	return rc;
}

/* Who follows events hears of a client that has left when he next looks. */
static void on_crowded(void *ctx)
{
	struct server *srv = ctx;

	waiters_wake(&srv->events_changed);
}

static int watch_all(struct server *srv, const struct server_setup *setup)
{
	int rc;

	srv->processes = process_source_new(srv->journal, setup->connector);
	(void)uv_timer_init(srv->loop, &srv->housekeeping);
	srv->housekeeping.data = srv;
	(void)uv_timer_start(&srv->housekeeping, on_housekeeping, HOUSEKEEPING_MS, HOUSEKEEPING_MS);
	(void)uv_prepare_init(srv->loop, &srv->prepare);
	srv->prepare.data = srv;
	(void)uv_prepare_start(&srv->prepare, on_prepare);
	if (process_source_fd(srv->processes) >= 0) {
		(void)uv_poll_init(
			srv->loop, &srv->process_poll, process_source_fd(srv->processes));
		srv->process_poll.data = srv;
	}
	nameservers_init(srv);
	uncounted_init(&srv->uncounted, getenv("CAY_UNCOUNTED"));
	spare_init(srv);
	rc = keeper_pool_init(srv);
	if (rc == 0)
		rc = mounted_init(&srv->mounted);
	if (rc == 0)
		rc = spawner_init(srv);
	if (rc < 0)
		return rc;
	srv->http.handler = dispatch;
	srv->http.ctx = srv;
	srv->http.admit = admit;
	srv->http.crowded = on_crowded;
	return http_listen(&srv->http, srv->loop, setup->listen_fd);
}

/* Below 16 MiB nothing is gained (docs/design/0009, *What is needed first*). */
static uint64_t lazy_least(void)
{
	const char *said = getenv("CAY_LAZY_RESUME");

	if (said != NULL && str_eq(said, "0"))
		return UINT64_MAX;
	return said != NULL && str_eq(said, "1") ? 1 : 16U << 20;
}

/* A quarter of the machine's, or of a container's: the rest is for what runs. */
static uint64_t templates_most(void)
{
	const char *said = getenv("CAY_TEMPLATES");
	uint64_t all = uv_get_total_memory(), own = uv_get_constrained_memory(); /* 0 = no limit */
	uint64_t most = (own != 0 && own < all ? own : all) / 4;

	if (said != NULL && *said != '\0' && str_to_u64(said, 1, UINT64_MAX, &most) < 0)
		log_warn("live", "CAY_TEMPLATES is no number of bytes: '%s'", said);
	return most;
}

static struct server *server_new(const struct server_setup *setup)
{
	struct server *srv = xnew(struct server);
	const char *pool = getenv("CAY_POOL");
	uint64_t target;

	srv->templates_most = templates_most();
	srv->lazy_least = lazy_least();
	(void)!str_copy(srv->state, sizeof(srv->state), setup->state);
	(void)!str_copy(srv->run, sizeof(srv->run), setup->run);
	(void)!str_copy(srv->socket, sizeof(srv->socket), setup->socket);
	(void)snprintf(srv->own_state, sizeof(srv->own_state), "/proc/self/fd/%d", setup->state_fd);
	srv->state_fd = setup->state_fd;
	(void)snprintf(srv->own_run, sizeof(srv->own_run), "/proc/self/fd/%d", setup->run_fd);
	(void)!str_copy(srv->tag, sizeof(srv->tag), setup->tag);
	srv->rootless = setup->rootless;
	srv->uid_map = setup->uid_map;
	srv->build = setup->build;
	srv->trust = setup->trust;
	srv->through = setup->through;
	srv->uid = geteuid();
	srv->group = setup->group;
	srv->spawn_fd = setup->spawn_fd;
	srv->lock_fd = setup->lock_fd;
	srv->hold_listener = -1;
	(void)snprintf(srv->process_error, sizeof(srv->process_error), "%s", setup->process_error);
	srv->pool.target = pool != NULL && str_to_u64(pool, 0, POOL_MAX, &target) == 0
				   ? (unsigned int)target
				   : POOL_DEFAULT;
	list_init(&srv->keepers);
	list_init(&srv->acks);
	list_init(&srv->jobs);
	list_init(&srv->lives);
	list_init(&srv->sandboxes);
	list_init(&srv->snapshots);
	list_init(&srv->images);
	list_init(&srv->unsaved);
	waiters_init(&srv->keys_changed);
	waiters_init(&srv->events_changed);
	waiters_init(&srv->became_ready);
	waiters_init(&srv->settled);
	waiters_init(&srv->mask_tried);
	srv->reserve_missing = true;
	waiters_init(&srv->idle);
	list_init(&srv->pumps);
	list_init(&srv->leaving);
	srv->keys_busy = json_object();
	srv->trash = json_array();
	waiters_init(&srv->trash_changed);
	srv->buried = json_array();
	srv->past_gone = json_array();
	srv->damaged_runs = json_object();
	return srv;
}

static void on_signal(uv_signal_t *handle, attr_unused int number)
{
	server_stop(handle->data);
}

/* Nothing of ours stays mounted when nothing runs. A later start mounts it again. What is still done behind an answer is waited for, within reason. */
static void unmount_pool(struct server *srv)
{
	uint64_t deadline = clock_now_ns() + UNMOUNT_NS;
	struct waiters turn;
	struct err err;

	list_for_each (&srv->sandboxes, node, next) {
		if (sandbox_runs(list_entry(node, struct sandbox, node)))
			return;
	}
	if (srv->spawn_fd < 0 || srv->storage == NULL)
		return;
	waiters_init(&turn);
	while (job_run(srv, json_pack("{s:s,s:s}", "verb", "storage", "op", "unmount"), NULL, NULL,
		       NULL, &err) < 0) {
		if (err.code != ERR_BUSY || clock_now_ns() > deadline) {
			log_debug("store", "unmount: %s", err.msg);
			return;
		}
		(void)fault("server.unmount.busy");
		(void)waiters_wait(&turn, clock_now_ns() + UNMOUNT_AGAIN_NS);
	}
}

/* Those who wait for something to happen do not wait for ever; runs and attached clients go over to the next server. */
static void wake_waiting(struct server *srv)
{
	waiters_wake(&srv->events_changed);
	pumps_wake(srv);
	list_for_each (&srv->sandboxes, sb, sb_next) {
		waiters_wake(&list_entry(sb, struct sandbox, node)->changed);
		list_for_each (&list_entry(sb, struct sandbox, node)->execs, e, e_next) {
			waiters_wake(&list_entry(e, struct exec, node)->changed);
			exec_stdin_wake(list_entry(e, struct exec, node));
		}
	}
}

/* Nobody finds us any more; who has connected already is answered. */
static void end_listening(struct server *srv)
{
	struct waiters turn;

	waiters_init(&turn);
	hold_end(srv);
	if (unlink(srv->socket) < 0)
		log_debug("server", "remove '%s': %s", srv->socket, strerrordesc_np(errno));
	while (http_backlog(&srv->http))
		(void)waiters_wait(&turn, clock_now_ns() + NS_PER_MS);
	http_listen_end(&srv->http);
}

static void stop_main(void *arg)
{
	struct server *srv = arg;
	uint64_t deadline = clock_now_ns() + DRAIN_NS;

	end_listening(srv);
	srv->stopping = true;
	wake_waiting(srv);
	while (srv->busy > 0 && waiters_wait(&srv->idle, deadline) == 0)
		;
	if (srv->busy > 0)
		log_warn("server", "%u requests are cut off", srv->busy);
	snapshots_finish(srv, clock_now_ns() + WRITE_NS);
	sandbox_trash_finish(srv, clock_now_ns() + UNMOUNT_NS);
	keeper_drop_pool(srv);
	unmount_pool(srv);
	uv_stop(srv->loop);
}

void server_stop(struct server *srv)
{
	if (srv->ending)
		return;
	srv->ending = true;
	keeper_pool_end(srv);
	spare_end(srv);
	fiber_start(stop_main, srv);
}

int server_run(const struct server_setup *setup)
{
	struct server *srv = server_new(setup);
	uv_signal_t term, interrupt;
	sigset_t none;
	uv_loop_t loop;
	struct err err;

	(void)uv_loop_init(&loop);
	srv->loop = &loop;
	fiber_init(&loop);
	if (open_all(srv, &err) < 0) {
		log_err("server", &err);
		return 1;
	}
	if (watch_all(srv, setup) < 0) {
		log_error("server", "cannot watch the sockets");
		return 1;
	}
	if (setup->ready_fd >= 0) {
		(void)!write(setup->ready_fd, "", 1);
		(void)close(setup->ready_fd);
	}
	(void)uv_signal_init(&loop, &term);
	(void)uv_signal_init(&loop, &interrupt);
	term.data = interrupt.data = srv;
	(void)uv_signal_start(&term, on_signal, SIGTERM);
	(void)uv_signal_start(&interrupt, on_signal, SIGINT);
	(void)sigemptyset(&none); /* main() has held them back */
	(void)pthread_sigmask(SIG_SETMASK, &none, NULL);
	heads_settle(srv);
	(void)server_event(srv, NULL, EVENT_SERVER_STARTED, NULL,
		json_pack("{s:s,s:b}", "version", CAY_VERSION, "process_events",
			(int)(srv->process_error[0] == '\0')));
	fiber_start(startup_main, srv);
	(void)uv_run(&loop, UV_RUN_DEFAULT);
	heads_write(srv);
	journal_close(srv->journal);
	catalogue_close(srv->catalogue);
	return srv->failed ? 1 : 0; /* the rest goes with the process; keepers stay */
}

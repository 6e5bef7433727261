/* SPDX-License-Identifier: Apache-2.0 */
#include "api/keeper_pool.h"
#include "api/identity.h"
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"
#include "sys/mount.h"

#define PAUSE_NS        (NS_PER_S / 5)
#define REFILL_MS       1
#define REFILL_LATER_MS 15
#define POOL_RETRY_MS   1000

static void on_refill(uv_timer_t *timer);

static size_t pool_size(const struct server *srv, bool prepared)
{
	size_t n = 0;

	list_for_each (&srv->pool.ready, node, next) {
		const struct keeper *k = list_entry(node, struct keeper, pool_node);

		n += !k->failed && (!prepared || k->prepared);
	}
	return n;
}

size_t keeper_pool_prepared(const struct server *srv)
{
	return pool_size(srv, true);
}

void keeper_claim(struct keeper *k)
{
	list_remove(&k->pool_node);
}

/* --- which are stale --- */

/* Return: was anything mounted or taken off since the last look? */
static bool pool_look(struct server *srv)
{
	struct keeper_pool *p = &srv->pool;
	unsigned int lost = 0;

	if (!mount_changed(p->mount_watch))
		return false;
	list_for_each (&p->ready, node, next) {
		struct keeper *k = list_entry(node, struct keeper, pool_node);

		if (k->failed)
			continue;
		keeper_claim(k);
		list_append(&p->stale, &k->pool_node);
		lost++;
	}
	if (lost > 0)
		log_debug("pool", "mounts have changed: %u prepared sandboxes are stale", lost);
	calm_changed(&p->calm, clock_now_ns(), lost > 0);
	return true;
}

/* How well a keeper suits who begins with @beginning. One that is under way is nearer than a new one. */
static int suitability(const struct keeper *k, const json_t *beginning)
{
	int foreseen = beginning_same(k->foreseen, beginning) ? 3 : k->foreseen == NULL ? 2 : 1;

	return k->failed ? 0 : foreseen + (k->prepared ? 3 : 0);
}

static struct keeper *pool_find(struct server *srv, const json_t *beginning)
{
	struct keeper *best = NULL;
	int most = 0;

	list_for_each (&srv->pool.ready, node, next) {
		struct keeper *k = list_entry(node, struct keeper, pool_node);
		int suits = suitability(k, beginning);

		best = suits > most ? k : best;
		most = suits > most ? suits : most;
	}
	return best;
}

/* One that is made for @beginning alone is prepared for that, as one of the pool would be. Borrowed. */
json_t *keeper_foresee_for(const struct server *srv, json_t *beginning)
{
	const struct keeper_pool *p = &srv->pool;

	if (p->fork != NULL && beginning_same(beginning, p->fork))
		return p->fork;
	return beginnings_weight(&p->seen, beginning) > 0 ? beginning : NULL;
}

/* For what the next one of the pool is prepared. While the processes of one snapshot are forked, it is for that. Borrowed. */
static json_t *pool_foresee(const struct server *srv)
{
	const struct keeper_pool *p = &srv->pool;
	json_t *have[POOL_MAX];
	size_t n = 0;

	if (p->fork != NULL && beginning_same(beginnings_last(&p->seen), p->fork))
		return p->fork;
	list_for_each (&p->ready, node, next) {
		const struct keeper *k = list_entry(node, struct keeper, pool_node);

		if (!k->failed && n < POOL_MAX)
			have[n++] = k->foreseen;
	}
	return beginnings_lacking(&p->seen, p->target, have, n);
}

/* What a keeper is told of it; NULL: it has mounts of which nothing can be made ahead of time. */
static json_t *expectation(const struct sandbox *sb)
{
	static const char *const members[] = { "image", "lower", "limits", "profile" };
	json_t *spec = sandbox_spec(sb), *mounts = json_object_get(spec, "mounts"), *expect = NULL;
	const char *target =
		json_string_value(json_object_get(json_array_get(mounts, 0), "target"));

	if (json_array_size(mounts) == 1 && str_eq(target, IDENTITY_FILE) && !sandbox_has_disk(sb))
		expect = json_object();
	for (size_t i = 0; expect != NULL && i < ARRAY_SIZE(members); i++)
		(void)json_object_set(expect, members[i], json_object_get(spec, members[i]));
	json_decref(spec);
	return expect;
}

void keeper_learn_fork(const struct sandbox *sb, const char *snapshot)
{
	struct keeper_pool *p = &sb->srv->pool;
	json_t *fork = json_pack("{s:s}", "snapshot", snapshot), *expect;

	if (!beginning_same(fork, p->fork)) {
		json_decref(p->fork);
		expect = expectation(sb);
		p->fork = expect != NULL ? json_incref(fork) : NULL;
		if (expect != NULL)
			(void)json_object_set_new(fork, "expect", expect);
	}
	json_decref(fork);
}

void keeper_forget_fork(struct server *srv, const char *snapshot)
{
	struct keeper_pool *p = &srv->pool;
	json_t *fork = json_pack("{s:s}", "snapshot", snapshot);
	bool any = false;

	list_for_each (&p->ready, node, next) {
		struct keeper *k = list_entry(node, struct keeper, pool_node);

		if (k->failed || !beginning_same(fork, k->foreseen))
			continue;
		keeper_claim(k);
		list_append(&p->stale, &k->pool_node);
		any = true;
	}
	if (beginning_same(fork, p->fork)) {
		json_decref(p->fork);
		p->fork = NULL;
	}
	json_decref(fork);
	if (any)
		keeper_refill(srv);
}

struct keeper *keeper_take(struct server *srv, json_t *beginning)
{
	struct keeper *k;

	beginnings_note(&srv->pool.seen, beginning);
	(void)pool_look(srv);
	k = pool_find(srv, beginning);
	if (k == NULL)
		return NULL;
	keeper_claim(k);
	calm_used(&srv->pool.calm);
	return k;
}

/* --- clearing up --- */

/* One that pool_leave() has taken out. Context: waits. */
static void pool_discard(struct keeper *k)
{
	struct server *srv = k->srv;

	(void)keeper_ready(k, NULL); /* one that is being prepared is stopped when that is over */
	log_debug("pool", "%s is cleared up", k->id);
	keeper_end(k, false);
	sandbox_trash_note(srv, k->id); /* its live directory */
	slot_free(srv, k->slot);
	keeper_unref(k);
	srv->pool.discarding--;
	waiters_wake(&srv->pool.changed);
}

static struct keeper *pool_leave(struct keeper *k)
{
	keeper_claim(k);
	k->srv->pool.discarding++;
	return k;
}

static void discard_main(void *arg)
{
	pool_discard(arg);
}

static void bury_main(void *arg)
{
	struct keeper *k = arg;
	struct server *srv = k->srv;

	pool_discard(k);
	sandbox_trash_settle(srv);
}

/* One after the other, and after whatever somebody waits for. */
static void pool_clear(struct server *srv)
{
	struct keeper_pool *p = &srv->pool;

	while (!list_empty(&p->stale)) {
		if (p->starting > 0) /* each of them has a deadline */
			(void)waiters_wait(&p->changed, 0);
		else
			pool_discard(
				pool_leave(list_entry(p->stale.next, struct keeper, pool_node)));
	}
}

/* Keepers that failed in the pool, while they were prepared or behind it: say why once, clear up. */
static bool pool_bury(struct server *srv)
{
	bool any = false;

	list_for_each (&srv->pool.ready, node, next) {
		struct keeper *k = list_entry(node, struct keeper, pool_node);

		if (!k->failed)
			continue;
		log_warn("pool", "%s: %s",
			k->prepared ? "a prepared sandbox is lost"
				    : "a keeper could not be prepared",
			k->error.msg);
		any = true;
		fiber_start(bury_main, pool_leave(k));
	}
	return any;
}

void keeper_drop_pool(struct server *srv)
{
	struct keeper_pool *p = &srv->pool;

	/* somebody who fills it may go on meanwhile */
	while (!list_empty(&p->ready) || !list_empty(&p->stale) || p->discarding > 0) {
		struct list *from = !list_empty(&p->ready) ? &p->ready : &p->stale;

		if (!list_empty(from))
			fiber_start(discard_main,
				pool_leave(list_entry(from->next, struct keeper, pool_node)));
		else
			(void)waiters_wait(&p->changed, 0); /* each of them has a deadline */
	}
}

/* --- filling --- */

static bool pool_wants(const struct server *srv)
{
	/* not while what the catalogue does not know is cleared away */
	return !srv->stopping && srv->ready && srv->storage != NULL && srv->pool.paused == 0 &&
	       pool_size(srv, false) < srv->pool.target;
}

static uint64_t unquiet_ns(const struct server *srv)
{
	return calm_left_ns(&srv->pool.calm, clock_now_ns());
}

static bool pool_loses(const struct server *srv)
{
	list_for_each (&srv->pool.ready, node, next) {
		if (list_entry(node, struct keeper, pool_node)->failed)
			return true;
	}
	return false;
}

/* Until the pool is full, or mounts change. Return: 0, or -EIO when no keeper could be started or prepared, or one is lost again meanwhile. */
static int pool_fill(struct server *srv)
{
	struct err err;

	while (pool_wants(srv) && !pool_look(srv)) {
		struct keeper *k;

		if (pool_loses(srv))
			return -EIO;
		/* here, not in keeper_new(): others may have filled the pool by then */
		if (srv->pool.starting >= STARTING_MAX) {
			(void)waiters_wait(&srv->pool.changed, 0);
			continue;
		}
		k = keeper_new(srv, NULL, -1, &err);
		if (k == NULL) {
			log_warn("pool", "%s", err.msg);
			return -EIO;
		}
		k->foreseen = json_incref(pool_foresee(srv));
		list_append(&srv->pool.ready, &k->pool_node);
		if (keeper_ready(k, NULL) < 0)
			return -EIO;
	}
	return 0;
}

static void refill_in(struct server *srv, uint64_t ms)
{
	uv_timer_t *timer = &srv->pool.refill;

	if (!uv_is_active((uv_handle_t *)timer) || uv_timer_get_due_in(timer) > ms)
		(void)uv_timer_start(timer, on_refill, ms, 0);
}

/* What is prepared shows the machine as it is now. Without its mask there are still images. */
static void pool_renew_mask(struct server *srv)
{
	struct err err;

	if (pool_wants(srv) && server_make_mask(srv, &err) < 0)
		log_warn("pool", "mask: %s", err.msg);
}

static void refill_main(void *arg)
{
	struct server *srv = arg;
	int rc = 0;

	(void)pool_bury(srv);
	pool_clear(srv);
	sandbox_trash_settle(srv);
	(void)pool_look(srv);
	if (unquiet_ns(srv) == 0) {
		pool_renew_mask(srv);
		rc = pool_fill(srv);
	}
	if (pool_bury(srv) && !srv->stopping)
		refill_in(srv, POOL_RETRY_MS);
	if (rc == 0 && (pool_wants(srv) || !list_empty(&srv->pool.stale)))
		refill_in(srv, REFILL_LATER_MS + unquiet_ns(srv) / NS_PER_MS);
}

static void on_refill(uv_timer_t *timer)
{
	fiber_start(refill_main, timer->data);
}

void keeper_refill(struct server *srv)
{
	bool low = 2 * pool_size(srv, true) < srv->pool.target;

	/* later: preparing and clearing up take a processor away from whoever took the last one; but before the pool is empty */
	if (srv->ready)
		refill_in(srv, low && list_empty(&srv->pool.stale) ? REFILL_MS : REFILL_LATER_MS);
}

void keeper_pool_lost(struct keeper *k)
{
	if (!list_empty(&k->pool_node) && k->prepared && k->srv->ready && !k->srv->stopping)
		refill_in(k->srv, POOL_RETRY_MS);
}

void keeper_pool_pause(struct server *srv)
{
	struct keeper_pool *p = &srv->pool;
	uint64_t deadline = clock_now_ns() + PAUSE_NS;

	p->paused++;
	while (p->starting > 0 && clock_now_ns() < deadline)
		(void)waiters_wait(&p->changed, deadline);
}

void keeper_pool_resume(struct server *srv)
{
	if (--srv->pool.paused == 0)
		keeper_refill(srv);
}

/* --- the pool as a whole --- */

int keeper_pool_init(struct server *srv)
{
	struct keeper_pool *p = &srv->pool;

	list_init(&p->ready);
	list_init(&p->stale);
	waiters_init(&p->changed);
	(void)uv_timer_init(srv->loop, &p->refill);
	p->refill.data = srv;
	p->mount_watch = mount_watch();
	return p->mount_watch < 0 ? p->mount_watch : 0;
}

void keeper_pool_end(struct server *srv)
{
	(void)uv_timer_stop(&srv->pool.refill);
}

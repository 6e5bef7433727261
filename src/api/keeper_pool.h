/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/keeper_pool.h - keepers that are prepared before anybody asks for them.
 *
 * (1) Prepared keepers see the machine's mounts as they were. One that is behind is stale: nobody gets it, because below a file system that was mounted since its
 *     sandbox would find what that hides.
 * (2) Whoever wants a keeper waits for no stale one: those are cleared up when nothing is being prepared any more.
 * (3) The pool is filled only while mounts are quiet: calm.h.
 * (4) Keepers are prepared for what new sandboxes begin with (sandbox/foresight.h): with the cow mounts that the last of them began with, each by its share (api/beginnings.h); or as a fork with the
 *     processes of a snapshot, as long as it is that which is forked. One that was prepared for another beginning is the last to be taken: it has to make its root anew.
 *
 * A beginning is the mount, as it is in a specification, or {"snapshot": ID}; of the latter the pool has learned besides what a keeper is told: "expect".
 */
#ifndef CAY_API_KEEPER_POOL_H
#define CAY_API_KEEPER_POOL_H

#include "api/beginnings.h"
#include "api/calm.h"
#include "io/fiber.h"

#include <jansson.h>

#define POOL_MAX 256U /* CAY_POOL */

struct keeper;
struct sandbox;
struct server;

/** struct keeper_pool - all of it belongs to the loop's thread. */
struct keeper_pool {
	struct list ready;       /* nobody has claimed them; prepared, or on the way to it */
	struct list stale;       /* still to be cleared up */
	unsigned int target;     /* so many are wanted */
	unsigned int starting;   /* keepers that are being prepared, for whomever */
	unsigned int discarding; /* keepers of the pool that are being ended */
	unsigned int paused;     /* so many want nothing prepared for it just now */
	int mount_watch;         /* the machine's mounts */
	struct calm calm;        /* of these */
	struct beginnings seen;  /* what the last new sandboxes began with */
	json_t *fork;            /* the last beginning of a fork that was learned, or NULL */
	uv_timer_t refill;
	struct waiters changed; /* one more is prepared, or gone */
};

/** keeper_pool_init() - an empty pool; @srv has a loop. Return: 0 or -errno. */
int keeper_pool_init(struct server *srv);

/** keeper_pool_prepared() - how many are prepared. */
size_t keeper_pool_prepared(const struct server *srv);

/** keeper_pool_end() - nothing is filled from now on. */
void keeper_pool_end(struct server *srv);

/**
 * keeper_take() - a keeper of the pool, else one that is being prepared for it (keeper_ready() waits for that), or NULL.
 * @beginning: what its sandbox begins with, or NULL; borrowed. What the pool foresees is learned from it.
 */
struct keeper *keeper_take(struct server *srv, json_t *beginning);

/** keeper_foresee_for() - for what a keeper is prepared whose sandbox will begin with @beginning; NULL: for none. Borrowed. */
json_t *keeper_foresee_for(const struct server *srv, json_t *beginning);

/** keeper_learn_fork() - sandbox @sb runs with the processes of snapshot @snapshot: the next one probably does, too, and looks the same. */
void keeper_learn_fork(const struct sandbox *sb, const char *snapshot);

/** keeper_forget_fork() - nobody will fork the processes of @snapshot any more: what was prepared for that is cleared up, before its layers are. */
void keeper_forget_fork(struct server *srv, const char *snapshot);

/** keeper_claim() - it belongs to a sandbox, or is ended: the pool does not have it any more. */
void keeper_claim(struct keeper *k);

/** keeper_pool_lost() - @k has ended; of one that waited in the pool another is made after a second, though nobody asks for any. */
void keeper_pool_lost(struct keeper *k);

/** keeper_refill() - start keepers until the pool is full; soon, not at once. */
void keeper_refill(struct server *srv);

/** keeper_pool_pause() - until keeper_pool_resume() nothing is prepared for the pool, nor, for up to a fifth of a second, by anybody still. Each as often as the other. Context: waits. */
void keeper_pool_pause(struct server *srv);

/** keeper_pool_resume() - the pool is filled again. */
void keeper_pool_resume(struct server *srv);

/** keeper_drop_pool() - end all prepared keepers. Context: waits. */
void keeper_drop_pool(struct server *srv);

#endif

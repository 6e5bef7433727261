/* SPDX-License-Identifier: Apache-2.0 */
/* api/spare.c - see the header. */
#include "api/spare.h"
#include "api/lives.h"
#include "base/log.h"

#define LATER_MS \
	200 /* what the snapshot was taken for comes first; where one follows at once its memory is there still */
#define KEEP_MS      30000
#define STOCK_MOST   256U /* MiB, and no more than this part of the machine's memory: */
#define MEMORY_PARTS 64U

void spare_end(struct server *srv)
{
	(void)uv_timer_stop(&srv->spare.timer);
	live_drop(TAKE_PTR(srv->spare.live));
}

static void on_timer(uv_timer_t *timer)
{
	struct server *srv = timer->data;
	struct spare *s = &srv->spare;
	struct err err;

	if (s->live != NULL || srv->ending) {
		spare_end(srv);
		return;
	}
	s->live = live_begin(srv, s->stock_mib, &err);
	if (s->live == NULL)
		log_debug("live", "no spare template: %s", err.msg);
	else
		(void)uv_timer_start(timer, on_timer, KEEP_MS, 0);
}

void spare_init(struct server *srv)
{
	(void)uv_timer_init(srv->loop, &srv->spare.timer);
	srv->spare.timer.data = srv;
}

struct live *spare_take(struct server *srv, struct err *err)
{
	struct live *l = TAKE_PTR(srv->spare.live);

	(void)uv_timer_stop(&srv->spare.timer);
	if (l != NULL && live_alive(l) && l->error.code == ERR_NONE)
		return l;
	live_drop(l);
	return live_begin(srv, 0, err);
}

static uint32_t stock_for(uint64_t bytes)
{
	uint64_t most = uv_get_total_memory() / MEMORY_PARTS >> 20, mebibytes = (bytes >> 20) + 1;

	if (most > STOCK_MOST)
		most = STOCK_MOST;
	return (uint32_t)(mebibytes < most ? mebibytes : most);
}

void spare_want(struct server *srv, uint64_t bytes)
{
	struct spare *s = &srv->spare;

	s->stock_mib = stock_for(bytes);
	if (!srv->ending)
		(void)uv_timer_start(&s->timer, on_timer, s->live == NULL ? LATER_MS : KEEP_MS, 0);
}

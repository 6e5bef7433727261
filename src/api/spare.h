/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/spare.h - a template that is started before anybody wants one (docs/design/0006, *A template ahead of time*).
 *
 * A live snapshot is often followed by another. So some time behind one a template is started that makes as much memory as the last one took, and the next snapshot
 * takes that. It is given up when none has come for half a minute: who takes no live snapshots has none.
 */
#ifndef CAY_API_SPARE_H
#define CAY_API_SPARE_H

#include "base/err.h"

#include <stdint.h>
#include <uv.h>

struct live;
struct server;

/** struct spare - all of it belongs to the loop's thread. */
struct spare {
	struct live *live;  /* NULL = there is none */
	uint32_t stock_mib; /* that it is told to make */
	uv_timer_t timer;   /* it is started then, or given up */
};

/** spare_init() - there is none; @srv has a loop. */
void spare_init(struct server *srv);

/** spare_take() - the spare template, or one that is being started: live_ready(). NULL with @err set. */
struct live *spare_take(struct server *srv, struct err *err);

/** spare_want() - a live snapshot of @bytes was taken: one more may follow. */
void spare_want(struct server *srv, uint64_t bytes);

/** spare_end() - there is none from now on. */
void spare_end(struct server *srv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/stage.h - what a rule's action does: a stage gets a parsed request and gives an answer.
 *
 * A stage owns the exchange until it returns: it answers from here, forwards (forward()), changes the request and forwards it, or breaks the connection.
 */
#ifndef CAY_GATEWAY_STAGE_H
#define CAY_GATEWAY_STAGE_H

#include "gateway/exchange.h"

/** struct shaping - what is done to an answer's body on its way. */
struct shaping {
	bool truncates;
	uint64_t truncate_bytes; /* then the connection is broken */
	uint64_t rate_bytes;     /* per second; 0: as it comes */
};

/** stage_run() - carry out @x->verdict. Context: fiber; waits. */
void stage_run(struct exchange *x);

/** stage_sleep() - wait. Context: fiber. */
void stage_sleep(uint64_t ns);

/** forward() - ask the world and pass its answer on. @shape: NULL: as it comes. Context: fiber; waits. */
void forward(struct exchange *x, const struct shaping *shape);

/** forward_tick() - to be called now and then: look whether those who send no more are still there. */
void forward_tick(struct proxy *p);

#endif

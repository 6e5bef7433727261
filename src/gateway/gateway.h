/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/gateway.h - the gateway of one sandbox: its configuration, its events, its limits. One thread; all of it on the loop.
 *
 * It lives as long as its keeper. Configuration comes over connections that cayd opens (docs/design/0007); while there is none, nothing is accepted.
 */
#ifndef CAY_GATEWAY_GATEWAY_H
#define CAY_GATEWAY_GATEWAY_H

#include "base/buf.h"
#include "base/id.h"
#include "base/list.h"
#include "io/fiber.h"
#include "policy/policy.h"

#include <jansson.h>

#define GATEWAY_CONNS_MAX \
	1024 /* open connections of the sandbox; more wait in the listener's queue */
#define GATEWAY_EVENTS_MAX 4096 /* not acknowledged; when full, nothing new is accepted */
#define GATEWAY_MEMORY_MAX \
	(1024U << 20) /* RLIMIT_DATA; the stacks of fibers count whole, used or not; docs/design/0007 says what of */

struct budgets;
struct names;
struct owner;
struct resolver;
struct control;

struct gateway {
	uv_loop_t *loop;
	char sandbox[ID_LEN + 1];
	char boot[ID_LEN + 1]; /* of this process: makes event numbers unique */
	struct policy *policy; /* NULL until cayd has sent one */
	bool refuses; /* while there is none: cayd cannot send one, and nothing waits for it */
	uint64_t policy_version; /* changes with every new policy */
	json_t *config; /* what cayd sent last, see 0007 "configuration"; members are read by whoever owns them */
	uint32_t keeper_version;   /* of gateway/link.h, 0 = before it had one */
	int diag_fd;               /* sock_diag of the sandbox's network */
	int routes_fd;             /* nearby.h */
	struct names *names;       /* names.h */
	struct resolver *resolver; /* resolver.h */
	struct control *control;   /* to cayd */
	struct budgets *budgets;   /* budgets.h */
	struct list conns;
	size_t n_conns;
	struct waiters changed; /* configuration came, or room for events or connections */
	void *proxy;            /* the HTTP side's own: CA, leaves, upstream pools */
};

/**
 * gateway_event() - emit an event of the sandbox; it is kept until cayd has journalled it.
 * @type: a wire name of defs/events.def. @owner: NULL when unknown. @data: stolen; gets "id", unique for ever, and what is known of @owner's process. No secret may be in it.
 *
 * Return: its number, for gateway_event_written().
 */
uint64_t gateway_event(
	struct gateway *gw, const char *type, const struct owner *owner, json_t *data);

/** gateway_event_text() - the same with @data as JSON text: an object. */
uint64_t gateway_event_text(
	struct gateway *gw, const char *type, const struct owner *owner, const struct buf *data);

/** gateway_event_written() - wait until cayd has it in the journal. Return: 0; -EIO when it could not keep the mail in it; -ETIMEDOUT. Context: fiber; waits. */
int gateway_event_written(struct gateway *gw, uint64_t number, uint64_t deadline_ns) attr_must_use;

/** gateway_event_restate() - event @number, which is not acknowledged, says @data now; the rest as for gateway_event(). A cayd that has it as it was gets it once more. */
void gateway_event_restate(struct gateway *gw, uint64_t number, const char *type,
	const struct owner *owner, const json_t *data);

/** gateway_congested() - too many events wait for cayd: accept nothing new. */
bool gateway_congested(const struct gateway *gw);

/**
 * gateway_state() - tell cayd a part of the state that must survive this process, forks and snapshots.
 * @part: "names", "ca", "budgets", …: cayd keeps the last object of each part and sends all of them back as config.state. @value: stolen.
 *
 * Return: number for gateway_state_written().
 */
uint64_t gateway_state(struct gateway *gw, const char *part, json_t *value);

/** gateway_state_written() - wait until cayd has written that state down. Return: 0, -ETIMEDOUT. Context: fiber; waits. */
int gateway_state_written(struct gateway *gw, uint64_t number, uint64_t deadline_ns) attr_must_use;

/** gateway_fn - something happens to the whole gateway. */
typedef void gateway_fn(struct gateway *gw);

/** gateway_on_config() - register @fn (at most 8): @gw->policy and @gw->config were replaced; also called once for the first configuration. Before gateway_run(). */
void gateway_on_config(gateway_fn *fn);

/** gateway_on_hold() - register @fn (at most 8): the gateway stands still for a capture when all have returned; what cayd is to find in the state is said here. Before gateway_run(). */
void gateway_on_hold(gateway_fn *fn);

/** gateway_run() - be the gateway whose keeper is on descriptor %LINK_FD. Return: exit status. */
int gateway_run(void);

#endif

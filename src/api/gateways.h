/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/gateways.h - cayd's side of the gateways: policy goes out, events and state come in.
 *
 * A gateway is started by its keeper when it is first needed; the keeper says so (gateway.started), and cayd opens a connection to it through the keeper. Its state (names that
 * were given out, …) is kept in the catalogue by parts and goes back with the configuration; it belongs to the sandbox and is copied to what continues from it.
 */
#ifndef CAY_API_GATEWAYS_H
#define CAY_API_GATEWAYS_H

#include "base/err.h"

#include <jansson.h>

struct keeper;
struct sandbox;
struct server;

/** struct gateway_link - the connection to one gateway. */
struct gateway_link;

/**
 * gateway_policy_of() - the policy document of a SandboxCreate (members policy and allow), checked.
 * @ret: a new reference; JSON null when it asks for none. Return: 0, or -EINVAL with @err naming the place.
 */
int gateway_policy_of(const json_t *request, json_t **ret, struct err *err) attr_must_use;

/** gateway_ports() - [[first,last],…] that the sandbox's policy may let through: for its keeper. A new reference. */
json_t *gateway_ports(const struct sandbox *sb);

/** gateway_appeared() - the keeper has a gateway: connect to it and configure it, in a fiber of its own. */
void gateway_appeared(struct sandbox *sb);

/**
 * gateway_configure() - the sandbox's policy (or what else the configuration is made of) has changed: tell gateway and keeper. One that is
 * being started or reached is waited for.
 * Return: 0 = it holds from now on, also when there is no gateway yet; or an error: of the gateway, or it cannot be reached. Context: fiber; waits, half a minute at most.
 */
int gateway_configure(struct sandbox *sb, struct err *err) attr_must_use;

/** gateway_configure_surely() - as gateway_configure(), for what stays changed: a gateway that does not take it is connected to anew and told until it does. Context: fiber; waits. */
void gateway_configure_surely(struct sandbox *sb);

/** gateway_drain() - wait, a second at most, until all that was refused so far is in the journal. Cheap when there is no gateway. Context: fiber; waits. */
void gateway_drain(struct sandbox *sb);

/**
 * gateway_hold() - stop what goes out: when this returns the gateway does nothing at all until gateway_go(), and all that it did before is in the journal's and the catalogue's hands, budgets to
 * the last request. None is configured meanwhile. Return: 0, also when none runs, or an error: then nothing is held. Context: fiber; waits, some seconds at most.
 */
int gateway_hold(struct sandbox *sb, struct err *err) attr_must_use;

/** gateway_go() - undo gateway_hold(). */
void gateway_go(struct sandbox *sb);

/** gateway_ended() - the keeper has no gateway any more. */
void gateway_ended(struct sandbox *sb);

/** gateway_traffic() - a counter that moves when something passes the gateway; 0 without one. 0 or an error. Context: fiber; waits. */
int gateway_traffic(struct sandbox *sb, uint64_t *ret, struct err *err) attr_must_use;

/** gateway_trouble_over() - forget why it could not be configured. */
void gateway_trouble_over(struct sandbox *sb);

/** gateway_close() - the sandbox has stopped: let go of the connection. */
void gateway_close(struct sandbox *sb);

/** gateway_kept() - all parts of the state of @id; *@ret: a new reference, empty when there is none. Return: 0, or an error: it cannot be read (%ERR_CORRUPT: it is damaged), and *@ret is NULL. */
int gateway_kept(struct server *srv, const char *id, json_t **ret, struct err *err) attr_must_use;

/** gateway_state_put() - @id has the state @state from now on; an empty one is not written. 0 or an error. */
int gateway_state_put(
	struct server *srv, const char *id, const json_t *state, struct err *err) attr_must_use;

/** gateway_state_part() - one part of the state of @id; *@ret: a new reference, NULL when there is none. 0 or an error. */
int gateway_state_part(struct server *srv, const char *id, const char *part, json_t **ret,
	struct err *err) attr_must_use;

/** gateway_state_keep() - write that part, before there is a gateway. 0 or an error. */
int gateway_state_keep(struct server *srv, const char *id, const char *part, json_t *value,
	struct err *err) attr_must_use;

/** gateway_state_forget() - @id was removed. */
void gateway_state_forget(struct server *srv, const char *id);

#endif

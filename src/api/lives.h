/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/lives.h - snapshots with memory: the template process of each, and what cayd does around a capture and a restore (docs/design/0006).
 *
 * A template lives as long as its connection to cayd. What has to outlive the server lies on disk as well: api/memories.h.
 */
#ifndef CAY_API_LIVES_H
#define CAY_API_LIVES_H

#include "api/server.h"

#define LIVE_RESTORE_NS (120 * NS_PER_S)

/** struct live - the memory of one snapshot. */
struct live {
	struct list node; /* srv->lives */
	struct framelink link;
	char id[ID_LEN + 1]; /* of the template */
	bool ready;
	bool ended; /* cay-spawn said so, or says nothing any more */
	struct err error;
	json_t *execs; /* documents of the execs that were running */
	struct waiters changed;
	struct live *former; /* has died while somebody used it: it goes with this one, or before */
};

/** live_begin() - a template that is being started: live_ready(). @stock_mib: mebibytes that it makes while nobody wants anything of it. NULL with @err set. */
struct live *live_begin(struct server *srv, uint32_t stock_mib, struct err *err);

/** live_ready() - until it is there. Return: 0 or an error; then it is live_drop()ped by who began. Context: waits. */
int live_ready(struct live *l, struct err *err) attr_must_use;

/** live_new() - both: an empty template. NULL with @err set. Context: waits. */
struct live *live_new(struct server *srv, struct err *err);

/**
 * live_fits() - may a template of ours get the processes of @sb? Its keeper, which a former server started, may be of another version of cay, and its dumper is of the same.
 *
 * Return: 0, or an error that says what to do.
 */
int live_fits(const struct sandbox *sb, struct err *err) attr_must_use;

/** live_alive() - does its template still run? */
bool live_alive(const struct live *l);

/**
 * live_restoring() - note in the document of @sb, before it is started, that processes are to come into it: a server that dies before they have leaves
 * a sandbox that must not be taken for whole. @what: "fork" (of which nobody knows yet) or "rewind"; NULL = no longer.
 */
void live_restoring(struct sandbox *sb, const char *what);

/** live_came() - the processes of @l are in @sb: take over their programs, of which its keeper says @ok, the answer to `start` or `restore`. The caller saves @sb. Return: 0 or an error. */
int live_came(struct sandbox *sb, const struct live *l, const json_t *ok, struct err *err);

/** live_hold() - bring the processes of @l into @sb, which has been launched without them; they wait for live_go(): nothing has happened until then. Context: waits. Return: 0 or an error. */
int live_hold(struct sandbox *sb, const struct live *l, struct err *err);

/** live_go() - after live_hold(): they run. Context: waits. Return: 0 or an error; then some may have run. */
int live_go(struct sandbox *sb, struct err *err);

/** live_end() - end the template and wait until nothing of it is left. NULL is allowed. Context: waits. */
void live_end(struct live *l);

/** live_drop() - end the template. NULL is allowed. */
void live_drop(struct live *l);

/** live_on_spawn_event() - as for keepers and jobs. */
bool live_on_spawn_event(struct server *srv, const struct spawn_event *e);

/** lives_unreported() - as for keepers. */
void lives_unreported(struct server *srv);

#endif

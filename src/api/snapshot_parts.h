/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/snapshot_parts.h - what snapshots.c, snapshot_memory.c, snapshot_take.c, snapshot_settle.c, forks.c, rewind.c and prune.c share and nobody else needs; api/server.h has the rest. */
#ifndef CAY_API_SNAPSHOT_PARTS_H
#define CAY_API_SNAPSHOT_PARTS_H

#include "api/server.h"

/** snapshot_add() - put a snapshot with document @doc (stolen; its name stays as it is) into the list. Return: the list's reference. */
struct snapshot *snapshot_add(struct server *srv, const char *id, json_t *doc);

/** snapshot_unlist() - undo snapshot_add(), its memory included. What it needed on disk stays. */
void snapshot_unlist(struct server *srv, struct snapshot *s);

/** snapshot_set_live() - its processes are in @memory (stolen), measured by @figures (stolen, NULL = none). NULL @memory: it has none, or not any more. */
void snapshot_set_live(struct snapshot *s, struct live *memory, json_t *figures);

/** snapshot_memory() - the template with its processes, or NULL: it has ended meanwhile, or not been filled since the server started. Borrowed. */
struct live *snapshot_memory(struct snapshot *s);

/** snapshot_has_processes() - in a template or on disk. */
bool snapshot_has_processes(struct snapshot *s);

/** snapshot_has_lost_processes() - it was taken with some, and they went with the server that died, or their template, before they were on disk. */
bool snapshot_has_lost_processes(struct snapshot *s);

/** snapshot_recall() - the template with its processes, filled from disk when there is none. NULL with @err set. Borrowed; @s is held. Context: waits. */
struct live *snapshot_recall(struct server *srv, struct snapshot *s, struct err *err);

/** snapshot_forget_processes() - let go of them, in memory and on disk: now, or when the last that holds @s releases it. Context: waits; @s may be gone then. */
void snapshot_forget_processes(struct server *srv, struct snapshot *s);

/** snapshots_are_many() - have the templates more memory than they may (templates_most)? Whoever releases a snapshot ends those whose processes are on disk too. */
bool snapshots_are_many(const struct server *srv);

/** snapshots_make_room() - while they are many, write processes that are nowhere else, oldest first. What cannot be written is logged, and stays. Before a live snapshot, and
 * without the lock of its sandbox: the disk may take minutes, and who stops or removes that must not wait so long. Context: waits. */
void snapshots_make_room(struct server *srv);

/** snapshot_source() - the sandbox that it was taken from, or NULL: removed. Borrowed, not beyond the next wait. */
struct sandbox *snapshot_source(struct server *srv, const struct snapshot *s);

/** snapshot_announce() - event @type with @data (borrowed) follows from what is about to be written of @s: its document announces it (api/telling.h). */
void snapshot_announce(struct server *srv, struct snapshot *s, enum event_type type, json_t *data);

/** snapshot_object() - the API object, a new reference. */
json_t *snapshot_object(struct snapshot *s);

/** snapshot_name() - borrowed, NULL when it has none. */
const char *snapshot_name(const struct snapshot *s);

/** snapshot_called() - what messages call it: its name, else its id. Borrowed. */
const char *snapshot_called(const struct snapshot *s);

/** snapshot_drop() - remove it for good, and the layers that nothing else needs. ERR_BUSY while it is used. Context: waits. */
int snapshot_drop(struct server *srv, struct snapshot *s, struct err *err);

/** snapshot_unsynced() - those of its layers of which no durable snapshot says that they are on the disk; a new reference. Where a sync writes one alone, all of them have to be. */
json_t *snapshot_unsynced(struct server *srv, const struct snapshot *s);

/** snapshot_make_durable() - sync its layers, then say so in the catalogue. Context: waits. */
int snapshot_make_durable(struct server *srv, struct snapshot *s, struct err *err);

/** snapshot_keep_promise() - the same, for whoever has asked for a durable one. Return: 0, or an error that says that it is there all the same. Context: waits. */
int snapshot_keep_promise(struct server *srv, struct snapshot *s, struct err *err);

/** snapshot_verify() - compare its layers with their manifests; the state becomes `verified` or `corrupt`. Return: 0 or an error. Context: waits. */
int snapshot_verify(struct server *srv, struct snapshot *s, struct err *err);

#endif

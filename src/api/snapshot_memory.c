/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/snapshot_memory.c - the processes of snapshots: in a template, on disk, or both; who holds them, and how many templates stay.
 *
 * A template is charged to nobody's limit, and whoever takes a snapshot behind each step takes hundreds. So together they have a part of the machine's memory (templates_most), and beyond it
 * those end whose processes are on disk too, least recently used first; the next fork loads them again (docs/design/0006, *Templates that stay*).
 */
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "base/str.h"

void snapshot_set_live(struct snapshot *s, struct live *memory, json_t *figures)
{
	s->live = memory;
	s->used_ns = clock_now_ns();
	(void)json_object_set_new(
		s->doc, "files_only", json_boolean(memory == NULL && memory_of(s->doc) == NULL));
	(void)json_object_set_new(s->doc, "live", figures != NULL ? figures : json_null());
}

/* The template ends; what is on disk stays. */
static void put_away(struct snapshot *s)
{
	live_drop(s->live);
	snapshot_set_live(s, NULL, json_incref(json_object_get(s->doc, "live")));
}

struct live *snapshot_memory(struct snapshot *s)
{
	if (s->live == NULL || live_alive(s->live))
		return s->live;
	if (s->users == 0) /* nobody restores from it just now */
		put_away(s);
	return NULL;
}

bool snapshot_has_processes(struct snapshot *s)
{
	return snapshot_memory(s) != NULL || memory_of(s->doc) != NULL;
}

bool snapshot_has_lost_processes(struct snapshot *s)
{
	return json_is_object(json_object_get(s->doc, "live")) && !snapshot_has_processes(s) &&
	       !json_is_true(json_object_get(s->doc, "for_fork"));
}

struct live *snapshot_recall(struct server *srv, struct snapshot *s, struct err *err)
{
	struct live *l = snapshot_memory(s);

	s->used_ns = clock_now_ns();
	if (l != NULL)
		return l;
	if (memory_of(s->doc) == NULL) {
		(void)err_hint(err,
			err_raise(err, ERR_STATE, "snapshot '%s' has no processes, or not any more",
				snapshot_called(s)),
			"its files are there: --files-only (in the API: live: false)");
		return NULL;
	}
	l = memory_load(srv, memory_of(s->doc),
		json_object_get(json_object_get(s->doc, "memory"), "execs"), err);
	if (l == NULL)
		return NULL;
	/* somebody else may have been faster */
	if (snapshot_memory(s) != NULL) {
		live_drop(l);
		return s->live;
	}
	/* whoever uses one that has died meanwhile must find it still */
	l->former = s->live;
	snapshot_set_live(s, l, json_incref(json_object_get(s->doc, "live")));
	return l;
}

static void forget_processes(struct server *srv, struct snapshot *s)
{
	const char *id = memory_of(s->doc);
	cleanup_free char *memory = id != NULL ? str_dup(id) : NULL;

	keeper_forget_fork(srv, s->id);
	(void)json_object_del(s->doc, "memory");
	put_away(s);
	if (memory != NULL && snapshot_save(srv, s, false, NULL) == 0)
		memory_forget(srv, memory);
}

void snapshot_forget_processes(struct server *srv, struct snapshot *s)
{
	s->unwanted = s->users > 0;
	if (!s->unwanted)
		forget_processes(srv, s);
}

void snapshot_hold(struct snapshot *s)
{
	s->users++;
}

/* Its processes are on disk too, and nobody is at them. */
static bool can_go(const struct snapshot *s)
{
	return s->live != NULL && s->users == 0 && memory_of(s->doc) != NULL;
}

/* That of a sandbox that was suspended has no figures of a capture. */
static uint64_t size_of(const struct snapshot *s)
{
	const json_t *live = json_object_get(s->doc, "live"),
		     *from = json_is_object(live) ? live : json_object_get(s->doc, "memory");

	return (uint64_t)json_integer_value(json_object_get(from, "bytes"));
}

bool snapshots_are_many(const struct server *srv)
{
	uint64_t bytes = 0;

	list_for_each (&srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);

		if (s->live != NULL)
			bytes += size_of(s);
	}
	return bytes > srv->templates_most;
}

/* Return: NULL where no other one was used later: that one stays, however large it is. */
static struct snapshot *least_used(const struct server *srv)
{
	struct snapshot *least = NULL;
	uint64_t last = 0;

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (s->live != NULL && s->used_ns > last)
			last = s->used_ns;
		if (can_go(s) && (least == NULL || s->used_ns < least->used_ns))
			least = s;
	}
	return least != NULL && least->used_ns < last ? least : NULL;
}

void snapshot_release(struct server *srv, struct snapshot *s)
{
	struct snapshot *least;

	if (--s->users > 0)
		return;
	if (s->live != NULL)
		live_drop(TAKE_PTR(s->live->former));
	if (s->unwanted) {
		s->unwanted = false;
		forget_processes(srv, s);
	} else if (can_go(s) && json_object_get(s->doc, "steps") != NULL) {
		put_away(s); /* one of many: it needs no template between its uses */
	}
	while (snapshots_are_many(srv) && (least = least_used(srv)) != NULL)
		put_away(least);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/keys.h"
#include "api/memories.h"
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"

#include <stdlib.h>

/* What of a document is counted: a text, or an array of them, which is replaced when it changes, never written to. */
struct member {
	const char *name, *inner; /* @inner: member of the object that it is, or NULL */
	size_t tally;             /* where in struct index */
};

#define IN(what) offsetof(struct index, what)
static const struct member of_sandbox[] = {
	{ "layers", NULL, IN(layers) },
	{ "base_layers", NULL, IN(layers) },
	{ "base", NULL, IN(bases) },
	{ "memory", "id", IN(memories) },
	{ "suspending", NULL, IN(memories) },
};
static const struct member of_snapshot[] = {
	{ "layers", NULL, IN(layers) },
	{ "memory", "id", IN(memories) },
};
#undef IN

enum { BY_RUN = ARRAY_SIZE(of_sandbox), BY_KEY, BY_END };
_Static_assert(BY_END == INDEXED_MAX, "as many as a sandbox has");

static struct tally *tally_at(struct index *x, const struct member *m)
{
	return (struct tally *)(void *)((char *)x + m->tally);
}

static json_t *value_of(const json_t *doc, const char *name, const char *inner)
{
	json_t *value = json_object_get(doc, name);

	return inner != NULL ? json_object_get(value, inner) : value;
}

static void each_text(json_t *value, struct tally *t, void (*fn)(struct tally *, const char *))
{
	json_t *text;
	size_t i;

	if (json_is_string(value))
		fn(t, json_string_value(value));
	json_array_foreach (value, i, text)
		fn(t, json_string_value(text));
}

/* @doc: NULL for none of it any more. */
static void count(struct index *x, struct indexed *in, const json_t *doc,
	const struct member *members, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		json_t *now = value_of(doc, members[i].name, members[i].inner),
		       *before = in->values[i];

		if (now == before)
			continue;
		in->values[i] = json_incref(now);
		each_text(now, tally_at(x, &members[i]), tally_add);
		each_text(before, tally_at(x, &members[i]), tally_drop);
		json_decref(before);
	}
}

static json_t *key_of(const json_t *doc, const char *name, const char *inner)
{
	json_t *value = value_of(doc, name, inner);

	return json_is_string(value) ? value : NULL;
}

/* @now: the text by which @node is found from now on, or NULL. It stays as long as we hold it. */
static void file(struct map *m, struct map_node *node, json_t **held, json_t *now)
{
	if (now == *held)
		return;
	map_remove(m, node);
	json_decref(*held);
	*held = json_incref(now);
	if (now != NULL)
		map_add(m, node, json_string_value(now));
}

static void index_document(struct sandbox *sb, const json_t *doc)
{
	struct index *x = &sb->srv->index;

	count(x, &sb->indexed, doc, of_sandbox, ARRAY_SIZE(of_sandbox));
	file(&x->runs, &sb->by_run, &sb->indexed.values[BY_RUN], key_of(doc, "run", "key"));
	file(&x->keys, &sb->by_key, &sb->indexed.values[BY_KEY], key_of(doc, "key", NULL));
}

void sandbox_index(struct sandbox *sb)
{
	if (!sb->gone)
		index_document(sb, sb->doc);
}

void sandbox_unindex(struct sandbox *sb)
{
	index_document(sb, NULL);
}

void snapshot_index(struct server *srv, struct snapshot *s)
{
	count(&srv->index, &s->indexed, s->doc, of_snapshot, ARRAY_SIZE(of_snapshot));
}

void snapshot_unindex(struct server *srv, struct snapshot *s)
{
	count(&srv->index, &s->indexed, NULL, of_snapshot, ARRAY_SIZE(of_snapshot));
}

/* --- what is being made --- */

static struct tally *tally_of(struct index *x, enum making what)
{
	return what == MAKING_LAYER ? &x->layers : &x->memories;
}

void index_making(struct server *srv, enum making what, const char *id)
{
	tally_add(tally_of(&srv->index, what), id);
	tally_add(&srv->index.making, id);
}

void index_made(struct server *srv, enum making what, const char *id)
{
	tally_drop(tally_of(&srv->index, what), id);
	tally_drop(&srv->index.making, id);
}

/* --- the invariant --- */

static void compare(void *ctx, const char *what, size_t n)
{
	const struct tally *found = ctx;

	if (tally_count(found, what) == n)
		return;
	log_error("index", "'%s' is counted %zu times, and named %zu times", what, n,
		tally_count(found, what));
	abort();
}

static void must_be_same(const struct tally *counted, struct tally *found)
{
	tally_each(counted, compare, found);
	BUG_ON(tally_kinds(counted) != tally_kinds(found));
	tally_free(found);
}

static void add_all(struct index *found, const json_t *doc, const struct member *members, size_t n)
{
	for (size_t i = 0; i < n; i++)
		each_text(value_of(doc, members[i].name, members[i].inner),
			tally_at(found, &members[i]), tally_add);
}

struct makers {
	const struct index *counted;
	struct index *found;
};

/* A layer's id is no memory's, so one of the two has it. */
static void add_making(void *ctx, const char *id, size_t n)
{
	struct makers *m = ctx;
	bool layer = tally_count(&m->counted->layers, id) > 0;

	for (; n > 0; n--)
		tally_add(layer ? &m->found->layers : &m->found->memories, id);
}

/* By a full walk, which is why the tests alone do it. */
static void check(struct server *srv)
{
	struct index found = { 0 };
	struct makers makers = { &srv->index, &found };

	if (!fiber_strict())
		return;
	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		add_all(&found, sb->doc, of_sandbox, ARRAY_SIZE(of_sandbox));
		BUG_ON(sb->indexed.values[BY_RUN] != key_of(sb->doc, "run", "key"));
		BUG_ON(sb->indexed.values[BY_KEY] != key_of(sb->doc, "key", NULL));
	}
	list_for_each (&srv->snapshots, node, next)
		add_all(&found, list_entry(node, struct snapshot, node)->doc, of_snapshot,
			ARRAY_SIZE(of_snapshot));
	tally_each(&srv->index.making, add_making, &makers);
	must_be_same(&srv->index.layers, &found.layers);
	must_be_same(&srv->index.bases, &found.bases);
	must_be_same(&srv->index.memories, &found.memories);
}

/* --- questions --- */

bool layer_in_use(struct server *srv, const char *layer)
{
	check(srv);
	return tally_count(&srv->index.layers, layer) > 0;
}

bool memory_in_use(struct server *srv, const char *id)
{
	check(srv);
	return tally_count(&srv->index.memories, id) > 0;
}

bool snapshot_is_base(struct server *srv, const struct snapshot *s)
{
	return tally_count(&srv->index.bases, s->id) > 0;
}

struct sandbox *sandbox_by_run(struct server *srv, const char *key)
{
	struct map_node *node = map_find(&srv->index.runs, key);

	return node != NULL ? map_entry(node, struct sandbox, by_run) : NULL;
}

struct sandbox *sandbox_by_key(struct server *srv, const char *key)
{
	struct map_node *node;

	while ((node = map_find(&srv->index.keys, key)) != NULL) {
		struct sandbox *sb = map_entry(node, struct sandbox, by_key);

		if (keys_counts(sb->doc))
			return sb;
		/* there may be a younger one; the next change of this one writes it */
		(void)json_object_del(sb->doc, "key");
		(void)json_object_del(sb->doc, "key_hash");
		sandbox_index(sb);
	}
	return NULL;
}

static void add_id(void *ctx, const char *what, attr_unused size_t n)
{
	(void)json_array_append_new(ctx, json_string(what));
}

static json_t *all_of(struct server *srv, const struct tally *t)
{
	json_t *ids = json_array();

	check(srv);
	tally_each(t, add_id, ids);
	return ids;
}

json_t *server_known_layers(struct server *srv)
{
	return all_of(srv, &srv->index.layers);
}

json_t *server_known_memories(struct server *srv)
{
	return all_of(srv, &srv->index.memories);
}

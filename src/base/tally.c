/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tally.h"
#include "base/str.h"

#include <stdlib.h>

struct count {
	struct map_node node;
	size_t n;
	char what[];
};

static struct count *find(const struct tally *t, const char *what)
{
	struct map_node *node = map_find(&t->counts, what);

	return node != NULL ? map_entry(node, struct count, node) : NULL;
}

void tally_add(struct tally *t, const char *what)
{
	struct count *c = find(t, what);
	size_t length = strlen(what);

	if (c == NULL) {
		c = xalloc(sizeof(*c) + length + 1);
		memcpy(c->what, what, length + 1);
		map_add(&t->counts, &c->node, c->what);
	}
	c->n++;
}

void tally_drop(struct tally *t, const char *what)
{
	struct count *c = find(t, what);

	BUG_ON(c == NULL);
	if (--c->n > 0)
		return;
	map_remove(&t->counts, &c->node);
	free(c);
}

size_t tally_count(const struct tally *t, const char *what)
{
	const struct count *c = find(t, what);

	return c != NULL ? c->n : 0;
}

size_t tally_kinds(const struct tally *t)
{
	return t->counts.n;
}

void tally_each(const struct tally *t, void (*fn)(void *ctx, const char *what, size_t n), void *ctx)
{
	struct map_node *node = NULL;

	while ((node = map_next(&t->counts, node)) != NULL) {
		const struct count *c = map_entry(node, struct count, node);

		fn(ctx, c->what, c->n);
	}
}

void tally_free(struct tally *t)
{
	for (struct map_node *node = map_next(&t->counts, NULL), *next; node != NULL; node = next) {
		next = map_next(&t->counts, node);
		map_remove(&t->counts, node);
		free(map_entry(node, struct count, node));
	}
	map_free(&t->counts);
}

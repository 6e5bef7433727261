/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"
#include "t.h"

#include <stdlib.h>

struct item {
	char name[16];
	struct map_node node;
};

static const struct item *item_of(const struct map *m, const char *name)
{
	struct map_node *n = map_find(m, name);

	return n != NULL ? map_entry(n, struct item, node) : NULL;
}

TEST(an_empty_one_finds_nothing)
{
	struct map m = { 0 };
	struct map_node never = { 0 };

	check(map_find(&m, "") == NULL && map_find(&m, "x") == NULL);
	map_remove(&m, &never);
	check_int((int)m.n, 0);
	map_free(&m);
}

TEST(the_first_of_two_with_one_key_is_found)
{
	struct item a = { .name = "same" }, b = { .name = "same" };
	struct map m = { 0 };

	map_add(&m, &a.node, a.name);
	map_add(&m, &b.node, b.name);
	check(item_of(&m, "same") == &a);
	map_remove(&m, &a.node);
	check(item_of(&m, "same") == &b);
	map_remove(&m, &a.node); /* twice */
	check(item_of(&m, "same") == &b && item_of(&m, "sam") == NULL);
	map_free(&m);
}

TEST(a_walk_meets_each_once)
{
	enum { MANY = 100 };
	struct item items[MANY] = { 0 };
	bool met[MANY] = { false };
	struct map m = { 0 };
	int n = 0;

	check(map_next(&m, NULL) == NULL);
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(items[i].name, sizeof(items[i].name), "%d", i / 2);
		map_add(&m, &items[i].node, items[i].name);
	}
	for (struct map_node *at = map_next(&m, NULL); at != NULL; at = map_next(&m, at), n++) {
		long i = map_entry(at, struct item, node) - items;

		check(!met[i]);
		met[i] = true;
	}
	check_int(n, MANY);
	map_free(&m);
}

TEST(thousands_come_and_go)
{
	enum { MANY = 5000 };
	struct item *items = calloc(MANY, sizeof(*items));
	struct map m = { 0 };

	for (int i = 0; i < MANY; i++) {
		(void)snprintf(items[i].name, sizeof(items[i].name), "item-%d", i);
		map_add(&m, &items[i].node, items[i].name);
	}
	for (int i = 0; i < MANY; i += 2)
		map_remove(&m, &items[i].node);
	check_int((int)m.n, MANY / 2);
	for (int i = 0; i < MANY; i++)
		check(item_of(&m, items[i].name) == (i % 2 != 0 ? &items[i] : NULL));
	map_free(&m);
	free(items);
}

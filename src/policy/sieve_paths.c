/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sieve_paths.h"
#include "base/str.h"
#include "policy/pattern.h"

#define NONE UINT32_MAX

struct path_node {
	char *part;
	bool star, is_index, ends;
	uint64_t index;
	size_t string_bytes;
	uint32_t child, sibling;
};

struct sieve_paths {
	struct path_node *nodes; /* the first one is the whole text */
	size_t n, cap;
};

static uint32_t add_node(struct sieve_paths *paths, const char *part)
{
	struct path_node *node;

	if (paths->n == paths->cap) {
		paths->cap = paths->cap * 2 + 16;
		paths->nodes = reallocarray(paths->nodes, paths->cap, sizeof(*paths->nodes));
		if (paths->nodes == NULL)
			abort();
	}
	node = &paths->nodes[paths->n];
	*node = (struct path_node){ .part = str_dup(part), .child = NONE, .sibling = NONE };
	node->star = part != NULL && str_eq(part, "*");
	node->is_index = part != NULL && str_to_u64(part, 0, SIZE_MAX, &node->index) == 0;
	return (uint32_t)paths->n++;
}

struct sieve_paths *sieve_paths_new(void)
{
	struct sieve_paths *paths = xnew(struct sieve_paths);

	(void)add_node(paths, NULL);
	return paths;
}

static uint32_t child_named(struct sieve_paths *paths, uint32_t parent, const char *part)
{
	uint32_t i = paths->nodes[parent].child;

	while (i != NONE && !str_eq(paths->nodes[i].part, part))
		i = paths->nodes[i].sibling;
	if (i != NONE)
		return i;
	i = add_node(paths, part);
	paths->nodes[i].sibling = paths->nodes[parent].child;
	paths->nodes[parent].child = i;
	return i;
}

void sieve_paths_add(struct sieve_paths *paths, const char *pointer, size_t string_bytes)
{
	char part[PATTERN_GLOB_MAX + 1];
	struct path_node *end;
	uint32_t at = 0;

	if (*pointer != '/') /* "*" is a name here, and kept as such when all names are */
		at = child_named(paths, at, pointer);
	while (*pointer == '/') {
		pointer = pointer_part(pointer, part);
		at = child_named(paths, at, part);
	}
	end = &paths->nodes[at];
	end->ends = true;
	if (end->string_bytes < string_bytes)
		end->string_bytes = string_bytes;
}

void sieve_paths_free(struct sieve_paths *paths)
{
	for (size_t i = 0; paths != NULL && i < paths->n; i++)
		free(paths->nodes[i].part);
	if (paths != NULL)
		free(paths->nodes);
	free(paths);
}

/* ---- sets ------------------------------------------------------------------------------------------------------------------- */

static void put(const struct sieve_paths *paths, struct sieve_set *set, uint32_t i)
{
	const struct path_node *node = &paths->nodes[i];

	if (set->n == set->cap) {
		set->cap = set->cap * 2 + 8;
		set->nodes = reallocarray(set->nodes, set->cap, sizeof(*set->nodes));
		if (set->nodes == NULL)
			abort();
	}
	set->nodes[set->n++] = i;
	set->ends = set->ends || node->ends;
	if (node->ends && set->string_bytes < node->string_bytes)
		set->string_bytes = node->string_bytes;
}

static void reset(struct sieve_set *set)
{
	set->n = set->string_bytes = 0;
	set->ends = set->alike = false;
}

void sieve_set_begin(const struct sieve_paths *paths, struct sieve_set *ret)
{
	reset(ret);
	put(paths, ret, 0);
}

void sieve_set_member(const struct sieve_paths *paths, const struct sieve_set *from,
	const char *key, struct sieve_set *ret)
{
	reset(ret);
	for (size_t k = 0; k < from->n; k++) {
		for (uint32_t i = paths->nodes[from->nodes[k]].child; i != NONE;
			i = paths->nodes[i].sibling) {
			const struct path_node *node = &paths->nodes[i];

			if (node->star || str_eq(node->part, key))
				put(paths, ret, i);
			else if (pointer_same_name(key, node->part))
				ret->alike = true;
		}
	}
}

void sieve_set_element(const struct sieve_paths *paths, const struct sieve_set *from,
	uint64_t index, struct sieve_set *ret)
{
	reset(ret);
	for (size_t k = 0; k < from->n; k++)
		for (uint32_t i = paths->nodes[from->nodes[k]].child; i != NONE;
			i = paths->nodes[i].sibling)
			if (paths->nodes[i].star ||
				(paths->nodes[i].is_index && paths->nodes[i].index == index))
				put(paths, ret, i);
}

bool sieve_set_counts(const struct sieve_paths *paths, const struct sieve_set *from)
{
	for (size_t k = 0; k < from->n; k++)
		for (uint32_t i = paths->nodes[from->nodes[k]].child; i != NONE;
			i = paths->nodes[i].sibling)
			if (paths->nodes[i].is_index)
				return true;
	return false;
}

bool sieve_set_names(const struct sieve_paths *paths, const struct sieve_set *from)
{
	for (size_t k = 0; k < from->n; k++)
		for (uint32_t i = paths->nodes[from->nodes[k]].child; i != NONE;
			i = paths->nodes[i].sibling)
			if (!paths->nodes[i].star && !paths->nodes[i].is_index)
				return true;
	return false;
}

void sieve_set_fini(struct sieve_set *set)
{
	free(set->nodes);
	*set = (struct sieve_set){ 0 };
}

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/list.h - a circular doubly linked list whose nodes live inside the objects. */
#ifndef CAY_BASE_LIST_H
#define CAY_BASE_LIST_H

#include "base/attr.h"

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

/** list_remove() - take @node out; safe to call twice. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

#define list_entry(node, type, member) container_of(node, type, member)

/** list_walks - how many list_for_each() are under way in this thread: io/fiber.c refuses to change fibers in one. */
extern _Thread_local unsigned list_walks;

static inline bool list_walk_begin(void)
{
	list_walks++;
	return true;
}

static inline void list_walk_end(attr_unused const bool *walk)
{
	list_walks--;
}

/**
 * list_for_each() - @pos walks the nodes; @tmp, the node behind it, is held so that @pos may be removed.
 *
 * Nobody else may change the list meanwhile, so the body must not wait nor let fibers run (io/fiber.h). Where it has to, walk over references that
 * were collected before.
 */
#define list_for_each(head, pos, tmp) \
	for (bool walk_##pos cleanup(list_walk_end) = list_walk_begin(); walk_##pos; \
		walk_##pos = false) \
		for (struct list *pos = (head)->next, *tmp = pos->next; pos != (head); \
			pos = tmp, tmp = pos->next)

#endif

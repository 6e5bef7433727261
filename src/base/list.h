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

/** list_for_each() - @pos walks the nodes; @next is held so that @pos may be removed. */
#define list_for_each(head, pos, tmp) \
	for (struct list *pos = (head)->next, *tmp = pos->next; pos != (head); \
		pos = tmp, tmp = pos->next)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "base/list.h"

struct item {
	int value;
	struct list link;
};

static int sum_removing_odd(struct list *head)
{
	int sum = 0;

	list_for_each (head, node, next) {
		struct item *item = list_entry(node, struct item, link);

		sum = sum * 10 + item->value;
		if (item->value % 2 != 0)
			list_remove(node);
	}
	return sum;
}

TEST(empty_has_nothing_to_walk)
{
	struct list head;

	list_init(&head);
	check(list_empty(&head));
	check_int(sum_removing_odd(&head), 0);
}

TEST(keeps_order_and_may_lose_the_current_node)
{
	struct item items[] = { { .value = 1 }, { .value = 2 }, { .value = 3 }, { .value = 4 } };
	struct list head;

	list_init(&head);
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		list_append(&head, &items[i].link);
	check(!list_empty(&head));
	check_int(sum_removing_odd(&head), 1234);
	check_int(sum_removing_odd(&head), 24);
}

TEST(removing_twice_is_harmless)
{
	struct item a = { .value = 1 }, b = { .value = 2 };
	struct list head;

	list_init(&head);
	list_append(&head, &a.link);
	list_append(&head, &b.link);
	list_remove(&a.link);
	list_remove(&a.link);
	check_int(sum_removing_odd(&head), 2);
	list_remove(&b.link);
	check(list_empty(&head));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/first.h"

#include <string.h>

static bool same_piece(const struct template_first *a, int32_t pid, uint64_t address)
{
	return a->pid == pid && a->address / TEMPLATE_PIECE == address / TEMPLATE_PIECE;
}

void first_add(struct first *f, int32_t pid, uint64_t address)
{
	for (size_t i = 0; i < f->n; i++) {
		if (same_piece(&f->list[i], pid, address))
			return;
	}
	if (f->n < TEMPLATE_FIRST_MAX)
		f->list[f->n++] = (struct template_first){ .pid = pid, .address = address };
}

void first_join(struct first *f, const struct first *before)
{
	for (size_t i = 0; i < before->n; i++)
		first_add(f, before->list[i].pid, before->list[i].address);
}

json_t *first_describe(const struct first *f)
{
	json_t *list = json_array();

	for (size_t i = 0; i < f->n; i++)
		(void)json_array_append_new(
			list, json_pack("[i,I]", f->list[i].pid, (json_int_t)f->list[i].address));
	return list;
}

static void read_list(const json_t *o, struct first *f)
{
	f->n = 0;
	for (size_t i = 0; i < json_array_size(o); i++) {
		const json_t *one = json_array_get(o, i);

		first_add(f, (int32_t)json_integer_value(json_array_get(one, 0)),
			(uint64_t)json_integer_value(json_array_get(one, 1)));
	}
}

void first_of_state(const struct buf *state, struct first *f)
{
	const char *end = state->n == 0 ? NULL : memchr(state->p, '\n', state->n);
	json_t *head = end == NULL ? NULL : json_loadb(state->p, (size_t)(end - state->p), 0, NULL);

	read_list(json_object_get(head, "first"), f);
	json_decref(head);
}

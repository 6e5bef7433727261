/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/first.h - what programs touched first when their memory was loaded behind their back: recorded at one resume, in place before anything runs at the next (docs/design/0009).
 */
#ifndef CAY_CHECKPOINT_FIRST_H
#define CAY_CHECKPOINT_FIRST_H

#include "base/buf.h"
#include "checkpoint/template_wire.h"

#include <jansson.h>

/** struct first - places, each of them once, what came first before the others. */
struct first {
	struct template_first list[TEMPLATE_FIRST_MAX];
	size_t n;
};

/** first_add() - append a place, unless there is no room, or it is there by the same piece of memory (TEMPLATE_PIECE). */
void first_add(struct first *f, int32_t pid, uint64_t address);

/** first_join() - behind what @f has come those of @before, as far as there is room. */
void first_join(struct first *f, const struct first *before);

/** first_describe() - for the state that is carried. Return: new reference. */
json_t *first_describe(const struct first *f);

/** first_of_state() - out of the carried state, whose first line has it as the member "first". What is malformed, or not there, names nothing. */
void first_of_state(const struct buf *state, struct first *f);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/carry.h - running execs of a sandbox as bytes, so that a fork's keeper goes on with them: ids, rings, input that waits, deadlines.
 *
 * The first holder of docs/design/0006. Taken while every process of the sandbox is stopped, so what a program wrote and what its keeper read are one state:
 * bytes that still lie in an output pipe become the end of the carried ring, bytes in an input pipe the beginning of the carried input.
 */
#ifndef CAY_SANDBOX_CARRY_H
#define CAY_SANDBOX_CARRY_H

#include "base/list.h"
#include "checkpoint/dump_wire.h"
#include "checkpoint/first.h"
#include "sandbox/box.h"
#include "sandbox/exec.h"

#define CARRY_MAX ((size_t)1 << 30)

/**
 * carry_slots() - the program's ends of the pipes of all running @execs, and their terminals, for the dumper.
 * @masters: room for TEMPLATE_SLOTS_MAX: the masters of the terminals, borrowed. Return: how many masters, or -E2BIG, -errno.
 */
int carry_slots(const struct list *execs, struct dump_order *order, int *masters) attr_must_use;

/** carry_save() - write the running @execs, whose clocks are as @clocks says; slots are numbered as by carry_slots(). @leaves: those of @order. @first: carried for the next time that memory comes from disk. @numbers: of open files (sandbox/numbers.h), NULL = there are none. Return: 0, -EBUSY when there is no room for the output of a terminal, -EAGAIN when one of them has ended since carry_slots(), -errno. */
int carry_save(const struct list *execs, const struct dump_order *order,
	const struct clocks *clocks, const struct first *first, json_t *numbers,
	struct buf *out) attr_must_use;

/** carry_clocks() - what their clocks said (clocks_save()); new reference, NULL when @in does not say. */
json_t *carry_clocks(const struct buf *in);

/** carry_numbers() - the numbers of open files; new reference, NULL when there are none. */
json_t *carry_numbers(const struct buf *in);

/** struct carried - what a fork's keeper makes of it. */
struct carried {
	struct list execs; /* EXEC_STARTING; their pids inside are in @inside */
	size_t n_execs;
	int32_t inside[TEMPLATE_SLOTS_MAX];
	int slots[TEMPLATE_SLOTS_MAX]; /* the programs' ends, owned */
	size_t n_slots;
	char leaves[TEMPLATE_LEAVES_MAX][DUMP_LEAF_SIZE];
	size_t n_leaves;
};

/** carry_load() - the other way: new pipes, same ids, rings and input. @c: carried_fini() in any case. Return: 0 or an error. */
int carry_load(const struct box *box, const struct buf *in, struct carried *c,
	struct err *err) attr_must_use;

/** carried_fini() - close and free what is still in @c. */
void carried_fini(struct carried *c);

#endif

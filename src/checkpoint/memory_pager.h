/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/memory_pager.h - memory from disk: image and plan at once, its pages all at once or when they are asked for (docs/design/0009, "What is needed first").
 *
 * The pager is what the job that loads becomes when it has answered. It has coders, and the object's files open: neither the object nor the server is needed any more. It ends when nobody can ask
 * for anything.
 */
#ifndef CAY_CHECKPOINT_MEMORY_PAGER_H
#define CAY_CHECKPOINT_MEMORY_PAGER_H

#include "checkpoint/first.h"
#include "checkpoint/memory_coder.h"
#include "checkpoint/memory_object.h"
#include "store/job.h"

/** memory_order_next() - have the next chunk unpacked; @head: its head, the authentic one. Return: as memory_reader_next(). */
int memory_order_next(struct memory_reader *r, struct memory_coders *coders,
	const struct pagechunk_head **head, struct err *err) attr_must_use;

/** memory_tables() - image and plan, unpacked into sealed memory files @ret, the caller's: -1 where it failed. Return: 0 or an error. */
int memory_tables(struct memory_reader *r, struct memory_coders *coders, int ret[2],
	struct err *err) attr_must_use;

/**
 * memory_pager_start() - have the fresh template behind @template filled chunk by chunk, when they are asked for: @job becomes the pager when it has answered. Image, plan, and what is needed before
 * anything runs are authentic then; of all else each chunk is compared with its digest before it is unpacked, and whoever waits for one that is damaged is told so (%TEMPLATE_DAMAGED).
 * @r: taken over, unless this fails. @first: places whose chunks are there when it returns. Return: 0 when it can be forked, or an error. Context: waits.
 */
int memory_pager_start(struct job *job, struct memory_reader *r, const struct first *first,
	int template, struct err *err) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/steps.h - the steps of a sandbox, one for each exec, and the snapshots behind them (docs/design/0010).
 *
 * Execs of a sandbox are numbered from 1, never anew: not after a rewind, and a fork goes on with the number of its snapshot. With `checkpoint` = "each-exec" a snapshot is taken when
 * an exec has ended; it carries the numbers of all that had ended by then. The next exec starts behind it, so what is in it is what the step left.
 */
#ifndef CAY_API_STEPS_H
#define CAY_API_STEPS_H

#include "api/server.h"

/** step_number() - @e, which is being made, gets the next number. */
void step_number(struct exec *e);

/** step_loaded() - @e was read from the catalogue: numbers go on behind its own. */
void step_loaded(const struct exec *e);

/** step_reached() - @sb has had step @n: numbers go on behind it. */
void step_reached(struct sandbox *sb, uint64_t n);

/** steps_need() - is the snapshot behind @e, which has ended, still to be taken? */
bool steps_need(const struct exec *e);

/** step_ended() - @e has just got its final status: have a snapshot taken behind it, if its sandbox wants that. Never fails: what goes wrong is an event. */
void step_ended(const struct exec *e);

/** steps_done() - what is written next to the catalogue settles these @steps (an array): with their snapshot, or without. */
void steps_done(struct sandbox *sb, const json_t *steps);

/** steps_give_up() - what is written next to the catalogue takes the sandbox back to an earlier state: steps without a snapshot get none. */
void steps_give_up(struct sandbox *sb);

/** steps_undone() - it is written: what is still due is given up. Context: with the sandbox's lock. */
void steps_undone(struct sandbox *sb);

/** steps_wait() - until each step of @sb that has ended has its snapshot, or has been given up. Not with its lock. Context: waits. */
void steps_wait(struct sandbox *sb);

/** steps_recover() - after a start of cayd: the last server may have ended between an exec's end and the snapshot behind it. */
void steps_recover(struct sandbox *sb);

/** steps_sweep() - snapshots of steps of sandboxes that are gone go too, but for those that another sandbox continues from. Context: waits. */
void steps_sweep(struct server *srv);

/** step_await() - if @what is "NAME@STEP" and that step has ended: until its snapshot is there, or has been given up; and until it is known whether it has (sandbox_await()). Not with the sandbox' lock. Context: waits. */
void step_await(struct server *srv, const char *what);

/** step_find() - the snapshot behind the step that @what ("NAME@STEP"; STEP is a number, the id of an exec or a unique prefix of one) names; NULL with @err set, which names the nearest ones. Borrowed. */
struct snapshot *step_find(struct server *srv, const char *what, struct err *err);

#endif

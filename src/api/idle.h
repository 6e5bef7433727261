/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/idle.h - suspending a sandbox that nothing has happened in for a while, and bringing it back when somebody wants something of it (docs/design/0011). */
#ifndef CAY_API_IDLE_H
#define CAY_API_IDLE_H

#include "api/server.h"

/**
 * sandbox_wake() - somebody wants something of @sb, and it stays awake until sandbox_rest(): if the idle policy has suspended it, or is just doing so, it is resumed first (once, however many ask).
 * Does nothing for one that stands still for another reason. Not with its lock. Context: waits. Return: 0, or why it could not be resumed; then there is no sandbox_rest().
 */
int sandbox_wake(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_rest() - the end of sandbox_wake(): its time without activity begins anew. */
void sandbox_rest(struct sandbox *sb);

/** sandbox_stir() - something has happened in @sb: its time without activity begins anew. */
void sandbox_stir(struct sandbox *sb);

/** idle_settle() - suspend what its time has come for. Cheap when there is nothing to do; called now and then on the loop. */
void idle_settle(struct server *srv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/suspend.h - a sandbox whose processes lie on disk (docs/design/0009). */
#ifndef CAY_API_SUSPEND_H
#define CAY_API_SUSPEND_H

#include "api/server.h"

/**
 * sandbox_suspend() - write the processes of running @sb to disk and end them. Locked.
 * @reason: for the event. Return: 0, or an error; then it goes on as if nothing had been. Context: waits.
 */
int sandbox_suspend(struct sandbox *sb, const char *reason, struct err *err) attr_must_use;

/** sandbox_resume() - the other way. Locked. After an error it is suspended as before, unless its processes were lost on the way. Context: waits. */
int sandbox_resume(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_disown_processes() - take the processes of a suspended sandbox out of its document, stopped because of @reason: for the caller to write, or to take back. Locked. */
void sandbox_disown_processes(struct sandbox *sb, const char *reason);

/** sandbox_disowned_processes() - that is written: it is stopped, what ran in it is `killed` for @reason, and @memory, which it had, goes. Locked. Context: waits. */
void sandbox_disowned_processes(struct sandbox *sb, const char *memory, const char *reason);

/** sandbox_forget_processes() - a suspended sandbox becomes a stopped one; what ran in it is `killed` for @reason. On failure it is as it was. Locked. Context: waits. */
int sandbox_forget_processes(struct sandbox *sb, const char *reason, struct err *err) attr_must_use;

/**
 * sandbox_settle_suspend() - was @sb being suspended, by a server or keeper that ended, and all of it is on disk, the only one? Then it is suspended, and a keeper that it has holds
 * nothing. If it is not there, and counted as suspended, it is stopped. Locked. Cheap when there is nothing. Context: waits.
 * Return: 0, or an error: nobody can say yet; sandbox_await_object() is for who has no keeper for it.
 */
int sandbox_settle_suspend(struct sandbox *sb, struct err *err) attr_must_use;

/** sandbox_await_object() - it counts as suspended until sandbox_settle_suspend() can say. Return: false when it was not being suspended. Locked. */
bool sandbox_await_object(struct sandbox *sb);

/** sandboxes_settle_suspend() - the storage has come: see to those. Context: waits. */
void sandboxes_settle_suspend(struct server *srv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/exec_past.h - execs that ended long ago are only in the catalogue: docs/design/0003, *Past execs*. */
#ifndef CAY_API_EXEC_PAST_H
#define CAY_API_EXEC_PAST_H

#include "api/server.h"

/** execs_tidy() - have those of @sb that may be only in the catalogue be there alone, soon. */
void execs_tidy(struct sandbox *sb);

/** execs_tidy_soon() - one of its execs has ended: the same, now and then. */
void execs_tidy_soon(struct sandbox *sb);

/** exec_past_find() - *@ret: a past exec whose id begins with @begin, the one that has just this id if there is, an object for the caller alone; NULL. Return: how many there are (of more than 2: 2), or an error. */
int exec_past_find(struct sandbox *sb, const char *begin, struct exec **ret, struct err *err);

/** exec_past_by_key() - *@ret: the same by its idempotency key, if that counts still. Return: 0 or an error. */
int exec_past_by_key(struct sandbox *sb, const char *key, struct exec **ret, struct err *err);

/** exec_past_numbered() - *@ret: the same by its step. Return: 0 or an error. */
int exec_past_numbered(
	struct sandbox *sb, uint64_t step, struct exec **ret, struct err *err) attr_must_use;

/** execs_page() - *@ret: API objects of execs of @sb, past ones too, by their steps, as the parameters `after`, `before` and `limit` of @call say; *@ret_more: it has others in that range. Return: 0 or an error. */
int execs_page(struct api_call *call, struct sandbox *sb, json_t **ret, bool *ret_more,
	struct err *err) attr_must_use;

/** execs_past_forget() - @sb is removed: so are its past execs, in the background. */
void execs_past_forget(struct sandbox *sb);

/** execs_past_load() - behind execs_load(): which sandboxes have some, and which of those are gone. Return: 0 or an error. */
int execs_past_load(struct server *srv, struct err *err) attr_must_use;

/** execs_past_clear() - delete those of sandboxes that are gone, in the background. */
void execs_past_clear(struct server *srv);

#endif

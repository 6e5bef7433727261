/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/secret_store.h - values that sandboxes may use and never see.
 *
 * A value lies in the catalogue, encrypted with AES-256-GCM under the key in STATE/secrets.key (made at the first start, readable by cayd alone); its name is authenticated with it, so that
 * rows cannot be exchanged. The key protects copies of the catalogue, not against who can read both files. Values leave cayd only towards gateways; no route, event or log shows one.
 */
#ifndef CAY_API_SECRET_STORE_H
#define CAY_API_SECRET_STORE_H

#include "base/buf.h"
#include "base/err.h"

struct server;

#define SECRET_NAME_MAX 64
#define SECRET_KEY_FILE "secrets.key" /* in STATE */

/**
 * secret_value() - decrypt a secret.
 * @out: the value is appended; overwrite it after use.
 *
 * Return: 0; -ENOENT with @err set; ERR_CORRUPT when the row was tampered with or belongs to another key.
 */
int secret_value(
	struct server *srv, const char *name, struct buf *out, struct err *err) attr_must_use;

/** secrets_load() - after a start: what is left of removed ones, for telling_settle(). */
int secrets_load(struct server *srv, struct err *err);

/** secrets_tell_again() - after a start: what was announced (api/telling.h) and is not in the journal is told now. */
void secrets_tell_again(struct server *srv);

#endif

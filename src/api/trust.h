/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/trust.h - a sandbox's own root certificate and the trust stores that hold it, beside the roots of this machine.
 *
 * The stores are files in STATE/trust/<sandbox>/, laid read-only over the places where programs look: OpenSSL's and GnuTLS's bundle,
 * Java's key store, policies of browsers; others are told by variables.
 */
#ifndef CAY_API_TRUST_H
#define CAY_API_TRUST_H

#include "base/err.h"

#include <jansson.h>

struct sandbox;
struct server;

/** trust_prepare() - make the root when there is none, and the files. Return: 0 or an error. */
int trust_prepare(struct sandbox *sb, struct err *err) attr_must_use;

/** trust_wants_place() - may the image of @sb have no store that others could be laid over later? */
bool trust_wants_place(const struct sandbox *sb);

/** trust_prepare_place() - make the directory of the stores, empty. Return: 0 or -errno with @err. */
int trust_prepare_place(struct sandbox *sb, struct err *err) attr_must_use;

/** trust_has_place() - is that directory there? */
bool trust_has_place(const struct sandbox *sb);

/** trust_mount_place() - append the mount of that directory alone to @list: what trust_prepare() writes into it later is there inside at once. */
void trust_mount_place(const struct sandbox *sb, json_t *list);

/** trust_mounts() - append the mounts to @list. */
void trust_mounts(const struct sandbox *sb, json_t *list);

/**
 * trust_lay() - lay the stores over those that @sb, which runs, has. What programs find by a variable is not there then: trust_env().
 * Return: 0; -ENOENT when it has no bundle, other errors. Context: fiber; waits.
 */
int trust_lay(const struct sandbox *sb, struct err *err) attr_must_use;

/** trust_env() - set the variables that lead programs to the stores. @laid: by trust_lay(), not at the start. */
void trust_env(json_t *env, bool laid);

/** trust_forget() - remove the files of sandbox @id. */
void trust_forget(const struct server *srv, const char *id);

#endif

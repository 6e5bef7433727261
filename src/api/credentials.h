/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/credentials.h - what a sandbox with a policy is given so that its programs work through the gateway: a root of its own in its trust stores, and placeholders of secrets.
 *
 * Both are parts of its gateway's state ("ca", "placeholders") and so go on in forks and rewinds: certificates that were accepted stay valid, text that holds a placeholder keeps
 * its meaning. A sandbox without a policy has neither.
 */
#ifndef CAY_API_CREDENTIALS_H
#define CAY_API_CREDENTIALS_H

#include "base/err.h"

#include <jansson.h>

struct sandbox;
struct server;

/**
 * credentials_prepare() - make what is missing: the root, the files of the trust stores, a placeholder for each secret that the policy binds.
 * Return: 0, or an error: a secret that the policy binds is not set. Before every start and after a change of the policy.
 */
int credentials_prepare(struct sandbox *sb, struct err *err) attr_must_use;

/** credentials_mounts() - append the mounts of the trust stores to @list, in the form of a keeper's specification. */
void credentials_mounts(const struct sandbox *sb, json_t *list);

/** credentials_started() - note in the document of @sb, which starts, whether it has those mounts. */
void credentials_started(struct sandbox *sb);

/**
 * credentials_arrive() - @sb, which may run, got its first policy: its programs find the trust stores from now on, where that is possible without a new start
 * (root mode, an image with a store). Otherwise it stays as credentials_hint() says. Context: fiber; waits, @sb is locked.
 */
void credentials_arrive(struct sandbox *sb);

/** credentials_hint() - what is missing until the next start of @sb, for people; static, NULL: nothing. */
const char *credentials_hint(const struct sandbox *sb);

/** credentials_env() - add the variables that name trust stores and hold placeholders to @env. Return: 0, or an error: they cannot be read. */
int credentials_env(const struct sandbox *sb, json_t *env, struct err *err) attr_must_use;

/** credentials_secrets() - *@ret: [{"name","value","placeholder"}] for the gateway, of those that are there. A new reference; nothing else may see it. Return: 0, or an error: they cannot be read. */
int credentials_secrets(const struct sandbox *sb, json_t **ret, struct err *err) attr_must_use;

/** credentials_rotated() - the secret @name has a new value, or none: gateways that use it are told. Context: fiber; waits. */
void credentials_rotated(struct server *srv, const char *name);

/** credentials_forget() - sandbox @id was removed: so are its files. */
void credentials_forget(const struct server *srv, const char *id);

/** credentials_sweep() - at the start: files of sandboxes whose rows are gone. */
void credentials_sweep(struct server *srv);

#endif

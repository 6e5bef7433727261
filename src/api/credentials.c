/* SPDX-License-Identifier: Apache-2.0 */
#include "api/credentials.h"
#include "api/secret_store.h"
#include "api/server.h"
#include "api/trust.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/scrub.h"
#include "policy/policy.h"

#include <dirent.h>
#include <string.h>
#include <sys/random.h>

static const json_t *policy_of(const struct sandbox *sb)
{
	const json_t *policy = json_object_get(sb->doc, "policy");

	return json_is_object(policy) ? policy : NULL;
}

/* --- placeholders --- */

/* struct bindings - what the policy, its presets among it, binds. */
struct bindings {
	struct policy *policy;
	const struct policy_secret *list;
	size_t n;
};

static struct bindings bindings_of(const struct sandbox *sb)
{
	const json_t *document = policy_of(sb);
	struct bindings b = { 0 };

	if (json_object_get(document, "secrets") == NULL &&
		json_object_get(document, "preset") == NULL)
		return b;
	/* it was checked when it was taken; what a newer version made binds nothing */
	if (policy_compile(document, &b.policy, NULL) == 0)
		b.list = policy_secrets(b.policy, &b.n);
	return b;
}

static void bindings_fini(struct bindings *b)
{
	policy_unref(b->policy);
}

static int new_placeholder(struct sandbox *sb, const struct policy_secret *bound,
	json_t *placeholders, struct err *err)
{
	const char *name = bound->name;
	unsigned char random[SCRUB_SECRET_MAX];
	struct buf value = BUF_INIT(SCRUB_SECRET_MAX + 1);
	int rc = secret_value(sb->srv, name, &value, err);

	if (rc < 0 && bound->offered && (err->code == ERR_NOT_FOUND || err->code == ERR_CORRUPT)) {
		if (err->code == ERR_CORRUPT)
			log_warn("secrets", "sandbox '%s': %s", sb->name, err->msg);
		*err = (struct err){ 0 };
		return 0;
	}
	if (rc < 0)
		return err_hint(
			err, rc, "the policy binds it: set it with cay secret set %s", name);
	if (getrandom(random, value.n, 0) != (ssize_t)value.n) {
		rc = err_raise(err, ERR_INTERNAL, "no randomness");
	} else {
		cleanup_free char *placeholder = scrub_placeholder(value.p, random);

		rc = json_object_set_new(placeholders, name, json_string(placeholder));
	}
	explicit_bzero(value.p, value.n);
	buf_free(&value);
	return rc;
}

static int make_placeholders(struct sandbox *sb, struct err *err)
{
	cleanup(bindings_fini) struct bindings bound = bindings_of(sb);
	json_t *have, *all;
	int rc;

	if (bound.n == 0)
		return 0;
	rc = gateway_state_part(sb->srv, sb->id, "placeholders", &have, err);
	if (rc < 0)
		return rc;
	all = have != NULL ? json_deep_copy(have) : json_object();
	for (size_t i = 0; rc == 0 && i < bound.n; i++) {
		if (json_object_get(all, bound.list[i].name) == NULL)
			rc = new_placeholder(sb, &bound.list[i], all, err);
	}
	if (rc == 0 && !json_equal(have, all))
		rc = gateway_state_keep(sb->srv, sb->id, "placeholders", all, err);
	json_decref(all);
	json_decref(have);
	return rc;
}

/* One that is not set any more, or that nobody can decrypt: it goes without. */
static int add_secret(const struct sandbox *sb, const char *name, const char *placeholder,
	json_t *list, struct err *err)
{
	struct buf value = BUF_INIT(SCRUB_SECRET_MAX + 1);
	struct err why = { 0 };
	int rc = secret_value(sb->srv, name, &value, &why);

	if (rc < 0 && why.code != ERR_NOT_FOUND && why.code != ERR_CORRUPT) {
		*err = why;
		return rc;
	}
	if (rc < 0) {
		log_warn("secrets", "sandbox '%s': %s", sb->name, why.msg);
		return 0;
	}
	(void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", name, "value",
						  buf_cstr(&value), "placeholder", placeholder));
	explicit_bzero(value.p, value.n);
	buf_free(&value);
	return 0;
}

int credentials_secrets(const struct sandbox *sb, json_t **ret, struct err *err)
{
	cleanup(bindings_fini) struct bindings bound = bindings_of(sb);
	json_t *placeholders, *list = json_array();
	int rc = gateway_state_part(sb->srv, sb->id, "placeholders", &placeholders, err);

	for (size_t i = 0; i < bound.n; i++) {
		const char *name = bound.list[i].name;
		const char *placeholder = json_string_value(json_object_get(placeholders, name));

		if (rc == 0 && placeholder != NULL)
			rc = add_secret(sb, name, placeholder, list, err);
	}
	json_decref(placeholders);
	if (rc == 0)
		*ret = list;
	else
		json_decref(list);
	return rc;
}

static bool binds(const struct sandbox *sb, const char *name)
{
	cleanup(bindings_fini) struct bindings bound = bindings_of(sb);

	for (size_t i = 0; i < bound.n; i++) {
		if (str_eq(bound.list[i].name, name))
			return true;
	}
	return false;
}

static void tell_rotated(struct sandbox *sb, const void *name)
{
	if (binds(sb, name))
		gateway_configure_surely(sb);
}

void credentials_rotated(struct server *srv, const char *name)
{
	sandbox_for_all(srv, tell_rotated, name);
}

/* --- both --- */

int credentials_prepare(struct sandbox *sb, struct err *err)
{
	int rc = 0;

	if (policy_of(sb) == NULL)
		return trust_wants_place(sb) ? trust_prepare_place(sb, err) : 0;
	rc = trust_prepare(sb, err);
	return rc == 0 ? make_placeholders(sb, err) : rc;
}

void credentials_mounts(const struct sandbox *sb, json_t *list)
{
	if (policy_of(sb) != NULL)
		trust_mounts(sb, list);
	else if (trust_wants_place(sb) && trust_has_place(sb))
		trust_mount_place(sb, list);
}

/*
 * Member "trusts" of a sandbox's document: did it start with the mounts (a boolean), were stores laid over its own later on, or did it start with their directory alone, because its
 * image may have no store that anything could be laid over? What is written there later is there inside at once.
 */
#define LAID  "laid"
#define PLACE "place"

static bool trusts_are(const struct sandbox *sb, const char *word)
{
	const char *said = json_string_value(json_object_get(sb->doc, "trusts"));

	return said != NULL && str_eq(said, word);
}

static bool has_stores(const struct sandbox *sb)
{
	return !json_is_false(json_object_get(sb->doc, "trusts"));
}

void credentials_started(struct sandbox *sb)
{
	bool place = policy_of(sb) == NULL && trust_wants_place(sb) && trust_has_place(sb);

	(void)json_object_set_new(sb->doc, "trusts",
		place ? json_string(PLACE) : json_boolean(policy_of(sb) != NULL));
}

static bool runs(const struct sandbox *sb)
{
	return sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED;
}

void credentials_arrive(struct sandbox *sb)
{
	json_t *init = json_incref(json_object_get(sb->doc, "init_pid"));
	struct err err = { 0 };

	if (policy_of(sb) != NULL && runs(sb) && (!has_stores(sb) || trusts_are(sb, PLACE))) {
		int rc = trust_lay(sb, &err);

		if (rc < 0 && trusts_are(sb, PLACE) && err.code == ERR_NOT_FOUND)
			;
		else if (rc < 0)
			log_warn("trust", "sandbox '%s': %s", sb->name, err.msg);
		else if (runs(sb) && json_equal(init, json_object_get(sb->doc, "init_pid")))
			(void)json_object_set_new(sb->doc, "trusts", json_string(LAID));
	}
	json_decref(init);
}

const char *credentials_hint(const struct sandbox *sb)
{
	return runs(sb) && policy_of(sb) != NULL && !has_stores(sb)
		       ? "it was started without a policy: until it is stopped and started again its programs do not trust the gateway, so HTTPS fails in them (plain HTTP, names, mail and TCP work at once)"
		       : NULL;
}

int credentials_env(const struct sandbox *sb, json_t *env, struct err *err)
{
	struct err why = { 0 };
	json_t *placeholders;
	int rc;

	if (policy_of(sb) == NULL)
		return 0;
	if (has_stores(sb))
		trust_env(env, trusts_are(sb, LAID));
	rc = gateway_state_part(sb->srv, sb->id, "placeholders", &placeholders, &why);
	if (placeholders != NULL)
		(void)json_object_update(env, placeholders);
	json_decref(placeholders);
	if (rc < 0 && why.code == ERR_CORRUPT) {
		/* who wants to save what is in the sandbox needs commands; a gateway that begins with it lets nothing out */
		log_warn("secrets",
			"sandbox '%s': what its gateway keeps is damaged: a command begins without placeholders",
			sb->name);
		return 0;
	}
	if (rc < 0)
		*err = why;
	return rc;
}

void credentials_forget(const struct server *srv, const char *id)
{
	trust_forget(srv, id);
}

void credentials_sweep(struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/trust", srv->own_state);
	DIR *dir = opendir(path);
	const struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (id_valid(entry->d_name) && sandbox_by_id(srv, entry->d_name) == NULL)
			credentials_forget(srv, entry->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

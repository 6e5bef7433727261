/* SPDX-License-Identifier: Apache-2.0 */
#include "api/secret_store.h"
#include "api/credentials.h"
#include "api/server.h"
#include "api/telling.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/scrub.h"
#include "store/vault.h"

#include <fcntl.h>

/* Can it name an environment variable, too: [A-Za-z_][A-Za-z0-9_]*? */
static bool secret_name_valid(const char *name)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
	size_t n = strlen(name);

	return n > 0 && n <= SECRET_NAME_MAX && strspn(name, letters) == n &&
	       (*name < '0' || *name > '9');
}

static int read_key(const struct server *srv, unsigned char key[VAULT_KEY_SIZE], struct err *err)
{
	cleanup_free char *path = str_dupf("%s/" SECRET_KEY_FILE, srv->own_state);
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || read(fd, key, VAULT_KEY_SIZE) != VAULT_KEY_SIZE)
		return err_raise_sys(err, fd < 0 ? -errno : -EIO, "read the key of the secrets");
	return 0;
}

static int seal_value(
	struct server *srv, const char *name, const char *value, char **ret, struct err *err)
{
	unsigned char key[VAULT_KEY_SIZE];
	int rc = read_key(srv, key, err);

	if (rc < 0)
		return rc;
	*ret = vault_seal(key, name, value);
	explicit_bzero(key, sizeof(key));
	return *ret != NULL ? 0
			    : err_raise(err, ERR_INTERNAL, "secret '%s' cannot be encrypted", name);
}

static int open_value(
	struct server *srv, const char *name, const char *sealed, struct buf *out, struct err *err)
{
	unsigned char key[VAULT_KEY_SIZE];
	char value[VAULT_VALUE_MAX + 1];
	int rc = read_key(srv, key, err);

	if (rc < 0)
		return rc;
	if (vault_open(key, name, sealed, value) < 0)
		rc = err_raise(err, ERR_CORRUPT,
			"secret '%s' was not encrypted with the key of this instance", name);
	else
		buf_str(out, value);
	explicit_bzero(key, sizeof(key));
	explicit_bzero(value, sizeof(value));
	return rc;
}

/* The row of a secret: {"name","version","created","updated","sealed"}; a new reference, NULL when there is none. Return: 0 or an error. */
static int row(struct server *srv, const char *name, json_t **ret, struct err *err)
{
	cleanup_free char *text = NULL;
	int rc = catalogue_get(srv->catalogue, CATALOGUE_SECRETS, name, &text, err);

	*ret = text != NULL ? json_loads(text, 0, NULL) : NULL;
	return rc;
}

static int row_put(struct server *srv, const char *name, const json_t *doc, struct err *err)
{
	cleanup_free char *text = json_dumps(doc, JSON_COMPACT);

	return catalogue_put(srv->catalogue, CATALOGUE_SECRETS, name, NULL, NULL, text, true, err);
}

static int load_one(void *ctx, const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);

	if (telling_is_buried(doc))
		telling_buried(ctx, CATALOGUE_SECRETS, id, doc);
	json_decref(doc);
	return 0;
}

int secrets_load(struct server *srv, struct err *err)
{
	return catalogue_each(srv->catalogue, CATALOGUE_SECRETS, load_one, srv, err);
}

static int add_announcing(void *ctx, const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);

	if (!telling_is_buried(doc) && json_object_get(doc, "telling") != NULL)
		(void)json_object_set(ctx, id, doc);
	json_decref(doc);
	return 0;
}

void secrets_tell_again(struct server *srv)
{
	json_t *all = json_object(), *doc;
	const char *name;
	struct err err;

	if (catalogue_each(srv->catalogue, CATALOGUE_SECRETS, add_announcing, all, &err) < 0)
		log_error("catalogue", "%s", err.msg);
	json_object_foreach (all, name, doc)
		(void)telling_again(srv, doc);
	if (json_object_size(all) > 0 && journal_flush(srv->journal) == 0) {
		json_object_foreach (all, name, doc) {
			(void)telling_done(doc);
			(void)row_put(srv, name, doc, NULL);
		}
	}
	json_decref(all);
}

int secret_value(struct server *srv, const char *name, struct buf *out, struct err *err)
{
	json_t *doc;
	int rc = row(srv, name, &doc, err);
	const char *sealed = json_string_value(json_object_get(doc, "sealed"));

	if (rc == 0)
		rc = sealed != NULL ? open_value(srv, name, sealed, out, err)
				    : err_raise(err, ERR_NOT_FOUND, "no secret '%s'", name);
	json_decref(doc);
	return rc;
}

static int check_there(struct server *srv, const char *name, struct err *err)
{
	json_t *doc;
	int rc = row(srv, name, &doc, err);

	if (rc == 0 && doc == NULL)
		rc = err_raise(err, ERR_NOT_FOUND, "no secret '%s'", name);
	json_decref(doc);
	return rc;
}

/* What the API shows of a row. */
static json_t *shown(const json_t *doc)
{
	return json_pack("{s:O, s:O, s:O, s:O}", "name", json_object_get(doc, "name"), "version",
		json_object_get(doc, "version"), "created", json_object_get(doc, "created"),
		"updated", json_object_get(doc, "updated"));
}

static int add_shown(void *ctx, attr_unused const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);

	if (doc != NULL && !telling_is_buried(doc))
		(void)json_array_append_new(ctx, shown(doc));
	json_decref(doc);
	return 0;
}

int api_secret_list(struct api_call *call, struct err *err)
{
	json_t *list = json_array();
	int rc = catalogue_each(call->srv->catalogue, CATALOGUE_SECRETS, add_shown, list, err);

	if (rc == 0)
		return api_reply(call, 200, json_pack("{s:o}", "secrets", list));
	json_decref(list);
	return rc;
}

static json_t *new_row(const char *name, const json_t *before, const char *sealed)
{
	json_int_t version = json_integer_value(json_object_get(before, "version")) + 1;
	const char *created = json_string_value(json_object_get(before, "created"));
	char now[CLOCK_TEXT_SIZE];

	clock_text(clock_wall_ns(), now);
	return json_pack("{s:s, s:I, s:s, s:s, s:s}", "name", name, "version", version, "created",
		created != NULL ? created : now, "updated", now, "sealed", sealed);
}

int api_secret_set(struct api_call *call, struct err *err)
{
	const char *name = call->segments[0];
	const char *value = json_string_value(json_object_get(call->body, "value"));
	cleanup_free char *sealed = NULL;
	struct telling set = { .type = EVENT_SECRET_SET };
	json_t *before = NULL, *doc;
	int rc;

	if (!secret_name_valid(name))
		return err_raise(err, ERR_INVALID,
			"'%s' cannot name a secret: letters, digits and '_', at most %d", name,
			SECRET_NAME_MAX);
	if (!scrub_secret_valid(value))
		return err_raise(err, ERR_INVALID,
			"the value of secret '%s' is not %d to %d printable ASCII characters without space, six letters or digits among them",
			name, SCRUB_SECRET_MIN, SCRUB_SECRET_MAX);
	rc = seal_value(call->srv, name, value, &sealed, err);
	if (rc == 0)
		rc = row(call->srv, name, &before, err);
	if (rc < 0)
		return rc;
	doc = new_row(name, before, sealed);
	json_decref(before);
	set.data =
		json_pack("{s:s, s:O}", "name", name, "version", json_object_get(doc, "version"));
	telling_announce(call->srv, doc, &set);
	rc = row_put(call->srv, name, doc, err);
	(void)fault("secret.set.committed");
	if (rc == 0) {
		(void)server_event(call->srv, NULL, set.type, NULL, json_incref(set.data));
		credentials_rotated(call->srv, name);
		rc = api_reply(call, 200, shown(doc));
	}
	json_decref(set.data);
	json_decref(doc);
	return rc;
}

/* In a row of its own, whose id can name no secret: the next one of that name may be set before it goes. */
static int remove_row(
	struct server *srv, const char *name, const struct telling *removed, struct err *err)
{
	struct catalogue *c = srv->catalogue;
	const struct id id = id_new();
	cleanup_free char *grave = str_dupf("-%s", id.s);
	int rc = catalogue_begin(c, true, err);

	if (rc < 0)
		return rc;
	rc = catalogue_delete(c, CATALOGUE_SECRETS, name, err);
	if (rc == 0)
		rc = telling_bury(srv, CATALOGUE_SECRETS, grave, removed, err);
	if (rc == 0)
		rc = catalogue_commit(c, err);
	else
		catalogue_abort(c);
	if (rc == 0)
		telling_buried(srv, CATALOGUE_SECRETS, grave, NULL);
	return rc;
}

int api_secret_remove(struct api_call *call, struct err *err)
{
	const char *name = call->segments[0];
	struct telling removed = { .type = EVENT_SECRET_REMOVED };
	int rc = check_there(call->srv, name, err);

	if (rc < 0)
		return rc;
	removed.data = json_pack("{s:s}", "name", name);
	rc = remove_row(call->srv, name, &removed, err);
	if (rc < 0) {
		json_decref(removed.data);
		return rc;
	}
	(void)fault("secret.remove.committed");
	(void)server_event(call->srv, NULL, removed.type, NULL, removed.data);
	credentials_rotated(call->srv, name);
	return api_reply(call, 204, NULL);
}

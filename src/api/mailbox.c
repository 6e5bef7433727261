/* SPDX-License-Identifier: Apache-2.0 */
#include "api/mailbox.h"
#include "api/moments.h"
#include "api/server.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

/* The event's id makes the row's: what comes again after a crash is the same row. */
static char *row_id(const char *owner, const json_t *data)
{
	return str_dupf("%s/%s", owner, json_string_value(json_object_get(data, "id")));
}

static int put(struct server *srv, const char *owner, const json_t *doc, struct err *err)
{
	cleanup_free char *id = row_id(owner, doc);
	cleanup_free char *text = json_dumps(doc, JSON_COMPACT);
	int rc = fault("mail.put.before");

	if (rc < 0)
		return err_raise_sys(err, rc, "mailbox");
	return catalogue_put(srv->catalogue, CATALOGUE_MAILS, id, NULL, owner, text, false, err);
}

int mail_keep(struct sandbox *sb, uint64_t time_ns, json_t *data)
{
	json_t *mail = json_incref(json_object_get(data, "mail")), *doc;
	struct err err;
	char when[CLOCK_TEXT_SIZE];
	int rc = 0;

	(void)json_object_del(data, "mail");
	if (json_is_object(mail)) {
		clock_text(time_ns, when);
		doc = json_pack("{s:s, s:I, s:O}", "time", when, "epoch",
			(json_int_t)sandbox_epoch(sb), "mail", mail);
		(void)json_object_update_missing(doc, data);
		rc = put(sb->srv, sb->id, doc, &err);
		json_decref(doc);
		if (rc < 0)
			log_error(
				"mail", "a message of '%s' cannot be kept: %s", sb->name, err.msg);
	}
	json_decref(mail);
	return rc;
}

void mail_withdraw(struct sandbox *sb, const json_t *data)
{
	cleanup_free char *id = row_id(sb->id, data);
	struct err err;

	if (catalogue_delete(sb->srv->catalogue, CATALOGUE_MAILS, id, &err) < 0)
		log_error("mail", "a message of '%s' that was to be sent again stays: %s", sb->name,
			err.msg);
}

static int note(void *ctx, attr_unused const char *id, const char *text)
{
	(void)json_array_append_new(ctx, json_loads(text, 0, NULL));
	return 0;
}

static json_t *mails_of(struct server *srv, const char *id, struct err *err)
{
	json_t *all = json_array();

	if (catalogue_each_owned(srv->catalogue, CATALOGUE_MAILS, id, note, all, err) == 0)
		return all;
	json_decref(all);
	return NULL;
}

static uint64_t epoch_of(const json_t *doc)
{
	return (uint64_t)json_integer_value(json_object_get(doc, "epoch"));
}

int mail_copy(struct server *srv, const char *from, const char *to, uint64_t epoch, struct err *err)
{
	const struct sandbox *sb = sandbox_by_id(srv, from);
	const json_t *undone = sb != NULL ? json_object_get(sb->doc, "undone") : NULL;
	json_t *all = mails_of(srv, from, err), *doc;
	size_t i;
	int rc = all != NULL ? 0 : -EIO;

	json_array_foreach (all, i, doc) {
		if (rc < 0 || moment_is_undone(undone, doc) || epoch_of(doc) > epoch)
			continue;
		/* for whoever goes on from here it was before the beginning */
		(void)json_object_set_new(doc, "epoch", json_integer(0));
		rc = put(srv, to, doc, err);
	}
	json_decref(all);
	return rc;
}

/* --- routes --- */

/* All messages with their numbers, from 1 in the order in which they came. */
static json_t *numbered(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *all, *doc;
	size_t i;

	if (sb == NULL)
		return NULL;
	all = mails_of(call->srv, sb->id, err);
	json_array_foreach (all, i, doc) {
		(void)json_object_set_new(doc, "number", json_integer((json_int_t)i + 1));
		(void)json_object_set_new(doc, "undone",
			json_boolean(moment_is_undone(json_object_get(sb->doc, "undone"), doc)));
	}
	sandbox_unref(sb);
	return all;
}

int api_mail_list(struct api_call *call, struct err *err)
{
	json_t *all = numbered(call, err), *doc;
	size_t from = (size_t)api_number(call, "from"), limit = (size_t)api_number(call, "limit");
	json_t *list = json_array();
	size_t i;

	json_array_foreach (all, i, doc) {
		if (i + 1 < from || json_array_size(list) == limit)
			continue;
		(void)json_object_del(doc, "mail");
		(void)json_array_append(list, doc);
	}
	if (all == NULL) {
		json_decref(list);
		return -ENOENT;
	}
	i = json_array_size(all);
	json_decref(all);
	return api_reply(call, 200, json_pack("{s:o, s:I}", "mails", list, "total", (json_int_t)i));
}

int api_mail_get(struct api_call *call, struct err *err)
{
	json_t *all = numbered(call, err), *doc;
	uint64_t number;
	int rc;

	if (all == NULL)
		return -ENOENT;
	if (str_to_u64(call->segments[1], 1, json_array_size(all), &number) < 0) {
		rc = err_raise(err, ERR_NOT_FOUND, "sandbox '%s' has no mail '%s'",
			call->segments[0], call->segments[1]);
	} else {
		doc = json_incref(json_array_get(all, (size_t)number - 1));
		rc = api_reply(call, 200, doc);
	}
	json_decref(all);
	return rc;
}

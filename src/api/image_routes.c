/* SPDX-License-Identifier: Apache-2.0 */
#include "api/server.h"
#include "api/telling.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

static void image_add(struct server *srv, const char *id, json_t *doc)
{
	struct image *img = xnew(struct image);

	(void)!str_copy(img->id, sizeof(img->id), id);
	img->doc = doc;
	list_append(&srv->images, &img->node);
}

static int load_one(void *ctx, const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);

	if (telling_is_buried(doc)) {
		telling_buried(ctx, CATALOGUE_IMAGES, id, doc);
		json_decref(doc);
		return 0;
	}
	if (doc == NULL || !id_valid(id))
		log_error("catalogue", "image '%s' cannot be read: ignored", id);
	else
		image_add(ctx, id, doc);
	return 0;
}

int images_load(struct server *srv, struct err *err)
{
	return catalogue_each(srv->catalogue, CATALOGUE_IMAGES, load_one, srv, err);
}

/* One that cannot be read is known all the same. */
static int note_known(void *ctx, const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);

	if (!telling_is_buried(doc))
		(void)json_array_append_new(ctx, json_string(id));
	json_decref(doc);
	return 0;
}

json_t *server_known_images(struct server *srv)
{
	json_t *ids = json_array();
	struct err err;

	if (catalogue_each(srv->catalogue, CATALOGUE_IMAGES, note_known, ids, &err) == 0)
		return ids;
	log_err("catalogue", &err);
	json_decref(ids);
	return NULL;
}

static int image_save(struct server *srv, const char *id, const json_t *doc, struct err *err)
{
	cleanup_free char *text = json_dumps(doc, JSON_COMPACT);

	return catalogue_put(srv->catalogue, CATALOGUE_IMAGES, id,
		json_string_value(json_object_get(doc, "name")), NULL, text, true, err);
}

void images_tell_again(struct server *srv)
{
	bool any = false;

	list_for_each (&srv->images, node, next)
		any |= telling_again(srv, list_entry(node, struct image, node)->doc);
	if (!any || journal_flush(srv->journal) < 0)
		return;
	list_for_each (&srv->images, node, next) {
		struct image *img = list_entry(node, struct image, node);

		if (telling_done(img->doc))
			(void)image_save(srv, img->id, img->doc, NULL);
	}
}

/* By its name or its whole id. */
static struct image *image_named(struct server *srv, const char *what)
{
	list_for_each (&srv->images, node, next) {
		struct image *img = list_entry(node, struct image, node);
		const char *name = json_string_value(json_object_get(img->doc, "name"));

		if (str_eq(img->id, what) || (name != NULL && str_eq(name, what)))
			return img;
	}
	return NULL;
}

static struct image *image_lookup(struct server *srv, const char *what, struct err *err)
{
	struct image *found = image_named(srv, what);

	if (found != NULL)
		return found;
	list_for_each (&srv->images, node, next) {
		struct image *img = list_entry(node, struct image, node);

		if (!id_begins(img->id, what))
			continue;
		if (found != NULL) {
			(void)err_raise(err, ERR_AMBIGUOUS,
				"'%s' is the beginning of more than one image's id", what);
			return NULL;
		}
		found = img;
	}
	if (found == NULL)
		(void)err_hint(err, err_raise(err, ERR_NOT_FOUND, "no image '%s'", what),
			"cay image ls shows those there are, cay image import FILE %s makes one",
			what);
	return found;
}

const char *image_find(struct server *srv, const char *what, struct err *err)
{
	const struct image *img;

	if (str_eq(what, "host"))
		return "host";
	img = image_lookup(srv, what, err);
	return img != NULL ? img->id : NULL;
}

static json_t *host_object(void)
{
	return json_pack(
		"{s:s,s:s,s:n,s:s}", "id", "host", "name", "host", "created", "source", "/");
}

int api_image_list(struct api_call *call, attr_unused struct err *err)
{
	json_t *list = json_pack("[o]", host_object());

	list_for_each (&call->srv->images, node, next)
		(void)json_array_append(list, list_entry(node, struct image, node)->doc);
	return api_reply(call, 200, json_pack("{s:o}", "images", list));
}

int api_image_get(struct api_call *call, struct err *err)
{
	struct image *img;

	if (str_eq(call->segments[0], "host"))
		return api_reply(call, 200, host_object());
	img = image_lookup(call->srv, call->segments[0], err);
	return img != NULL ? api_reply(call, 200, json_incref(img->doc)) : -ENOENT;
}

/* Files of an image that is in no row. What cannot be removed goes with the next start. */
static void discard(struct server *srv, const char *id)
{
	struct err err;

	if (job_run(srv, json_pack("{s:s,s:[s]}", "verb", "remove", "images", id), NULL, NULL, NULL,
		    &err) < 0)
		log_warn("store", "remove image '%s': %s (the next start clears up)", id, err.msg);
}

static json_t *image_document(
	const char *id, const char *name, const char *source, const json_t *ok)
{
	static const char *const members[] = { "bytes", "files", "config", "kind", "digest" };
	char when[CLOCK_TEXT_SIZE];
	json_t *doc;

	clock_text(clock_wall_ns(), when);
	doc = json_pack(
		"{s:s,s:s?,s:s,s:s}", "id", id, "name", name, "created", when, "source", source);
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		json_t *v = json_object_get(ok, members[i]);

		if (v != NULL)
			(void)json_object_set(doc, members[i], v);
	}
	return doc;
}

int api_image_import(struct api_call *call, struct err *err)
{
	static const char *const limits[] = { "limit_bytes", "limit_entries", "timeout_ms" };
	const char *path = json_string_value(json_object_get(call->body, "path"));
	const char *said = json_string_value(json_object_get(call->body, "source")),
		   *source = said != NULL ? said : path;
	const char *name = json_string_value(json_object_get(call->body, "name"));
	struct id id = id_new();
	json_t *ok = NULL, *doc, *request, *groups;
	struct telling imported = { .type = EVENT_IMAGE_IMPORTED };
	int rc;

	if (name != NULL && (str_eq(name, "host") || image_named(call->srv, name) != NULL))
		return err_raise(err, ERR_EXISTS, "an image named '%s' exists already", name);
	groups = api_caller_groups(call, err);
	if (groups == NULL)
		return -EIO;
	request = json_pack("{s:s,s:s,s:s,s:s,s:s?,s:I,s:I,s:o}", "verb", "import", "image", id.s,
		"path", path, "source", source, "name", name, "uid",
		(json_int_t)http_peer_uid(call->conn), "gid", (json_int_t)http_peer_gid(call->conn),
		"groups", groups);
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (json_object_get(call->body, limits[i]) != NULL)
			(void)json_object_set(
				request, limits[i], json_object_get(call->body, limits[i]));
	}
	rc = job_run(call->srv, request, NULL, NULL, &ok, err);
	if (rc < 0) {
		discard(call->srv, id.s);
		return rc;
	}
	doc = image_document(id.s, name, source, ok);
	json_decref(ok);
	imported.data = json_pack("{s:s,s:s?}", "image", id.s, "name", name);
	telling_announce(call->srv, doc, &imported);
	rc = image_save(call->srv, id.s, doc, err);
	(void)telling_done(doc);
	if (rc < 0) {
		discard(call->srv, id.s);
		json_decref(imported.data);
		json_decref(doc);
		return rc;
	}
	(void)fault("image.import.committed");
	image_add(call->srv, id.s, json_incref(doc));
	(void)server_event(call->srv, NULL, imported.type, NULL, imported.data);
	return api_reply(call, 201, doc);
}

static bool image_used(struct server *srv, const char *id)
{
	list_for_each (&srv->sandboxes, node, next) {
		if (str_eq(json_string_value(json_object_get(
				   list_entry(node, struct sandbox, node)->doc, "image")),
			    id))
			return true;
	}
	list_for_each (&srv->snapshots, node, next) {
		if (str_eq(json_string_value(json_object_get(
				   list_entry(node, struct snapshot, node)->doc, "image")),
			    id))
			return true;
	}
	return false;
}

int api_image_remove(struct api_call *call, struct err *err)
{
	struct image *img = image_lookup(call->srv, call->segments[0], err);
	struct telling removed = { .type = EVENT_IMAGE_REMOVED };
	int rc;

	if (img == NULL)
		return str_eq(call->segments[0], "host")
			       ? err_raise(err, ERR_INVALID, "the host image cannot be removed")
			       : -ENOENT;
	if (image_used(call->srv, img->id))
		return err_raise(err, ERR_STATE, "image '%s' is needed by a sandbox or snapshot",
			call->segments[0]);
	removed.data =
		json_pack("{s:s,s:O}", "image", img->id, "name", json_object_get(img->doc, "name"));
	rc = telling_bury(call->srv, CATALOGUE_IMAGES, img->id, &removed, err);
	if (rc < 0) {
		json_decref(removed.data);
		return rc;
	}
	(void)fault("image.remove.committed");
	list_remove(&img->node);
	(void)server_event(call->srv, NULL, removed.type, NULL, removed.data);
	telling_buried(call->srv, CATALOGUE_IMAGES, img->id, NULL);
	discard(call->srv, img->id);
	json_decref(img->doc);
	free(img);
	return api_reply(call, 204, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* api/sandbox_stack.c - where a sandbox's files lie, and the specification that its keeper gets. */
#include "api/credentials.h"
#include "api/identity.h"
#include "api/sandbox_parts.h"
#include "base/str.h"

json_t *stack_of(struct server *srv, json_t *layers, const char *image, const char *source,
	const char *live, size_t tree)
{
	json_t *stack = json_array();
	size_t i;
	json_t *layer;

	if (live != NULL)
		(void)json_array_append_new(
			stack, json_sprintf("%s/pool/live/%s/%zu/upper", srv->state, live, tree));
	json_array_foreach (layers, i, layer)
		(void)json_array_append_new(stack, json_sprintf("%s/pool/layers/%s/%zu", srv->state,
							   json_string_value(layer), tree));
	if (tree > 0) {
		(void)json_array_append_new(stack, json_string(source));
	} else if (str_eq(image, "host")) {
		if (srv->mask != NULL)
			(void)json_array_append_new(stack, json_string(srv->mask));
		(void)json_array_append_new(stack, json_string("/"));
	} else {
		(void)json_array_append_new(
			stack, json_sprintf("%s/pool/images/%s/rootfs", srv->state, image));
	}
	return stack;
}

/* Source of the @tree-th cow mount; NULL for the root. */
static const char *tree_source(const json_t *mounts, size_t tree)
{
	size_t i, n = 0;
	const json_t *m;

	json_array_foreach (mounts, i, m) {
		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow") && ++n == tree)
			return json_string_value(json_object_get(m, "source"));
	}
	return NULL;
}

const char *sandbox_live(const struct sandbox *sb)
{
	return json_is_true(json_object_get(sb->doc, "bare")) ? NULL : sb->id;
}

json_t *sandbox_stack(const struct sandbox *sb, size_t tree, bool upper)
{
	return stack_of(sb->srv, json_object_get(sb->doc, "layers"),
		json_string_value(json_object_get(sb->doc, "image")),
		tree_source(json_object_get(sb->doc, "mounts"), tree),
		upper ? sandbox_live(sb) : NULL, tree);
}

/* Only the layers of a stack: without the image or source at its end. */
static json_t *lower_of(const struct sandbox *sb, size_t tree)
{
	json_t *stack = sandbox_stack(sb, tree, false);

	(void)json_array_remove(stack, json_array_size(stack) - 1);
	return stack;
}

static json_t *spec_mounts(const struct sandbox *sb)
{
	json_t *list = json_array(), *m, *path;
	size_t i, tree = 0;

	json_array_foreach (json_object_get(sb->doc, "mounts"), i, m) {
		json_t *copy = json_copy(m);

		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow"))
			(void)json_object_set_new(copy, "lower", lower_of(sb, ++tree));
		(void)json_array_append_new(list, copy);
	}
	json_array_foreach (json_object_get(sb->doc, "expose"), i, path)
		(void)json_array_append_new(
			list, json_pack("{s:O,s:O,s:s,s:b}", "source", path, "target", path, "mode",
				      "ro", "exposed", 1));
	credentials_mounts(sb, list);
	identity_mounts(sb, list);
	return list;
}

/* A disk of its own is its limit: the pool's must not count what the disk itself takes. */
static json_t *keeper_limits(const struct sandbox *sb)
{
	json_t *limits = json_copy(json_object_get(sb->doc, "limits"));

	if (sandbox_has_disk(sb))
		(void)json_object_del(limits, "disk_bytes");
	return limits;
}

json_t *sandbox_spec(const struct sandbox *sb)
{
	static const char *const same[] = { "id", "name", "hostname", "profile", "image", "expose",
		"slot" };
	json_t *spec = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		json_t *v = json_object_get(sb->doc, same[i]);

		if (v != NULL)
			(void)json_object_set(spec, same[i], v);
	}
	(void)json_object_set_new(spec, "limits", keeper_limits(sb));
	(void)json_object_set_new(spec, "lower", lower_of(sb, 0));
	(void)json_object_set_new(spec, "mounts", spec_mounts(sb));
	(void)json_object_set_new(spec, "ports", gateway_ports(sb));
	return spec;
}

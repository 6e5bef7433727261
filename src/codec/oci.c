/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/oci.h"
#include "base/str.h"

static const struct {
	const char *media_type;
	enum oci_kind kind;
} kinds[] = {
	{ "application/vnd.oci.image.index.v1+json", OCI_INDEX },
	{ "application/vnd.docker.distribution.manifest.list.v2+json", OCI_INDEX },
	{ "application/vnd.oci.image.manifest.v1+json", OCI_MANIFEST },
	{ "application/vnd.docker.distribution.manifest.v2+json", OCI_MANIFEST },
	{ "application/vnd.oci.image.config.v1+json", OCI_CONFIG },
	{ "application/vnd.docker.container.image.v1+json", OCI_CONFIG },
	{ "application/vnd.oci.image.layer.v1.tar", OCI_LAYER },
	{ "application/vnd.oci.image.layer.v1.tar+gzip", OCI_LAYER },
	{ "application/vnd.oci.image.layer.v1.tar+zstd", OCI_LAYER },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar", OCI_LAYER },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", OCI_LAYER },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar.gzip", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar.zstd", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.foreign.diff.tar", OCI_LAYER },
	{ "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", OCI_LAYER },
};

static int corrupt(struct err *err, const char *what)
{
	return err_raise(err, ERR_CORRUPT, "%s", what);
}

json_t *oci_document(const char *bytes, size_t n, const char *what, struct err *err)
{
	json_error_t why;
	json_t *document;

	if (n > OCI_DOCUMENT_MAX) {
		(void)err_raise(err, ERR_HOSTILE_ARCHIVE, "%s is larger than 4 MiB", what);
		return NULL;
	}
	document = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
	if (document == NULL)
		(void)err_raise(err, ERR_CORRUPT, "%s is not valid JSON, line %d, column %d", what,
			why.line, why.column);
	return document;
}

/* A member that must be there. */
static const char *text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* A member that may be missing; what does not fit counts as missing. */
static void optional(const json_t *object, const char *key, char *dst, size_t size)
{
	const char *s = text(object, key);

	if (s == NULL || str_copy(dst, size, s) < 0)
		dst[0] = '\0';
}

static enum oci_kind kind_of(const char *media_type)
{
	for (size_t i = 0; media_type != NULL && i < ARRAY_SIZE(kinds); i++)
		if (str_eq(kinds[i].media_type, media_type))
			return kinds[i].kind;
	return OCI_UNKNOWN;
}

static int descriptor(const json_t *json, struct oci_descriptor *ret, struct err *err)
{
	const json_t *size = json_object_get(json, "size");
	const json_t *platform = json_object_get(json, "platform");
	const json_t *annotations = json_object_get(json, "annotations");
	const char *digest = text(json, "digest");

	if (!json_is_object(json) || text(json, "mediaType") == NULL)
		return corrupt(err, "a descriptor of the image is malformed");
	if (digest == NULL || !digest_valid(digest))
		return corrupt(err, "a digest of the image is malformed");
	if (!json_is_integer(size) || json_integer_value(size) < 0)
		return corrupt(err, "a size in the image is malformed");
	*ret = (struct oci_descriptor){
		.kind = kind_of(text(json, "mediaType")),
		.size = (uint64_t)json_integer_value(size),
	};
	if (str_copy(ret->digest, sizeof(ret->digest), digest) < 0)
		return corrupt(err, "a digest of the image is too long");
	optional(platform, "os", ret->os, sizeof(ret->os));
	optional(platform, "architecture", ret->architecture, sizeof(ret->architecture));
	optional(annotations, "org.opencontainers.image.ref.name", ret->ref_name,
		sizeof(ret->ref_name));
	optional(annotations, "io.containerd.image.name", ret->name, sizeof(ret->name));
	return 0;
}

static int version(const json_t *document, const char *what, struct err *err)
{
	const json_t *v = json_object_get(document, "schemaVersion");

	if (json_is_integer(v) && json_integer_value(v) == 2)
		return 0;
	return err_raise(err, ERR_CORRUPT, "the %s is not of schema version 2", what);
}

int oci_layout_check(const json_t *document, struct err *err)
{
	const char *layout = text(document, "imageLayoutVersion");

	return layout != NULL && str_starts(layout, "1.")
		       ? 0
		       : corrupt(err, "oci-layout does not say a known version");
}

int oci_index_parse(const json_t *document, struct oci_index *ret, struct err *err)
{
	const json_t *list = json_object_get(document, "manifests");
	int rc = version(document, "image index", err);

	if (rc < 0)
		return rc;
	if (!json_is_array(list))
		return corrupt(err, "the image index has no list of manifests");
	if (json_array_size(list) > OCI_MANIFESTS_MAX)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"the image index has more than %d manifests", OCI_MANIFESTS_MAX);
	ret->n = json_array_size(list);
	for (size_t i = 0; i < ret->n; i++) {
		rc = descriptor(json_array_get(list, i), &ret->manifests[i], err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int oci_manifest_parse(const json_t *document, struct oci_manifest *ret, struct err *err)
{
	const json_t *list = json_object_get(document, "layers");
	int rc = version(document, "image manifest", err);

	if (rc == 0)
		rc = descriptor(json_object_get(document, "config"), &ret->config, err);
	if (rc < 0)
		return rc;
	if (ret->config.kind != OCI_CONFIG)
		return err_raise(
			err, ERR_UNSUPPORTED, "the manifest describes something that is no image");
	if (!json_is_array(list))
		return corrupt(err, "the image manifest has no list of layers");
	if (json_array_size(list) > OCI_LAYERS_MAX)
		return err_raise(err, ERR_HOSTILE_ARCHIVE, "the image has more than %d layers",
			OCI_LAYERS_MAX);
	ret->n_layers = json_array_size(list);
	for (size_t i = 0; i < ret->n_layers; i++) {
		rc = descriptor(json_array_get(list, i), &ret->layers[i], err);
		if (rc < 0)
			return rc;
		if (ret->layers[i].kind != OCI_LAYER)
			return err_raise(
				err, ERR_UNSUPPORTED, "layer %zu is of an unknown type", i);
	}
	return 0;
}

int oci_config_parse(const json_t *document, struct oci_config *ret, struct err *err)
{
	const json_t *list = json_object_get(json_object_get(document, "rootfs"), "diff_ids");

	if (!json_is_object(document) || !json_is_array(list))
		return corrupt(err, "the image configuration does not list its layers");
	if (json_array_size(list) > OCI_LAYERS_MAX)
		return err_raise(err, ERR_HOSTILE_ARCHIVE, "the image has more than %d layers",
			OCI_LAYERS_MAX);
	optional(document, "os", ret->os, sizeof(ret->os));
	optional(document, "architecture", ret->architecture, sizeof(ret->architecture));
	ret->n_layers = json_array_size(list);
	for (size_t i = 0; i < ret->n_layers; i++) {
		const char *digest = json_string_value(json_array_get(list, i));

		if (digest == NULL || !digest_valid(digest))
			return corrupt(
				err, "a layer digest of the image configuration is malformed");
		if (str_copy(ret->diff_ids[i], sizeof(ret->diff_ids[i]), digest) < 0)
			return corrupt(
				err, "a layer digest of the image configuration is too long");
	}
	return 0;
}

/* Strings of an array; the texts stay with the document. */
static int strings(const json_t *list, const char **ret, size_t max, size_t *ret_n, struct err *err)
{
	if (json_array_size(list) > max)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"a list in manifest.json has more than %zu elements", max);
	*ret_n = json_array_size(list);
	for (size_t i = 0; i < *ret_n; i++) {
		ret[i] = json_string_value(json_array_get(list, i));
		if (ret[i] == NULL || ret[i][0] == '\0')
			return corrupt(err, "manifest.json is malformed");
	}
	return 0;
}

int docker_save_parse(const json_t *document, size_t i, struct docker_save *ret, struct err *err)
{
	const json_t *image = json_array_get(document, i);
	const json_t *layers = json_object_get(image, "Layers"),
		     *tags = json_object_get(image, "RepoTags");
	int rc;

	ret->config = text(image, "Config");
	if (ret->config == NULL || ret->config[0] == '\0' || !json_is_array(layers) ||
		(tags != NULL && !json_is_null(tags) && !json_is_array(tags)))
		return corrupt(err, "manifest.json is malformed");
	rc = strings(layers, ret->layers, OCI_LAYERS_MAX, &ret->n_layers, err);
	return rc < 0 ? rc : strings(tags, ret->tags, OCI_MANIFESTS_MAX, &ret->n_tags, err);
}

static bool same(const struct reference *want, const char *name)
{
	struct reference have;

	return reference_parse(name, &have, NULL) == 0 && str_eq(have.path, want->path) &&
	       str_eq(have.tag, want->tag) && str_eq(have.registry, want->registry);
}

/*
 * Do the annotations of a manifest name what the user asked for? docker save and containerd give a complete name, and the tag of it in the other one,
 * which then tells nothing: several images of an archive may be "latest". Elsewhere that one holds a tag, or a complete name.
 */
static bool named(const struct oci_descriptor *d, const char *name)
{
	struct reference want;
	bool ok = reference_parse(name, &want, NULL) == 0;

	if (d->name[0] != '\0')
		return ok && same(&want, d->name);
	if (str_eq(d->ref_name, name))
		return true;
	if (!ok || d->ref_name[0] == '\0')
		return false;
	return str_eq(d->ref_name, want.tag) ||
	       (strpbrk(d->ref_name, "/:") != NULL && same(&want, d->ref_name));
}

static bool fits(const struct oci_descriptor *d, const char *architecture)
{
	bool any = d->os[0] == '\0' && d->architecture[0] == '\0';

	if (d->kind != OCI_INDEX && d->kind != OCI_MANIFEST)
		return false;
	return any || (str_eq(d->os, "linux") && str_eq(d->architecture, architecture));
}

/* How many images, told apart by their digests, fit and have this name (NULL: any)? *@ret_first is set when there is one. */
static size_t count(const struct oci_index *index, const char *name, const char *architecture,
	size_t *ret_first)
{
	size_t list[OCI_MANIFESTS_MAX], n = 0, k;

	for (size_t i = 0; i < index->n; i++) {
		const struct oci_descriptor *d = &index->manifests[i];

		if (!fits(d, architecture) || (name != NULL && !named(d, name)))
			continue;
		for (k = 0; k < n && !str_eq(index->manifests[list[k]].digest, d->digest); k++)
			;
		if (k == n)
			list[n++] = i;
	}
	if (n > 0)
		*ret_first = list[0];
	return n;
}

ssize_t oci_choose(
	const struct oci_index *index, const char *name, const char *architecture, struct err *err)
{
	size_t first = 0, n = count(index, NULL, architecture, &first);

	if (index->n == 0)
		return corrupt(err, "the image index is empty");
	if (n == 0)
		return err_raise(
			err, ERR_UNSUPPORTED, "the image is not for linux/%s", architecture);
	if (n == 1)
		return (ssize_t)first;
	if (name != NULL && name[0] != '\0' && count(index, name, architecture, &first) == 1)
		return (ssize_t)first;
	return err_hint(err,
		err_raise(err, ERR_AMBIGUOUS,
			"there are %zu images and the name tells no single one of them", n),
		"give the import the name of the one that is meant");
}

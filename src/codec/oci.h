/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/oci.h - the JSON documents of OCI images (image-spec 1.1) and of docker-save archives.
 *
 * Only what an import needs, with a bound on every count and length; members that are not known are ignored, members that are known and wrong are refused.
 * Docker's own media types (manifest list, manifest v2 schema 2) are the same thing under other names.
 */
#ifndef CAY_CODEC_OCI_H
#define CAY_CODEC_OCI_H

#include "base/err.h"
#include "codec/reference.h"
#include <jansson.h>

#define OCI_DOCUMENT_MAX  (4U << 20) /* bytes of one document */
#define OCI_MANIFESTS_MAX 512
#define OCI_LAYERS_MAX    512
#define OCI_NAME_MAX      255

enum oci_kind {
	OCI_UNKNOWN,
	OCI_INDEX,
	OCI_MANIFEST,
	OCI_CONFIG,
	OCI_LAYER,
};

/** struct oci_descriptor - a pointer to a blob. */
struct oci_descriptor {
	enum oci_kind kind;
	char digest[REFERENCE_DIGEST_MAX + 1];
	uint64_t size;
	char os[32], architecture[32]; /* of its platform; "" when it names none */
	char ref_name[OCI_NAME_MAX +
		      1]; /* annotation org.opencontainers.image.ref.name, or ""; cut off when longer */
	char name[REFERENCE_TEXT_SIZE]; /* annotation io.containerd.image.name, or "" */
};

/** struct oci_index - descriptors of an image index or manifest list. */
struct oci_index {
	size_t n;
	struct oci_descriptor manifests[OCI_MANIFESTS_MAX];
};

/** struct oci_manifest - one image: its configuration, and its layers from the lowest to the topmost. */
struct oci_manifest {
	struct oci_descriptor config;
	size_t n_layers;
	struct oci_descriptor layers[OCI_LAYERS_MAX];
};

/** struct oci_config - what an import needs of an image configuration. */
struct oci_config {
	char os[32], architecture[32];
	size_t n_layers;
	char diff_ids[OCI_LAYERS_MAX]
		     [REFERENCE_DIGEST_MAX + 1]; /* digests of the uncompressed layers */
};

/** struct docker_save - one element of a docker-save manifest.json; strings are borrowed from the document. */
struct docker_save {
	const char *config; /* path of the configuration in the archive */
	size_t n_layers, n_tags;
	const char
		*layers[OCI_LAYERS_MAX]; /* paths in the archive, from the lowest to the topmost */
	const char *tags[OCI_MANIFESTS_MAX]; /* RepoTags */
};

/**
 * oci_document() - parse JSON of at most %OCI_DOCUMENT_MAX bytes whose top is an object or array; duplicate members are refused.
 * @what: names the document in the error ("index.json").
 *
 * Return: owned by the caller, or NULL with *@err: %ERR_HOSTILE_ARCHIVE (too large, nested too deeply), %ERR_CORRUPT.
 */
json_t *oci_document(const char *bytes, size_t n, const char *what, struct err *err) attr_must_use;

/** oci_layout_check() - is this the content of an `oci-layout` file of version 1.x? Return: 0 or -errno with *@err. */
int oci_layout_check(const json_t *document, struct err *err) attr_must_use;

/** oci_index_parse() - read an image index. Return: 0 or -errno with *@err (%ERR_CORRUPT, %ERR_HOSTILE_ARCHIVE). */
int oci_index_parse(const json_t *document, struct oci_index *ret, struct err *err) attr_must_use;

/** oci_manifest_parse() - read an image manifest; %ERR_UNSUPPORTED when it is no image (an artifact). Return as oci_index_parse(). */
int oci_manifest_parse(
	const json_t *document, struct oci_manifest *ret, struct err *err) attr_must_use;

/** oci_config_parse() - read an image configuration. Return as oci_index_parse(). */
int oci_config_parse(const json_t *document, struct oci_config *ret, struct err *err) attr_must_use;

/** docker_save_parse() - read element @i of a docker-save manifest.json. Return: 0, or -errno with *@err. */
int docker_save_parse(
	const json_t *document, size_t i, struct docker_save *ret, struct err *err) attr_must_use;

/**
 * oci_choose() - which manifest of an index to take.
 * @name:         what the user called it: a tag, or a complete name; NULL or "" for whatever there is. Compared only when several are left: with the
 *                complete name where a manifest has one, else with its tag. One image of several names is one.
 * @architecture: in OCI's spelling, "amd64". Manifests of other platforms are left out.
 *
 * Return: the index in @index->manifests, or -errno with *@err: %ERR_UNSUPPORTED (nothing for this platform), %ERR_AMBIGUOUS (several), %ERR_CORRUPT (empty).
 */
ssize_t oci_choose(const struct oci_index *index, const char *name, const char *architecture,
	struct err *err) attr_must_use;

#endif

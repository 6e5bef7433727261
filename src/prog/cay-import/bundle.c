/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-import/bundle.h"
#include "base/ablate.h"
#include "base/str.h"
#include "codec/oci.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#define INDEX_DEPTH_MAX 4

struct bundle {
	struct source *source;
	struct import_tree *root;
	const char *name, *architecture;
	char digest[REFERENCE_DIGEST_MAX +
		    1]; /* of the image: manifest, configuration, or plain root archive */
	json_t *config; /* configuration document; owned */
	struct oci_index index;
	struct oci_manifest manifest;
	struct oci_config layers;
	struct docker_save save;
};

static void blob_name(const char *digest, char name[REFERENCE_DIGEST_MAX + 16])
{
	/* "sha256:…" is valid already: seven bytes, the colon at the end. */
	(void)snprintf(name, REFERENCE_DIGEST_MAX + 16, "blobs/%.6s/%s", digest, digest + 7);
}

/* ---- layers -------------------------------------------------------------------------------------------------------------------- */

static int check_digest(const char *want, const char *have, size_t i, struct err *err)
{
	if (want == NULL || str_eq(want, have) || ablated("layer_digest"))
		return 0;
	return err_raise(
		err, ERR_HOSTILE_ARCHIVE, "layer %zu is not what its digest %.19s… says", i, want);
}

/* One pass over a layer. @stored may be NULL: docker-save names no digest of the file, only of its content. */
static int run_pass(struct bundle *b, const struct part *part, size_t i, const char *stored,
	const char *plain, enum import_tree_pass pass, struct err *err)
{
	char have_stored[REFERENCE_DIGEST_MAX + 1], have_plain[REFERENCE_DIGEST_MAX + 1];
	cleanup_unzip struct unzip *in =
		unzip_open(&part->blob, b->root->limit_bytes, str_starts(plain, "sha512:"), err);
	int rc;

	if (in == NULL)
		return -EBADMSG;
	rc = import_tree_apply(b->root, in, pass, true, err);
	if (rc < 0)
		return rc;
	unzip_digests(in, have_stored, have_plain);
	rc = check_digest(stored, have_stored, i, err);
	return rc < 0 ? rc : check_digest(plain, have_plain, i, err);
}

/*
 * Whiteouts concern what lower layers made, wherever they stand among the entries; so a layer is read twice, first for them. The lowest has nothing below.
 */
static int apply_layer(struct bundle *b, const char *name, size_t i, const struct oci_descriptor *d,
	struct err *err)
{
	cleanup_part struct part part = { .own = -1 };
	const char *plain = b->layers.diff_ids[i], *stored = d != NULL ? d->digest : NULL;
	int rc = source_open(b->source, name, &part, err);

	if (rc < 0)
		return rc;
	if (d != NULL && d->size != part.blob.size)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"layer %zu is not of the size that the manifest says", i);
	if (stored != NULL && memcmp(stored, plain, 7) != 0)
		return err_raise(err, ERR_UNSUPPORTED, "layer %zu has digests of two kinds", i);
	if (i > 0)
		rc = run_pass(b, &part, i, stored, plain, IMPORT_TREE_HIDE, err);
	return rc < 0 ? rc : run_pass(b, &part, i, stored, plain, IMPORT_TREE_WRITE, err);
}

static int check_platform(const struct bundle *b, struct err *err)
{
	const struct oci_config *c = &b->layers;

	if ((c->os[0] == '\0' || str_eq(c->os, "linux")) &&
		(c->architecture[0] == '\0' || str_eq(c->architecture, b->architecture)))
		return 0;
	return err_raise(err, ERR_UNSUPPORTED, "the image is for %s/%s; this machine is linux/%s",
		c->os, c->architecture, b->architecture);
}

static int read_config(struct bundle *b, size_t n_layers, struct err *err)
{
	int rc = oci_config_parse(b->config, &b->layers, err);

	if (rc == 0 && b->layers.n_layers != n_layers)
		rc = err_raise(err, ERR_CORRUPT,
			"the configuration lists %zu layers, the manifest %zu", b->layers.n_layers,
			n_layers);
	return rc < 0 ? rc : check_platform(b, err);
}

/* ---- OCI ----------------------------------------------------------------------------------------------------------------------- */

/* From index.json down to the manifest, which is parsed into @b->manifest. */
static int find_manifest(struct bundle *b, struct err *err)
{
	char file[REFERENCE_DIGEST_MAX + 16] = "index.json";
	json_t *document = source_document(b->source, file, "", NULL, err);
	enum oci_kind kind = OCI_INDEX;
	int rc = document == NULL ? -EBADMSG : 0;

	for (int depth = 0; rc == 0 && kind == OCI_INDEX; depth++) {
		const struct oci_descriptor *d;
		ssize_t i;

		rc = depth == INDEX_DEPTH_MAX ? err_raise(err, ERR_HOSTILE_ARCHIVE,
							"image indexes are nested too deeply")
					      : oci_index_parse(document, &b->index, err);
		i = rc < 0 ? rc : oci_choose(&b->index, b->name, b->architecture, err);
		json_decref(document);
		if (i < 0)
			return (int)i;
		d = &b->index.manifests[i];
		kind = d->kind;
		memcpy(b->digest, d->digest, sizeof(b->digest));
		blob_name(d->digest, file);
		document = source_document(b->source, file, d->digest, NULL, err);
		rc = document == NULL ? -EBADMSG : 0;
	}
	if (rc == 0)
		rc = oci_manifest_parse(document, &b->manifest, err);
	json_decref(document);
	return rc;
}

static int unpack_oci(struct bundle *b, struct err *err)
{
	char file[REFERENCE_DIGEST_MAX + 16];
	json_t *layout = source_document(b->source, "oci-layout", "", NULL, err);
	int rc = layout == NULL ? -EBADMSG : oci_layout_check(layout, err);

	json_decref(layout);
	if (rc == 0)
		rc = find_manifest(b, err);
	if (rc < 0)
		return rc;
	blob_name(b->manifest.config.digest, file);
	b->config = source_document(b->source, file, b->manifest.config.digest, NULL, err);
	rc = b->config == NULL ? -EBADMSG : read_config(b, b->manifest.n_layers, err);
	for (size_t i = 0; rc == 0 && i < b->manifest.n_layers; i++) {
		blob_name(b->manifest.layers[i].digest, file);
		rc = apply_layer(b, file, i, &b->manifest.layers[i], err);
	}
	return rc;
}

/* ---- docker save --------------------------------------------------------------------------------------------------------------- */

static bool tagged(const struct docker_save *save, const struct reference *want)
{
	struct reference have;

	for (size_t i = 0; i < save->n_tags; i++)
		if (reference_parse(save->tags[i], &have, NULL) == 0 &&
			str_eq(have.registry, want->registry) && str_eq(have.path, want->path) &&
			str_eq(have.tag, want->tag))
			return true;
	return false;
}

/* Leave the chosen image in @b->save. */
static int choose_saved(struct bundle *b, const json_t *document, struct err *err)
{
	size_t n = json_array_size(document), found = 0, which = 0;
	struct reference want;

	if (n == 0 || n > OCI_MANIFESTS_MAX)
		return err_raise(err, ERR_CORRUPT, "manifest.json lists no image, or too many");
	if (n == 1)
		return docker_save_parse(document, 0, &b->save, err);
	for (size_t i = 0; i < n && reference_parse(b->name, &want, NULL) == 0; i++) {
		int rc = docker_save_parse(document, i, &b->save, err);

		if (rc < 0)
			return rc;
		if (tagged(&b->save, &want)) {
			found++;
			which = i;
		}
	}
	if (found == 1)
		return docker_save_parse(document, which, &b->save, err);
	return err_hint(err,
		err_raise(err, ERR_AMBIGUOUS,
			"the archive holds %zu images and the name tells no single one of them", n),
		"give the import the name of the one that is meant");
}

/* A configuration is often named by its digest: "<64 digits>.json", "sha256:<64 digits>" or "blobs/sha256/<64 digits>". Then it must be that. */
static void config_digest(const char *path, char digest[REFERENCE_DIGEST_MAX + 1])
{
	const char *base = strrchr(path, '/');
	size_t n;

	base = base != NULL ? base + 1 : path;
	base += str_starts(base, "sha256:") ? 7 : 0;
	n = strspn(base, "0123456789abcdef");
	digest[0] = '\0';
	if (n == 64 && (base[64] == '\0' || str_eq(base + 64, ".json")))
		(void)snprintf(digest, REFERENCE_DIGEST_MAX + 1, "sha256:%.64s", base);
}

static int saved_layer(struct bundle *b, size_t i, struct err *err)
{
	cleanup_buf struct buf name = BUF_INIT(1U << 20);
	int rc = import_tree_name(b->save.layers[i], &name, err);

	return rc < 0 ? rc : apply_layer(b, buf_cstr(&name), i, NULL, err);
}

static int unpack_docker(struct bundle *b, struct err *err)
{
	json_t *document = source_document(b->source, "manifest.json", "", NULL, err);
	cleanup_buf struct buf name = BUF_INIT(1U << 20);
	char want[REFERENCE_DIGEST_MAX + 1];
	int rc = document == NULL ? -EBADMSG : choose_saved(b, document, err);

	if (rc == 0)
		rc = import_tree_name(b->save.config, &name, err);
	if (rc == 0) {
		config_digest(buf_cstr(&name), want);
		b->config = source_document(b->source, buf_cstr(&name), want, b->digest, err);
		rc = b->config == NULL ? -EBADMSG : read_config(b, b->save.n_layers, err);
	}
	for (size_t i = 0; rc == 0 && i < b->save.n_layers; i++)
		rc = saved_layer(b, i, err);
	json_decref(document);
	return rc;
}

/* ---- root file systems --------------------------------------------------------------------------------------------------------- */

static int unpack_rootfs(struct bundle *b, struct err *err)
{
	cleanup_part struct part part = { .own = -1 };
	char stored[REFERENCE_DIGEST_MAX + 1];
	cleanup_unzip struct unzip *in = NULL;
	off_t end = lseek(b->source->file, 0, SEEK_END);
	int rc;

	if (end < 0)
		return err_raise_sys(err, -errno, "read the archive");
	part.blob = (struct blob){ .fd = b->source->file, .size = (uint64_t)end };
	in = unzip_open(&part.blob, b->root->limit_bytes, false, err);
	if (in == NULL)
		return -EBADMSG;
	rc = import_tree_apply(b->root, in, IMPORT_TREE_WRITE, false, err);
	if (rc < 0)
		return rc;
	if (b->root->entries == 0)
		return err_raise(err, ERR_CORRUPT, "the archive is empty");
	unzip_digests(in, stored, b->digest);
	b->config = json_pack("{s:s, s:s, s:{}, s:{s:s, s:[s]}}", "architecture", b->architecture,
		"os", "linux", "config", "rootfs", "type", "layers", "diff_ids", b->digest);
	return 0;
}

/* The list of images of docker's kind of archive at the top of the new tree, or NULL when there is none. */
static json_t *saved_list(int tree)
{
	cleanup_fd int fd =
		openat(tree, "manifest.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	cleanup_buf struct buf text = BUF_INIT(OCI_DOCUMENT_MAX + 1);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || file_read_again(fd, &text) < 0)
		return NULL;
	return oci_document(buf_cstr(&text), text.n, "manifest.json", NULL);
}

/* What was not told for an image by its names is no root file system all the same when it lists images. */
static int check_rootfs(struct bundle *b, struct err *err)
{
	json_t *list = saved_list(b->root->tree);
	bool image = list != NULL && docker_save_parse(list, 0, &b->save, NULL) == 0;

	json_decref(list);
	if (!image)
		return 0;
	return err_hint(err,
		err_raise(err, ERR_UNSUPPORTED,
			"the archive holds images (manifest.json) and names that belong to none"),
		"import what docker save or skopeo copy writes of the image");
}

static json_t *report(struct bundle *b, size_t layers, struct err *err)
{
	static const char *const kinds[] = { "auto", "oci", "docker", "rootfs" };
	json_t *counts, *result;

	/* How the image was built is no business of a sandbox, and may be long. */
	(void)json_object_del(b->config, "history");
	if (json_dumpb(b->config, NULL, 0, JSON_COMPACT) > BUNDLE_CONFIG_MAX) {
		(void)err_raise(
			err, ERR_HOSTILE_ARCHIVE, "the image configuration is larger than 96 KiB");
		return NULL;
	}
	result = json_pack("{s:s, s:s, s:I, s:O}", "kind", kinds[b->source->kind], "digest",
		b->digest, "layers", (json_int_t)layers, "config", b->config);
	counts = import_tree_report(b->root);
	(void)json_object_update(result, counts);
	json_decref(counts);
	return result;
}

static int unpack(struct bundle *b, struct err *err)
{
	bool told = b->source->kind != SOURCE_AUTO;
	int rc = b->source->socket >= 0 ? 0 : source_detect(b->source, err);

	if (rc == 0 && b->source->socket < 0 && b->source->kind != SOURCE_ROOTFS)
		rc = source_index(b->source, b->root->tree, err);
	if (rc < 0)
		return rc;
	switch (b->source->kind) {
	case SOURCE_OCI:
		return unpack_oci(b, err);
	case SOURCE_DOCKER:
		return unpack_docker(b, err);
	case SOURCE_ROOTFS:
	case SOURCE_AUTO:
	default:
		rc = unpack_rootfs(b, err);
		return rc < 0 || told ? rc : check_rootfs(b, err);
	}
}

json_t *bundle_unpack(struct source *source, struct import_tree *root, const char *name,
	const char *architecture, struct err *err)
{
	struct bundle *b = xnew(struct bundle);
	json_t *result = NULL;

	b->source = source;
	b->root = root;
	b->name = name;
	b->architecture = architecture;
	if (unpack(b, err) == 0)
		result = report(b, source->kind == SOURCE_ROOTFS ? 1 : b->layers.n_layers, err);
	json_decref(b->config);
	free(b);
	return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/oci.h"
#include "fuzz/fuzz.h"

/* A failed parse says why, a good one leaves only valid digests. */
static void check_failure(int rc, const struct err *err)
{
	MUST(rc >= 0 || (err->code != ERR_NONE && err->msg[0] != '\0'));
}

static void check_index(const json_t *document)
{
	static struct oci_index index;
	struct err err = { 0 };
	int rc = oci_index_parse(document, &index, &err);

	check_failure(rc, &err);
	for (size_t i = 0; rc == 0 && i < index.n; i++)
		MUST(digest_valid(index.manifests[i].digest));
	if (rc == 0) {
		ssize_t i = oci_choose(&index, "12", "amd64", &err);

		MUST(i < (ssize_t)index.n && (i >= 0 || err.code != ERR_NONE));
	}
}

static void check_image(const json_t *document)
{
	static struct oci_manifest manifest;
	static struct oci_config config;
	static struct docker_save save;
	struct err err = { 0 };
	int rc = oci_manifest_parse(document, &manifest, &err);

	check_failure(rc, &err);
	for (size_t i = 0; rc == 0 && i < manifest.n_layers; i++)
		MUST(digest_valid(manifest.layers[i].digest));
	rc = oci_config_parse(document, &config, &err);
	check_failure(rc, &err);
	for (size_t i = 0; rc == 0 && i < config.n_layers; i++)
		MUST(digest_valid(config.diff_ids[i]));
	rc = docker_save_parse(document, 0, &save, &err);
	check_failure(rc, &err);
	for (size_t i = 0; rc == 0 && i < save.n_layers; i++)
		MUST(save.layers[i][0] != '\0');
	check_failure(oci_layout_check(document, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	json_t *document = oci_document((const char *)data, size, "input", &err);

	MUST(document != NULL || err.code != ERR_NONE);
	if (document != NULL) {
		check_index(document);
		check_image(document);
	}
	json_decref(document);
	return 0;
}

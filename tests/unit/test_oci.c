/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "codec/oci.h"
#include "t.h"

#define A      "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B      "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define INDEX  "application/vnd.oci.image.index.v1+json"
#define IMAGE  "application/vnd.oci.image.manifest.v1+json"
#define CONFIG "application/vnd.oci.image.config.v1+json"
#define LAYER  "application/vnd.oci.image.layer.v1.tar+gzip"

#define DESCRIPTOR(type, more) "{'mediaType':'" type "','digest':'" A "','size':7" more "}"
#define PLATFORM(os, arch)     ",'platform':{'os':'" os "','architecture':'" arch "'}"
#define OTHER(type, more)      "{'mediaType':'" type "','digest':'" B "','size':7" more "}"
#define SAVED(name, tag) \
	",'annotations':{'io.containerd.image.name':'docker.io/library/" name ":" tag \
	"','org.opencontainers.image.ref.name':'" tag "'}"
#define NAMED(name) ",'annotations':{'org.opencontainers.image.ref.name':'" name "'}"

/* Parse, with ' for " so that the documents can be read here. */
static json_t *document(const char *text, struct err *err)
{
	cleanup_buf struct buf b = BUF_INIT(1 << 20);

	for (; *text != '\0'; text++)
		buf_char(&b, *text == '\'' ? '"' : *text);
	return oci_document(buf_cstr(&b), b.n, "it", err);
}

static enum err_code manifest_code(const char *text)
{
	static struct oci_manifest m;
	struct err err = { 0 };
	json_t *j = document(text, &err);

	if (j != NULL)
		(void)!oci_manifest_parse(j, &m, &err);
	json_decref(j);
	return err.code;
}

static enum err_code index_code(const char *text, struct oci_index *ret)
{
	struct err err = { 0 };
	json_t *j = document(text, &err);

	if (j != NULL)
		(void)!oci_index_parse(j, ret, &err);
	json_decref(j);
	return err.code;
}

TEST(documents_that_are_no_json_are_refused)
{
	static const char *const bad[] = { "", "{", "{'a':1,'a':2}", "{}x", "'text'", "1", "null",
		"{'a':\xFF}", "[1,]" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err err = { 0 };
		json_t *j = document(bad[i], &err);

		check(j == NULL);
		check_int(err.code, ERR_CORRUPT);
		json_decref(j);
	}
}

TEST(documents_that_are_absurd_are_refused)
{
	cleanup_free char *big = xalloc(OCI_DOCUMENT_MAX + 1);
	struct err err = { 0 };

	memset(big, ' ', OCI_DOCUMENT_MAX + 1);
	check(oci_document(big, OCI_DOCUMENT_MAX + 1, "it", &err) == NULL);
	check_int(err.code, ERR_HOSTILE_ARCHIVE);
	memset(big, '[', 1000000);
	err = (struct err){ 0 };
	check(oci_document(big, 1000000, "it", &err) == NULL);
	check(err.code == ERR_CORRUPT || err.code == ERR_HOSTILE_ARCHIVE);
}

TEST(manifests_that_are_wrong_are_refused)
{
	static const struct {
		const char *text;
		enum err_code code;
	} bad[] = {
		{ "{}", ERR_CORRUPT },
		{ "[]", ERR_CORRUPT },
		{ "{'schemaVersion':1,'config':" DESCRIPTOR(CONFIG, "") ",'layers':[]}",
			ERR_CORRUPT },
		{ "{'schemaVersion':'2','config':" DESCRIPTOR(CONFIG, "") ",'layers':[]}",
			ERR_CORRUPT },
		{ "{'schemaVersion':2,'layers':[]}", ERR_CORRUPT },
		{ "{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG, "") "}", ERR_CORRUPT },
		{ "{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG, "") ",'layers':{}}",
			ERR_CORRUPT },
		{ "{'schemaVersion':2,'config':" DESCRIPTOR("application/x", "") ",'layers':[]}",
			ERR_UNSUPPORTED },
		{ "{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG, "") ",'layers':[" DESCRIPTOR(
			  "application/x", "") "]}",
			ERR_UNSUPPORTED },
		{ "{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG,
			  "") ",'layers':[{'mediaType':'" LAYER "','digest':'sha256:a','size':1}]}",
			ERR_CORRUPT },
		{ "{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG,
			  "") ",'layers':[{'mediaType':'" LAYER "','digest':'" A "','size':-1}]}",
			ERR_CORRUPT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		enum err_code code = manifest_code(bad[i].text);

		if (code != bad[i].code)
			t_fail("manifest %zu: %s, want %s", i, err_code_name(code),
				err_code_name(bad[i].code));
	}
}

TEST(too_many_layers_are_hostile)
{
	cleanup_buf struct buf b = BUF_INIT(1 << 20);

	buf_str(&b, "{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG, "") ",'layers':[");
	for (int i = 0; i <= OCI_LAYERS_MAX; i++)
		buf_fmt(&b, "%s%s", i != 0 ? "," : "", DESCRIPTOR(LAYER, ""));
	buf_str(&b, "]}");
	check_int(manifest_code(buf_cstr(&b)), ERR_HOSTILE_ARCHIVE);
}

TEST(a_good_manifest)
{
	static struct oci_manifest m;
	struct err err = { 0 };
	json_t *j = document(
		"{'schemaVersion':2,'unknown':1,'config':" DESCRIPTOR(
			CONFIG, "") ",'layers':[" DESCRIPTOR(LAYER,
			"") "," DESCRIPTOR("application/vnd.docker.image.rootfs.diff.tar.gzip",
			"") "]}",
		&err);

	check(j != NULL);
	check_int(oci_manifest_parse(j, &m, &err), 0);
	check_int(m.n_layers, 2);
	check_str(m.config.digest, A);
	check_int(m.layers[1].size, 7);
	json_decref(j);
}

TEST(every_type_of_layer)
{
	static const char *const types[] = { "oci.image.layer.v1.tar",
		"oci.image.layer.v1.tar+gzip", "oci.image.layer.v1.tar+zstd",
		"oci.image.layer.nondistributable.v1.tar",
		"oci.image.layer.nondistributable.v1.tar+gzip",
		"oci.image.layer.nondistributable.v1.tar+zstd", "docker.image.rootfs.diff.tar",
		"docker.image.rootfs.diff.tar.gzip", "docker.image.rootfs.diff.tar.zstd",
		"docker.image.rootfs.foreign.diff.tar",
		"docker.image.rootfs.foreign.diff.tar.gzip" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		cleanup_buf struct buf b = BUF_INIT(4096);

		buf_fmt(&b,
			"{'schemaVersion':2,'config':" DESCRIPTOR(CONFIG,
				"") ",'layers':[{'mediaType':'application/vnd.%s','digest':'" A
				    "','size':1}]}",
			types[i]);
		check_int(manifest_code(buf_cstr(&b)), ERR_NONE);
	}
}

TEST(choosing_wants_one_that_fits)
{
	static struct oci_index index;
	struct err err = { 0 };

	check_int(index_code("{'schemaVersion':2,'manifests':[]}", &index), ERR_NONE);
	check(oci_choose(&index, NULL, "amd64", &err) < 0);
	check_int(err.code, ERR_CORRUPT);
	check_int(index_code("{'schemaVersion':2,'manifests':[" DESCRIPTOR(
				     IMAGE, PLATFORM("linux", "arm64")) "," DESCRIPTOR(IMAGE,
				     PLATFORM("windows", "amd64")) "]}",
			  &index),
		ERR_NONE);
	check(oci_choose(&index, NULL, "amd64", &err) < 0);
	check_int(err.code, ERR_UNSUPPORTED);
	check_int(oci_choose(&index, NULL, "arm64", &err), 0);
}

TEST(choosing_among_several_needs_the_name)
{
	static struct oci_index index;
	struct err err = { 0 };

	check_int(index_code("{'schemaVersion':2,'manifests':[" DESCRIPTOR(
				     IMAGE, NAMED("one")) "," OTHER(INDEX,
				     NAMED("docker.io/library/x:two")) "]}",
			  &index),
		ERR_NONE);
	check(oci_choose(&index, NULL, "amd64", &err) < 0);
	check_int(err.code, ERR_AMBIGUOUS);
	check(oci_choose(&index, "three", "amd64", &err) < 0);
	check_int(oci_choose(&index, "one", "amd64", &err), 0);
	check_int(oci_choose(&index, "any:one", "amd64", &err), 0);
	check_int(oci_choose(&index, "x:two", "amd64", &err), 1);
}

/* What docker save writes since 25, and ctr: the tag in one annotation, the complete name in the other. */
TEST(choosing_goes_by_the_complete_name)
{
	static struct oci_index index;
	struct err err = { 0 };

	check_int(index_code("{'schemaVersion':2,'manifests':[" DESCRIPTOR(
				     IMAGE, SAVED("app", "latest")) "," OTHER(IMAGE,
				     SAVED("postgres", "16")) "," OTHER(IMAGE,
				     SAVED("web", "latest")) "," DESCRIPTOR(IMAGE,
				     SAVED("app", "1")) "]}",
			  &index),
		ERR_NONE);
	check(oci_choose(&index, NULL, "amd64", &err) < 0);
	check_int(err.code, ERR_AMBIGUOUS);
	check(strstr(err.msg, "2 images") != NULL);
	check(oci_choose(&index, "postgres", "amd64", &err) < 0);
	check_int(oci_choose(&index, "postgres:16", "amd64", &err), 1);
	check_int(oci_choose(&index, "web", "amd64", &err), 2);
	check_int(oci_choose(&index, "docker.io/library/app:1", "amd64", &err), 3);
	check(oci_choose(&index, "example.org/app:1", "amd64", &err) < 0);
}

TEST(one_image_of_two_names_is_one)
{
	static struct oci_index index;
	struct err err = { 0 };

	check_int(index_code("{'schemaVersion':2,'manifests':[" DESCRIPTOR(
				     IMAGE, SAVED("shop", "1")) "," DESCRIPTOR(IMAGE,
				     SAVED("shop", "latest")) "]}",
			  &index),
		ERR_NONE);
	check_int(oci_choose(&index, NULL, "amd64", &err), 0);
	check_int(oci_choose(&index, "other", "amd64", &err), 0);
}

TEST(configurations)
{
	static struct oci_config c;
	static const char *const bad[] = { "{}", "[]", "{'rootfs':{}}",
		"{'rootfs':{'diff_ids':['x']}}", "{'rootfs':{'diff_ids':[1]}}" };
	struct err err = { 0 };
	json_t *j;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		j = document(bad[i], &err);
		check(oci_config_parse(j, &c, &err) < 0);
		check_int(err.code, ERR_CORRUPT);
		json_decref(j);
	}
	j = document("{'os':'linux','architecture':'amd64','rootfs':{'diff_ids':['" A "']}}", &err);
	check_int(oci_config_parse(j, &c, &err), 0);
	check_int(c.n_layers, 1);
	check_str(c.os, "linux");
	json_decref(j);
}

TEST(docker_save_documents)
{
	static struct docker_save d;
	static const char *const bad[] = { "[]", "{}", "[{}]", "[{'Config':'','Layers':[]}]",
		"[{'Config':'c','Layers':'x'}]", "[{'Config':'c','Layers':['']}]",
		"[{'Config':'c','Layers':[],'RepoTags':'x'}]" };
	struct err err = { 0 };
	json_t *j;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		j = document(bad[i], &err);
		check(docker_save_parse(j, 0, &d, &err) < 0);
		check_int(err.code, ERR_CORRUPT);
		json_decref(j);
	}
	j = document("[{'Config':'c.json','RepoTags':null,'Layers':['a','b']}]", &err);
	check_int(docker_save_parse(j, 0, &d, &err), 0);
	check_int(d.n_layers, 2);
	check_str(d.layers[1], "b");
	check_int(d.n_tags, 0);
	check(docker_save_parse(j, 1, &d, &err) < 0);
	json_decref(j);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-import/main.c - reads an untrusted archive and writes the tree that it describes, in namespaces of its own (store/import_start.c).
 *
 * Descriptors: 3 the empty tree, 4 the socket to the import job, 5 the archive (closed for a layout directory). The only argument is the
 * request, a JSON object made by the job: format, name, architecture, ids, keep_caps, limit_bytes, limit_entries. One answer goes
 * over the socket: 'R' and {"ok":{…}} or {"error":{"code","message","hint","errno"}}.
 */
#include "base/str.h"
#include "prog/cay-import/bundle.h"
#include "prog/cay-import/import_hash.h"
#include "prog/cay-import/import_jail.h"
#include "sys/fdpass.h"
#include "sys/raw.h"

#include <sys/stat.h>

enum { TREE_FD = 3, SOCKET_FD = 4, ARCHIVE_FD = 5 };

static uint64_t number(const json_t *request, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(request, key));
}

static const char *text(const json_t *request, const char *key)
{
	const char *s = json_string_value(json_object_get(request, key));

	return s != NULL ? s : "";
}

static enum source_kind kind_of(const char *format)
{
	if (str_eq(format, "oci") || str_eq(format, "layout"))
		return SOURCE_OCI;
	if (str_eq(format, "docker"))
		return SOURCE_DOCKER;
	return str_eq(format, "rootfs") ? SOURCE_ROOTFS : SOURCE_AUTO;
}

static json_t *import(const json_t *request, struct err *err)
{
	const char *format = text(request, "format");
	bool layout = str_eq(format, "layout");
	struct source source = { .kind = kind_of(format),
		.socket = layout ? SOCKET_FD : -1,
		.file = layout ? -1 : ARCHIVE_FD,
		.limit_bytes = number(request, "limit_bytes") };
	struct import_tree *root = xnew(struct import_tree);
	json_t *result = NULL;

	root->tree = TREE_FD;
	root->ids = (uint32_t)number(request, "ids");
	root->keep_caps = json_is_true(json_object_get(request, "keep_caps"));
	root->limit_entries = number(request, "limit_entries");
	root->limit_bytes = number(request, "limit_bytes");
	if (import_jail_enter(TREE_FD, root->limit_bytes, err) == 0)
		result = bundle_unpack(
			&source, root, text(request, "name"), text(request, "architecture"), err);
	import_tree_fini(root);
	free(root);
	source_fini(&source);
	return result;
}

static int answer(json_t *result, const struct err *err)
{
	json_t *whole = result != NULL ? json_pack("{s:o}", "ok", result)
				       : json_pack("{s:{s:s, s:s, s:s, s:i}}", "error", "code",
						 err_code_name(err->code), "message", err->msg,
						 "hint", err->hint, "errno", err->sys);
	char *json = json_dumps(whole, JSON_COMPACT);
	cleanup_free char *message = json != NULL ? str_dupf("R%s", json) : NULL;

	json_decref(whole);
	free(json);
	return message == NULL ? -ENOMEM
			       : fdpass_send(SOCKET_FD, message, strlen(message), NULL, 0);
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	json_t *request = argc == 2 ? json_loads(argv[1], 0, NULL) : NULL, *result;
	int rc;

	if (request == NULL || fcntl(SOCKET_FD, F_GETFD) < 0) {
		(void)fputs("cay-import is started by cay-keeper\n", stderr);
		return 64;
	}
	(void)raw_close_range(6, UINT32_MAX, 0);
	/* OpenSSL reads its configuration at first use: let that be the host's, not a file of the archive. */
	import_hash_free(import_hash_new(false));
	(void)umask(0);
	result = import(request, &err);
	json_decref(request);
	rc = answer(result, &err);
	return rc == 0 && err.code == ERR_NONE ? 0 : 1;
}

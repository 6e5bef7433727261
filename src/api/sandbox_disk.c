/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/sandbox_disk.c - limits, and how those of bytes and inodes are held: by the pool's quota, by a disk of the sandbox's own (src/store/disk.h), or not at all.
 * Decided once, when the sandbox is made: its files stay where they are.
 */
#include "api/sandbox_parts.h"
#include "base/ablate.h"
#include "base/str.h"

#define DISK_BYTES (10LL << 30)

/* What the storage job said of @limit: "quota", "disk" or "none". Static: what it said may be said anew while a sandbox is made. */
static const char *held_by(const struct server *srv, const char *limit)
{
	static const char *const kinds[] = { "quota", "disk" };
	const char *how = json_string_value(json_object_get(srv->storage, limit));

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (how != NULL && str_eq(how, kinds[i]))
			return kinds[i];
	}
	return "none";
}

static int refuse(const char *what, struct err *err)
{
	return err_hint(err,
		err_raise(err, ERR_UNSUPPORTED,
			"a limit of %s was asked for that nothing here can hold", what),
		"it needs a server that runs as root, loop devices and mkfs.ext4: see cay doctor");
}

/* A limit that was asked for is held or refused; what the pool holds for nothing every sandbox gets. */
static int choose_disk(const struct server *srv, json_t *limits, const char **kind, struct err *err)
{
	bool bytes = json_object_get(limits, "disk_bytes") != NULL,
	     inodes = json_object_get(limits, "inodes") != NULL;
	const char *by_bytes = held_by(srv, "disk_limit"), *by_inodes = held_by(srv, "inode_limit");

	if (bytes && str_eq(by_bytes, "none"))
		return refuse("bytes on disk", err);
	if (inodes && str_eq(by_inodes, "none"))
		return refuse("inodes", err);
	*kind = inodes                      ? by_inodes
		: bytes                     ? by_bytes
		: str_eq(by_bytes, "quota") ? "quota"
					    : "none";
	if (!bytes && !str_eq(*kind, "none"))
		(void)json_object_set_new(limits, "disk_bytes", json_integer(DISK_BYTES));
	return 0;
}

json_t *sandbox_limits(
	const struct server *srv, const json_t *request, const char **kind, struct err *err)
{
	static const struct {
		const char *name;
		json_int_t value;
	} defaults[] = { { "memory_bytes", 2LL << 30 }, { "pids", 1024 }, { "files", 65536 } };
	json_t *asked = json_object_get(request, "limits");
	json_t *limits = asked != NULL ? json_copy(asked) : json_object();

	for (size_t i = 0; i < ARRAY_SIZE(defaults); i++) {
		if (json_object_get(limits, defaults[i].name) == NULL)
			(void)json_object_set_new(
				limits, defaults[i].name, json_integer(defaults[i].value));
	}
	if (choose_disk(srv, limits, kind, err) < 0) {
		json_decref(limits);
		return NULL;
	}
	return limits;
}

bool sandbox_has_disk(const struct sandbox *sb)
{
	const char *kind =
		json_string_value(json_object_get(json_object_get(sb->doc, "disk"), "kind"));

	return kind != NULL && str_eq(kind, "disk") && !ablated("disk_limit");
}

int sandbox_make_disk(struct sandbox *sb, struct err *err)
{
	json_t *limits = json_object_get(sb->doc, "limits"), *inodes, *m;
	json_int_t trees = 1;
	size_t i;

	if (!sandbox_has_disk(sb))
		return 0;
	json_array_foreach (json_object_get(sb->doc, "mounts"), i, m)
		trees += str_eq(json_string_value(json_object_get(m, "mode")), "cow");
	inodes = json_object_get(limits, "inodes");
	return job_run(sb->srv,
		json_pack("{s:s,s:s,s:O,s:o,s:I}", "verb", "disk", "sandbox", sb->id, "bytes",
			json_object_get(limits, "disk_bytes"), "inodes",
			inodes != NULL ? json_incref(inodes) : json_null(), "trees", trees),
		NULL, NULL, NULL, err);
}

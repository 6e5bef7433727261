/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job verb `import`: an archive or layout directory becomes images/<id>/ {rootfs/, config.json, MANIFEST}. This process reads no byte of it: cay-import
 * does, in a jail (import_start.c). What is here: open the source, answer cay-import's questions for files of a layout
 * directory, commit by rename after a sync, or remove everything.
 *
 * Failure: until the rename all lies in tmp/import-<id>, which is removed on every failure and, if this process is killed, at the next start.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/reference.h"
#include "store/digest.h"
#include "store/import_start.h"
#include "store/live.h"
#include "store/tree.h"
#include "store/verbs.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <poll.h>
#include <sys/fsuid.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define MESSAGE_MAX        (256U << 10)
#define DEFAULT_BYTES      (64ULL << 30)
#define DEFAULT_ENTRIES    2000000ULL
#define DEFAULT_TIMEOUT_MS (60ULL * 60 * 1000)
#define TMP_NAME_SIZE      (ID_LEN + 8)
#define LAYOUT_RESOLVE     (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

struct import {
	struct job *job;
	const char *path, *id, *format;
	const char *shown;              /* what it is called in errors, and by the image */
	char name[REFERENCE_TEXT_SIZE]; /* complete form, or "" */
	uint64_t limit_bytes, limit_entries, timeout_ms;
	uint64_t uid, gid; /* of the caller, who must be able to read the source; 0 = as we are */
	const json_t *groups;
	int source; /* archive or layout directory */
	bool layout;
	int tmp, dir, tree; /* tmp/, tmp/import-<id>/, its rootfs/ */
	char tmp_name[TMP_NAME_SIZE];
	json_t *report; /* what cay-import said */
};

/* ---- the request --------------------------------------------------------------------------------------------------------------- */

static int read_name(struct import *i, struct err *err)
{
	const json_t *name = json_object_get(i->job->request, "name");
	const char *reason = NULL;
	struct reference ref;

	if (name == NULL || json_is_null(name))
		return 0;
	if (!json_is_string(name) || reference_parse(json_string_value(name), &ref, &reason) < 0)
		return err_hint(err,
			err_raise(err, ERR_INVALID, "'%s' is no image name: %s",
				json_is_string(name) ? json_string_value(name) : "?",
				reason != NULL ? reason : "not a string"),
			"as in debian:12 or ghcr.io/owner/image:tag");
	reference_text(&ref, i->name);
	return 0;
}

static int read_format(struct import *i, struct err *err)
{
	static const char *const formats[] = { "auto", "oci", "docker", "rootfs" };
	const char *format = json_string_value(json_object_get(i->job->request, "format"));

	i->format = formats[0];
	for (size_t f = 0; format != NULL && f < ARRAY_SIZE(formats); f++)
		if (str_eq(format, formats[f])) {
			i->format = formats[f];
			return 0;
		}
	return format == NULL ? 0
			      : err_raise(err, ERR_INVALID,
					"format '%s' is none of auto, oci, docker, rootfs", format);
}

static int read_request(struct import *i, struct err *err)
{
	const json_t *r = i->job->request;
	int rc;

	i->path = job_text(r, "path", err);
	i->shown = json_object_get(r, "source") != NULL ? job_text(r, "source", err) : i->path;
	i->id = job_id(r, "image", err);
	if (i->path == NULL || i->shown == NULL || i->id == NULL)
		return -EINVAL;
	if (i->path[0] != '/')
		return err_raise(err, ERR_INVALID, "path '%s' is not absolute", i->path);
	rc = read_name(i, err);
	if (rc == 0)
		rc = read_format(i, err);
	if (rc == 0)
		rc = job_number(r, "limit_bytes", DEFAULT_BYTES, &i->limit_bytes, err);
	if (rc == 0)
		rc = job_number(r, "limit_entries", DEFAULT_ENTRIES, &i->limit_entries, err);
	if (rc == 0)
		rc = job_number(r, "timeout_ms", DEFAULT_TIMEOUT_MS, &i->timeout_ms, err);
	if (rc == 0)
		rc = job_number(r, "uid", 0, &i->uid, err);
	if (rc == 0)
		rc = job_number(r, "gid", 0, &i->gid, err);
	if (rc == 0 && (i->limit_bytes > INT64_MAX || i->timeout_ms > INT32_MAX ||
			       i->uid >= UINT32_MAX || i->gid >= UINT32_MAX))
		rc = err_raise(err, ERR_INVALID, "a limit is out of range");
	return rc < 0 ? rc : job_groups(r, &i->groups, err);
}

/*
 * Open as the caller: with file-system ids of his the kernel takes our file capabilities away, and gives them back with ours. In rootless mode the job can
 * read no more than the caller anyway.
 */
static int open_as_caller(
	const struct import *i, int dir, const char *path, int flags, uint64_t resolve)
{
	bool change = !i->job->store.rootless && i->uid != 0;
	int fd = -EPERM, rc;

	if (!change)
		return raw_openat2(dir, path, flags, 0, resolve);
	rc = job_set_groups(i->groups);
	if (rc < 0)
		return rc;
	(void)setfsgid((gid_t)i->gid);
	(void)setfsuid((uid_t)i->uid);
	/* These calls report nothing; an invalid id changes nothing and answers what is in force. */
	if ((uint64_t)setfsuid((uid_t)-1) == i->uid && (uint64_t)setfsgid((gid_t)-1) == i->gid)
		fd = raw_openat2(dir, path, flags, 0, resolve);
	(void)setfsuid(0);
	(void)setfsgid(0);
	(void)!job_set_groups(NULL);
	return fd;
}

/* The path is the caller's own: links in it are followed. What is neither file nor directory could block or never end. */
static int open_source(struct import *i, struct err *err)
{
	struct stat st;

	i->source = open_as_caller(i, AT_FDCWD, i->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (i->source == -EACCES)
		return err_raise(err, ERR_DENIED, "you may not read '%s'", i->path);
	if (i->source < 0)
		return err_raise_sys(err, i->source, "open '%s'", i->path);
	if (fstat(i->source, &st) < 0)
		return err_raise_sys(err, -errno, "look at '%s'", i->path);
	i->layout = S_ISDIR(st.st_mode);
	if (!i->layout && !S_ISREG(st.st_mode))
		return err_raise(
			err, ERR_INVALID, "'%s' is neither a file nor a directory", i->path);
	if (i->layout && (str_eq(i->format, "docker") || str_eq(i->format, "rootfs")))
		return err_raise(err, ERR_INVALID,
			"'%s' is a directory; only OCI layouts are imported from one", i->path);
	return 0;
}

/* ---- the tree under construction ------------------------------------------------------------------------------------------------ */

static int make_tmp(struct import *i, struct err *err)
{
	(void)snprintf(i->tmp_name, sizeof(i->tmp_name), "import-%s", i->id);
	i->tmp = store_dir(&i->job->store, "tmp");
	if (i->tmp < 0)
		return err_raise_sys(err, i->tmp, "open the pool's tmp directory");
	if (mkdirat(i->tmp, i->tmp_name, store_live_mode()) < 0)
		return err_raise_sys(err, -errno, "make a directory for the image");
	i->dir = raw_openat2(
		i->tmp, i->tmp_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, LAYOUT_RESOLVE);
	if (i->dir < 0)
		return err_raise_sys(err, i->dir, "open the directory of the image");
	if (mkdirat(i->dir, "rootfs", 0755) < 0)
		return err_raise_sys(err, -errno, "make the root directory of the image");
	i->tree = raw_openat2(
		i->dir, "rootfs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, LAYOUT_RESOLVE);
	return i->tree < 0 ? err_raise_sys(err, i->tree, "open the root directory of the image")
			   : 0;
}

/*
 * File capabilities lie on disk unshifted, like set-uid bits. They cannot matter outside when the pool is mounted nosuid; in rootless mode the kernel ties
 * them to the user's own namespace. Else they are dropped.
 */
static bool may_keep_caps(const struct import *i)
{
	struct statvfs fs;

	return i->job->store.rootless ||
	       (fstatvfs(i->tree, &fs) == 0 && (fs.f_flag & ST_NOSUID) != 0);
}

/* This machine's architecture in OCI's spelling. */
static const char *architecture(void)
{
	static const char *const names[][2] = { { "x86_64", "amd64" }, { "aarch64", "arm64" },
		{ "armv7l", "arm" }, { "i686", "386" }, { "ppc64le", "ppc64le" },
		{ "riscv64", "riscv64" }, { "s390x", "s390x" } };
	struct utsname machine;

	if (uname(&machine) == 0)
		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			if (str_eq(machine.machine, names[i][0]))
				return names[i][1];
	return "unknown";
}

static char *importer_request(const struct import *i)
{
	json_t *r = json_pack("{s:s, s:s, s:s, s:I, s:b, s:I, s:I}", "format",
		i->layout ? "layout" : i->format, "name", i->name, "architecture", architecture(),
		"ids", (json_int_t)importer_ids(i->job->store.rootless), "keep_caps",
		may_keep_caps(i), "limit_bytes", (json_int_t)i->limit_bytes, "limit_entries",
		(json_int_t)i->limit_entries);
	char *text = json_dumps(r, JSON_COMPACT);

	json_decref(r);
	return text;
}

/* ---- talking to cay-import ------------------------------------------------------------------------------------------------------ */

static bool is_blob_name(const char *name)
{
	char digest[REFERENCE_DIGEST_MAX + 1];

	if (!str_starts(name, "blobs/sha256/") && !str_starts(name, "blobs/sha512/"))
		return false;
	(void)snprintf(digest, sizeof(digest), "%.6s:%s", name + 6, name + 13);
	return strlen(name + 13) < sizeof(digest) - 7 && digest_valid(digest);
}

/* Open a file of the layout directory: only names that a layout has, only below it, through no link, only regular files. */
static int open_part(const struct import *i, const char *name)
{
	cleanup_fd int fd = -1;
	struct stat st;

	if (!i->layout ||
		(!str_eq(name, "oci-layout") && !str_eq(name, "index.json") && !is_blob_name(name)))
		return -EACCES;
	fd = open_as_caller(
		i, i->source, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, LAYOUT_RESOLVE);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? TAKE_FD(fd) : -EINVAL;
}

static int answer_question(struct import *i, int socket, const char *name)
{
	cleanup_fd int fd = open_part(i, name);
	int32_t status = fd < 0 ? fd : 0;

	return fdpass_send(socket, &status, sizeof(status), &fd, fd < 0 ? 0 : 1);
}

static int wait_message(int socket, uint64_t deadline_ns)
{
	for (;;) {
		uint64_t now = clock_now_ns();
		struct pollfd p = { .fd = socket, .events = POLLIN };
		int rc = poll(
			&p, 1, now >= deadline_ns ? 0 : (int)((deadline_ns - now) / NS_PER_MS + 1));

		if (rc > 0)
			return 0;
		if (rc == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

/* Until the report is there. Return: its length behind the 'R', 0 when the importer died, -errno. */
static ssize_t converse(struct import *i, int socket, char *message, size_t size)
{
	uint64_t deadline_ns = clock_now_ns() + i->timeout_ms * NS_PER_MS;

	for (;;) {
		int fds[1], rc = wait_message(socket, deadline_ns);
		size_t n_fds = 0;
		ssize_t n;

		if (rc < 0)
			return rc;
		n = fdpass_recv(socket, message, size - 1, fds, 0, &n_fds);
		if (n <= 0)
			return n;
		message[n] = '\0';
		if (message[0] == 'R')
			return n - 1;
		rc = message[0] == 'O' ? answer_question(i, socket, message + 1) : -EBADMSG;
		if (rc < 0)
			return rc;
	}
}

/* The importer works on hostile input: of its answer nothing is believed but the shape. */
static int read_report(struct import *i, const char *text, size_t n, struct err *err)
{
	const json_t *error, *config;

	i->report = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	error = json_object_get(i->report, "error");
	if (json_is_object(error)) {
		const char *message = json_string_value(json_object_get(error, "message"));
		const char *hint = json_string_value(json_object_get(error, "hint"));
		const char *code = json_string_value(json_object_get(error, "code"));
		int rc = err_raise(err, err_code_parse(code != NULL ? code : ""), "%s",
			message != NULL ? message : "the importer failed");

		return hint != NULL && hint[0] != '\0' ? err_hint(err, rc, "%s", hint) : rc;
	}
	config = json_object_get(json_object_get(i->report, "ok"), "config");
	if (!json_is_object(config))
		return err_raise(err, ERR_INTERNAL, "the importer's report is malformed");
	return 0;
}

static int no_report(ssize_t n, int status, struct err *err)
{
	if (n == -ETIMEDOUT)
		return err_hint(err,
			err_raise(err, ERR_TIMEOUT, "the import took longer than allowed"),
			"raise timeout_ms of the import (cay image import --limit-time)");
	if (n < 0)
		return err_raise_sys(err, (int)n, "talk to the importer");
	if (WIFSIGNALED(status))
		return err_raise(
			err, ERR_INTERNAL, "the importer was ended by signal %d", WTERMSIG(status));
	return err_raise(
		err, ERR_INTERNAL, "the importer ended with %d and no report", WEXITSTATUS(status));
}

static int run_importer(struct import *i, struct err *err)
{
	char *request = importer_request(i);
	cleanup_free char *message = xalloc(MESSAGE_MAX);
	struct importer importer;
	int rc = request == NULL ? err_raise_sys(err, -ENOMEM, "start the importer")
				 : importer_start(&importer, i->job->programs, request, i->tree,
					   i->layout ? -1 : i->source, i->job->store.rootless, err);
	ssize_t n;
	int status;

	free(request);
	if (rc < 0)
		return rc;
	n = converse(i, importer.socket, message, MESSAGE_MAX);
	status = importer_end(&importer);
	return n <= 0 ? no_report(n, status, err) : read_report(i, message + 1, (size_t)n, err);
}

/* ---- commit --------------------------------------------------------------------------------------------------------------------- */

static int write_json(struct import *i, const char *name, const char *text, struct err *err)
{
	int rc = file_create_at(i->dir, name, 0600, text, strlen(text));

	return rc < 0 ? err_raise_sys(err, rc, "write %s of the image", name) : 0;
}

static int write_config(struct import *i, struct err *err)
{
	const json_t *config = json_object_get(json_object_get(i->report, "ok"), "config");
	char *text = json_dumps(config, JSON_INDENT(1));
	int rc = text == NULL ? err_raise_sys(err, -ENOMEM, "write the configuration")
			      : write_json(i, "config.json", text, err);

	free(text);
	return rc;
}

/* {…,"hmac":"…"}: authenticates the text before it, as layers have it (docs/design/0002). */
static int write_manifest(struct import *i, struct err *err)
{
	const json_t *ok = json_object_get(i->report, "ok");
	json_t *m = json_pack("{s:i, s:s, s:s, s:O, s:O, s:O, s:O}", "format", 1, "image", i->id,
		"name", i->name, "digest", json_object_get(ok, "digest"), "entries",
		json_object_get(ok, "entries"), "files", json_object_get(ok, "files"), "bytes",
		json_object_get(ok, "bytes"));
	char *text = m == NULL ? NULL : json_dumps(m, JSON_COMPACT);
	unsigned char key[32], mac[DIGEST_SIZE];
	char hex[DIGEST_TEXT_SIZE];
	int rc = store_key(&i->job->store, key);

	json_decref(m);
	if (rc < 0 || text == NULL) {
		free(text);
		return rc < 0 ? store_key_failed(&i->job->store, rc, err)
			      : err_raise(err, ERR_INTERNAL, "the importer's report is malformed");
	}
	text[strlen(text) - 1] = '\0'; /* the closing brace */
	digest_hmac(key, text, strlen(text), mac);
	digest_text(mac, hex);
	cleanup_free char *whole = str_dupf("%s,\"hmac\":\"%s\"}", text, hex);
	free(text);
	return write_json(i, "MANIFEST", whole, err);
}

static int commit(struct import *i, struct err *err)
{
	cleanup_fd int images = store_dir(&i->job->store, "images");
	int rc;

	if (images < 0)
		return err_raise_sys(err, images, "open the pool's image directory");
	if (syncfs(i->dir) < 0)
		return err_raise_sys(err, -errno, "sync the image");
	rc = fault("image.import.before_rename");
	if (rc < 0)
		return err_raise_sys(err, rc, "commit the image");
	if (renameat2(i->tmp, i->tmp_name, images, i->id, RENAME_NOREPLACE) < 0)
		return err_raise_sys(err, -errno, "commit the image");
	i->tmp_name[0] = '\0';
	rc = fault("image.import.after_rename");
	if (rc == 0 && fsync(images) < 0)
		rc = -errno;
	return rc < 0 ? err_raise_sys(err, rc, "sync the image directory") : 0;
}

static int do_import(struct import *i, struct err *err)
{
	int rc = read_request(i, err);

	if (rc == 0)
		rc = open_source(i, err);
	if (rc == 0)
		rc = make_tmp(i, err);
	if (rc == 0)
		rc = run_importer(i, err);
	if (rc == 0 && (rc = fault("image.import.unpacked")) < 0)
		rc = err_raise_sys(err, rc, "import the image");
	if (rc == 0)
		rc = write_config(i, err);
	if (rc == 0)
		rc = write_manifest(i, err);
	return rc < 0 ? rc : commit(i, err);
}

static json_t *make_reply(const struct import *i)
{
	json_t *ok = json_object_get(i->report, "ok");

	(void)json_object_set_new(ok, "image", json_string(i->id));
	(void)json_object_set_new(
		ok, "name", i->name[0] != '\0' ? json_string(i->name) : json_null());
	(void)json_object_set_new(ok, "source", json_string(i->shown));
	return json_incref(ok);
}

int store_import(struct job *job, json_t **ok, struct err *err)
{
	struct import i = { .job = job, .source = -1, .tmp = -1, .dir = -1, .tree = -1 };
	int rc = do_import(&i, err);

	if (rc == 0)
		*ok = make_reply(&i);
	else if (i.shown != NULL)
		err_context(err, "import '%s'", i.shown);
	fd_close(&i.tree);
	fd_close(&i.dir);
	/* What cannot be removed now is removed at the next start: the caller wants the reason of the failure, not this one. */
	if (i.tmp >= 0 && i.tmp_name[0] != '\0' && tree_remove(i.tmp, i.tmp_name) < 0)
		log_warn("store", "tmp/%s could not be removed", i.tmp_name);
	fd_close(&i.tmp);
	fd_close(&i.source);
	json_decref(i.report);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/verify.c - the job `verify`: every entry of a layer with type, mode, owner, size and the digest of its bytes, in a signed list beside it.
 *
 * verified/<layer>.json: one JSON array a line, in the order of a sorted walk: ["path","type",mode,uid,gid,size,"digest_data() or target","sha256 of xattrs"]. Bytes of
 * names above 0x7e are written as the code points of the same number, so that any name has one spelling. The first line says so (HEADER), the last one is ["hmac",…] over all before.
 * The first run writes it; later ones make it again and compare: what differs is named. A list of before there was a first line has digest_file() of each file, and is compared as such.
 */
#include "store/verify.h"
#include "base/ablate.h"
#include "base/id.h"
#include "base/str.h"
#include "store/digest.h"
#include "store/layer.h"
#include "store/previous.h"
#include "store/tree.h"
#include "store/verbs.h"
#include "sys/file.h"

#define LIST_MAX (1U << 30)
#define HEADER   "[\"digest_data\"]\n"

/* A layer that is hashed in a few milliseconds need not wait for the background. */
#define SMALL_ENTRIES 2000
#define SMALL_BYTES   (16U << 20)

struct list {
	struct buf text;
	struct buf path;
	uint64_t files, bytes;
	bool plain; /* one without a first line */
};

static void quote(struct buf *out, const char *bytes)
{
	buf_char(out, '"');
	for (const char *p = bytes; *p != '\0'; p++) {
		unsigned char c = (unsigned char)*p;

		if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
			buf_fmt(out, "\\u%04x", c);
		else
			buf_char(out, *p);
	}
	buf_char(out, '"');
}

static int content(int dir, const char *name, const struct stat *st, bool plain, struct buf *out)
{
	unsigned char digest[DIGEST_SIZE];
	char text[DIGEST_TEXT_SIZE];
	cleanup_fd int fd = -1;
	int rc;

	if (S_ISLNK(st->st_mode)) {
		char target[PATH_MAX + 1];
		ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

		if (n < 0)
			return -errno;
		target[n] = '\0';
		quote(out, target);
		return 0;
	}
	if (!S_ISREG(st->st_mode)) {
		buf_str(out, "\"\"");
		return 0;
	}
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	rc = fd < 0  ? -errno
	     : plain ? digest_file(fd, (uint64_t)st->st_size, digest)
		     : digest_data(fd, digest);
	if (rc < 0)
		return rc;
	digest_text(digest, text);
	quote(out, text);
	return 0;
}

static int line(struct list *l, int dir, const char *name, const struct stat *st)
{
	cleanup(tree_xattrs_free) struct tree_xattrs xattrs = { 0 };
	unsigned char digest[DIGEST_SIZE];
	char text[DIGEST_TEXT_SIZE] = "";
	int rc = tree_xattrs_read(dir, name, NULL, &xattrs);

	if (rc < 0)
		return rc;
	if (xattrs.data.n > 0) {
		digest_bytes(xattrs.data.p, xattrs.data.n, digest);
		digest_text(digest, text);
	}
	buf_char(&l->text, '[');
	quote(&l->text, buf_cstr(&l->path));
	buf_fmt(&l->text, ",\"%s\",%u,%u,%u,%lld,", tree_type_name(st->st_mode),
		st->st_mode & 07777, st->st_uid, st->st_gid,
		S_ISREG(st->st_mode) ? (long long)st->st_size : 0LL);
	rc = content(dir, name, st, l->plain, &l->text);
	buf_fmt(&l->text, ",\"%s\"]\n", text);
	l->files += S_ISREG(st->st_mode) ? 1 : 0;
	l->bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	return rc < 0 ? rc : buf_failed(&l->text) ? -EMSGSIZE : 0;
}

static int list_dir(struct list *l, int dir, int depth)
{
	cleanup_names struct tree_names names = { 0 };
	size_t parent = l->path.n;
	int rc = depth > TREE_DEPTH_MAX ? -ELOOP : tree_names(dir, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_fd int child = -1;
		struct stat st;

		buf_fmt(&l->path, "%s%s", parent > 0 ? "/" : "", names.names[i]);
		if (buf_failed(&l->path))
			return -ENAMETOOLONG;
		rc = fstatat(dir, names.names[i], &st, AT_SYMLINK_NOFOLLOW) < 0
			     ? -errno
			     : line(l, dir, names.names[i], &st);
		if (rc == 0 && S_ISDIR(st.st_mode)) {
			child = openat(dir, names.names[i],
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			rc = child < 0 ? -errno : list_dir(l, child, depth + 1);
		}
		if (rc == 0) {
			l->path.n = parent;
			l->path.p[parent] = '\0';
		}
	}
	return rc;
}

static int list_layer(const struct store *store, const char *layer, struct list *l, struct err *err)
{
	cleanup_free char *path = str_dupf("layers/%s", layer);
	cleanup_fd int dir = store_dir(store, path);
	unsigned char key[32], digest[DIGEST_SIZE];
	char text[DIGEST_TEXT_SIZE];
	int rc;

	if (!l->plain)
		buf_str(&l->text, HEADER);
	rc = dir < 0 ? dir : list_dir(l, dir, 0);
	if (rc == 0)
		rc = store_key(store, key);
	if (rc < 0)
		return err_raise_sys(err, rc, "read '%s' of layer '%s'", buf_cstr(&l->path), layer);
	digest_hmac(key, buf_cstr(&l->text), l->text.n, digest);
	digest_text(digest, text);
	buf_fmt(&l->text, "[\"hmac\",\"%s\"]\n", text);
	return 0;
}

static int write_list(const struct store *store, const char *name, const struct list *l)
{
	cleanup_fd int dir = store_dir(store, "verified"), tmp = store_dir(store, "tmp"), fd = -1;
	struct id id = id_new();
	int rc;

	if (dir < 0 || tmp < 0)
		return dir < 0 ? dir : tmp;
	fd = openat(tmp, id.s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : file_write_all(fd, l->text.p, l->text.n);
	if (rc == 0 && (fsync(fd) < 0 || renameat(tmp, id.s, dir, name) < 0))
		rc = -errno;
	if (rc < 0)
		(void)unlinkat(tmp, id.s, 0);
	return rc;
}

/* Name the entry of the first line that differs. */
static int report(const char *layer, const struct buf *was, const struct buf *is, struct err *err)
{
	const char *a = buf_cstr(was), *b = buf_cstr(is);
	size_t same = 0, start = 0, len;

	while (a[same] != '\0' && a[same] == b[same]) {
		if (a[same] == '\n')
			start = same + 1;
		same++;
	}
	len = strcspn(a + start, ",");
	return err_raise(err, ERR_CORRUPT,
		"layer '%s' is not what was verified: see the entry %.*s", layer,
		(int)(len < 300 ? len : 300), a + start);
}

/* Is the stored list ours? Its last line signs the rest. */
static bool is_signed(const struct store *store, const struct buf *text)
{
	static const size_t last = sizeof("[\"hmac\",\"\"]\n") - 1 + 2 * DIGEST_SIZE;
	unsigned char key[32], digest[DIGEST_SIZE];
	char hmac[DIGEST_TEXT_SIZE];

	if (text->n < last || store_key(store, key) < 0)
		return false;
	digest_hmac(key, text->p, text->n - last, digest);
	digest_text(digest, hmac);
	return memcmp(text->p + text->n - last + sizeof("[\"hmac\",\"") - 1, hmac,
		       2 * DIGEST_SIZE) == 0;
}

/* The list of @layer that is there. Return: 0, 1 when there is none, or an error. */
static int read_list(const struct store *store, const char *layer, struct buf *was, struct err *err)
{
	cleanup_free char *path = str_dupf("verified/%s.json", layer);
	int rc = file_read_at(store->pool, path, was);

	if (rc == -ENOENT)
		return 1;
	if (rc < 0)
		return err_raise_sys(err, rc, "read the list of layer '%s'", layer);
	return is_signed(store, was)
		       ? 0
		       : err_raise(err, ERR_CORRUPT, "the list of files of layer '%s' was changed",
				 layer);
}

static int verify(const struct store *store, const char *layer, struct list *l, struct err *err)
{
	cleanup_free char *name = str_dupf("%s.json", layer);
	cleanup_buf struct buf was = BUF_INIT(LIST_MAX);
	json_t *manifest = layer_manifest_read(store, layer, err);
	int rc, first;

	if (manifest == NULL)
		return -EIO;
	json_decref(manifest);
	rc = first = read_list(store, layer, &was, err);
	l->plain = first == 0 && !str_starts(buf_cstr(&was), HEADER);
	if (rc >= 0)
		rc = list_layer(store, layer, l, err);
	if (rc < 0)
		return rc;
	if (first == 1) {
		rc = write_list(store, name, l);
		return rc < 0 ? err_raise_sys(err, rc, "write the list of layer '%s'", layer) : 0;
	}
	if ((was.n != l->text.n || memcmp(was.p, l->text.p, was.n) != 0) && !ablated("layer_lists"))
		return report(layer, &was, &l->text, err);
	return 0;
}

bool verify_has_list(const struct store *store, const char *layer)
{
	cleanup_free char *list = str_dupf("verified/%s.json", layer);

	return faccessat(store->pool, list, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int verify_small(const struct store *store, const char *layer, struct err *err)
{
	struct list l = { .text = BUF_INIT(LIST_MAX), .path = BUF_INIT(1U << 20) };
	cleanup_free char *path = str_dupf("layers/%s", layer);
	struct tree_count count = { .limit = SMALL_ENTRIES };
	cleanup_fd int dir = store_dir(store, path);
	int rc = 0;

	if (dir < 0 || verify_has_list(store, layer))
		return 0;
	if (tree_count(dir, &count) == 0 && count.bytes <= SMALL_BYTES)
		rc = verify(store, layer, &l, err);
	buf_free(&l.text);
	buf_free(&l.path);
	return rc;
}

/* What is found damaged is nothing to link from. */
static int check(const struct store *store, const char *layer, struct list *l, struct err *err)
{
	int rc = verify(store, layer, l, err);

	if (rc < 0 && err->code == ERR_CORRUPT)
		previous_spoiled(store, layer);
	return rc;
}

int verify_listed(const struct store *store, const char *layer, struct err *err)
{
	struct list l = { .text = BUF_INIT(LIST_MAX), .path = BUF_INIT(1U << 20) };
	int rc = verify_has_list(store, layer) ? check(store, layer, &l, err) : 0;

	buf_free(&l.text);
	buf_free(&l.path);
	return rc;
}

int store_verify(struct job *job, json_t **ok, struct err *err)
{
	const json_t *ids = json_object_get(job->request, "layers"), *e;
	struct list l = { .text = BUF_INIT(LIST_MAX), .path = BUF_INIT(1U << 20) };
	size_t i;
	int rc = job_ids(job->request, "layers", err);

	json_array_foreach (ids, i, e) {
		if (rc < 0)
			break;
		buf_reset(&l.text);
		buf_reset(&l.path);
		rc = check(&job->store, json_string_value(e), &l, err);
	}
	if (rc == 0)
		*ok = json_pack("{s:s, s:I, s:I}", "state", "verified", "files",
			(json_int_t)l.files, "bytes", (json_int_t)l.bytes);
	buf_free(&l.text);
	buf_free(&l.path);
	return rc;
}

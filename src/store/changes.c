/* SPDX-License-Identifier: Apache-2.0 */
#include "store/changes.h"
#include "base/str.h"
#include "codec/frame.h"
#include "store/digest.h"
#include "store/textdiff.h"

#include <sys/sysmacros.h>

#define BATCH       200
#define BATCH_BYTES (FRAME_PAYLOAD_MAX / 2)
/* Each byte of text takes six in JSON at the most ("\u001b"); one that is no UTF-8 three (U+FFFD). */
#define TEXT_CHUNK (FRAME_PAYLOAD_MAX / 8)
#define PATH_LONG  (1U << 21)
/* Bytes of attributes on each side of a change: both sides, written as hexadecimal, go into one frame. */
#define XATTRS_SHOWN (100U << 10)

static const char *const kind_names[] = {
	[CHANGE_ADDED] = "added",
	[CHANGE_MODIFIED] = "modified",
	[CHANGE_DELETED] = "deleted",
	[CHANGE_METADATA] = "metadata",
};

/* The longest well-formed sequence at @p is kept; every other byte becomes U+FFFD, and so does NUL, which no reader of our JSON takes. */
static json_t *lossy(const char *p, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(4 * PATH_LONG);

	for (size_t i = 0; i < n;) {
		size_t len = 1;

		while (len < 4 && i + len <= n && !str_utf8_valid(p + i, len))
			len++;
		if (p[i] != '\0' && i + len <= n && str_utf8_valid(p + i, len)) {
			buf_add(&out, p + i, len);
			i += len;
		} else {
			buf_str(&out, "\xef\xbf\xbd");
			i++;
		}
	}
	return json_stringn(buf_cstr(&out), out.n);
}

static json_t *hex(const void *bytes, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(4 * PATH_LONG);

	for (size_t i = 0; i < n; i++)
		buf_fmt(&out, "%02x", ((const unsigned char *)bytes)[i]);
	return json_stringn(buf_cstr(&out), out.n);
}

static json_t *text_or_lossy(const char *p, size_t n)
{
	return str_utf8_valid(p, n) && memchr(p, '\0', n) == NULL ? json_stringn(p, n)
								  : lossy(p, n);
}

void changes_path(json_t *object, const char *target, const char *path)
{
	cleanup_buf struct buf whole = BUF_INIT(PATH_LONG);

	buf_fmt(&whole, "%s/", str_eq(target, "/") ? "" : target);
	buf_str(&whole, path);
	(void)json_object_set_new(object, "path", text_or_lossy(buf_cstr(&whole), whole.n));
	if (!str_utf8_valid(buf_cstr(&whole), whole.n))
		(void)json_object_set_new(object, "raw", hex(whole.p, whole.n));
}

/* Holes cost who makes them nothing, and who hashes them as much as bytes: there is so much of that in a whole diff. */
static bool may_hash(struct changes *c, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, stored = (uint64_t)st->st_blocks * 512;
	uint64_t holes = size > stored ? size - stored : 0;

	if (holes > c->holes_left)
		return false;
	c->holes_left -= holes;
	return true;
}

static int add_hash(json_t *o, const struct found *f)
{
	unsigned char digest[DIGEST_SIZE];
	char text[DIGEST_TEXT_SIZE];
	cleanup_fd int fd = diff_open(f);
	int rc = fd < 0 ? fd : digest_file(fd, (uint64_t)f->st.st_size, digest);

	if (rc < 0)
		return rc;
	digest_text(digest, text);
	return json_object_set_new(o, "hash", json_string(text));
}

static int add_target(json_t *o, const struct found *f)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(f->dir, f->name, target, sizeof(target));

	if (n < 0)
		return -errno;
	return json_object_set_new(o, "target", text_or_lossy(target, (size_t)n));
}

static bool printable(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)p[i] < ' ')
			return false;
	}
	return str_utf8_valid(p, n);
}

static json_t *xattr_value(const char *value, size_t n)
{
	json_t *digits, *v;

	if (printable(value, n))
		return json_stringn(value, n);
	digits = hex(value, n);
	v = json_sprintf("0x%s", json_string_value(digits));
	json_decref(digits);
	return v;
}

/* Values that are no plain text are written as "0x…"; those that are too much for one change are counted. */
static int add_xattrs(json_t *o, const struct found *f, const char *skip)
{
	static char value[65536];
	cleanup_names struct tree_names names = { 0 };
	const char *at;
	int dir = found_at(f, &at), rc = tree_xattr_names(dir, at, skip, &names);
	size_t shown = 0, left_out = rc == -E2BIG ? 1 : 0;
	json_t *set;

	if (rc < 0 && rc != -E2BIG)
		return rc;
	set = json_object();
	for (size_t i = 0; i < names.n; i++) {
		const char *name = names.names[i];
		ssize_t n = tree_xattr_get(dir, at, name, value, sizeof(value));

		if (n < 0 && n != -ENODATA) {
			json_decref(set);
			return (int)n;
		}
		if (n >= 0 && shown + strlen(name) + (size_t)n > XATTRS_SHOWN) {
			left_out++;
		} else if (n >= 0) {
			shown += strlen(name) + (size_t)n;
			(void)json_object_set_new(set,
				str_utf8_valid(name, strlen(name)) ? name : "?",
				xattr_value(value, (size_t)n));
		}
	}
	if (json_object_size(set) > 0)
		(void)json_object_set(o, "xattrs", set);
	if (left_out > 0)
		(void)json_object_set_new(o, "xattrs_left_out", json_integer((json_int_t)left_out));
	json_decref(set);
	return 0;
}

static int state(struct changes *c, const struct found *f, const struct stack *stack, json_t **ret)
{
	json_t *o;
	int rc = 0;

	*ret = json_null();
	if (f->kind == FOUND_NONE)
		return 0;
	o = json_pack("{s:s, s:i, s:I, s:I}", "type", tree_type_name(f->st.st_mode), "mode",
		f->st.st_mode & 07777, "uid", (json_int_t)f->st.st_uid, "gid",
		(json_int_t)f->st.st_gid);
	if (S_ISREG(f->st.st_mode)) {
		(void)json_object_set_new(o, "size", json_integer(f->st.st_size));
		rc = c->hash && may_hash(c, &f->st) ? add_hash(o, f) : 0;
	} else if (S_ISLNK(f->st.st_mode)) {
		rc = add_target(o, f);
	} else if (S_ISCHR(f->st.st_mode) || S_ISBLK(f->st.st_mode)) {
		(void)json_object_set_new(o, "device",
			json_sprintf("%u:%u", major(f->st.st_rdev), minor(f->st.st_rdev)));
	}
	(void)json_object_set_new(o, "mtime_ns",
		json_integer(
			(json_int_t)f->st.st_mtim.tv_sec * 1000000000 + f->st.st_mtim.tv_nsec));
	if (rc == 0)
		rc = add_xattrs(o, f, stack->xattr);
	if (rc < 0) {
		json_decref(o);
		return rc;
	}
	*ret = o;
	return 0;
}

int changes_add(struct changes *c, const struct change *change, const char *target,
	const struct stack *a, const struct stack *b)
{
	json_t *before = NULL, *after = NULL, *o;
	int rc;

	if (json_array_size(c->list) >= c->limit) {
		c->truncated = true;
		return 1;
	}
	rc = state(c, change->before, b, &before);
	if (rc == 0)
		rc = state(c, change->after, a, &after);
	if (rc < 0) {
		json_decref(before);
		return rc;
	}
	o = json_object();
	changes_path(o, target, change->path);
	(void)json_object_set_new(o, "kind", json_string(kind_names[change->kind]));
	(void)json_object_set_new(o, "before", before);
	(void)json_object_set_new(o, "after", after);
	(void)json_array_append_new(c->list, o);
	if (c->want_text && !c->text_full)
		rc = textdiff_add(&c->waiting, &c->text, c->scratch, target, change);
	if (rc > 0) {
		c->text_full = true;
		rc = 0;
	}
	return rc;
}

static json_t *rename_key(const json_t *side)
{
	const char *hash = json_string_value(json_object_get(side, "hash"));

	if (hash == NULL || json_integer_value(json_object_get(side, "size")) == 0)
		return NULL;
	return json_sprintf("%s %lld %lld %lld", hash,
		(long long)json_integer_value(json_object_get(side, "mode")),
		(long long)json_integer_value(json_object_get(side, "uid")),
		(long long)json_integer_value(json_object_get(side, "gid")));
}

/* key -> place in the list; -1 where two have it */
static json_t *index_of(const json_t *list, const char *kind, const char *side)
{
	json_t *index = json_object();
	const json_t *change;
	size_t i;

	json_array_foreach (list, i, change) {
		json_t *key;

		if (!str_eq(json_string_value(json_object_get(change, "kind")), kind))
			continue;
		key = rename_key(json_object_get(change, side));
		if (key != NULL) {
			bool twice = json_object_get(index, json_string_value(key)) != NULL;

			(void)json_object_set_new(index, json_string_value(key),
				json_integer(twice ? -1 : (json_int_t)i));
			json_decref(key);
		}
	}
	return index;
}

void changes_pair_renames(struct changes *c)
{
	json_t *gone = index_of(c->list, "deleted", "before"),
	       *come = index_of(c->list, "added", "after"), *place;
	const char *key;

	json_object_foreach (gone, key, place) {
		json_int_t from = json_integer_value(place), to;
		json_t *old, *new;

		if (from < 0 || json_object_get(come, key) == NULL)
			continue;
		to = json_integer_value(json_object_get(come, key));
		if (to < 0)
			continue;
		old = json_array_get(c->list, (size_t)from);
		new = json_array_get(c->list, (size_t)to);
		(void)json_object_set_new(new, "kind", json_string("renamed"));
		(void)json_object_set(new, "from", json_object_get(old, "path"));
		if (json_object_get(old, "raw") != NULL)
			(void)json_object_set(new, "from_raw", json_object_get(old, "raw"));
		(void)json_object_set(new, "before", json_object_get(old, "before"));
		(void)json_array_set_new(c->list, (size_t)from, json_null());
	}
	json_decref(gone);
	json_decref(come);
}

/* How much of the @n bytes at @p goes into one frame: whole lines; of a longer line whole characters. */
static size_t text_piece(const char *p, size_t n)
{
	const char *end;
	size_t cut = TEXT_CHUNK;

	if (n <= cut)
		return n;
	end = memrchr(p, '\n', cut);
	if (end != NULL)
		return (size_t)(end - p) + 1;
	while (cut > TEXT_CHUNK - 3 && ((unsigned char)p[cut] & 0xC0) == 0x80)
		cut--;
	return cut;
}

static int send_text(struct changes *c, struct job *job)
{
	const char *p = buf_cstr(&c->text);

	for (size_t at = 0; at < c->text.n;) {
		size_t n = text_piece(p + at, c->text.n - at);
		int rc = job_send(job, json_pack("{s:o}", "text", text_or_lossy(p + at, n)));

		if (rc < 0)
			return rc;
		at += n;
	}
	if (!c->text_full)
		return 0;
	return job_send(
		job, json_pack("{s:s}", "text",
			     "\nThe text ends here, and is not all: it has no more room\n"));
}

/* As many of @list from *@at on as go into one frame, at least one; those that are null are passed over. NULL: no more. */
static json_t *next_batch(const json_t *list, size_t *at)
{
	json_t *batch = json_array();
	size_t bytes = 0;

	for (; *at < json_array_size(list) && json_array_size(batch) < BATCH; ++*at) {
		json_t *one = json_array_get(list, *at);

		bytes += json_is_null(one) ? 0 : json_dumpb(one, NULL, 0, JSON_COMPACT);
		if (bytes > BATCH_BYTES && json_array_size(batch) > 0)
			break;
		if (!json_is_null(one))
			(void)json_array_append(batch, one);
	}
	if (json_array_size(batch) > 0)
		return batch;
	json_decref(batch);
	return NULL;
}

int changes_send_list(struct job *job, const char *name, const json_t *list, json_int_t *ret_n)
{
	json_t *batch;
	size_t at = 0;
	int rc = 0;

	*ret_n = 0;
	while (rc == 0 && (batch = next_batch(list, &at)) != NULL) {
		*ret_n += (json_int_t)json_array_size(batch);
		rc = job_send(job, json_pack("{s:o}", name, batch));
	}
	return rc;
}

int changes_send(struct changes *c, struct job *job, json_int_t *ret_n)
{
	int rc = changes_send_list(job, "changes", c->list, ret_n);

	if (rc == 0 && !c->text_full)
		rc = textdiff_flush(&c->waiting, &c->text, c->scratch);
	c->text_full |= rc > 0;
	return rc < 0 ? rc : send_text(c, job);
}

void changes_free(struct changes *c)
{
	if (c == NULL)
		return;
	json_decref(c->list);
	buf_free(&c->text);
	textdiff_free(&c->waiting);
}

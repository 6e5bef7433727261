/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of tar streams. One entry is: extended headers (x, L, K, g), the header itself, for sparse files the map, then data padded to
 * 512 bytes. Everything that describes the entry is gathered in struct tar and handed out as one struct tar_entry.
 *
 * Invariants: @left is what remains of the stored data of the current entry and @pad the padding behind it; both are consumed before the next header
 * is read. A failure is final: later calls fail again.
 */
#include "base/ablate.h"
#include "base/buf.h"
#include "base/str.h"
#include "codec/pax.h"
#include "codec/tar_parts.h"

struct tar *tar_new(tar_read_fn *read, void *context)
{
	struct tar *t = xnew(struct tar);

	t->read = read;
	t->context = context;
	t->path.max = t->link.max = t->header.max = TAR_HEADER_MAX + 1;
	return t;
}

static void forget_entry(struct tar *t)
{
	for (size_t i = 0; i < t->entry.n_xattrs; i++) {
		free(t->xattrs[i].name);
		free(t->xattrs[i].value);
	}
	memset(&t->entry, 0, sizeof(t->entry));
	t->entry.xattrs = t->xattrs;
	buf_reset(&t->path);
	buf_reset(&t->link);
	t->saw = 0;
	t->extended = t->gnu_path = t->gnu_link = false;
	t->n_map = t->at_map = 0;
	t->in_piece = 0;
}

void tar_free(struct tar *t)
{
	if (t == NULL)
		return;
	forget_entry(t);
	buf_free(&t->path);
	buf_free(&t->link);
	buf_free(&t->header);
	free(t->map);
	free(t);
}

uint64_t tar_position(const struct tar *t)
{
	return t->position;
}

int tar_corrupt(struct tar *t, struct err *err, const char *what)
{
	return err_raise(err, ERR_CORRUPT, "the tar archive is damaged: %s, at byte %llu", what,
		(unsigned long long)t->position);
}

int tar_hostile(struct tar *t, struct err *err, const char *what)
{
	return err_raise(err, ERR_HOSTILE_ARCHIVE, "the tar archive is ambiguous: %s, at byte %llu",
		what, (unsigned long long)t->position);
}

/* Read exactly @n bytes. */
int tar_take(struct tar *t, void *bytes, size_t n, struct err *err)
{
	ssize_t got = t->read(t->context, bytes, n, err);

	if (got < 0)
		return (int)got;
	t->position += (uint64_t)got;
	return (size_t)got == n ? 0 : tar_corrupt(t, err, "it ends in the middle of an entry");
}

int tar_skip(struct tar *t, uint64_t n, struct err *err)
{
	char waste[16384];

	while (n > 0) {
		size_t step = n < sizeof(waste) ? (size_t)n : sizeof(waste);
		int rc = tar_take(t, waste, step, err);

		if (rc < 0)
			return rc;
		n -= step;
	}
	return 0;
}

/* ---- numbers and names of a header block ------------------------------------------------------------------------------------- */

/* Octal text with blanks or NULs around it. */
static int octal(const unsigned char *p, size_t n, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i = 0;

	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
		if (v >> 60 != 0)
			return -ERANGE;
		v = v << 3 | (uint64_t)(p[i] - '0');
	}
	for (; i < n; i++)
		if (p[i] != ' ' && p[i] != '\0')
			return -EBADMSG;
	*ret = v;
	return 0;
}

/* Base 256 with the top bit set; a negative number only where @ret_negative is not NULL. */
static int base256(const unsigned char *p, size_t n, uint64_t *ret, bool *ret_negative)
{
	bool negative = (p[0] & 0x40) != 0;
	unsigned char flip = negative ? 0xFF : 0;
	uint64_t v = (uint64_t)((p[0] ^ flip) & 0x3F);

	if (negative && ret_negative == NULL)
		return -ERANGE;
	for (size_t i = 1; i < n; i++) {
		if (v >> 54 != 0)
			return -ERANGE;
		v = v << 8 | (uint64_t)(p[i] ^ flip);
	}
	*ret = v;
	if (ret_negative != NULL)
		*ret_negative = negative;
	return 0;
}

int tar_number(const unsigned char *p, size_t n, uint64_t max, uint64_t *ret)
{
	int rc = (p[0] & 0x80) != 0 ? base256(p, n, ret, NULL) : octal(p, n, ret);

	if (rc < 0 && ablated("archive_numbers")) {
		*ret = 0;
		return 0;
	}
	return rc < 0 ? rc : *ret > max ? -ERANGE : 0;
}

static int header_time(const unsigned char *p, struct timespec *ret)
{
	bool negative = false;
	uint64_t v;
	int rc = (p[0] & 0x80) != 0 ? base256(p, 12, &v, &negative) : octal(p, 12, &v);

	if (rc < 0 || v > 253402300799ULL)
		return rc < 0 ? rc : -ERANGE;
	/* The bits of a negative number were flipped: -1 reads as 0. */
	*ret = (struct timespec){ .tv_sec = negative ? -(time_t)v - 1 : (time_t)v };
	return 0;
}

static bool sum_right(const unsigned char *h)
{
	uint64_t want, sum = 0;
	int64_t signed_sum = 0;

	if (octal(h + H_SUM, 8, &want) < 0)
		return false;
	for (size_t i = 0; i < TAR_BLOCK; i++) {
		unsigned char c = i >= H_SUM && i < H_SUM + 8 ? ' ' : h[i];

		sum += c;
		signed_sum += (signed char)c;
	}
	return want == sum || (int64_t)want == signed_sum;
}

static bool all_zero(const unsigned char *h)
{
	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (h[i] != 0)
			return false;
	return true;
}

static void field(struct buf *out, const unsigned char *p, size_t n)
{
	buf_add(out, p, strnlen((const char *)p, n));
}

/* Fill path and link from the block, unless an extended header did. */
static void block_names(struct tar *t, const unsigned char *h)
{
	if (t->path.n == 0) {
		if (memcmp(h + H_MAGIC, "ustar", 6) == 0 && h[H_PREFIX] != '\0') {
			field(&t->path, h + H_PREFIX, 155);
			buf_char(&t->path, '/');
		}
		field(&t->path, h + H_NAME, 100);
	}
	if (t->link.n == 0)
		field(&t->link, h + H_LINK, 100);
}

/* ---- entries ------------------------------------------------------------------------------------------------------------------- */

/* The stored size, and padding behind it. */
static int set_size(struct tar *t, const unsigned char *h, struct err *err)
{
	uint64_t size;
	int rc = tar_number(h + H_SIZE, 12, TAR_SIZE_MAX, &size);

	if (t->saw & SAW_SIZE) {
		size = t->pax_size;
		rc = rc == -EBADMSG ? rc : 0;
	}
	if (rc == -ERANGE)
		return tar_hostile(t, err, "a size is negative or absurd");
	if (rc < 0)
		return tar_corrupt(t, err, "a size is malformed");
	t->left = size;
	t->pad = (unsigned int)(-size & (TAR_BLOCK - 1));
	t->entry.size = size;
	return 0;
}

static int set_ids(struct tar *t, const unsigned char *h, struct err *err)
{
	uint64_t mode, uid, gid;

	if (tar_number(h + H_MODE, 8, UINT32_MAX, &mode) < 0)
		return tar_corrupt(t, err, "a mode is malformed");
	if (t->saw & SAW_UID)
		uid = t->pax_uid;
	else if (tar_number(h + H_UID, 8, UINT32_MAX - 1, &uid) < 0)
		return tar_corrupt(t, err, "a user id is malformed");
	if (t->saw & SAW_GID)
		gid = t->pax_gid;
	else if (tar_number(h + H_GID, 8, UINT32_MAX - 1, &gid) < 0)
		return tar_corrupt(t, err, "a group id is malformed");
	t->entry.mode = (uint32_t)mode & 07777; /* old writers put the file type above */
	t->entry.uid = (uint32_t)uid;
	t->entry.gid = (uint32_t)gid;
	return 0;
}

static int set_times(struct tar *t, const unsigned char *h, struct err *err)
{
	if (t->saw & SAW_MTIME)
		t->entry.mtime = t->pax_mtime;
	else if (header_time(h + H_MTIME, &t->entry.mtime) < 0)
		return tar_corrupt(t, err, "a time is malformed");
	t->entry.atime = t->saw & SAW_ATIME ? t->pax_atime : t->entry.mtime;
	return 0;
}

static int set_type(struct tar *t, char type, struct err *err)
{
	static const char letters[] = "0123456";
	static const enum tar_type types[] = { TAR_FILE, TAR_HARDLINK, TAR_SYMLINK, TAR_CHAR,
		TAR_BLOCKDEV, TAR_DIRECTORY, TAR_FIFO };
	const char *at = type != '\0' ? strchr(letters, type) : letters;

	if (type == '7' || type == 'S')
		at = letters;
	if (at == NULL)
		return tar_hostile(t, err, "an entry has an unknown type");
	t->entry.type = types[at - letters];
	/* Before ustar a directory was a file whose name ends with a slash. */
	if (t->entry.type == TAR_FILE && t->entry.slash) {
		if (t->left != 0)
			return tar_hostile(t, err, "a file has the name of a directory");
		t->entry.type = TAR_DIRECTORY;
	}
	if (t->entry.type != TAR_FILE && t->left != 0)
		return tar_hostile(t, err, "an entry that can have no data has a size");
	return 0;
}

static int set_names(struct tar *t, const unsigned char *h, struct err *err)
{
	block_names(t, h);
	if (t->path.n == 0)
		return tar_hostile(t, err, "an entry has no name");
	t->entry.path = buf_cstr(&t->path);
	t->entry.link = buf_cstr(&t->link);
	t->entry.slash = t->path.p[t->path.n - 1] == '/';
	return 0;
}

static int read_entry(struct tar *t, const unsigned char *h, struct err *err)
{
	char type = (char)h[H_TYPE];
	int rc = set_names(t, h, err);

	if (rc == 0)
		rc = set_size(t, h, err);
	if (rc == 0)
		rc = set_type(t, type, err);
	if (rc == 0)
		rc = set_ids(t, h, err);
	if (rc == 0)
		rc = set_times(t, h, err);
	if (rc == 0 && t->entry.type == TAR_FILE)
		rc = tar_map_read(t, h, type, err);
	else if (rc == 0 && t->n_map > 0)
		rc = tar_hostile(t, err, "something that is no file is sparse");
	if (rc == 0 && (t->entry.type == TAR_HARDLINK || t->entry.type == TAR_SYMLINK)) {
		if (t->link.n == 0)
			rc = tar_hostile(t, err, "a link has no target");
	} else {
		t->entry.link = "";
	}
	return rc < 0 ? rc : 1;
}

/* Read a header block. 1 = a header, 0 = the end of the archive. */
static int read_block(struct tar *t, unsigned char h[TAR_BLOCK], struct err *err)
{
	ssize_t got = t->read(t->context, h, TAR_BLOCK, err);

	if (got < 0)
		return (int)got;
	t->position += (uint64_t)got;
	if (got == 0)
		return 0; /* some writers leave the closing blocks out */
	if (got != TAR_BLOCK)
		return tar_corrupt(t, err, "it ends in the middle of a header");
	if (all_zero(h)) {
		got = t->read(t->context, h, TAR_BLOCK, err);
		if (got < 0)
			return (int)got;
		t->position += (uint64_t)got;
		return got == 0 || (got == TAR_BLOCK && all_zero(h))
			       ? 0
			       : tar_corrupt(t, err, "a header follows a closing block");
	}
	if (sum_right(h))
		return 1;
	if (t->position == TAR_BLOCK)
		return err_raise(err, ERR_CORRUPT, "it is no tar archive, plain or compressed");
	return tar_corrupt(t, err, "the checksum of a header is wrong");
}

static int next(struct tar *t, struct err *err)
{
	unsigned char h[TAR_BLOCK];
	int rc = tar_skip(t, t->left, err);

	if (rc == 0)
		rc = tar_skip(t, t->pad, err);
	t->left = t->pad = 0;
	forget_entry(t);
	while (rc == 0) {
		uint64_t size;
		char type;

		rc = read_block(t, h, err);
		if (rc < 0)
			return rc;
		if (rc == 0) {
			t->ended = true;
			return t->extended || t->gnu_path || t->gnu_link
				       ? tar_corrupt(t, err, "it ends behind an extended header")
				       : 0;
		}
		type = (char)h[H_TYPE];
		if (type == '\0' || strchr("xgLK", type) == NULL)
			return read_entry(t, h, err);
		if (tar_number(h + H_SIZE, 12, TAR_SIZE_MAX, &size) < 0)
			return tar_corrupt(t, err, "a size is malformed");
		rc = tar_extended_read(t, type, size, err);
	}
	return rc;
}

int tar_next(struct tar *t, const struct tar_entry **ret, struct err *err)
{
	int rc;

	if (t->failed)
		return err_raise(err, ERR_CORRUPT, "the tar archive cannot be read on");
	if (t->ended)
		return 0;
	rc = next(t, err);
	t->failed = rc < 0;
	*ret = &t->entry;
	return rc;
}

ssize_t tar_data(struct tar *t, void *bytes, size_t n, uint64_t *ret_offset, struct err *err)
{
	const struct piece *p;
	uint64_t step;
	int rc;

	if (t->failed)
		return err_raise(err, ERR_CORRUPT, "the tar archive cannot be read on");
	while (t->at_map < t->n_map && t->in_piece == t->map[t->at_map].size) {
		t->at_map++;
		t->in_piece = 0;
	}
	if (t->at_map == t->n_map)
		return 0;
	p = &t->map[t->at_map];
	step = p->size - t->in_piece;
	if (step > n)
		step = n;
	rc = tar_take(t, bytes, (size_t)step, err);
	if (rc < 0) {
		t->failed = true;
		return rc;
	}
	*ret_offset = p->offset + t->in_piece;
	t->in_piece += step;
	t->left -= step;
	return (ssize_t)step;
}

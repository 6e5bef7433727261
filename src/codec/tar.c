/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of tar streams. One entry is: extended headers (x, L, K, g), the header itself, for sparse files the map, then data padded to
 * 512 bytes. Everything that describes the entry is gathered in struct tar and handed out as one struct tar_entry.
 *
 * Invariants: @left is what remains of the stored data of the current entry and @pad the padding behind it; both are consumed before the next header
 * is read. A failure is final: later calls fail again.
 */
#include "codec/tar.h"
#include "base/ablate.h"
#include "base/buf.h"
#include "base/str.h"
#include "codec/pax.h"

/* Offsets and lengths of the fields of a header block. */
enum {
	H_NAME = 0,
	H_MODE = 100,
	H_UID = 108,
	H_GID = 116,
	H_SIZE = 124,
	H_MTIME = 136,
	H_SUM = 148,
	H_TYPE = 156,
	H_LINK = 157,
	H_MAGIC = 257,
	H_PREFIX = 345,
	H_GNU_SPARSE = 386,
	H_GNU_EXTENDED = 482,
	H_GNU_REALSIZE = 483,
};

struct piece {
	uint64_t offset, size;
};

/* Which PAX keys were seen; a second time is refused. */
enum {
	SAW_PATH = 1 << 0,
	SAW_LINK = 1 << 1,
	SAW_SIZE = 1 << 2,
	SAW_UID = 1 << 3,
	SAW_GID = 1 << 4,
	SAW_MTIME = 1 << 5,
	SAW_ATIME = 1 << 6,
	SAW_SPARSE_NAME = 1 << 7,
	SAW_SPARSE_SIZE = 1 << 8,
	SAW_SPARSE_REALSIZE = 1 << 9,
	SAW_SPARSE_MAP = 1 << 10,
	SAW_SPARSE_MAJOR = 1 << 11,
	SAW_SPARSE_MINOR = 1 << 12,
	SAW_SPARSE_BLOCKS = 1 << 13,
};

struct tar {
	tar_read_fn *read;
	void *context;
	uint64_t position;
	uint64_t left; /* stored bytes of the current entry that were not read */
	unsigned int pad;
	bool failed, ended;

	/* what is known of the entry being read */
	struct tar_entry entry;
	struct buf path, link, header; /* NUL-terminated names; the last extended header */
	struct tar_xattr xattrs[TAR_XATTRS_MAX];
	unsigned int saw;
	bool extended, gnu_path, gnu_link;
	uint64_t pax_size, pax_uid, pax_gid, sparse_realsize, sparse_major, sparse_minor;
	struct timespec pax_mtime, pax_atime;

	/* sparse map of the current entry */
	struct piece *map;
	size_t n_map, cap_map, at_map;
	uint64_t in_piece; /* bytes of map[at_map] already handed out */
};

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

static int corrupt(struct tar *t, struct err *err, const char *what)
{
	return err_raise(err, ERR_CORRUPT, "the tar archive is damaged: %s, at byte %llu", what,
		(unsigned long long)t->position);
}

static int hostile(struct tar *t, struct err *err, const char *what)
{
	return err_raise(err, ERR_HOSTILE_ARCHIVE, "the tar archive is ambiguous: %s, at byte %llu",
		what, (unsigned long long)t->position);
}

/* Read exactly @n bytes. */
static int take(struct tar *t, void *bytes, size_t n, struct err *err)
{
	ssize_t got = t->read(t->context, bytes, n, err);

	if (got < 0)
		return (int)got;
	t->position += (uint64_t)got;
	return (size_t)got == n ? 0 : corrupt(t, err, "it ends in the middle of an entry");
}

static int skip(struct tar *t, uint64_t n, struct err *err)
{
	char waste[16384];

	while (n > 0) {
		size_t step = n < sizeof(waste) ? (size_t)n : sizeof(waste);
		int rc = take(t, waste, step, err);

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

static int number(const unsigned char *p, size_t n, uint64_t max, uint64_t *ret)
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

/* ---- extended headers ---------------------------------------------------------------------------------------------------------- */

static int map_add(struct tar *t, uint64_t offset, uint64_t size, struct err *err)
{
	if (t->n_map == TAR_SPARSE_MAX)
		return hostile(t, err, "a sparse file has too many pieces");
	if (offset > TAR_SIZE_MAX || size > TAR_SIZE_MAX)
		return hostile(t, err, "a sparse file is absurdly large");
	if (t->n_map == t->cap_map) {
		size_t cap = t->cap_map == 0 ? 64 : t->cap_map * 2;
		struct piece *map = realloc(t->map, cap * sizeof(*map));

		if (map == NULL)
			abort();
		t->map = map;
		t->cap_map = cap;
	}
	t->map[t->n_map++] = (struct piece){ .offset = offset, .size = size };
	return 0;
}

/* "offset,size,offset,size": the map of version 0.1. */
static int map_parse(struct tar *t, const struct pax_record *r, struct err *err)
{
	const char *p = r->value, *end = p + r->value_size;
	uint64_t pair[2];
	size_t i = 0;

	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		struct pax_record part = { .value = p,
			.value_size = (size_t)((comma != NULL ? comma : end) - p) };

		if (pax_u64(&part, TAR_SIZE_MAX, &pair[i]) < 0)
			return corrupt(t, err, "a sparse map is malformed");
		if (i == 1 && map_add(t, pair[0], pair[1], err) < 0)
			return -EBADMSG;
		i ^= 1;
		p = comma != NULL ? comma + 1 : end;
	}
	return i == 0 ? 0 : corrupt(t, err, "a sparse map is malformed");
}

/* The pairs of version 0.0 come as records of their own, in turn. */
static int map_record(struct tar *t, const struct pax_record *r, bool is_offset, struct err *err)
{
	bool open = t->n_map > 0 && t->map[t->n_map - 1].size == UINT64_MAX;
	uint64_t v;

	if (pax_u64(r, TAR_SIZE_MAX, &v) < 0 || open == is_offset)
		return corrupt(t, err, "a sparse map is malformed");
	if (is_offset) {
		int rc = map_add(t, v, 0, err);

		if (rc == 0)
			t->map[t->n_map - 1].size = UINT64_MAX; /* its size comes next */
		return rc;
	}
	t->map[t->n_map - 1].size = v;
	return 0;
}

static int add_xattr(struct tar *t, const struct pax_record *r, struct err *err)
{
	size_t skip_key = strlen("SCHILY.xattr.");
	struct tar_xattr *x;

	if (t->entry.n_xattrs == TAR_XATTRS_MAX)
		return hostile(t, err, "a file has too many extended attributes");
	if (r->key_size - skip_key > 255 || r->value_size > 65536)
		return hostile(t, err, "an extended attribute is larger than any system allows");
	x = &t->xattrs[t->entry.n_xattrs++];
	x->name = xalloc(r->key_size - skip_key + 1);
	memcpy(x->name, r->key + skip_key, r->key_size - skip_key);
	x->value = xalloc(r->value_size + 1);
	memcpy(x->value, r->value, r->value_size);
	x->size = r->value_size;
	for (size_t i = 0; i + 1 < t->entry.n_xattrs; i++)
		if (str_eq(t->xattrs[i].name, x->name))
			return hostile(t, err, "an extended attribute is given twice");
	return 0;
}

static int set_name(struct tar *t, struct buf *name, const struct pax_record *r, struct err *err)
{
	if (r->value_size == 0 || memchr(r->value, '\0', r->value_size) != NULL)
		return hostile(
			t, err, "an extended header gives an empty name or one with a NUL byte");
	if (name->n > 0)
		return hostile(t, err, "two extended headers name one entry");
	buf_add(name, r->value, r->value_size);
	return 0;
}

static int set_time(
	struct tar *t, struct timespec *ret, const struct pax_record *r, struct err *err)
{
	int64_t seconds;
	uint32_t ns;

	if (pax_time(r, &seconds, &ns) < 0)
		return corrupt(t, err, "a time is malformed");
	*ret = (struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = (long)ns };
	return 0;
}

static int set_number(
	struct tar *t, uint64_t *ret, uint64_t max, const struct pax_record *r, struct err *err)
{
	int rc = pax_u64(r, max, ret);

	if (rc == -ERANGE)
		return hostile(t, err, "a number in an extended header is out of range");
	return rc < 0 ? corrupt(t, err, "a number in an extended header is malformed") : 0;
}

/* The keys that mean something here; the bit is returned so that the second one is seen. 0 = not known, and ignored. */
static unsigned int key_bit(const struct pax_record *r)
{
	static const struct {
		const char *key;
		unsigned int bit;
	} keys[] = {
		{ "path", SAW_PATH },
		{ "linkpath", SAW_LINK },
		{ "size", SAW_SIZE },
		{ "uid", SAW_UID },
		{ "gid", SAW_GID },
		{ "mtime", SAW_MTIME },
		{ "atime", SAW_ATIME },
		{ "GNU.sparse.name", SAW_SPARSE_NAME },
		{ "GNU.sparse.size", SAW_SPARSE_SIZE },
		{ "GNU.sparse.realsize", SAW_SPARSE_REALSIZE },
		{ "GNU.sparse.map", SAW_SPARSE_MAP },
		{ "GNU.sparse.major", SAW_SPARSE_MAJOR },
		{ "GNU.sparse.minor", SAW_SPARSE_MINOR },
		{ "GNU.sparse.numblocks", SAW_SPARSE_BLOCKS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (pax_key_is(r, keys[i].key))
			return keys[i].bit;
	return 0;
}

static int apply_key(struct tar *t, unsigned int bit, const struct pax_record *r, struct err *err)
{
	uint64_t unused;

	switch (bit) {
	case SAW_PATH:
		/* A sparse file has its real name elsewhere; which of the two comes first is not fixed. */
		return t->saw & SAW_SPARSE_NAME ? 0 : set_name(t, &t->path, r, err);
	case SAW_SPARSE_NAME:
		if (t->saw & SAW_PATH)
			buf_reset(&t->path);
		return set_name(t, &t->path, r, err);
	case SAW_LINK:
		return set_name(t, &t->link, r, err);
	case SAW_SIZE:
		return set_number(t, &t->pax_size, TAR_SIZE_MAX, r, err);
	case SAW_UID:
		return set_number(t, &t->pax_uid, UINT32_MAX - 1, r, err);
	case SAW_GID:
		return set_number(t, &t->pax_gid, UINT32_MAX - 1, r, err);
	case SAW_MTIME:
		return set_time(t, &t->pax_mtime, r, err);
	case SAW_ATIME:
		return set_time(t, &t->pax_atime, r, err);
	case SAW_SPARSE_SIZE:
	case SAW_SPARSE_REALSIZE:
		return set_number(t, &t->sparse_realsize, TAR_SIZE_MAX, r, err);
	case SAW_SPARSE_MAJOR:
		return set_number(t, &t->sparse_major, 99, r, err);
	case SAW_SPARSE_MINOR:
		return set_number(t, &t->sparse_minor, 99, r, err);
	case SAW_SPARSE_BLOCKS:
		return set_number(t, &unused, TAR_SPARSE_MAX, r, err);
	case SAW_SPARSE_MAP:
		return map_parse(t, r, err);
	default:
		return 0;
	}
}

static int apply_record(struct tar *t, const struct pax_record *r, struct err *err)
{
	unsigned int bit = key_bit(r);
	int rc;

	if (bit == 0) {
		if (r->key_size > 13 && memcmp(r->key, "SCHILY.xattr.", 13) == 0)
			return add_xattr(t, r, err);
		if (pax_key_is(r, "GNU.sparse.offset"))
			return map_record(t, r, true, err);
		if (pax_key_is(r, "GNU.sparse.numbytes"))
			return map_record(t, r, false, err);
		return 0;
	}
	if ((t->saw & bit) != 0)
		return hostile(t, err, "an extended header says the same thing twice");
	rc = apply_key(t, bit, r, err);
	t->saw |= bit;
	return rc;
}

static int read_pax(struct tar *t, struct err *err)
{
	const char *at = t->header.p, *end = at + t->header.n;
	struct pax_record r;
	int rc;

	if (t->extended)
		return hostile(t, err, "two extended headers stand before one entry");
	t->extended = true;
	while ((rc = pax_next(&at, end, &r)) > 0) {
		rc = apply_record(t, &r, err);
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? corrupt(t, err, "an extended header is malformed") : 0;
}

/* A global header may hold a comment and the like, never something that changes what later entries are. */
static int read_global(struct tar *t, struct err *err)
{
	const char *at = t->header.p, *end = at + t->header.n;
	struct pax_record r;
	int rc;

	while ((rc = pax_next(&at, end, &r)) > 0)
		if (key_bit(&r) != 0 || (r.key_size >= 7 && memcmp(r.key, "SCHILY.", 7) == 0) ||
			(r.key_size >= 4 && memcmp(r.key, "GNU.", 4) == 0))
			return hostile(t, err, "a global header changes what later entries are");
	return rc < 0 ? corrupt(t, err, "a global header is malformed") : 0;
}

static int read_long_name(struct tar *t, struct buf *name, bool *seen, struct err *err)
{
	size_t n = t->header.n;

	/* GNU counts the terminating NUL; some writers leave it out. */
	if (n > 0 && t->header.p[n - 1] == '\0')
		n--;
	if (n == 0 || memchr(t->header.p, '\0', n) != NULL)
		return hostile(t, err, "a long name is empty or holds a NUL byte");
	if (*seen)
		return hostile(t, err, "two long names stand before one entry");
	*seen = true;
	if (name->n > 0)
		return hostile(t, err, "two extended headers name one entry");
	buf_add(name, t->header.p, n);
	return 0;
}

/* Read the body of an extended header of type @type into @header and apply it. */
static int read_extended(struct tar *t, char type, uint64_t size, struct err *err)
{
	char *room;
	int rc;

	if (size > TAR_HEADER_MAX)
		return hostile(t, err, "an extended header is larger than 1 MiB");
	buf_reset(&t->header);
	room = buf_room(&t->header, (size_t)size + 1);
	BUG_ON(room == NULL);
	rc = take(t, room, (size_t)size, err);
	if (rc == 0)
		rc = skip(t, -size & (TAR_BLOCK - 1), err);
	if (rc < 0)
		return rc;
	t->header.n = (size_t)size;
	switch (type) {
	case 'x':
		return read_pax(t, err);
	case 'g':
		return read_global(t, err);
	case 'L':
		return read_long_name(t, &t->path, &t->gnu_path, err);
	default:
		return read_long_name(t, &t->link, &t->gnu_link, err);
	}
}

/* ---- sparse files -------------------------------------------------------------------------------------------------------------- */

/* Pieces of a GNU header or extension block: pairs of 12-byte numbers; an empty one ends the list. */
static int map_block(struct tar *t, const unsigned char *p, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++, p += 24) {
		uint64_t offset, size;

		if (p[0] == '\0')
			return 0;
		if (number(p, 12, TAR_SIZE_MAX, &offset) < 0 ||
			number(p + 12, 12, TAR_SIZE_MAX, &size) < 0)
			return corrupt(t, err, "a sparse map is malformed");
		if (map_add(t, offset, size, err) < 0)
			return -EBADMSG;
	}
	return 0;
}

static int map_gnu(struct tar *t, const unsigned char *h, struct err *err)
{
	unsigned char more[TAR_BLOCK];
	bool extended = h[H_GNU_EXTENDED] != 0;
	int rc = map_block(t, h + H_GNU_SPARSE, 4, err);

	if (rc == 0 && number(h + H_GNU_REALSIZE, 12, TAR_SIZE_MAX, &t->entry.size) < 0)
		rc = corrupt(t, err, "the size of a sparse file is malformed");
	while (rc == 0 && extended) {
		rc = take(t, more, sizeof(more), err);
		if (rc == 0)
			rc = map_block(t, more, 21, err);
		extended = rc == 0 && more[504] != 0;
	}
	return rc;
}

/* One line with a number from the data of a version 1.0 file. */
static int map_line(struct tar *t, char **at, char *block, uint64_t *ret, struct err *err)
{
	uint64_t v = 0;
	size_t n = 0;

	for (;; n++) {
		if (*at == block + TAR_BLOCK) {
			int rc = t->left < TAR_BLOCK ? corrupt(t, err, "a sparse map is cut off")
						     : take(t, block, TAR_BLOCK, err);
			if (rc < 0)
				return rc;
			t->left -= TAR_BLOCK;
			*at = block;
		}
		char c = *(*at)++;
		if (c == '\n' && n > 0)
			break;
		if (c < '0' || c > '9' || v > TAR_SIZE_MAX / 16)
			return corrupt(t, err, "a sparse map is malformed");
		v = v * 10 + (uint64_t)(c - '0');
	}
	*ret = v;
	return 0;
}

/* Version 1.0 has its map in front of the data, padded to whole blocks. */
static int map_in_data(struct tar *t, struct err *err)
{
	char block[TAR_BLOCK], *at = block + TAR_BLOCK;
	uint64_t n = 0, offset, size;
	int rc = map_line(t, &at, block, &n, err);

	if (rc == 0 && n > TAR_SPARSE_MAX)
		return hostile(t, err, "a sparse file has too many pieces");
	for (uint64_t i = 0; rc == 0 && i < n; i++) {
		rc = map_line(t, &at, block, &offset, err);
		if (rc == 0)
			rc = map_line(t, &at, block, &size, err);
		if (rc == 0)
			rc = map_add(t, offset, size, err);
	}
	return rc;
}

/* The pieces stand in order, do not overlap, lie in the file, and are exactly the stored data. */
static int map_check(struct tar *t, struct err *err)
{
	uint64_t end = 0, sum = 0;

	for (size_t i = 0; i < t->n_map; i++) {
		const struct piece *p = &t->map[i];

		if (p->size > TAR_SIZE_MAX || p->offset < end ||
			p->offset + p->size > t->entry.size)
			return hostile(
				t, err, "the pieces of a sparse file overlap or lie outside of it");
		end = p->offset + p->size;
		sum += p->size;
	}
	if (sum != t->left)
		return hostile(t, err, "a sparse file stores more or less than its map says");
	return 0;
}

static int read_map(struct tar *t, const unsigned char *h, char type, struct err *err)
{
	int rc = 0;

	if (type == 'S') {
		if (t->saw &
			(SAW_SPARSE_NAME | SAW_SPARSE_SIZE | SAW_SPARSE_REALSIZE | SAW_SPARSE_MAP))
			return hostile(t, err, "a file is sparse in two ways");
		rc = map_gnu(t, h, err);
	} else if (t->saw & SAW_SPARSE_MAJOR) {
		if (t->sparse_major != 1 || t->sparse_minor != 0 || t->n_map > 0 ||
			!(t->saw & SAW_SPARSE_REALSIZE))
			return corrupt(t, err, "a sparse file is of an unknown version");
		t->entry.size = t->sparse_realsize;
		rc = map_in_data(t, err);
	} else if (t->saw & SAW_SPARSE_SIZE) {
		t->entry.size = t->sparse_realsize;
	} else if (t->n_map > 0 ||
		   t->saw & (SAW_SPARSE_NAME | SAW_SPARSE_REALSIZE | SAW_SPARSE_MAP)) {
		return corrupt(t, err, "a sparse file does not say its size");
	} else {
		return map_add(t, 0, t->left, err);
	}
	t->entry.sparse = true;
	return rc < 0 ? rc : map_check(t, err);
}

/* ---- entries ------------------------------------------------------------------------------------------------------------------- */

/* The stored size, and padding behind it. */
static int set_size(struct tar *t, const unsigned char *h, struct err *err)
{
	uint64_t size;
	int rc = number(h + H_SIZE, 12, TAR_SIZE_MAX, &size);

	if (t->saw & SAW_SIZE) {
		size = t->pax_size;
		rc = rc == -EBADMSG ? rc : 0;
	}
	if (rc == -ERANGE)
		return hostile(t, err, "a size is negative or absurd");
	if (rc < 0)
		return corrupt(t, err, "a size is malformed");
	t->left = size;
	t->pad = (unsigned int)(-size & (TAR_BLOCK - 1));
	t->entry.size = size;
	return 0;
}

static int set_ids(struct tar *t, const unsigned char *h, struct err *err)
{
	uint64_t mode, uid, gid;

	if (number(h + H_MODE, 8, UINT32_MAX, &mode) < 0)
		return corrupt(t, err, "a mode is malformed");
	if (t->saw & SAW_UID)
		uid = t->pax_uid;
	else if (number(h + H_UID, 8, UINT32_MAX - 1, &uid) < 0)
		return corrupt(t, err, "a user id is malformed");
	if (t->saw & SAW_GID)
		gid = t->pax_gid;
	else if (number(h + H_GID, 8, UINT32_MAX - 1, &gid) < 0)
		return corrupt(t, err, "a group id is malformed");
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
		return corrupt(t, err, "a time is malformed");
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
		return hostile(t, err, "an entry has an unknown type");
	t->entry.type = types[at - letters];
	/* Before ustar a directory was a file whose name ends with a slash. */
	if (t->entry.type == TAR_FILE && t->entry.slash) {
		if (t->left != 0)
			return hostile(t, err, "a file has the name of a directory");
		t->entry.type = TAR_DIRECTORY;
	}
	if (t->entry.type != TAR_FILE && t->left != 0)
		return hostile(t, err, "an entry that can have no data has a size");
	return 0;
}

static int set_names(struct tar *t, const unsigned char *h, struct err *err)
{
	block_names(t, h);
	if (t->path.n == 0)
		return hostile(t, err, "an entry has no name");
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
		rc = read_map(t, h, type, err);
	else if (rc == 0 && t->n_map > 0)
		rc = hostile(t, err, "something that is no file is sparse");
	if (rc == 0 && (t->entry.type == TAR_HARDLINK || t->entry.type == TAR_SYMLINK)) {
		if (t->link.n == 0)
			rc = hostile(t, err, "a link has no target");
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
		return corrupt(t, err, "it ends in the middle of a header");
	if (all_zero(h)) {
		got = t->read(t->context, h, TAR_BLOCK, err);
		if (got < 0)
			return (int)got;
		t->position += (uint64_t)got;
		return got == 0 || (got == TAR_BLOCK && all_zero(h))
			       ? 0
			       : corrupt(t, err, "a header follows a closing block");
	}
	if (sum_right(h))
		return 1;
	if (t->position == TAR_BLOCK)
		return err_raise(err, ERR_CORRUPT, "it is no tar archive, plain or compressed");
	return corrupt(t, err, "the checksum of a header is wrong");
}

static int next(struct tar *t, struct err *err)
{
	unsigned char h[TAR_BLOCK];
	int rc = skip(t, t->left, err);

	if (rc == 0)
		rc = skip(t, t->pad, err);
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
				       ? corrupt(t, err, "it ends behind an extended header")
				       : 0;
		}
		type = (char)h[H_TYPE];
		if (type == '\0' || strchr("xgLK", type) == NULL)
			return read_entry(t, h, err);
		if (number(h + H_SIZE, 12, TAR_SIZE_MAX, &size) < 0)
			return corrupt(t, err, "a size is malformed");
		rc = read_extended(t, type, size, err);
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
	rc = take(t, bytes, (size_t)step, err);
	if (rc < 0) {
		t->failed = true;
		return rc;
	}
	*ret_offset = p->offset + t->in_piece;
	t->in_piece += step;
	t->left -= step;
	return (ssize_t)step;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* codec/tar_extended.c - what stands before an entry and says more of it: PAX records, GNU long names. */
#include "base/str.h"
#include "codec/pax.h"
#include "codec/tar_parts.h"

static int add_xattr(struct tar *t, const struct pax_record *r, struct err *err)
{
	size_t skip_key = strlen("SCHILY.xattr.");
	struct tar_xattr *x;

	if (t->entry.n_xattrs == TAR_XATTRS_MAX)
		return tar_hostile(t, err, "a file has too many extended attributes");
	if (r->key_size - skip_key > 255 || r->value_size > 65536)
		return tar_hostile(
			t, err, "an extended attribute is larger than any system allows");
	x = &t->xattrs[t->entry.n_xattrs++];
	x->name = xalloc(r->key_size - skip_key + 1);
	memcpy(x->name, r->key + skip_key, r->key_size - skip_key);
	x->value = xalloc(r->value_size + 1);
	memcpy(x->value, r->value, r->value_size);
	x->size = r->value_size;
	for (size_t i = 0; i + 1 < t->entry.n_xattrs; i++)
		if (str_eq(t->xattrs[i].name, x->name))
			return tar_hostile(t, err, "an extended attribute is given twice");
	return 0;
}

static int set_name(struct tar *t, struct buf *name, const struct pax_record *r, struct err *err)
{
	if (r->value_size == 0 || memchr(r->value, '\0', r->value_size) != NULL)
		return tar_hostile(
			t, err, "an extended header gives an empty name or one with a NUL byte");
	if (name->n > 0)
		return tar_hostile(t, err, "two extended headers name one entry");
	buf_add(name, r->value, r->value_size);
	return 0;
}

static int set_time(
	struct tar *t, struct timespec *ret, const struct pax_record *r, struct err *err)
{
	int64_t seconds;
	uint32_t ns;

	if (pax_time(r, &seconds, &ns) < 0)
		return tar_corrupt(t, err, "a time is malformed");
	*ret = (struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = (long)ns };
	return 0;
}

static int set_number(
	struct tar *t, uint64_t *ret, uint64_t max, const struct pax_record *r, struct err *err)
{
	int rc = pax_u64(r, max, ret);

	if (rc == -ERANGE)
		return tar_hostile(t, err, "a number in an extended header is out of range");
	return rc < 0 ? tar_corrupt(t, err, "a number in an extended header is malformed") : 0;
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
		return tar_map_parse(t, r, err);
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
			return tar_map_record(t, r, true, err);
		if (pax_key_is(r, "GNU.sparse.numbytes"))
			return tar_map_record(t, r, false, err);
		return 0;
	}
	if ((t->saw & bit) != 0)
		return tar_hostile(t, err, "an extended header says the same thing twice");
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
		return tar_hostile(t, err, "two extended headers stand before one entry");
	t->extended = true;
	while ((rc = pax_next(&at, end, &r)) > 0) {
		rc = apply_record(t, &r, err);
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? tar_corrupt(t, err, "an extended header is malformed") : 0;
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
			return tar_hostile(
				t, err, "a global header changes what later entries are");
	return rc < 0 ? tar_corrupt(t, err, "a global header is malformed") : 0;
}

static int read_long_name(struct tar *t, struct buf *name, bool *seen, struct err *err)
{
	size_t n = t->header.n;

	/* GNU counts the terminating NUL; some writers leave it out. */
	if (n > 0 && t->header.p[n - 1] == '\0')
		n--;
	if (n == 0 || memchr(t->header.p, '\0', n) != NULL)
		return tar_hostile(t, err, "a long name is empty or holds a NUL byte");
	if (*seen)
		return tar_hostile(t, err, "two long names stand before one entry");
	*seen = true;
	if (name->n > 0)
		return tar_hostile(t, err, "two extended headers name one entry");
	buf_add(name, t->header.p, n);
	return 0;
}

/* Read the body of an extended header of type @type into @header and apply it. */
int tar_extended_read(struct tar *t, char type, uint64_t size, struct err *err)
{
	char *room;
	int rc;

	if (size > TAR_HEADER_MAX)
		return tar_hostile(t, err, "an extended header is larger than 1 MiB");
	buf_reset(&t->header);
	room = buf_room(&t->header, (size_t)size + 1);
	BUG_ON(room == NULL);
	rc = tar_take(t, room, (size_t)size, err);
	if (rc == 0)
		rc = tar_skip(t, -size & (TAR_BLOCK - 1), err);
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

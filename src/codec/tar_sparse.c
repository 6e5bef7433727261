/* SPDX-License-Identifier: Apache-2.0 */
/* codec/tar_sparse.c - the map of a sparse file, in the four ways in which it is written down: GNU header blocks, PAX 0.0, 0.1, 1.0. */
#include "base/str.h"
#include "codec/pax.h"
#include "codec/tar_parts.h"

int tar_map_add(struct tar *t, uint64_t offset, uint64_t size, struct err *err)
{
	if (t->n_map == TAR_SPARSE_MAX)
		return tar_hostile(t, err, "a sparse file has too many pieces");
	if (offset > TAR_SIZE_MAX || size > TAR_SIZE_MAX)
		return tar_hostile(t, err, "a sparse file is absurdly large");
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
int tar_map_parse(struct tar *t, const struct pax_record *r, struct err *err)
{
	const char *p = r->value, *end = p + r->value_size;
	uint64_t pair[2];
	size_t i = 0;

	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		struct pax_record part = { .value = p,
			.value_size = (size_t)((comma != NULL ? comma : end) - p) };

		if (pax_u64(&part, TAR_SIZE_MAX, &pair[i]) < 0)
			return tar_corrupt(t, err, "a sparse map is malformed");
		if (i == 1 && tar_map_add(t, pair[0], pair[1], err) < 0)
			return -EBADMSG;
		i ^= 1;
		p = comma != NULL ? comma + 1 : end;
	}
	return i == 0 ? 0 : tar_corrupt(t, err, "a sparse map is malformed");
}

/* The pairs of version 0.0 come as records of their own, in turn. */
int tar_map_record(struct tar *t, const struct pax_record *r, bool is_offset, struct err *err)
{
	bool open = t->n_map > 0 && t->map[t->n_map - 1].size == UINT64_MAX;
	uint64_t v;

	if (pax_u64(r, TAR_SIZE_MAX, &v) < 0 || open == is_offset)
		return tar_corrupt(t, err, "a sparse map is malformed");
	if (is_offset) {
		int rc = tar_map_add(t, v, 0, err);

		if (rc == 0)
			t->map[t->n_map - 1].size = UINT64_MAX; /* its size comes next */
		return rc;
	}
	t->map[t->n_map - 1].size = v;
	return 0;
}

/* Pieces of a GNU header or extension block: pairs of 12-byte numbers; an empty one ends the list. */
static int map_block(struct tar *t, const unsigned char *p, size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++, p += 24) {
		uint64_t offset, size;

		if (p[0] == '\0')
			return 0;
		if (tar_number(p, 12, TAR_SIZE_MAX, &offset) < 0 ||
			tar_number(p + 12, 12, TAR_SIZE_MAX, &size) < 0)
			return tar_corrupt(t, err, "a sparse map is malformed");
		if (tar_map_add(t, offset, size, err) < 0)
			return -EBADMSG;
	}
	return 0;
}

static int map_gnu(struct tar *t, const unsigned char *h, struct err *err)
{
	unsigned char more[TAR_BLOCK];
	bool extended = h[H_GNU_EXTENDED] != 0;
	int rc = map_block(t, h + H_GNU_SPARSE, 4, err);

	if (rc == 0 && tar_number(h + H_GNU_REALSIZE, 12, TAR_SIZE_MAX, &t->entry.size) < 0)
		rc = tar_corrupt(t, err, "the size of a sparse file is malformed");
	while (rc == 0 && extended) {
		rc = tar_take(t, more, sizeof(more), err);
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
			int rc = t->left < TAR_BLOCK
					 ? tar_corrupt(t, err, "a sparse map is cut off")
					 : tar_take(t, block, TAR_BLOCK, err);
			if (rc < 0)
				return rc;
			t->left -= TAR_BLOCK;
			*at = block;
		}
		char c = *(*at)++;
		if (c == '\n' && n > 0)
			break;
		if (c < '0' || c > '9' || v > TAR_SIZE_MAX / 16)
			return tar_corrupt(t, err, "a sparse map is malformed");
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
		return tar_hostile(t, err, "a sparse file has too many pieces");
	for (uint64_t i = 0; rc == 0 && i < n; i++) {
		rc = map_line(t, &at, block, &offset, err);
		if (rc == 0)
			rc = map_line(t, &at, block, &size, err);
		if (rc == 0)
			rc = tar_map_add(t, offset, size, err);
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
			return tar_hostile(
				t, err, "the pieces of a sparse file overlap or lie outside of it");
		end = p->offset + p->size;
		sum += p->size;
	}
	if (sum != t->left)
		return tar_hostile(t, err, "a sparse file stores more or less than its map says");
	return 0;
}

int tar_map_read(struct tar *t, const unsigned char *h, char type, struct err *err)
{
	int rc = 0;

	if (type == 'S') {
		if (t->saw &
			(SAW_SPARSE_NAME | SAW_SPARSE_SIZE | SAW_SPARSE_REALSIZE | SAW_SPARSE_MAP))
			return tar_hostile(t, err, "a file is sparse in two ways");
		rc = map_gnu(t, h, err);
	} else if (t->saw & SAW_SPARSE_MAJOR) {
		if (t->sparse_major != 1 || t->sparse_minor != 0 || t->n_map > 0 ||
			!(t->saw & SAW_SPARSE_REALSIZE))
			return tar_corrupt(t, err, "a sparse file is of an unknown version");
		t->entry.size = t->sparse_realsize;
		rc = map_in_data(t, err);
	} else if (t->saw & SAW_SPARSE_SIZE) {
		t->entry.size = t->sparse_realsize;
	} else if (t->n_map > 0 ||
		   t->saw & (SAW_SPARSE_NAME | SAW_SPARSE_REALSIZE | SAW_SPARSE_MAP)) {
		return tar_corrupt(t, err, "a sparse file does not say its size");
	} else {
		return tar_map_add(t, 0, t->left, err);
	}
	t->entry.sparse = true;
	return rc < 0 ? rc : map_check(t, err);
}

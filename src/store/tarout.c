/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tarout.h"
#include "base/str.h"

#include <sys/sysmacros.h>

/* POSIX.1-2017 pax, "ustar Interchange Format": fields are text, numbers are octal. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100],
		magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155],
		rest[12];
};

_Static_assert(sizeof(struct header) == TAROUT_BLOCK, "a header is one block");

static const char zeros[TAROUT_BLOCK];

size_t tarout_padding(uint64_t size)
{
	return (size_t)((TAROUT_BLOCK - size % TAROUT_BLOCK) % TAROUT_BLOCK);
}

/* As many octal digits as fit beside a NUL; what does not fit is in a PAX record. */
static void octal(char *field, size_t size, uint64_t v)
{
	field[--size] = '\0';
	while (size-- > 0) {
		field[size] = (char)('0' + (v & 7));
		v >>= 3;
	}
}

static void text(char *field, size_t size, const char *s)
{
	size_t n = strnlen(s, size);

	memcpy(field, s, n);
}

static void block(struct buf *out, struct header *h)
{
	unsigned int sum = 0;
	const unsigned char *p = (const unsigned char *)h;

	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	memset(h->checksum, ' ', sizeof(h->checksum));
	for (size_t i = 0; i < sizeof(*h); i++)
		sum += p[i];
	octal(h->checksum, 7, sum);
	h->checksum[7] = ' ';
	buf_add(out, h, sizeof(*h));
}

/* "LEN KEY=VALUE\n", where LEN counts its own digits too. */
static void record(struct buf *out, const char *key, const void *value, size_t n)
{
	size_t bare = strlen(key) + n + 3, len = bare + 1;

	for (size_t limit = 10; len >= limit; limit *= 10)
		len = bare + (size_t)snprintf(NULL, 0, "%zu", len);
	if (len != bare + (size_t)snprintf(NULL, 0, "%zu", len))
		len = bare + (size_t)snprintf(NULL, 0, "%zu", len);
	buf_fmt(out, "%zu %s=", len, key);
	buf_add(out, value, n);
	buf_char(out, '\n');
}

static bool has_data(const struct tarout_entry *e)
{
	return S_ISREG(e->st->st_mode) && !e->hard;
}

static void xattr_records(struct buf *out, const struct tree_xattrs *xattrs)
{
	const char *name;
	const void *value;
	size_t at = 0, n;

	while (xattrs != NULL && tree_xattrs_next(xattrs, &at, &name, &value, &n)) {
		cleanup_free char *key = str_dupf("SCHILY.xattr.%s", name);

		/* an '=' would end the key early */
		if (strchr(name, '=') == NULL)
			record(out, key, value, n);
	}
}

/* @v, where it does not go into a field of @size bytes. */
static void number_record(struct buf *out, const char *key, size_t size, int64_t v)
{
	char number[24];
	int n = snprintf(number, sizeof(number), "%lld", (long long)v);

	if (v < 0 || v >> 3 * (size - 1) != 0)
		record(out, key, number, (size_t)n);
}

static void pax(struct buf *out, const struct tarout_entry *e)
{
	cleanup_buf struct buf records = BUF_INIT(4U << 20);
	struct header h = { .type = 'x' };

	if (strlen(e->path) > sizeof(h.name))
		record(&records, "path", e->path, strlen(e->path));
	if (e->link != NULL && strlen(e->link) > sizeof(h.link))
		record(&records, "linkpath", e->link, strlen(e->link));
	number_record(&records, "size", sizeof(h.size), has_data(e) ? e->st->st_size : 0);
	number_record(&records, "uid", sizeof(h.uid), e->uid);
	number_record(&records, "gid", sizeof(h.gid), e->gid);
	number_record(&records, "mtime", sizeof(h.mtime), e->st->st_mtim.tv_sec);
	xattr_records(&records, e->xattrs);
	if (records.n == 0 || buf_failed(&records))
		return;
	text(h.name, sizeof(h.name), "PaxHeaders/entry");
	octal(h.mode, sizeof(h.mode), 0644);
	octal(h.uid, sizeof(h.uid), 0);
	octal(h.gid, sizeof(h.gid), 0);
	octal(h.size, sizeof(h.size), records.n);
	octal(h.mtime, sizeof(h.mtime), 0);
	block(out, &h);
	buf_add(out, records.p, records.n);
	buf_add(out, zeros, tarout_padding(records.n));
}

static char type_of(const struct tarout_entry *e)
{
	if (e->hard)
		return '1';
	switch (e->st->st_mode & S_IFMT) {
	case S_IFLNK:
		return '2';
	case S_IFCHR:
		return '3';
	case S_IFBLK:
		return '4';
	case S_IFDIR:
		return '5';
	case S_IFIFO:
		return '6';
	default:
		return '0';
	}
}

void tarout_header(struct buf *out, const struct tarout_entry *e)
{
	struct header h = { .type = type_of(e) };

	pax(out, e);
	text(h.name, sizeof(h.name), e->path);
	octal(h.mode, sizeof(h.mode), e->st->st_mode & 07777);
	octal(h.uid, sizeof(h.uid), e->uid);
	octal(h.gid, sizeof(h.gid), e->gid);
	octal(h.size, sizeof(h.size), has_data(e) ? (uint64_t)e->st->st_size : 0);
	octal(h.mtime, sizeof(h.mtime),
		e->st->st_mtim.tv_sec > 0 ? (uint64_t)e->st->st_mtim.tv_sec : 0);
	if (e->link != NULL)
		text(h.link, sizeof(h.link), e->link);
	octal(h.major, sizeof(h.major),
		S_ISCHR(e->st->st_mode) || S_ISBLK(e->st->st_mode) ? major(e->st->st_rdev) : 0);
	octal(h.minor, sizeof(h.minor),
		S_ISCHR(e->st->st_mode) || S_ISBLK(e->st->st_mode) ? minor(e->st->st_rdev) : 0);
	block(out, &h);
}

void tarout_end(struct buf *out)
{
	buf_add(out, zeros, TAROUT_BLOCK);
	buf_add(out, zeros, TAROUT_BLOCK);
}

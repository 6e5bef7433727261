/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/tree_send.h"
#include "base/buf.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <sys/stat.h>

#define BLOCK     512
#define DEPTH_MAX 256
#define PIECE     65536

struct sender {
	tree_write_fn *write;
	void *context;
	struct tree_sent *sent;
	struct err *err;
	json_t *linked; /* path in the archive by device and inode number: files of several names that were sent */
	char bytes[PIECE];
};

static void put_octal(char *field, size_t size, uint64_t v)
{
	for (size_t i = size - 1; i-- > 0; v >>= 3)
		field[i] = (char)('0' + (v & 7));
}

/* POSIX.1-2017 pax, "ustar Interchange Format". @name and @link fit their fields. */
static int send_header(struct sender *s, char type, const char *name, const char *link,
	uint64_t size, unsigned int mode, int64_t mtime)
{
	char h[BLOCK] = { 0 };
	unsigned int sum = 0;

	memcpy(h, name, strnlen(name, 100));
	put_octal(h + 100, 8, mode & 07777);
	put_octal(h + 108, 8, 0);
	put_octal(h + 116, 8, 0);
	put_octal(h + 124, 12, size < (1ULL << 33) ? size : 0);
	put_octal(h + 136, 12, mtime > 0 ? (uint64_t)mtime : 0);
	memset(h + 148, ' ', 8);
	h[156] = type;
	memcpy(h + 157, link, strnlen(link, 100));
	memcpy(h + 257, "ustar\00000", 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += (unsigned char)h[i];
	put_octal(h + 148, 7, sum);
	return s->write(s->context, h, BLOCK);
}

static int send_padding(struct sender *s, uint64_t size)
{
	static const char zeros[BLOCK];
	size_t n = (size_t)((BLOCK - size % BLOCK) % BLOCK);

	return n > 0 ? s->write(s->context, zeros, n) : 0;
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void put_record(struct buf *out, const char *key, const char *value)
{
	size_t n = strlen(key) + strlen(value) + 3, digits = 1, total;

	for (total = n + digits; (size_t)snprintf(NULL, 0, "%zu", total) != digits;
		total = n + digits)
		digits++;
	buf_fmt(out, "%zu %s=%s\n", total, key, value);
}

/* The header of an entry, with a PAX header before it for what does not fit. */
static int send_entry(
	struct sender *s, char type, const char *name, const char *link, const struct stat *st)
{
	uint64_t size = type == '0' ? (uint64_t)st->st_size : 0;
	cleanup_buf struct buf records = BUF_INIT(4 * PATH_MAX);
	char number[24];
	int rc = 0;

	if (strlen(name) > 100)
		put_record(&records, "path", name);
	if (strlen(link) > 100)
		put_record(&records, "linkpath", link);
	(void)snprintf(number, sizeof(number), "%llu", (unsigned long long)size);
	if (size >= 1ULL << 33)
		put_record(&records, "size", number);
	if (records.n > 0) {
		rc = send_header(s, 'x', "pax", "", records.n, 0644, 0);
		if (rc == 0)
			rc = s->write(s->context, records.p, records.n);
		if (rc == 0)
			rc = send_padding(s, records.n);
	}
	return rc < 0 ? rc : send_header(s, type, name, link, size, st->st_mode, st->st_mtime);
}

static void note_shorter(struct sender *s, const char *path)
{
	if (s->sent->shorter++ == 0)
		s->sent->first = str_dup(path);
}

/* Return: under which name the file has been sent, borrowed; NULL: not yet, and it will be as @path. */
static const char *sent_as(struct sender *s, const struct stat *st, const char *path)
{
	cleanup_free char *key = NULL;
	json_t *first;

	if (st->st_nlink < 2)
		return NULL;
	key = str_dupf("%llu:%llu", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
	first = json_object_get(s->linked, key);
	if (first == NULL)
		(void)json_object_set_new_nocheck(s->linked, key, json_string_nocheck(path));
	return json_string_value(first);
}

static int send_file(struct sender *s, int dir, const char *name, const char *path)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	const char *first;
	struct stat st;
	bool shorter = false;
	uint64_t left;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_raise_sys(s->err, -errno, "read '%s'", path);
	if (!S_ISREG(st.st_mode)) {
		s->sent->skipped++;
		return 0;
	}
	first = sent_as(s, &st, path);
	if (first != NULL)
		return send_entry(s, '1', path, first, &st);
	rc = send_entry(s, '0', path, "", &st);
	for (left = (uint64_t)st.st_size; rc == 0 && left > 0;) {
		size_t want = left < PIECE ? (size_t)left : PIECE;
		ssize_t n = read(fd, s->bytes, want);

		if (n < 0)
			return err_raise_sys(s->err, -errno, "read '%s'", path);
		if (n == 0) {
			shorter = true;
			memset(s->bytes, 0, want);
			n = (ssize_t)want;
		}
		rc = s->write(s->context, s->bytes, (size_t)n);
		left -= (uint64_t)n;
	}
	if (shorter)
		note_shorter(s, path);
	return rc < 0 ? rc : send_padding(s, (uint64_t)st.st_size);
}

static int send_directory(struct sender *s, int fd, const char *path, unsigned int depth);

static int send_one(
	struct sender *s, int dir, const char *name, const char *path, unsigned int depth)
{
	char link[PATH_MAX];
	struct stat st;
	ssize_t n;
	int fd;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_raise_sys(s->err, -errno, "look at '%s'", path);
	if (S_ISREG(st.st_mode))
		return send_file(s, dir, name, path);
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(dir, name, link, sizeof(link) - 1);
		if (n <= 0)
			return err_raise_sys(s->err, -errno, "read the link '%s'", path);
		link[n] = '\0';
		return send_entry(s, '2', path, link, &st);
	}
	if (!S_ISDIR(st.st_mode)) {
		s->sent->skipped++;
		return 0;
	}
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_raise_sys(s->err, -errno, "open '%s'", path);
	return send_directory(s, fd, path, depth + 1);
}

/* Takes @fd. @path is that in the archive. */
static int send_directory(struct sender *s, int fd, const char *path, unsigned int depth)
{
	cleanup_free char *own = str_dupf("%s/", path);
	DIR *d = fdopendir(fd);
	struct dirent *e;
	struct stat st;
	int rc;

	if (d == NULL || fstat(fd, &st) < 0 || depth > DEPTH_MAX) {
		rc = depth > DEPTH_MAX ? -ELOOP : -errno;
		if (d != NULL)
			(void)closedir(d);
		else
			(void)close(fd);
		return err_raise_sys(s->err, rc, "read the directory '%s'", own);
	}
	rc = send_entry(s, '5', own, "", &st);
	while (rc == 0) {
		cleanup_free char *inner = NULL;

		errno = 0;
		e = readdir(d);
		if (e == NULL && errno != 0)
			rc = err_raise_sys(s->err, -errno, "read the directory '%s'", own);
		if (e == NULL)
			break;
		if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
			continue;
		inner = str_dupf("%s/%s", path, e->d_name);
		rc = send_one(s, fd, e->d_name, inner, depth);
	}
	(void)closedir(d);
	return rc;
}

int tree_send(const char *path, const char *name, tree_write_fn *write, void *context,
	struct tree_sent *sent, struct err *err)
{
	static const char end[2 * BLOCK];
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	struct sender *s;

	if (fd < 0)
		return err_raise_sys(err, -errno, "open '%s'", path);
	s = xnew(struct sender);
	s->write = write;
	s->context = context;
	s->sent = sent;
	s->err = err;
	s->linked = json_object();
	rc = send_directory(s, fd, name, 0);
	if (rc == 0)
		rc = write(context, end, sizeof(end));
	json_decref(s->linked);
	free(s);
	return rc;
}

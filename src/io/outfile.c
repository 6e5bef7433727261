/* SPDX-License-Identifier: Apache-2.0 */
#include "io/outfile.h"
#include "base/fault.h"
#include "base/str.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>

#define RUN_SIZE 16

struct run {
	uint64_t offset, place;
	bool err;
};

static int open_part(int dirfd, const char *name, const char *suffix, int flags)
{
	cleanup_free char *path = str_dupf("%s.%s", name, suffix);
	int fd = openat(dirfd, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? -errno : fd;
}

static int create_part(int dirfd, const char *name, const char *suffix, uid_t owner, gid_t group)
{
	cleanup_fd int fd = open_part(dirfd, name, suffix, O_RDWR | O_CREAT | O_EXCL);

	if (fd < 0)
		return TAKE_FD(fd);
	if ((owner != (uid_t)-1 || group != (gid_t)-1) && fchown(fd, owner, group) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int outfile_create(struct outfile *f, int dirfd, const char *name, uid_t owner, gid_t group)
{
	int rc;

	*f = (struct outfile)OUTFILE_INIT;
	rc = f->bytes = create_part(dirfd, name, "bytes", owner, group);
	if (rc >= 0)
		rc = f->runs = create_part(dirfd, name, "runs", owner, group);
	if (rc < 0)
		outfile_close(f);
	return rc < 0 ? rc : 0;
}

int outfile_open(struct outfile *f, int dirfd, const char *name)
{
	int rc;

	*f = (struct outfile)OUTFILE_INIT;
	rc = f->bytes = open_part(dirfd, name, "bytes", O_RDONLY);
	if (rc >= 0)
		rc = f->runs = open_part(dirfd, name, "runs", O_RDONLY);
	if (rc < 0)
		outfile_close(f);
	return rc < 0 ? rc : 0;
}

void outfile_close(struct outfile *f)
{
	fd_close(&f->bytes);
	fd_close(&f->runs);
}

/* --- writing --- */

static int write_at(int fd, const void *bytes, size_t n, uint64_t place)
{
	for (size_t done = 0; done < n;) {
		ssize_t rc =
			pwrite(fd, (const char *)bytes + done, n - done, (off_t)(place + done));

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc < 0)
			return -errno;
		done += (size_t)rc;
	}
	return 0;
}

static bool goes_on(const struct outfile *f, uint64_t offset, bool err)
{
	return f->n_runs > 0 && f->err == err && offset == f->end;
}

uint64_t outfile_used(const struct outfile *f)
{
	return f->size + (f->n_runs > 0 ? f->n_runs - 1 : 0) * RUN_SIZE;
}

uint64_t outfile_cost(const struct outfile *f, uint64_t offset, bool err)
{
	return f->n_runs == 0 || goes_on(f, offset, err) ? 0 : RUN_SIZE;
}

static int add_run(struct outfile *f, uint64_t offset, bool err)
{
	uint64_t run[2] = { htole64(offset), htole64(f->size << 1 | err) };
	int rc;

	if (goes_on(f, offset, err))
		return 0;
	rc = write_at(f->runs, run, sizeof(run), f->n_runs * RUN_SIZE);
	if (rc < 0)
		return rc;
	f->n_runs++;
	f->err = err;
	return 0;
}

int outfile_add(struct outfile *f, uint64_t offset, bool err, const void *bytes, size_t n)
{
	int rc = add_run(f, offset, err);

	BUG_ON(offset < f->end);
	if (rc == 0)
		rc = fault("outfile.run_written");
	if (rc == 0)
		rc = write_at(f->bytes, bytes, n, f->size);
	if (rc < 0) {
		(void)!ftruncate(f->bytes, (off_t)f->size);
		return rc;
	}
	f->size += n;
	f->end = offset + n;
	return 0;
}

/* --- reading --- */

static int read_at(int fd, void *to, size_t n, uint64_t place)
{
	for (size_t done = 0; done < n;) {
		ssize_t rc = pread(fd, (char *)to + done, n - done, (off_t)(place + done));

		if (rc < 0 && errno == EINTR)
			continue;
		if (rc <= 0)
			return rc < 0 ? -errno : -ENODATA;
		done += (size_t)rc;
	}
	return 0;
}

static int read_run(const struct outfile *f, uint64_t i, struct run *ret)
{
	uint64_t run[2];
	int rc = read_at(f->runs, run, sizeof(run), i * RUN_SIZE);

	if (rc < 0)
		return rc;
	ret->offset = le64toh(run[0]);
	ret->place = le64toh(run[1]) >> 1;
	ret->err = (le64toh(run[1]) & 1) != 0;
	return 0;
}

/* Number of the last run that begins at or before @offset; the first one when none does. */
static int64_t find_run(const struct outfile *f, uint64_t n, uint64_t offset)
{
	uint64_t low = 0, high = n;

	while (high - low > 1) {
		uint64_t middle = low + (high - low) / 2;
		struct run run;
		int rc = read_run(f, middle, &run);

		if (rc < 0)
			return rc;
		if (run.offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return (int64_t)low;
}

/* The @i-th of @n runs as a part; @size: of NAME.bytes. */
static int part_of(
	const struct outfile *f, uint64_t i, uint64_t n, uint64_t size, struct outfile_part *ret)
{
	struct run run, next = { .place = size };
	int rc = read_run(f, i, &run);

	if (rc == 0 && i + 1 < n)
		rc = read_run(f, i + 1, &next);
	if (rc < 0)
		return rc;
	if (next.place > size)
		next.place = size;
	*ret = (struct outfile_part){ .offset = run.offset,
		.n = next.place > run.place ? next.place - run.place : 0,
		.place = run.place,
		.err = run.err };
	return 0;
}

int outfile_find(const struct outfile *f, uint64_t offset, struct outfile_part *ret)
{
	struct stat bytes, runs;
	uint64_t n;
	int64_t i;

	/* the bytes first: bytes that a run not seen yet begins would be taken for the last one's */
	if (fstat(f->bytes, &bytes) < 0 || fstat(f->runs, &runs) < 0)
		return -errno;
	n = (uint64_t)runs.st_size / RUN_SIZE;
	i = n > 0 ? find_run(f, n, offset) : 0;
	for (; i >= 0 && (uint64_t)i < n; i++) {
		int rc = part_of(f, (uint64_t)i, n, (uint64_t)bytes.st_size, ret);

		if (rc < 0)
			return rc;
		if (ret->offset + ret->n > offset && ret->n > 0)
			break;
	}
	if (i < 0 || (uint64_t)i >= n)
		return i < 0 ? (int)i : 0;
	if (ret->offset < offset) {
		uint64_t skip = offset - ret->offset;

		ret->offset += skip;
		ret->place += skip;
		ret->n -= skip;
	}
	return 1;
}

int outfile_read(const struct outfile *f, const struct outfile_part *part, void *to, size_t n)
{
	BUG_ON(n > part->n);
	return read_at(f->bytes, to, n, part->place);
}

/* Where the next byte goes: behind the last of @n runs, and of f->size bytes. */
static int stand_at_end(struct outfile *f, uint64_t n)
{
	struct run last = { 0 };
	int rc = n > 0 ? read_run(f, n - 1, &last) : 0;

	f->n_runs = n;
	f->err = last.err;
	f->end = last.offset + (f->size - last.place);
	return rc;
}

int outfile_append(struct outfile *f, int dirfd, const char *name)
{
	struct stat bytes, runs;
	int rc;

	*f = (struct outfile)OUTFILE_INIT;
	rc = f->bytes = open_part(dirfd, name, "bytes", O_RDWR);
	if (rc >= 0)
		rc = f->runs = open_part(dirfd, name, "runs", O_RDWR);
	if (rc >= 0)
		rc = fstat(f->bytes, &bytes) < 0 || fstat(f->runs, &runs) < 0 ? -errno : 0;
	if (rc == 0) {
		f->size = (uint64_t)bytes.st_size;
		rc = stand_at_end(f, (uint64_t)runs.st_size / RUN_SIZE);
	}
	if (rc < 0)
		outfile_close(f);
	return rc;
}

int outfile_cut(struct outfile *f, uint64_t offset)
{
	struct outfile_part part = { 0 };
	uint64_t n = f->n_runs, rest;
	int64_t i;
	int rc;

	if (offset >= f->end)
		return 0;
	i = find_run(f, n, offset);
	rc = i < 0 ? (int)i : part_of(f, (uint64_t)i, n, f->size, &part);
	if (rc < 0)
		return rc;
	/* of the run in which it lies, or which a gap follows in which it lies */
	rest = offset > part.offset ? offset - part.offset : 0;
	f->size = part.place + (rest < part.n ? rest : part.n);
	n = (uint64_t)i + (rest > 0 ? 1 : 0);
	/* the bytes first: a run without any is nothing to who reads */
	if (ftruncate(f->bytes, (off_t)f->size) < 0 ||
		ftruncate(f->runs, (off_t)(n * RUN_SIZE)) < 0)
		return -errno;
	return stand_at_end(f, n);
}

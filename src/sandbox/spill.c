/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/spill.h"
#include "base/str.h"

#include <fcntl.h>
#include <sys/stat.h>

/* STATE belongs to root, what is in STATE/exec to cayd: no link there is followed. */
static int open_directory(const struct box *box, bool make, struct stat *ret)
{
	cleanup_free char *path = str_dupf("%s/exec", box->config->state);
	cleanup_fd int top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), dir = -1;

	if (top < 0 || fstat(top, ret) < 0)
		return -errno;
	if (make && mkdirat(top, box->id, 0700) < 0 && errno != EEXIST)
		return -errno;
	dir = openat(top, box->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || fchown(dir, ret->st_uid, ret->st_gid) < 0)
		return -errno;
	return TAKE_FD(dir);
}

int spill_open(struct spill *s, const struct box *box, const char *exec, uint64_t max)
{
	struct stat owner;
	cleanup_fd int dir = open_directory(box, true, &owner);

	*s = (struct spill)SPILL_INIT;
	s->max = max;
	return dir < 0 ? dir : outfile_create(&s->file, dir, exec, owner.st_uid, owner.st_gid);
}

int spill_resume(struct spill *s, const struct box *box, const char *exec, uint64_t max)
{
	struct stat owner;
	cleanup_fd int dir = open_directory(box, false, &owner);
	int rc;

	*s = (struct spill)SPILL_INIT;
	s->max = max;
	rc = dir < 0 ? dir : outfile_append(&s->file, dir, exec);
	s->charged = outfile_used(&s->file);
	return rc;
}

int spill_rewind(struct spill *s, uint64_t end)
{
	int rc = spill_is_open(s) ? outfile_cut(&s->file, end) : 0;

	s->charged = outfile_used(&s->file);
	if (rc < 0)
		spill_close(s);
	return rc;
}

void spill_close(struct spill *s)
{
	outfile_close(&s->file);
}

/* Have the next @n bytes, runs included, been counted? */
static int charge(struct spill *s, struct box *box, uint64_t n)
{
	uint64_t want = outfile_used(&s->file) + n, step;
	int rc;

	if (want <= s->charged)
		return 0;
	step = want - s->charged > SPILL_STEP ? want - s->charged : SPILL_STEP;
	if (step > s->max - s->charged)
		step = s->max - s->charged;
	rc = box_charge(box, step);
	if (rc == 0)
		s->charged += step;
	return rc;
}

void spill_add(struct spill *s, struct box *box, uint64_t offset, enum ring_stream stream,
	const void *bytes, size_t n)
{
	uint64_t used, left, cost;

	if (!spill_is_open(s) || s->stopped != 0)
		return;
	used = outfile_used(&s->file);
	cost = outfile_cost(&s->file, offset, stream == RING_STDERR);
	left = s->max > used + cost ? s->max - used - cost : 0;
	if (n > left) {
		n = (size_t)left;
		s->stopped = -EFBIG;
	}
	if (n > 0) {
		int rc = charge(s, box, cost + n);

		if (rc == 0)
			rc = outfile_add(&s->file, offset, stream == RING_STDERR, bytes, n);
		if (rc < 0)
			s->stopped = rc;
	}
}

int spill_add_ring(struct spill *s, const struct ring *r)
{
	uint64_t at = s->file.end > r->start ? s->file.end : r->start;
	int rc = 0;

	while (rc == 0 && at < r->end) {
		enum ring_stream stream;
		const char *bytes;
		size_t n = ring_read(r, at, SIZE_MAX, &stream, &bytes);

		rc = outfile_add(&s->file, at, stream == RING_STDERR, bytes, n);
		at += n;
	}
	return rc;
}

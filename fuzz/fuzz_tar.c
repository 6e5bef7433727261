/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/tar.h"
#include "fuzz/fuzz.h"

struct input {
	const uint8_t *p;
	size_t n;
};

static ssize_t feed(void *context, void *bytes, size_t n, attr_unused struct err *err)
{
	struct input *in = context;
	size_t step = n < in->n ? n : in->n;

	memcpy(bytes, in->p, step);
	in->p += step;
	in->n -= step;
	return (ssize_t)step;
}

static void check_entry(const struct tar_entry *e)
{
	bool link = e->type == TAR_HARDLINK || e->type == TAR_SYMLINK;

	MUST(e->path[0] != '\0' && (e->link[0] != '\0') == link);
	MUST(e->mode <= 07777 && e->size <= TAR_SIZE_MAX && e->n_xattrs <= TAR_XATTRS_MAX);
	MUST(e->type == TAR_FILE || e->size == 0);
	MUST(e->mtime.tv_nsec >= 0 && e->mtime.tv_nsec < 1000000000);
	for (size_t i = 0; i < e->n_xattrs; i++)
		MUST(e->xattrs[i].name[0] != '\0' && e->xattrs[i].value[e->xattrs[i].size] == '\0');
}

/* Pieces come in order and inside of the file. */
static bool check_data(struct tar *t, const struct tar_entry *e, struct err *err)
{
	uint64_t offset, end = 0, sum = 0;
	char bytes[700];
	ssize_t n;

	while ((n = tar_data(t, bytes, sizeof(bytes), &offset, err)) > 0) {
		MUST(offset >= end && offset + (uint64_t)n <= e->size);
		end = offset + (uint64_t)n;
		sum += (uint64_t)n;
	}
	MUST(n < 0 || e->sparse || sum == e->size);
	return n == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	cleanup(cleanup_tar_freep) struct tar *t = tar_new(feed, &in);
	const struct tar_entry *e;
	struct err err = { 0 };
	bool read_it = true, fine = true;
	int rc = 1;

	while (fine && (rc = tar_next(t, &e, &err)) > 0) {
		MUST(tar_position(t) <= size);
		check_entry(e);
		if (read_it && e->type == TAR_FILE)
			fine = check_data(t, e, &err);
		read_it = !read_it; /* every other one is skipped */
	}
	if (rc < 0 || !fine) {
		MUST(err.code == ERR_CORRUPT || err.code == ERR_HOSTILE_ARCHIVE);
		MUST(tar_next(t, &e, &err) < 0);
	} else {
		MUST(tar_next(t, &e, &err) == 0);
	}
	return 0;
}

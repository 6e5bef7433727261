/* SPDX-License-Identifier: Apache-2.0 */
#include "events/segment_index.h"
#include "base/fault.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC "CAYIDX1\n"

static int compare(const void *a, const void *b)
{
	return memcmp(((const struct index_chain *)a)->sandbox,
		((const struct index_chain *)b)->sandbox, ID_LEN);
}

/* starts[] is filled up to a whole number of eight bytes, so that the chains behind it are aligned. */
static size_t starts_size(uint32_t events)
{
	return (events + 1U) / 2 * 8;
}

static size_t file_size(const struct index_head *h)
{
	return sizeof(*h) + starts_size(h->events) +
	       (size_t)h->chains * sizeof(struct index_chain) +
	       (size_t)h->events * sizeof(uint32_t);
}

static void sum_of(const void *body, size_t size, unsigned char ret[LINE_HASH_SIZE])
{
	(void)SHA256(body, size, ret);
}

static int write_file(int dir, const char *name, const void *bytes, size_t size)
{
	cleanup_free char *temporary = str_dupf("%s.new", name);
	cleanup_fd int fd =
		openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
	int rc = fd < 0 ? -errno : file_write_all(fd, bytes, size);

	if (rc == 0 && fdatasync(fd) < 0)
		rc = -errno;
	if (rc == 0)
		rc = fault("events.index.before_rename");
	if (rc == 0 && renameat(dir, temporary, dir, name) < 0)
		rc = -errno;
	if (rc < 0)
		(void)unlinkat(dir, temporary, 0);
	return rc;
}

int segment_index_write(int dir, const char *name, struct index_head head, const uint32_t *starts,
	struct index_chain *chains, const uint32_t *numbers)
{
	size_t size = file_size(&head), chains_size = head.chains * sizeof(*chains);
	cleanup_free char *all = calloc(1, size);
	char *at = all + sizeof(head);

	if (all == NULL)
		abort();
	qsort(chains, head.chains, sizeof(*chains), compare);
	memcpy(at, starts, head.events * sizeof(*starts));
	at += starts_size(head.events);
	memcpy(at, chains, chains_size);
	memcpy(at + chains_size, numbers, head.events * sizeof(*numbers));
	memcpy(head.magic, MAGIC, sizeof(head.magic));
	sum_of(all + sizeof(head), size - sizeof(head), head.sum);
	memcpy(all, &head, sizeof(head));
	return write_file(dir, name, all, size);
}

static bool is_whole(const struct segment_index *x, uint64_t bytes)
{
	unsigned char sum[LINE_HASH_SIZE];

	if (x->size < sizeof(*x->head) ||
		memcmp(x->head->magic, MAGIC, sizeof(x->head->magic)) != 0 ||
		x->head->bytes != bytes || file_size(x->head) != x->size)
		return false;
	sum_of(x->head + 1, x->size - sizeof(*x->head), sum);
	return memcmp(sum, x->head->sum, sizeof(sum)) == 0;
}

int segment_index_open(struct segment_index *x, int dir, const char *name, uint64_t bytes)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	void *p;

	*x = (struct segment_index){ 0 };
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size == 0)
		return -EBADMSG;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	x->head = p;
	x->size = (size_t)st.st_size;
	if (!is_whole(x, bytes)) {
		segment_index_close(x);
		return -EBADMSG;
	}
	x->starts = (const uint32_t *)(x->head + 1);
	x->chains = (const struct index_chain *)(const void *)((const char *)x->starts +
							       starts_size(x->head->events));
	x->numbers = (const uint32_t *)(x->chains + x->head->chains);
	/* checking it read all of it; from now on it is looked at here and there */
	(void)madvise(p, x->size, MADV_DONTNEED);
	(void)madvise(p, x->size, MADV_RANDOM);
	return 0;
}

void segment_index_close(struct segment_index *x)
{
	if (x->head != NULL)
		(void)munmap((void *)(uintptr_t)x->head, x->size);
	*x = (struct segment_index){ 0 };
}

const struct index_chain *segment_index_find(const struct segment_index *x, const char *sandbox)
{
	struct index_chain key = { 0 };

	memcpy(key.sandbox, sandbox, strlen(sandbox) < ID_LEN ? strlen(sandbox) : ID_LEN);
	return bsearch(&key, x->chains, x->head->chains, sizeof(key), compare);
}

uint64_t segment_index_size(const struct segment_index *x, uint32_t i)
{
	uint64_t end = i + 1 < x->head->events ? x->starts[i + 1] : x->head->bytes;

	return end - x->starts[i];
}

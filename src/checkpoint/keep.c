/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/keep.h"
#include "checkpoint/alive.h"
#include "checkpoint/image.h"
#include "sys/file.h"

#include <emmintrin.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#define PIECE       (64ULL << 20) /* of which it is said that it is done */
#define GUESS_LEAST (4ULL << 20)  /* less is copied before a thread has begun */

static void *room(uint64_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* A page of two megabytes is filled as fast as hundreds of small ones are made; but what is not dense would become so. */
static void advise(void *at, uint64_t length, bool dense)
{
	(void)madvise(at, length, dense ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

/* What the process may not read itself: through /proc/PID/mem. */
static int copy_closed(pid_t host, uint64_t from, char *to, uint64_t length)
{
	cleanup_fd int fd = -1;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/mem", host);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && length > 0) {
		ssize_t n = pread(fd, to, length, (off_t)from);

		if (n <= 0)
			return n < 0 ? -errno : -EFAULT;
		to += n;
		from += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return fd < 0 ? -errno : 0;
}

int keep_copy(pid_t host, uint64_t from, char *to, uint64_t length)
{
	while (length > 0) {
		struct iovec local = { to, length }, remote = { (void *)(uintptr_t)from, length };
		ssize_t n = process_vm_readv(host, &local, 1, &remote, 1, 0);

		if (n <= 0)
			return copy_closed(host, from, to, length);
		to += n;
		from += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return 0;
}

/* --- what is lent --- */

#define LINE  64U
#define AHEAD 512U /* bytes: what is read next is on its way by then */

/* Past the caches: nobody here will read it, and a line that is written whole need not be read before. */
static void stream(char *to, const char *from, uint64_t length)
{
	for (uint64_t at = 0; at < length; at += LINE) {
		const __m128i *f = (const __m128i *)(const void *)(from + at);
		__m128i *t = (__m128i *)(void *)(to + at);
		__m128i a = _mm_load_si128(f), b = _mm_load_si128(f + 1), c = _mm_load_si128(f + 2),
			d = _mm_load_si128(f + 3);

		_mm_prefetch(from + at + AHEAD, _MM_HINT_NTA);
		_mm_stream_si128(t, a);
		_mm_stream_si128(t + 1, b);
		_mm_stream_si128(t + 2, c);
		_mm_stream_si128(t + 3, d);
	}
	_mm_sfence();
}

/* what this thread is copying from, and where it goes on when there is an end */
static _Thread_local struct {
	const char *from;
	uint64_t length;
	sigjmp_buf end;
} lent;

static void on_end(int signal, siginfo_t *info, attr_unused void *context)
{
	const char *at = info->si_addr;

	if (lent.from != NULL && at >= lent.from && at < lent.from + lent.length)
		siglongjmp(lent.end, 1);
	/* somebody else's fault: it comes again, and ends us */
	(void)sigaction(signal, &(const struct sigaction){ .sa_handler = SIG_DFL }, NULL);
}

/* the run without a hole that this thread saw last: to look for the end of it takes as long as it is */
static _Thread_local struct {
	int fd;
	uint64_t begin, end;
} solid;

/* and the hole */
static _Thread_local struct {
	int fd;
	uint64_t begin, end;
} hollow;

static bool is_hole(int fd, uint64_t offset, uint64_t end)
{
	off_t data;

	if (fd == hollow.fd && offset >= hollow.begin && end <= hollow.end)
		return true;
	data = lseek(fd, (off_t)offset, SEEK_DATA);
	hollow.fd = fd;
	hollow.begin = offset;
	hollow.end = data >= 0 ? (uint64_t)data : errno == ENXIO ? UINT64_MAX : 0;
	return end <= hollow.end;
}

/* Nothing changes meanwhile: all who could change it stand still. */
static bool has_hole(int fd, uint64_t offset, uint64_t length)
{
	off_t hole;

	if (fd == solid.fd && offset >= solid.begin && offset + length <= solid.end)
		return false;
	hole = lseek(fd, (off_t)offset, SEEK_HOLE);
	solid.fd = fd;
	solid.begin = offset;
	solid.end = hole > 0 ? (uint64_t)hole : 0;
	return offset + length > solid.end;
}

static int read_lent(int fd, uint64_t offset, char *to, uint64_t length)
{
	while (length > 0) {
		ssize_t n = pread(fd, to, length, (off_t)offset);

		if (n <= 0)
			return -EFAULT;
		to += n;
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return 0;
}

/* The pages of @start..@end of what @fd is open on, as its file system knows them; this moves its place. */
static int find_pages(int fd, uint64_t start, uint64_t end, struct page_set *into)
{
	off_t from = 0, to = (off_t)start;

	while (to < (off_t)end && (from = lseek(fd, to, SEEK_DATA)) >= 0 && from < (off_t)end) {
		to = lseek(fd, from, SEEK_HOLE);
		if (to < 0)
			return -errno;
		page_set_add(into, (uint64_t)from, to < (off_t)end ? (uint64_t)to : end);
	}
	return from < 0 && errno != ENXIO ? -errno : 0;
}

static int stream_lent(const char *from, char *to, uint64_t length)
{
	if (sigsetjmp(lent.end, 1) != 0) {
		lent.from = NULL;
		return -EFAULT;
	}
	lent.length = length;
	lent.from = from;
	stream(to, from, length);
	lent.from = NULL;
	return 0;
}

/* Is what @fd is open on as long as that, but for less than a page? */
static bool reaches(int fd, uint64_t end)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size + IMAGE_PAGE > end;
}

int keep_lent(const char *from, int fd, uint64_t offset, char *to, uint64_t length,
	struct page_set *there)
{
	uint64_t end = offset + length;
	struct page_run run;
	int rc;

	page_set_remove(there, offset, end);
	if (!has_hole(fd, offset, length)) {
		page_set_add(there, offset, end);
		return stream_lent(from + offset, to, length);
	}
	/* a page that were made for a mapping of ours would be charged to us, and stay theirs */
	if (!reaches(fd, end))
		return -EFAULT;
	if (is_hole(fd, offset, end))
		return 0;
	rc = find_pages(fd, offset, end, there);
	for (uint64_t at = offset; rc == 0 && page_set_next(there, NULL, &at, end, &run);)
		rc = read_lent(fd, run.start, to + (run.start - offset), run.end - run.start);
	return rc;
}

/* Of what a process has open too: a description of our own, since to look for holes moves the place. Files of other file systems have theirs on disk. Return: -1: none. */
static int open_to_look(int fd)
{
	char path[40];
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

void shared_memory_lent(struct shared_memory *m, int fd)
{
	const struct sigaction action = { .sa_sigaction = on_end, .sa_flags = SA_SIGINFO };
	struct stat st;
	void *at;

	if (m->is_lent || fstat(fd, &st) < 0 || st.st_dev != m->device || st.st_ino != m->inode)
		return;
	m->lent_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	m->is_lent = m->lent_fd >= 0;
	solid.end = hollow.end = 0; /* the number may have been another's */
	if (!m->is_lent || m->guess == 0 || sigaction(SIGBUS, &action, NULL) < 0)
		return;
	/* not populated: what is missing would be made (see keep_lent()) */
	at = mmap(NULL, m->guess_length, PROT_READ, MAP_SHARED, m->lent_fd, 0);
	if (at == MAP_FAILED)
		return;
	m->lent = at;
	m->lent_length = m->guess_length;
}

static int copy(pid_t host, uint64_t from, char *to, uint64_t length)
{
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < length; at += PIECE) {
		rc = keep_copy(host, from + at, to + at, length - at < PIECE ? length - at : PIECE);
		alive();
	}
	return rc;
}

int keep_pages(struct keep *k, pid_t host, uint64_t start, uint64_t end)
{
	struct kept *more = realloc(k->list, (k->n + 1) * sizeof(*more));

	if (more == NULL)
		return -ENOMEM;
	k->list = more;
	more[k->n] = (struct kept){ .start = start, .end = end, .copy = room(end - start) };
	if (more[k->n].copy == NULL)
		return -ENOMEM;
	advise(more[k->n].copy, end - start, true);
	return copy(host, start, more[k->n++].copy, end - start);
}

bool keep_has(const struct keep *k, uint64_t start, uint64_t end)
{
	size_t low = 0, high = k->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (k->list[middle].end <= start)
			low = middle + 1;
		else
			high = middle;
	}
	return low < k->n && k->list[low].start < end;
}

void keep_fini(struct keep *k)
{
	for (size_t i = 0; i < k->n; i++)
		(void)munmap(k->list[i].copy, k->list[i].end - k->list[i].start);
	free(k->list);
	*k = (struct keep){ 0 };
}

struct shared_memory *shared_memories_find(
	const struct shared_memories *s, uint64_t device, uint64_t inode)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i].device == device && s->list[i].inode == inode)
			return &s->list[i];
	}
	return NULL;
}

static struct shared_memory *new_object(struct shared_memories *s, uint64_t device, uint64_t inode)
{
	struct shared_memory *more = realloc(s->list, (s->n + 1) * sizeof(*more));

	if (more == NULL)
		return NULL;
	s->list = more;
	more[s->n] = (struct shared_memory){ .device = device, .inode = inode };
	return &more[s->n++];
}

static int make_room(struct shared_memory *m, uint64_t size)
{
	char *bigger;

	if (page_set_room(&m->there, size) < 0)
		return -ENOMEM;
	if (size <= m->room)
		return 0;
	bigger = m->room == 0 ? room(size) : mremap(m->copy, m->room, size, MREMAP_MAYMOVE);
	if (bigger == NULL || bigger == MAP_FAILED)
		return -ENOMEM;
	m->copy = bigger;
	m->room = size;
	return 0;
}

/* Once, when it is known what there is. */
static void advise_memory(struct shared_memory *m, const struct page_set *there)
{
	if (!m->advised && m->room > 0)
		advise(m->copy, m->room, page_set_is_dense(there, m->room));
	m->advised = true;
}

static void take_late(struct shared_memories *s, struct shared_memory *m)
{
	uint64_t at = 0;
	struct page_run run;

	if (m->late.pages == 0 || !ahead_holds(&s->late, m->copy, m->guess_length))
		return;
	while (page_set_next(&m->late, NULL, &at, m->guess_length, &run))
		page_set_add(&m->there, run.start, run.end);
}

/* All of the instant that is there already: nothing, or what was guessed rightly. Of what was not lent nobody knows yet what else there is. */
static void take_guess(struct shared_memories *s, struct shared_memory *m)
{
	bool right;

	if (m->guess == 0)
		return;
	/* also one that was wrong is still being copied there */
	ahead_finish(&s->ahead);
	ahead_finish(&s->late);
	right = m->guess_right && ahead_holds(&s->ahead, m->copy, m->guess_length);
	if (right)
		take_late(s, m);
	if (right && m->lent != NULL)
		m->have = m->guess_length;
	else if (right)
		m->ahead = m->guess_length;
	m->guess = 0;
}

/* What is there of @start..@end, by pieces of a size. */
static int each_piece(struct shared_memory *m, uint64_t start, uint64_t end,
	int (*act)(struct shared_memory *m, uint64_t start, uint64_t length, int fd), int fd)
{
	struct page_run run;
	int rc = 0;

	while (rc == 0 && page_set_next(&m->there, NULL, &start, end, &run)) {
		for (uint64_t at = run.start; rc == 0 && at < run.end; at += PIECE) {
			rc = act(m, at, run.end - at < PIECE ? run.end - at : PIECE, fd);
			alive();
		}
	}
	return rc;
}

static int read_piece(struct shared_memory *m, uint64_t start, uint64_t length, int fd)
{
	return read_lent(fd, start, m->copy + start, length);
}

/* Bytes from @m->have up to @end, through what is lent. */
static int read_rest(struct shared_memory *m, uint64_t end)
{
	int rc;

	if (!reaches(m->lent_fd, end))
		return -EFAULT;
	page_set_remove(&m->there, m->have, end);
	rc = find_pages(m->lent_fd, m->have, end, &m->there);
	if (rc < 0)
		return rc;
	advise_memory(m, &m->there);
	return each_piece(m, m->have, end, read_piece, m->lent_fd);
}

/* Out of a process, that has the bytes from @m->have on at @address. */
static int copy_rest(struct shared_memories *s, struct shared_memory *m, pid_t host,
	uint64_t address, uint64_t end)
{
	struct page_set now = { 0 };
	uint64_t at = m->have;
	struct page_run run;
	int rc = page_set_room(&now, end);

	/* what is not of now need not be kept */
	page_set_remove(&m->there, m->ahead > m->have ? m->ahead : m->have, end);
	if (rc == 0 && (s->present == NULL || s->present(s->data, m->device, host, address, m->have,
						      end - m->have, &now) < 0))
		page_set_add(&now, m->have, end);
	advise_memory(m, &now);
	while (rc == 0 && page_set_next(&now, &m->there, &at, end, &run)) {
		page_set_add(&m->there, run.start, run.end);
		rc = copy(host, address + (run.start - m->have), m->copy + run.start,
			run.end - run.start);
	}
	for (at = m->have; rc == 0 && page_set_next(&m->there, &now, &at, end, &run);)
		page_set_remove(&m->there, run.start, run.end);
	page_set_fini(&now);
	return rc;
}

int shared_memories_add(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);
	uint64_t end = offset + length;
	int rc;

	if (m == NULL)
		m = new_object(s, device, inode);
	if (m == NULL)
		return -ENOMEM;
	if (s->ahead.gone)
		take_guess(s, m);
	if (end > m->size)
		m->size = end;
	if (offset > m->have || end <= m->have)
		return 0;
	rc = make_room(m, end);
	if (rc == 0)
		rc = m->is_lent ? read_rest(m, end) : -EFAULT;
	/* it has an end before where it is mapped, or nobody has lent it */
	if (rc == -EFAULT)
		rc = copy_rest(s, m, host, address + (m->have - offset), end);
	if (rc == 0)
		m->have = end;
	return rc;
}

int shared_memories_read(
	struct shared_memories *s, uint64_t device, uint64_t inode, int fd, uint64_t size)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);
	cleanup_fd int look = open_to_look(fd);
	int rc;

	if (m == NULL)
		m = new_object(s, device, inode);
	if (m == NULL)
		return -ENOMEM;
	rc = make_room(m, size);
	if (rc < 0)
		return rc;
	page_set_remove(&m->there, 0, m->room);
	if (look < 0 || find_pages(look, 0, size, &m->there) < 0)
		page_set_add(&m->there, 0, size);
	advise_memory(m, &m->there);
	rc = each_piece(m, 0, size, read_piece, fd);
	if (rc == 0)
		m->have = m->size = size;
	return rc;
}

/* --- before all stands still --- */

int shared_memories_see(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);

	if (m == NULL)
		m = new_object(s, device, inode);
	if (m == NULL)
		return -ENOMEM;
	if (m->seen == 0) {
		m->seen = host;
		m->seen_address = address;
		m->seen_offset = offset;
		m->seen_length = length;
	}
	if (offset + length > m->size)
		m->size = offset + length;
	return page_set_room(&m->there, m->size);
}

void shared_memories_guess(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);

	if (m == NULL || m->guess != 0 || offset != 0 || length < GUESS_LEAST || m->size < length)
		return;
	m->guess = host;
	m->guess_address = address;
	m->guess_length = length;
}

static int make_pages(struct shared_memory *m, uint64_t start, uint64_t length, attr_unused int fd)
{
	return madvise(m->copy + start, length, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
}

/* Then its owner has them in its page tables, too. */
static int copy_piece(struct shared_memory *m, uint64_t start, uint64_t length, attr_unused int fd)
{
	return keep_copy(
		m->seen, m->seen_address + (start - m->seen_offset), m->copy + start, length);
}

/* Not for the bytes, which change. */
static void warm(struct shared_memory *m)
{
	if (m->seen == 0 || make_room(m, m->size) < 0 ||
		(m->is_lent && find_pages(m->lent_fd, 0, m->size, &m->there) < 0))
		return;
	advise_memory(m, &m->there);
	if (m->is_lent)
		(void)!each_piece(m, 0, m->size, make_pages, -1);
	else
		(void)!each_piece(
			m, m->seen_offset, m->seen_offset + m->seen_length, copy_piece, -1);
}

void shared_memories_warm(struct shared_memories *s)
{
	for (size_t i = 0; i < s->n; i++)
		warm(&s->list[i]);
}

void shared_memories_stale(struct shared_memories *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct shared_memory *m = &s->list[i];

		m->have = m->size = 0;
		if (m->guess != 0 &&
			(make_room(m, m->guess_length) < 0 ||
				ahead_add(&s->ahead,
					&(struct ahead_block){ .host = m->guess,
						.lent = m->lent,
						.fd = m->lent_fd,
						.from = m->lent != NULL ? 0 : m->guess_address,
						.length = m->guess_length,
						.to = m->copy,
						.there = m->there }) < 0))
			m->guess = 0;
	}
	ahead_start(&s->ahead);
}

void shared_memories_go(struct shared_memories *s)
{
	ahead_go(&s->ahead);
}

/* Into @m->late, and to the thread. */
static int ask(struct shared_memories *s, struct shared_memory *m)
{
	struct page_set now = { 0 };
	uint64_t at = 0;
	struct page_run run;
	int rc = page_set_room(&now, m->guess_length);

	if (rc == 0)
		rc = page_set_room(&m->late, m->guess_length);
	if (rc == 0)
		rc = s->present(
			s->data, m->device, m->guess, m->guess_address, 0, m->guess_length, &now);
	if (rc < 0 && rc != -ENOMEM) { /* else it is not there any more */
		page_set_add(&now, 0, m->guess_length);
		rc = 0;
	}
	while (rc == 0 && page_set_next(&now, &m->there, &at, m->guess_length, &run))
		page_set_add(&m->late, run.start, run.end);
	page_set_fini(&now);
	at = 0;
	if (rc < 0 || !page_set_next(&m->late, NULL, &at, m->guess_length, &run))
		return rc;
	return ahead_add(&s->late, &(struct ahead_block){ .host = m->guess,
					   .from = m->guess_address,
					   .length = m->guess_length,
					   .to = m->copy,
					   .there = m->late });
}

void shared_memories_ask(struct shared_memories *s)
{
	for (size_t i = 0; s->present != NULL && i < s->n; i++) {
		struct shared_memory *m = &s->list[i];

		if (m->guess != 0 && !m->is_lent && ask(s, m) < 0)
			page_set_fini(&m->late);
	}
	ahead_start(&s->late);
	ahead_go(&s->late);
}

void shared_memories_confirm(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);

	if (m != NULL && m->guess == host && m->guess_address == address && offset == 0 &&
		length >= m->guess_length)
		m->guess_right = true;
}

void shared_memories_fini(struct shared_memories *s)
{
	ahead_fini(&s->ahead);
	ahead_fini(&s->late);
	for (size_t i = 0; i < s->n; i++) {
		struct shared_memory *m = &s->list[i];

		if (m->room > 0)
			(void)munmap(m->copy, m->room);
		page_set_fini(&m->there);
		page_set_fini(&m->late);
		if (m->lent != NULL)
			(void)munmap((void *)(uintptr_t)m->lent, m->lent_length);
		if (m->is_lent)
			(void)close(m->lent_fd);
	}
	free(s->list);
	*s = (struct shared_memories){ 0 };
}

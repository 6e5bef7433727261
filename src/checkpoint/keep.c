/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/keep.h"
#include "checkpoint/alive.h"
#include "sys/file.h"

#include <emmintrin.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define PIECE       (64ULL << 20) /* of which it is said that it is done */
#define GUESS_LEAST (4ULL << 20)  /* less is copied before a thread has begun */

static void *room(uint64_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	/* a page of two megabytes is filled as fast as hundreds of small ones are made */
	(void)madvise(at, length, MADV_HUGEPAGE);
	return at;
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

/* --- what is mapped here as well --- */

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

int keep_lent(const char *from, int fd, uint64_t offset, char *to, uint64_t length)
{
	/* a page that were made for a mapping of ours would be charged to us, and stay theirs */
	if (has_hole(fd, offset, length))
		return read_lent(fd, offset, to, length);
	if (sigsetjmp(lent.end, 1) != 0) {
		lent.from = NULL;
		return -EFAULT;
	}
	lent.length = length;
	lent.from = from + offset;
	stream(to, from + offset, length);
	lent.from = NULL;
	return 0;
}

void shared_memory_lent(struct shared_memory *m, int fd)
{
	const struct sigaction action = { .sa_sigaction = on_end, .sa_flags = SA_SIGINFO };
	struct stat st;
	void *at;

	if (m->guess == 0 || m->lent != NULL || fstat(fd, &st) < 0 || st.st_dev != m->device ||
		st.st_ino != m->inode || sigaction(SIGBUS, &action, NULL) < 0)
		return;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return;
	/* not populated: what is missing would be made (see keep_lent()) */
	at = mmap(NULL, m->guess_length, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		(void)close(fd);
		return;
	}
	m->lent = at;
	m->lent_length = m->guess_length;
	m->lent_fd = fd;
	solid.end = 0; /* the number may have been another's */
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

	if (size <= m->room)
		return 0;
	bigger = room(size);
	if (bigger == NULL)
		return -ENOMEM;
	if (m->room > 0) {
		memcpy(bigger, m->copy, m->have);
		(void)munmap(m->copy, m->room);
	}
	m->copy = bigger;
	m->room = size;
	return 0;
}

/* All of the instant that is there already: nothing, or what was guessed rightly. */
static void take_guess(struct shared_memories *s, struct shared_memory *m)
{
	if (m->guess == 0)
		return;
	/* also one that was wrong is still being copied there */
	ahead_finish(&s->ahead);
	if (m->guess_right && ahead_holds(&s->ahead, m->copy, m->guess_length))
		m->have = m->guess_length;
	m->guess = 0;
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
		rc = copy(host, address + (m->have - offset), m->copy + m->have, end - m->have);
	if (rc == 0)
		m->have = end;
	return rc;
}

void shared_memories_guess(struct shared_memories *s, uint64_t device, uint64_t inode, pid_t host,
	uint64_t address, uint64_t offset, uint64_t length)
{
	struct shared_memory *m = shared_memories_find(s, device, inode);

	if (m == NULL || m->guess != 0 || offset != 0 || length < GUESS_LEAST || m->have < length)
		return;
	m->guess = host;
	m->guess_address = address;
	m->guess_length = length;
}

void shared_memories_stale(struct shared_memories *s)
{
	for (size_t i = 0; i < s->n; i++) {
		struct shared_memory *m = &s->list[i];

		m->have = m->size = 0;
		if (m->guess != 0 &&
			ahead_add(&s->ahead, &(struct ahead_block){ .host = m->guess,
						     .lent = m->lent,
						     .fd = m->lent_fd,
						     .from = m->lent != NULL ? 0 : m->guess_address,
						     .length = m->guess_length,
						     .to = m->copy }) < 0)
			m->guess = 0;
	}
	ahead_start(&s->ahead);
}

void shared_memories_go(struct shared_memories *s)
{
	ahead_go(&s->ahead);
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
	for (size_t i = 0; i < s->n; i++) {
		if (s->list[i].room > 0)
			(void)munmap(s->list[i].copy, s->list[i].room);
		if (s->list[i].lent != NULL) {
			(void)munmap((void *)(uintptr_t)s->list[i].lent, s->list[i].lent_length);
			(void)close(s->list[i].lent_fd);
		}
	}
	free(s->list);
	*s = (struct shared_memories){ 0 };
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that relatives have in common until one of them writes to it: changed, forgotten, grown and closed since, each its own and in one piece. */
#include "object.h"

enum { MB = 1 << 20, SIZE = 8 * MB, PAGE = 4096, CHILDREN = 5 };

static unsigned char *memory, *heap; /* behind @memory there is room to grow */
static int changed_all[2], go[2];

static uint64_t *number_at(const unsigned char *base, size_t page)
{
	return (uint64_t *)(uintptr_t)(base + page * PAGE);
}

static void fill(unsigned char *base, size_t size)
{
	for (size_t i = 0; i < size / PAGE; i++)
		*number_at(base, i) = i + 1;
}

/* The first page from @from to @to, in pages, that has another number than it was given; @to. */
static size_t first_wrong(const unsigned char *base, size_t from, size_t to)
{
	while (from < to && *number_at(base, from) == from + 1)
		from++;
	return from;
}

/* The kernel moves only what is one mapping. */
static unsigned char *moved(unsigned char *from, size_t size)
{
	unsigned char *to = mremap(from, size, size + MB, MREMAP_MAYMOVE);

	MUST(to != MAP_FAILED);
	return to;
}

static void take(int fd, int n)
{
	char c;

	while (n > 0) {
		ssize_t got = read(fd, &c, 1);

		MUST(got == 1 || (got < 0 && errno == EINTR));
		n -= got == 1;
	}
}

static void wait_for_go(void)
{
	MUST(write(changed_all[1], "c", 1) == 1);
	take(go[0], 1);
}

static void unchanged(void)
{
	wait_for_go();
	MUST(first_wrong(memory, 0, SIZE / PAGE) == SIZE / PAGE);
	MUST(first_wrong(heap, 0, MB / PAGE) == MB / PAGE);
	*number_at(memory, 1) = 77;
	memory = moved(memory, SIZE);
	MUST(*number_at(memory, 1) == 77 && first_wrong(memory, 2, SIZE / PAGE) == SIZE / PAGE);
	MUST(*number_at(memory, SIZE / PAGE) == 0);
}

static void changed(void)
{
	*number_at(memory, 3) = 1003;
	for (size_t i = 500; i < 520; i++)
		*number_at(memory, i) = 1000 + i;
	MUST(madvise(memory + 700 * PAGE, 10 * PAGE, MADV_DONTNEED) == 0);
	*number_at(memory, 705) = 1705;
	wait_for_go();
	MUST(first_wrong(memory, 0, 3) == 3 && *number_at(memory, 3) == 1003);
	MUST(first_wrong(memory, 4, 500) == 500 && first_wrong(memory, 520, 700) == 700);
	for (size_t i = 500; i < 520; i++)
		MUST(*number_at(memory, i) == 1000 + i);
	for (size_t i = 700; i < 710; i++)
		MUST(*number_at(memory, i) == (i == 705 ? 1705 : 0));
	MUST(first_wrong(memory, 710, SIZE / PAGE) == SIZE / PAGE);
	MUST(moved(memory, SIZE) != NULL);
}

static void grown(void)
{
	MUST(mremap(memory, SIZE, SIZE + MB, 0) == memory);
	*number_at(memory, SIZE / PAGE + 5) = 5;
	MUST(sbrk(MB) == heap + MB);
	fill(heap + MB, MB);
	wait_for_go();
	MUST(first_wrong(memory, 0, SIZE / PAGE) == SIZE / PAGE);
	MUST(*number_at(memory, SIZE / PAGE + 4) == 0 && *number_at(memory, SIZE / PAGE + 5) == 5);
	MUST(first_wrong(heap, 0, MB / PAGE) == MB / PAGE);
	MUST(first_wrong(heap + MB, 0, MB / PAGE) == MB / PAGE);
	MUST(sbrk(MB) == heap + 2 * MB);
	MUST(*number_at(moved(memory, SIZE + MB), SIZE / PAGE + 5) == 5);
}

static void shut(void)
{
	MUST(mprotect(memory, SIZE / 2, PROT_READ) == 0);
	MUST(madvise(memory + SIZE / 2, SIZE / 2, MADV_DONTFORK) == 0);
	wait_for_go();
	MUST(first_wrong(memory, 0, SIZE / PAGE) == SIZE / PAGE);
	MUST(mprotect(memory, SIZE / 2, PROT_READ | PROT_WRITE) == 0);
	*number_at(memory, 0) = 9;
}

/* Of a third generation: what it has of the first, and of the second. */
static void parent(void)
{
	pid_t child;
	int status;

	*number_at(memory, 8) = 1008;
	child = fork();
	if (child == 0) {
		*number_at(memory, 9) = 1009;
		wait_for_go();
		MUST(*number_at(memory, 8) == 1008 && *number_at(memory, 9) == 1009);
		MUST(first_wrong(memory, 10, SIZE / PAGE) == SIZE / PAGE);
		_exit(0);
	}
	wait_for_go();
	MUST(*number_at(memory, 8) == 1008 && first_wrong(memory, 9, SIZE / PAGE) == SIZE / PAGE);
	MUST(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	static void (*const does[CHILDREN])(void) = { unchanged, changed, grown, shut, parent };
	pid_t children[CHILDREN];
	int status;

	memory = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	heap = sbrk(MB);
	MUST(memory != MAP_FAILED && heap != (void *)-1);
	MUST(munmap(memory + SIZE, SIZE) == 0 && pipe(go) == 0 && pipe(changed_all) == 0);
	fill(memory, SIZE);
	fill(heap, MB);
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			does[i]();
			_exit(0);
		}
	}
	*number_at(memory, 100) = 1100;
	take(changed_all[0], CHILDREN + 1);

	object_ready();

	*number_at(memory, 101) = 1101; /* nobody else's */
	MUST(write(go[1], "goes on", CHILDREN + 1) == CHILDREN + 1);
	for (int i = 0; i < CHILDREN; i++)
		MUST(waitpid(children[i], &status, 0) == children[i] && status == 0);
	MUST(first_wrong(memory, 0, 100) == 100 && *number_at(memory, 100) == 1100);
	MUST(first_wrong(memory, 102, SIZE / PAGE) == SIZE / PAGE);
	MUST(first_wrong(heap, 0, MB / PAGE) == MB / PAGE && moved(memory, SIZE) != NULL);
	return object_done();
}

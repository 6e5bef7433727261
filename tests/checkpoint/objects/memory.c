/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: private, shared, protected, of files, of the heap and the stack, copy on write between relatives, and what the clock page says. */
#include "object.h"

enum { MB = 1 << 20 };

#ifndef PR_SET_VMA
#define PR_SET_VMA           0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
#define TB (1UL << 40)

static unsigned char data[3 * 4096] = { 1, 2, 3 }; /* of the program's file, changed below */
static volatile sig_atomic_t faults;

static void on_fault(int sig)
{
	(void)sig;
	faults++;
	_exit(77);
}

static unsigned char *map(size_t n, int prot, int flags, int fd)
{
	unsigned char *p = mmap(NULL, n, prot, flags, fd, 0);

	MUST(p != MAP_FAILED);
	return p;
}

static unsigned char pattern(size_t i)
{
	return (unsigned char)(i * 31 + i / 4096);
}

/* Does a child die that touches @p? */
static bool closed(volatile unsigned char *p, bool write_it)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		(void)signal(SIGSEGV, on_fault);
		if (write_it)
			*p = 1;
		else
			(void)*p;
		_exit(0);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) && WEXITSTATUS(status) == 77;
}

/* Shared, two pages of which the second comes first; of this process alone. */
static unsigned char *map_turned(void)
{
	unsigned char *at = map(2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1),
		      *to = map(2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	at[0] = 'a';
	at[4096] = 'b';
	MUST(mremap(at + 4096, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	MUST(mremap(at, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to + 4096) == to + 4096);
	MUST(madvise(to, 2 * 4096, MADV_DONTFORK) == 0);
	return to;
}

int main(void)
{
	unsigned char *turned = map_turned();
	unsigned char *sparse =
		map(64 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	unsigned char *none = map(MB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	/* set aside, as databases and sanitizers do: nobody may look for pages in all of it */
	unsigned char *aside =
		map(8 * TB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	unsigned char *vast =
		map(TB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	unsigned char *locked_in = map(MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	unsigned char *shared = map(MB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	unsigned char *heap = malloc(100000), *file_shared, *file_private, *file_later;
	char stack[100000];
	int go[2], file = open("/tmp/mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct timespec before, after;
	void *brk_before = sbrk(0);
	pid_t child;
	int status;
	char c;

	/* where the kernel lets memory be named it calls it by that alone */
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, shared, MB, "shared");
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, sparse, 64 * MB, "sparse");
	for (size_t i = 0; i < 64 * MB; i += 8 * MB)
		memset(sparse + i, pattern(i), 5000);
	for (size_t i = 0; i < MB; i++)
		locked_in[i] = pattern(i);
	MUST(mprotect(locked_in, MB, PROT_READ) == 0);
	memset(stack, 0x5a, sizeof(stack));
	memset(heap, 0x77, 100000);
	data[5000] = 42;
	MUST(ftruncate(file, 3 * 4096) == 0);
	file_shared = map(3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	file_shared[100] = 9;
	file_private = map(3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
	file_private[4096] = 8;
	/* nothing but the way in which the file was opened says that it may be written to */
	file_later = map(3 * 4096, PROT_READ, MAP_SHARED, file);
	MUST(pipe(go) == 0);
	child = fork();
	if (child == 0) {
		/* relatives: private memory is its own, shared memory is not */
		sparse[1] = 200;
		shared[0] = 1;
		MUST(write(go[1], "a", 1) == 1);
		while (__atomic_load_n(&shared[1], __ATOMIC_SEQ_CST) == 0)
			(void)sched_yield();
		shared[2] = (unsigned char)(sparse[1] + 1);
		_exit(0);
	}
	MUST(read(go[0], &c, 1) == 1);
	(void)clock_gettime(CLOCK_MONOTONIC, &before);

	vast[TB / 2] = 'v';

	object_ready();

	MUST(vast[TB / 2] == 'v' && vast[TB - 1] == 0 && mprotect(aside + TB, MB, PROT_READ) == 0);
	MUST(aside[TB] == 0);

	(void)clock_gettime(CLOCK_MONOTONIC, &after);
	MUST(after.tv_sec > before.tv_sec ||
		(after.tv_sec == before.tv_sec && after.tv_nsec >= before.tv_nsec));
	for (size_t i = 0; i < 64 * MB; i += 8 * MB)
		MUST(sparse[i] == pattern(i) && sparse[i + 4999] == pattern(i) &&
			sparse[i + MB] == 0);
	for (size_t i = 0; i < MB; i++)
		MUST(locked_in[i] == pattern(i));
	MUST(closed(none, false) && closed(locked_in, true) && !closed(sparse, true));
	for (size_t i = 0; i < sizeof(stack); i++)
		MUST(stack[i] == 0x5a);
	MUST(heap[0] == 0x77 && heap[99999] == 0x77 && data[0] == 1 && data[5000] == 42);
	MUST(file_shared[100] == 9 && file_private[100] == 9 && file_private[4096] == 8 &&
		file_shared[4096] == 0);
	file_shared[200] = 3;
	MUST(pread(file, &c, 1, 200) == 1 && c == 3);
	MUST(mprotect(file_later, 3 * 4096, PROT_READ | PROT_WRITE) == 0);
	file_later[300] = 4;
	MUST(file_shared[300] == 4);
	MUST(madvise(sparse, MB, MADV_DONTNEED) == 0 && sparse[0] == 0);
	MUST(sbrk(0) == brk_before && sbrk(8192) == brk_before);
	MUST(shared[0] == 1 && sparse[1] == 0);
	__atomic_store_n(&shared[1], 1, __ATOMIC_SEQ_CST);
	MUST(waitpid(child, &status, 0) == child && status == 0 && shared[2] == 201);
	MUST(turned[0] == 'b' && turned[4096] == 'a');
	return object_done();
}

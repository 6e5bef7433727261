/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is resumed before it is there: blocks of known pages, and what a program may do with memory whose pages are missing. Each command of standard input is carried out and answered by
 * "ok", or by what is wrong. test_lazy.py sees to it that pages are missing meanwhile.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE    4096UL
#define PAGES   256UL /* of a block */
#define BLOCK   (PAGES * PAGE)
#define BLOCKS  48
#define HANDS   4
#define SIZE(n) ((n)*PAGE)

struct block {
	char *at;
	uint64_t seed; /* 0: all zeros */
	atomic_int
		busy; /* a thread changes it: a child that is forked meanwhile does not look at it */
};

static struct block blocks[BLOCKS]
	__attribute__((aligned(4096))); /* in one page: a child sees all of one instant */
static pthread_mutex_t robust;
static pthread_t holder, waiters[HANDS];
static atomic_int holder_ends, waiters_end, wrong, rounds;

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

/* Some pages of some blocks were never written: most of all is dense, so that huge pages are worth having. */
static uint64_t word_of(uint64_t seed, unsigned int page)
{
	return seed == 0 || (seed % 3 == 1 && page % 7 == 3)
		       ? 0
		       : (seed << 20 | page) * 0x9e3779b97f4a7c15ULL | 1;
}

static void fill(struct block *b, uint64_t seed)
{
	b->seed = seed;
	for (unsigned int p = 0; p < PAGES; p++) {
		uint64_t word = word_of(seed, p), *to = (uint64_t *)(void *)(b->at + SIZE(p));

		if (word == 0 && *to != 0)
			memset(to, 0, PAGE);
		for (unsigned int i = 0; word != 0 && i < PAGE / 8; i++)
			to[i] = word + i;
	}
}

/* Return: how many pages are not what they were. */
static int check(const struct block *b, unsigned int every)
{
	int n = 0;

	for (unsigned int p = 0; p < PAGES; p += every) {
		uint64_t word = word_of(b->seed, p);
		const uint64_t *at = (const uint64_t *)(const void *)(b->at + SIZE(p));

		for (unsigned int i = 0; i < PAGE / 8; i++) {
			if (at[i] != (word == 0 ? 0 : word + i)) {
				n++;
				break;
			}
		}
	}
	return n;
}

static int check_all(void)
{
	int n = 0;

	for (int i = BLOCKS; i-- > 0;)
		n += check(&blocks[i], 1);
	return n;
}

static char *map(size_t n)
{
	char *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		abort();
	return at;
}

/* @generations: children of children; the last looks first. */
static int check_in_child(const struct block *list, int n, int generations)
{
	int status = -1, bad = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (generations > 1)
			bad += check_in_child(list, n, generations - 1);
		for (int i = 0; i < n; i++)
			bad += check(&list[i], 1);
		_exit(bad > 100 ? 100 : bad);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 1000;
	return WEXITSTATUS(status);
}

/* One of another thread's, as it was when the child was forked. */
static int check_others_in_child(const struct block *b)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		int bad = atomic_load(&b->busy) != 0 ? 0 : check(b, 1);

		_exit(bad > 100 ? 100 : bad);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return 1000;
	return WEXITSTATUS(status);
}

/* A child that was forked while its pages were protected differently keeps the kernel from making one mapping of them again; many at once it does not move while faults are served. */
static bool in_pieces(const char *moved)
{
	return moved == MAP_FAILED && errno == EFAULT;
}

static void move(struct block *b)
{
	char *to = map(BLOCK), *was = b->at;

	b->at = mremap(was, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (in_pieces(b->at)) {
		b->at = was;
		munmap(to, BLOCK);
	} else if (b->at != to) {
		abort();
	}
}

/* Wherever the kernel wants: also where another one has just been. */
static void move_anywhere(struct block *b)
{
	char *more = mremap(b->at, BLOCK, BLOCK + BLOCK, MREMAP_MAYMOVE);

	if (in_pieces(more))
		return;
	if (more == MAP_FAILED)
		abort();
	b->at = more;
	for (size_t i = 0; i < BLOCK; i += PAGE) {
		if (more[BLOCK + i] != 0)
			atomic_fetch_add(&wrong, 1);
	}
	more = mremap(more, BLOCK + BLOCK, BLOCK, 0);
	if (more != b->at)
		abort();
}

static void drop(struct block *b)
{
	if (madvise(b->at, BLOCK, MADV_DONTNEED) < 0)
		abort();
	b->seed = 0;
}

static void map_anew(struct block *b)
{
	if (munmap(b->at, BLOCK) < 0)
		abort();
	b->at = map(BLOCK);
	b->seed = 0;
}

static void map_over(struct block *b)
{
	if (mmap(b->at, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0) != b->at)
		abort();
	b->seed = 0;
}

static void shrink_and_grow(struct block *b)
{
	if (mremap(b->at, BLOCK, BLOCK / 2, 0) != b->at)
		abort();
	b->at = mremap(b->at, BLOCK / 2, BLOCK, MREMAP_MAYMOVE);
	if (b->at == MAP_FAILED)
		abort();
	/* the second half is new */
	for (size_t i = BLOCK / 2; i < BLOCK; i += PAGE) {
		if (b->at[i] != 0)
			atomic_fetch_add(&wrong, 1);
	}
	drop(b);
}

/* So that neighbours are mappings of their own. */
static void protect(struct block *b, int prot)
{
	for (unsigned int p = 0; p < PAGES; p += 2) {
		if (mprotect(b->at + SIZE(p), PAGE, prot) < 0)
			abort();
	}
}

static int read_by_call(const struct block *b)
{
	char page[PAGE];
	struct iovec to = { page, PAGE }, from = { b->at + SIZE(PAGES - 1), PAGE };
	int ends[2], bad = 0;

	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)PAGE)
		bad += memcmp(page, from.iov_base, PAGE) != 0;
	if (pipe(ends) < 0 || write(ends[1], b->at, PAGE) != (ssize_t)PAGE ||
		read(ends[0], page, PAGE) != (ssize_t)PAGE)
		return bad + 1;
	close(ends[0]);
	close(ends[1]);
	return bad + (memcmp(page, b->at, PAGE) != 0) + check(b, 1);
}

/* --- threads --- */

/* Has a lock when it ends; its list is kept by the kernel. */
static void *hold(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&robust);
	atomic_store(&holder_ends, 1);
	while (atomic_load(&holder_ends) != 2)
		usleep(1000);
	return NULL;
}

static void *wait_for_end(void *unused)
{
	(void)unused;
	while (atomic_load(&waiters_end) == 0)
		usleep(1000);
	return NULL;
}

/* Each has blocks of its own, and does something else with one of them each time. */
static void *hand(void *number)
{
	int first = (int)(intptr_t)number * BLOCKS / HANDS;
	unsigned int draw = (unsigned int)first + 1;

	for (int round = 0; round < atomic_load(&rounds) && atomic_load(&wrong) == 0; round++) {
		struct block *b = &blocks[first + rand_r(&draw) % (BLOCKS / HANDS)];

		if (rand_r(&draw) % 6 == 0)
			atomic_fetch_add(
				&wrong, check_others_in_child(&blocks[rand_r(&draw) % BLOCKS]));
		atomic_store(&b->busy, 1);
		switch (rand_r(&draw) % 9) {
		case 0:
			atomic_fetch_add(&wrong, check(b, 1));
			break;
		case 1:
			move(b);
			break;
		case 2:
			drop(b);
			break;
		case 3:
			map_anew(b);
			break;
		case 4:
			atomic_fetch_add(&wrong, check_in_child(b, 1, 1));
			break;
		case 5:
			fill(b, (uint64_t)rand_r(&draw) | 1);
			break;
		case 6:
			protect(b, PROT_READ);
			atomic_fetch_add(&wrong, check(b, 17));
			protect(b, PROT_READ | PROT_WRITE);
			break;
		default:
			move_anywhere(b);
			break;
		}
		atomic_store(&b->busy, 0);
		atomic_fetch_add(&wrong, check(b, 31));
	}
	return NULL;
}

static int storm(int n)
{
	pthread_t hands[HANDS];

	atomic_store(&rounds, n);
	for (int i = 0; i < HANDS; i++)
		pthread_create(&hands[i], NULL, hand, (void *)(intptr_t)i);
	for (int i = 0; i < HANDS; i++)
		pthread_join(hands[i], NULL);
	return atomic_load(&wrong);
}

static int have_threads(void)
{
	pthread_mutexattr_t kind;
	int rc;

	pthread_mutexattr_init(&kind);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &kind);
	rc = pthread_create(&holder, NULL, hold, NULL);
	for (int i = 0; i < HANDS && rc == 0; i++)
		rc = pthread_create(&waiters[i], NULL, wait_for_end, NULL);
	while (rc == 0 && atomic_load(&holder_ends) != 1)
		usleep(1000);
	return rc;
}

static int ends_of_threads(void)
{
	int rc;

	atomic_store(&waiters_end, 1);
	for (int i = 0; i < HANDS; i++)
		pthread_join(waiters[i], NULL);
	atomic_store(&holder_ends, 2);
	pthread_join(holder, NULL);
	rc = pthread_mutex_lock(&robust);
	return rc == EOWNERDEAD ? 0 : 1;
}

/* Looks at a page now and then, and says so in a file when it is not what it was. */
static void watch(void)
{
	for (unsigned int n = 0;; n++) {
		const struct block *b = &blocks[BLOCKS - 1 - n * 5 % BLOCKS];

		if (check(b, 128) != 0)
			fclose(fopen("/tmp/wrong", "w"));
		usleep(3000);
	}
}

static int begin_watch(void)
{
	pid_t pid = fork();

	if (pid == 0)
		watch();
	return pid < 0;
}

/* --- who runs beside it --- */

static atomic_int *seen; /* shared with children */

static void *be_seen(void *unused)
{
	(void)unused;
	atomic_store(seen, 1);
	/* what is there is what was */
	atomic_fetch_add(&wrong, check_all());
	atomic_store(seen, 2);
	return NULL;
}

static int be_seen_beside(void *unused)
{
	(void)be_seen(unused);
	return 0;
}

/* Return: 0 when nothing of it has run within a tenth of a second, though @rc says that it has been made. */
static int is_held(int rc)
{
	usleep(100000);
	return rc != 0 ? 2 : atomic_load(seen) != 0;
}

static int make_thread(void)
{
	pthread_t thread;

	atomic_store(seen, 0);
	return is_held(pthread_create(&thread, NULL, be_seen, NULL));
}

static int make_relative(int flags)
{
	static char stacks[2][65536] __attribute__((aligned(16)));
	char *stack = stacks[(flags & CLONE_PTRACE) != 0];

	atomic_store(seen, 0);
	return is_held(clone(be_seen_beside, stack + sizeof(stacks[0]), flags | SIGCHLD, NULL) < 0);
}

static int has_been_seen(void)
{
	for (int i = 0; i < 10000 && atomic_load(seen) != 2; i++)
		usleep(1000);
	return (atomic_load(seen) != 2) + atomic_load(&wrong);
}

/* One that no tracer could hold. */
static int make_untraced(void)
{
	long rc = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, NULL, NULL, NULL, NULL);

	if (rc == 0)
		_exit(0);
	return rc < 0 && errno == EPERM ? 0 : 1;
}

static int spawn(void)
{
	char name[] = "true", *const argv[] = { name, NULL };
	int bad = 0, status = -1;
	pid_t pid;

	for (int i = 0; i < 5; i++) {
		bad += posix_spawnp(&pid, "true", NULL, NULL, argv, NULL) != 0 ||
		       waitpid(pid, &status, 0) != pid || status != 0;
	}
	/* the child has the memory, and gives some of it up */
	pid = vfork();
	if (pid == 0) {
		drop(&blocks[13]);
		_exit(check(&blocks[14], 16));
	}
	bad += waitpid(pid, &status, 0) != pid || status != 0;
	return bad + check(&blocks[13], 1);
}

static atomic_int alarms, hints;

static void on_signal(int sig)
{
	atomic_fetch_add(sig == SIGALRM ? &alarms : &hints, 1);
}

/* Whoever sends one, and whatever comes of it: a handler, a stop, an end. */
static int signals(void)
{
	const struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	struct sigaction act = { .sa_handler = on_signal };
	union sigval value = { .sival_int = 7 };
	siginfo_t info;
	sigset_t queued;
	int status = 0, bad = 0;
	pid_t pid;

	sigaction(SIGALRM, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 100; i++)
		raise(SIGUSR1);
	while (atomic_load(&alarms) < 20)
		(void)pause();
	setitimer(ITIMER_REAL, &never, NULL);
	bad += atomic_load(&hints) != 100;
	sigemptyset(&queued);
	sigaddset(&queued, SIGUSR2);
	sigprocmask(SIG_BLOCK, &queued, NULL);
	sigqueue(getpid(), SIGUSR2, value);
	bad += sigwaitinfo(&queued, &info) != SIGUSR2 || info.si_value.sival_int != 7;
	sigprocmask(SIG_UNBLOCK, &queued, NULL);
	pid = fork();
	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	kill(pid, SIGSTOP);
	bad += waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status);
	kill(pid, SIGCONT);
	bad += waitpid(pid, &status, WCONTINUED) != pid || !WIFCONTINUED(status);
	kill(pid, SIGTERM);
	bad += waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) ||
	       WTERMSIG(status) != SIGTERM;
	return bad;
}

/* The kernel brings what a locked mapping has grown by before it tells that it has moved: whoever brings it waits for what waits for him. */
static int grow_locked(void)
{
	const size_t some = SIZE(4); /* anybody may lock so much */
	char *at = blocks[12].at, *to = map(some + some);

	if (mlock(at, some) < 0)
		return 1;
	if (mremap(at, some, some + some, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
		return 2;
	for (size_t i = 0; i < some; i += PAGE) {
		if (to[some + i] != 0)
			return 3;
	}
	/* where it was it is again */
	if (mremap(to, some, some, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at)
		return 4;
	return check(&blocks[12], 1);
}

#define TOGETHER 64

/* So many at once, which live until all of them are there. */
static int some_children(void)
{
	pid_t pids[TOGETHER];
	int ends[2], bad = 0;
	char byte;

	if (pipe(ends) < 0)
		return 1;
	for (int i = 0; i < TOGETHER; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			close(ends[1]);
			_exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
		}
	}
	close(ends[0]);
	close(ends[1]);
	for (int i = 0; i < TOGETHER; i++) {
		int status = -1;

		bad += pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0;
	}
	return bad;
}

static int children(int n)
{
	int bad = 0;

	for (int i = 0; i < n && bad == 0; i += TOGETHER)
		bad = some_children();
	return bad;
}

/* Between the two that give memory back there is no room (live.loader.narrow): who touches something meanwhile waits, and who gives back must not. */
static int wait_for_room(void)
{
	int status = -1, bad;
	pid_t pid;

	if (madvise(blocks[31].at, PAGE, MADV_DONTNEED) < 0)
		return 1;
	atomic_store(seen, 0);
	pid = fork();
	if (pid == 0) {
		bad = check(&blocks[30], 128);
		atomic_store(seen, 1);
		_exit(bad);
	}
	usleep(500000);
	if (atomic_load(seen) != 0)
		return 2;
	drop(&blocks[31]);
	return waitpid(pid, &status, 0) != pid || status != 0;
}

#define RESERVED (4UL << 40)
static uint64_t *reserved;

/* Much of which next to nothing is there, and which no child has. */
static int reserve(void)
{
	reserved = mmap(NULL, RESERVED, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED || madvise(reserved, RESERVED, MADV_DONTFORK) < 0)
		return 1;
	for (uint64_t at = 0; at < RESERVED; at += RESERVED / 4)
		reserved[at / sizeof(*reserved)] = at + 1;
	return 0;
}

static int look_at_reserved(void)
{
	int bad = 0;

	for (uint64_t at = 0; at < RESERVED; at += RESERVED / 8)
		bad += reserved[at / sizeof(*reserved)] != (at % (RESERVED / 4) == 0 ? at + 1 : 0);
	return bad;
}

/* --- commands --- */

static int mappings(void)
{
	move(&blocks[0]);
	drop(&blocks[1]);
	map_anew(&blocks[2]);
	map_over(&blocks[3]);
	shrink_and_grow(&blocks[4]);
	/* (moved in between it would be many mappings at once, which the kernel refuses where faults are served) */
	protect(&blocks[5], PROT_NONE);
	protect(&blocks[5], PROT_READ | PROT_WRITE);
	move(&blocks[5]);
	move_anywhere(&blocks[6]);
	/* what is dropped after it was moved, and moved after it was written */
	move(&blocks[7]);
	drop(&blocks[7]);
	blocks[8].at[5 * PAGE] = 1;
	move(&blocks[8]);
	if (blocks[8].at[5 * PAGE] != 1)
		return 1;
	fill(&blocks[8], 77);
	/* halves of one that go different ways */
	if (munmap(blocks[9].at + BLOCK / 2, PAGE) < 0 ||
		mmap(blocks[9].at + BLOCK / 2, PAGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return 1;
	*(uint64_t *)(void *)(blocks[9].at + BLOCK / 2) = 0;
	for (unsigned int i = 0; i < PAGE / 8; i++) {
		uint64_t word = word_of(blocks[9].seed, PAGES / 2);
		uint64_t *at = (uint64_t *)(void *)(blocks[9].at + BLOCK / 2);

		if (at[i] != 0)
			return 1;
		at[i] = word == 0 ? 0 : word + i;
	}
	return atomic_load(&wrong) + read_by_call(&blocks[10]);
}

static int obey(const char *line)
{
	if (strcmp(line, "check\n") == 0)
		return check_all();
	if (strcmp(line, "some\n") == 0)
		return check(&blocks[20], 64);
	if (strcmp(line, "forks\n") == 0)
		return check_in_child(blocks + 11, 8, 3);
	if (strcmp(line, "watch\n") == 0)
		return begin_watch();
	if (strcmp(line, "mappings\n") == 0)
		return mappings();
	if (strcmp(line, "ends\n") == 0)
		return ends_of_threads();
	if (strcmp(line, "threads\n") == 0)
		return have_threads();
	if (strcmp(line, "thread\n") == 0)
		return make_thread();
	if (strcmp(line, "beside\n") == 0)
		return make_relative(CLONE_VM);
	if (strcmp(line, "below\n") == 0)
		return make_relative(CLONE_VM | CLONE_PTRACE);
	if (strcmp(line, "seen\n") == 0)
		return has_been_seen();
	if (strcmp(line, "untraced\n") == 0)
		return make_untraced();
	if (strcmp(line, "spawn\n") == 0)
		return spawn();
	if (strcmp(line, "signals\n") == 0)
		return signals();
	if (strcmp(line, "grow locked\n") == 0)
		return grow_locked();
	if (strcmp(line, "wait for room\n") == 0)
		return wait_for_room();
	if (strcmp(line, "reserve\n") == 0)
		return reserve();
	if (strcmp(line, "reserved\n") == 0)
		return look_at_reserved();
	if (strncmp(line, "children ", 9) == 0)
		return children(atoi(line + 9));
	if (strncmp(line, "storm ", 6) == 0)
		return storm(atoi(line + 6));
	return 1000;
}

int main(void)
{
	char line[64];

	for (int i = 0; i < BLOCKS; i++) {
		blocks[i].at = map(BLOCK);
		fill(&blocks[i], (uint64_t)i + 1);
	}
	seen = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED)
		abort();
	say("ready");
	while (fgets(line, sizeof(line), stdin) != NULL) {
		int bad = obey(line);

		if (bad == 0) {
			say("ok");
		} else {
			(void)printf("%d wrong\n", bad);
			fflush(stdout);
		}
	}
	return 0;
}

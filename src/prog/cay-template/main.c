/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/main.c - one process that holds the memory of a stopped process tree and is cloned for each fork of it (docs/design/0006).
 *
 * Freestanding: its clones become other programs, so it must not have state that it does not know of. Linked at WINDOW_START. Started by cay-spawn as
 * `cay-template ID MEBIBYTES` with CAY_RUN in the environment; it listens on CAY_RUN/keepers/ID.tpl and ends when descriptor 3 closes. Until it is asked for something
 * it makes a stock of so much memory (stock.h), and is called cay-spare if it was told to make one.
 *
 * Invariants
 *  (1) nothing of the image is read here, and nothing of the plan but numbers that fill.c has checked;
 *  (2) once it listens no mapping of its own lies outside the window but the vDSO, and none is of a file: the executable of a process may only be
 *      changed when the old one is not mapped.
 */
#include "prog/cay-template/fill.h"
#include "prog/cay-template/fork.h"
#include "prog/cay-template/stock.h"

#include <asm/poll.h>
#include <linux/prctl.h>

#define UNIX_PATH_MAX 108
#define AF_UNIX       1
#define SOL_SOCKET    1
#define SO_PASSCRED   16
#define SEQPACKET     5
#define BACKLOG       16
#define STACK_SIZE    (256U << 10)

struct sockaddr_unix {
	uint16_t family;
	char path[UNIX_PATH_MAX + 8]; /* also for a name that is a little longer: end() */
};

extern char __executable_start[], __etext[], _end[];

static char stack[BARE_PAGE + STACK_SIZE]
	__attribute__((aligned(4096))); /* nobody may touch the first page */
static struct sockaddr_unix address;
static size_t ending; /* where it begins in its path */

/* Runs in the copy, on the kernel's stack: nothing of the program itself may be touched until it is back. */
static __attribute__((noinline)) long put_back(
	uint64_t start, uint64_t length, uint64_t text, uint64_t copy)
{
	long rc = CALL2(__NR_munmap, start, length);
	uint64_t to = start, from = copy, n = length;

	if (rc == 0)
		rc = bare_map(start, length, 3, 2);
	if (rc < 0)
		return rc;
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return CALL3(__NR_mprotect, start, text, 5);
}

/* The program's pages become anonymous memory at the same addresses. */
static long leave_the_file(void)
{
	uint64_t start = (uint64_t)__executable_start,
		 length = ((uint64_t)_end - start + BARE_PAGE - 1) & ~(BARE_PAGE - 1),
		 text = ((uint64_t)__etext - start + BARE_PAGE - 1) & ~(BARE_PAGE - 1);
	long (*in_copy)(uint64_t, uint64_t, uint64_t, uint64_t) = (long (*)(
		uint64_t, uint64_t, uint64_t, uint64_t))((uint64_t)&put_back - start + WINDOW_COPY);
	long rc = bare_map(WINDOW_COPY, length, 3, 2);

	if (rc < 0)
		return rc;
	(void)memcpy((void *)WINDOW_COPY, (const void *)start, length);
	rc = CALL3(__NR_mprotect, WINDOW_COPY, text, 5);
	if (rc == 0)
		rc = in_copy(start, length, text, WINDOW_COPY);
	if (rc == 0)
		rc = CALL2(__NR_munmap, WINDOW_COPY, length);
	return rc;
}

static const char *environment(long *argv, const char *name, size_t n)
{
	long *p = argv;

	while (*p != 0)
		p++;
	for (p++; *p != 0; p++) {
		if (memcmp((const char *)*p, name, n) == 0)
			return (const char *)*p + n;
	}
	return NULL;
}

static size_t append(size_t at, const char *text)
{
	for (; *text != '\0' && at < sizeof(address.path) - 1; text++)
		address.path[at++] = *text;
	address.path[at] = '\0';
	return at;
}

/* CAY_RUN/keepers/ID.tpl; reachable for our own user alone. What is accepted from it says who sends (fill.c). */
static long listen_on(const char *run, const char *id)
{
	const int on = 1;
	size_t n;
	long fd, rc;

	ending = append(append(append(0, run), "/keepers/"), id);
	n = append(ending, ".tpl");
	if (n >= UNIX_PATH_MAX - 1)
		return -ENAMETOOLONG;
	address.family = AF_UNIX;
	(void)CALL1(__NR_umask, 0177);
	fd = CALL3(__NR_socket, AF_UNIX, SEQPACKET | BARE_CLOEXEC, 0);
	rc = fd < 0 ? fd : CALL3(__NR_bind, fd, &address, sizeof(address.family) + n + 1);
	if (rc == 0)
		rc = CALL5(__NR_setsockopt, fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	if (rc == 0)
		rc = CALL2(__NR_listen, fd, BACKLOG);
	if (rc == 0 && fd != TEMPLATE_LISTEN_FD)
		rc = CALL3(__NR_dup3, fd, TEMPLATE_LISTEN_FD, BARE_CLOEXEC);
	return rc < 0 ? rc : 0;
}

/* What the kernel put below the top of the address space, where programs have their own. */
static void drop_kernel_stack(uint64_t inside)
{
	uint64_t page = inside & ~(BARE_PAGE - 1);

	/* it grew down to here at most, and ends where the next page is not mapped */
	for (uint64_t at = page; CALL3(__NR_madvise, at, BARE_PAGE, 0) == 0; at += BARE_PAGE)
		(void)CALL2(__NR_munmap, at, BARE_PAGE);
	for (uint64_t at = page - BARE_PAGE; CALL3(__NR_madvise, at, BARE_PAGE, 0) == 0;
		at -= BARE_PAGE)
		(void)CALL2(__NR_munmap, at, BARE_PAGE);
}

/* --- vDSO --- */

static uint64_t hex(const char **at)
{
	uint64_t n = 0;

	for (;; ++*at) {
		char c = **at;

		if (c >= '0' && c <= '9')
			n = n << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			n = n << 4 | (uint64_t)(c - 'a' + 10);
		else
			return n;
	}
}

static long move_line(const char *line, const char *end, uint64_t *first)
{
	const char *name = end - 1;
	uint64_t from = hex(&line), to;

	line++;
	to = hex(&line);
	while (name > line && *name != ' ')
		name--;
	/* [vvar], [vvar_vclock], [vdso]; not [vsyscall], which nothing moves */
	if (memcmp(name, " [v", 3) != 0 || name[3] == 's')
		return 0;
	if (*first == 0)
		*first = from;
	return CALL5(__NR_mremap, from, to - from, to - from, 3, WINDOW_VDSO + (from - *first));
}

/* Into the window, at the same distances: the code finds its data by them. */
static long move_vdso(void)
{
	static char text[8192];
	long fd = CALL3(__NR_open, "/proc/self/maps", BARE_CLOEXEC, 0), n = 0, rc = 0;
	uint64_t first = 0;

	if (fd < 0)
		return fd;
	for (long more; n < (long)sizeof(text); n += more) {
		more = CALL3(__NR_read, fd, text + n, sizeof(text) - (size_t)n);
		if (more <= 0)
			break;
	}
	(void)CALL1(__NR_close, fd);
	for (long at = 0, end = 0; rc >= 0 && end < n; at = end + 1) {
		for (end = at; end < n && text[end] != '\n'; end++)
			;
		if (end < n)
			rc = move_line(text + at, text + end, &first);
	}
	return rc < 0 ? rc : 0;
}

/* Nobody may be left to clear up behind us: with us goes what keepers carry beside what we hold (memory_job.c, sandbox/keeper_live.c). */
static BARE_NORETURN void end(int status)
{
	(void)CALL1(__NR_unlink, address.path);
	(void)append(ending, ".state");
	(void)CALL1(__NR_unlink, address.path);
	bare_exit(status);
}

static void name_self(const char *name)
{
	(void)CALL5(__NR_prctl, PR_SET_NAME, name, 0, 0, 0);
}

static void serve_one(void)
{
	long peer = CALL4(__NR_accept4, TEMPLATE_LISTEN_FD, 0, 0, BARE_CLOEXEC);

	if (peer < 0)
		return;
	name_self("cay-template");
	fill_or_fork((int)peer);
	(void)CALL1(__NR_close, peer);
	if (plan != NULL)
		stock_drop();
}

static BARE_NORETURN __attribute__((noinline)) void serve(uint64_t kernel_stack)
{
	struct pollfd fds[2] = { { .fd = TEMPLATE_LINK_FD, .events = POLLIN },
		{ .fd = TEMPLATE_LISTEN_FD, .events = POLLIN } };

	static const char ready[8] = { 0, 0, 0, 0, 11 /* FRAME_OBJECT without a payload */ };
	bool growing = true;

	if (move_vdso() < 0)
		end(103);
	drop_kernel_stack(kernel_stack);
	(void)CALL3(__NR_write, TEMPLATE_LINK_FD, ready, sizeof(ready));
	for (;;) {
		growing = growing && stock_grow();
		if (CALL3(__NR_poll, fds, 2, growing ? 0 : -1) <= 0)
			continue;
		/* nothing is ever said on the link: whatever happens there is its end */
		if (fds[0].revents != 0)
			end(0);
		if (fds[1].revents != 0)
			serve_one();
	}
}

BARE_NORETURN void stack_begin(void (*run)(uint64_t argument), uint64_t argument)
{
	__asm__ volatile("mov %0, %%rsp\n\txor %%ebp, %%ebp\n\tmov %1, %%rdi\n\tcall *%2\n\t"
			 :
			 : "r"(stack + sizeof(stack)), "r"(argument), "r"(run)
			 : "rdi", "memory");
	__builtin_unreachable();
}

BARE_NORETURN void start(long *kernel_stack);

static uint64_t decimal(const char *text)
{
	uint64_t n = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		n = n * 10 + (uint64_t)(*text - '0');
	return n;
}

/* @kernel_stack: number of arguments, arguments, NULL, environment, NULL. */
BARE_NORETURN __attribute__((used)) void start(long *kernel_stack)
{
	const char *run = environment(kernel_stack + 1, "CAY_RUN=", sizeof("CAY_RUN=") - 1);
	uint64_t ignore[4] = { 1 /* SIG_IGN */ };
	uint64_t mebibytes = kernel_stack[0] == 3 ? decimal((const char *)kernel_stack[3]) : 0;

	name_self(mebibytes > 0 ? "cay-spare" : "cay-template");
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	bare_fault_arm(environment(kernel_stack + 1, "CAY_FAULT=", sizeof("CAY_FAULT=") - 1),
		environment(kernel_stack + 1, "CAY_FAULT_LOG=", sizeof("CAY_FAULT_LOG=") - 1));
	if (kernel_stack[0] != 3 || run == NULL ||
		listen_on(run, (const char *)kernel_stack[2]) < 0)
		bare_exit(101);
	/* children reap themselves: each says on its own socket how it fares */
	(void)CALL4(__NR_rt_sigaction, 17 /* SIGCHLD */, ignore, 0, 8);
	if (leave_the_file() < 0)
		bare_exit(102);
	if (CALL3(__NR_mprotect, stack, BARE_PAGE, 0) < 0)
		bare_exit(104);
	if (mebibytes > 0)
		stock_want(mebibytes);
	stack_begin(serve, (uint64_t)kernel_stack);
}

/* The kernel enters with an aligned stack and no return address. */
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tandq $-16, %rsp\n\tcall start\n");

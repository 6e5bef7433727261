/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGTRAP, by which a debugger hears of steps: blocked and waiting for the process and for a thread, by default in one process and with a handler in another, and restartable
 * sequences of every thread. Faults: one that waits, and processes that do nothing but run into others, and are stopped before the handler of one has begun.
 */
#include "object.h"

#include <poll.h>
#include <setjmp.h>
#include <sys/rseq.h>

static volatile sig_atomic_t values;
static int ready[2], go[2];
static bool handled;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	values += info->si_value.sival_int;
}

static void check_rseq(void)
{
	struct rseq *own = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	unsigned int size = __rseq_size < 32 ? 32 : __rseq_size;

	/* the kernel says EBUSY to who has registered just this, and keeps the number of the processor in it */
	MUST(syscall(SYS_rseq, own, size, 0, RSEQ_SIG) == -1 && errno == EBUSY);
	MUST((int)own->cpu_id >= 0);
}

static void wait_for_one(int value)
{
	struct timespec moment = { 0, 0 };
	siginfo_t got;
	sigset_t trap;

	(void)sigemptyset(&trap);
	(void)sigaddset(&trap, SIGTRAP);
	MUST(sigtimedwait(&trap, &got, &moment) == SIGTRAP && got.si_value.sival_int == value);
}

static void queue(int value)
{
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = SI_QUEUE };

	info.si_value.sival_int = value;
	MUST(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &info) == 0);
}

static void *work(void *unused)
{
	char c;

	queue(3);
	check_rseq();
	MUST(write(ready[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);
	check_rseq();
	if (!handled)
		wait_for_one(3);
	return unused;
}

/* What waits is there on both sides. */
static int live(void)
{
	sigset_t trap;
	pthread_t thread;
	siginfo_t got;
	struct timespec moment = { 0, 0 };
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO }, now;
	char c;

	(void)sigemptyset(&trap);
	(void)sigaddset(&trap, SIGTRAP);
	MUST(sigprocmask(SIG_BLOCK, &trap, NULL) == 0);
	if (handled)
		MUST(sigaction(SIGTRAP, &action, NULL) == 0);
	queue(1);
	MUST(sigqueue(getpid(), SIGTRAP, (union sigval){ .sival_int = 2 }) == 0);
	MUST(pthread_create(&thread, NULL, work, NULL) == 0);
	MUST(write(ready[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);
	check_rseq();
	MUST(sigaction(SIGTRAP, NULL, &now) == 0);
	MUST(handled ? now.sa_sigaction == on_trap : now.sa_handler == SIG_DFL);
	if (handled) {
		MUST(sigprocmask(SIG_UNBLOCK, &trap, NULL) == 0 && values == 3);
	} else {
		wait_for_one(1);
		wait_for_one(2);
		MUST(sigtimedwait(&trap, &got, &moment) < 0 && errno == EAGAIN);
	}
	MUST(pthread_join(thread, NULL) == 0);
	return 0;
}

static void *volatile unreadable = (void *)8;
static sigjmp_buf back;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	siglongjmp(back, info->si_addr == unreadable ? 1 : 2);
}

/* The signal of a fault, as if it had been stopped before it is told. */
static int waits_for_fault(void)
{
	siginfo_t info = { .si_signo = SIGSEGV, .si_code = SEGV_MAPERR, .si_addr = unreadable },
		  got;
	struct timespec moment = { 0, 0 };
	sigset_t fault;
	char c;

	(void)sigemptyset(&fault);
	(void)sigaddset(&fault, SIGSEGV);
	MUST(sigprocmask(SIG_BLOCK, &fault, NULL) == 0);
	MUST(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGSEGV, &info) == 0);
	MUST(write(ready[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);
	MUST(sigtimedwait(&fault, &got, &moment) == SIGSEGV);
	MUST(got.si_code == SEGV_MAPERR && got.si_addr == unreadable);
	return 0;
}

/* Until there is something to read. */
static int faults(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	struct pollfd told = { .fd = go[0], .events = POLLIN };
	char c;

	MUST(sigaction(SIGSEGV, &action, NULL) == 0);
	MUST(write(ready[1], "r", 1) == 1);
	for (volatile int n = 0; n % 4096 != 0 || poll(&told, 1, 0) == 0; n++) {
		int how = sigsetjmp(back, 1);

		if (how == 0)
			(void)*(volatile char *)unreadable;
		MUST(how == 1);
	}
	MUST(read(go[0], &c, 1) == 1);
	return 0;
}

int main(void)
{
	int status;
	char c;

	MUST(pipe(ready) == 0 && pipe(go) == 0);
	for (int i = 0; i < 2; i++) {
		handled = i == 1;
		if (fork() == 0)
			_exit(live());
	}
	if (fork() == 0)
		_exit(waits_for_fault());
	for (int i = 0; i < 2; i++) {
		if (fork() == 0)
			_exit(faults());
	}
	for (int i = 0; i < 7; i++)
		MUST(read(ready[0], &c, 1) == 1);

	object_ready();

	MUST(write(go[1], "1234567", 7) == 7);
	for (int i = 0; i < 5; i++)
		MUST(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return object_done();
}

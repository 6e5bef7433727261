/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX timers with numbers above a million, as a program has them that makes one for each thing it does; one of the first is still there, and one tells a thread. */
#include "object.h"

enum { MADE = 1100000 };

struct event {
	uint64_t value;
	int signal, notify, tid, pad[11];
};

static int create(int notify, int sig, int tid)
{
	struct event e = { .value = 42, .signal = sig, .notify = notify, .tid = tid };
	int id = -1;

	MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &id) == 0);
	return id;
}

/* It goes off, and tells its number. */
static void expect(int id, int sig)
{
	const struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
	const struct timespec limit = { 10, 0 };
	siginfo_t info;
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, sig);
	MUST(syscall(SYS_timer_settime, id, 0, &soon, NULL) == 0);
	MUST(sigtimedwait(&set, &info, &limit) == sig && info.si_timerid == id);
	MUST(info.si_value.sival_int == 42);
}

int main(void)
{
	int low = create(SIGEV_SIGNAL, SIGUSR1, 0), high, own, next;
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGUSR1);
	(void)sigaddset(&set, SIGUSR2);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	do {
		high = create(SIGEV_NONE, 0, 0);
		MUST(syscall(SYS_timer_delete, high) == 0);
	} while (high < MADE);
	high = create(SIGEV_SIGNAL, SIGUSR1, 0);
	own = create(SIGEV_THREAD_ID, SIGUSR2, (int)syscall(SYS_gettid));

	object_ready();

	expect(low, SIGUSR1);
	expect(high, SIGUSR1);
	expect(own, SIGUSR2);
	/* the kernel chooses again, and goes on upwards */
	next = create(SIGEV_NONE, 0, 0);
	MUST(next > own && create(SIGEV_NONE, 0, 0) == next + 1);
	return object_done();
}

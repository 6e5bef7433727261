/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX timers: numbers with gaps, what they send and to whom, remaining times and intervals, the clocks of a processor's time; more than there may be by now. */
#include "object.h"

#include <sys/resource.h>

/* of one timer: where the kernel takes no numbers it is reached by counting */
#define HIGH 5000

struct event {
	uint64_t value;
	int signal, notify, tid, pad[11];
};

static volatile sig_atomic_t ticks, told;
static volatile pid_t told_thread;
static int end[2], burn[2], own_timer;

static void on_tick(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	ticks += info->si_value.sival_int == 4711;
}

static void on_told(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	told_thread = (pid_t)syscall(SYS_gettid);
	told++;
}

static int create(int clock, int notify, int sig, int tid, uint64_t value)
{
	struct event e = { .value = value, .signal = sig, .notify = notify, .tid = tid };
	int id = -1;

	MUST(syscall(SYS_timer_create, clock, &e, &id) == 0);
	return id;
}

/* The next number is at least @at, as in a program that makes a timer for each thing it does. */
static void spend_numbers(int at)
{
	int id;

	do {
		id = create(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, 0);
		MUST(syscall(SYS_timer_delete, id) == 0);
	} while (id + 1 < at);
}

static void set(int id, long first_ms, long every_ms)
{
	struct itimerspec s = { { every_ms / 1000, every_ms % 1000 * 1000000 },
		{ first_ms / 1000, first_ms % 1000 * 1000000 } };

	MUST(syscall(SYS_timer_settime, id, 0, &s, NULL) == 0);
}

static struct itimerspec get(int id)
{
	struct itimerspec now;

	MUST(syscall(SYS_timer_gettime, id, &now) == 0);
	return now;
}

/* Use so much of the processor. */
static void work(long ms)
{
	struct timespec now;
	long until;

	MUST(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
	until = now.tv_sec * 1000 + now.tv_nsec / 1000000 + ms;
	while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < until)
		MUST(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
}

static void *thread(void *tid)
{
	pid_t own = (pid_t)syscall(SYS_gettid);
	char c = 0;

	own_timer = create(CLOCK_THREAD_CPUTIME_ID, SIGEV_THREAD_ID, SIGUSR2, own, 5);
	set(own_timer, 500000000, 0);
	*(volatile pid_t *)tid = own;
	for (;;) {
		ssize_t n = read(end[0], &c, 1);

		if (n == 1 && c == 'x')
			return NULL;
		if (n < 0)
			continue;
		work(100);
		MUST(write(burn[1], "d", 1) == 1);
	}
}

static long remains_ms(int id)
{
	struct itimerspec now = get(id);

	return now.it_value.tv_sec * 1000 + now.it_value.tv_nsec / 1000000;
}

/* The timer of the second thread goes on with that one's time, and with no other's. */
static void check_own_time(void)
{
	long before = remains_ms(own_timer);
	char c;

	MUST(before > 499000000);
	work(100);
	MUST(before - remains_ms(own_timer) < 50);
	MUST(write(end[1], "w", 1) == 1);
	while (read(burn[0], &c, 1) < 0)
		MUST(errno == EINTR);
	MUST(before - remains_ms(own_timer) >= 99);
}

int main(void)
{
	struct sigaction tick = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO },
			 tell = { .sa_sigaction = on_told, .sa_flags = SA_SIGINFO };
	static volatile pid_t tid;
	int often, hour, quiet, thread_timer, used, gone[3], spent;
	struct timespec moment = { 0, 1000000 };
	struct itimerspec now;
	struct rlimit many, limit;
	pthread_t t;

	MUST(pipe(end) == 0 && pipe(burn) == 0 && sigaction(SIGUSR1, &tick, NULL) == 0);
	MUST(sigaction(SIGRTMIN + 3, &tell, NULL) == 0);
	MUST(pthread_create(&t, NULL, thread, (void *)(uintptr_t)&tid) == 0);
	while (tid == 0)
		(void)sched_yield();
	for (int i = 0; i < 3; i++)
		gone[i] = create(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, 0);
	often = create(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR1, 0, 4711);
	MUST(syscall(SYS_timer_delete, gone[0]) == 0 && syscall(SYS_timer_delete, gone[2]) == 0);
	hour = create(CLOCK_REALTIME, SIGEV_SIGNAL, SIGUSR2, 0, 1);
	quiet = create(CLOCK_BOOTTIME, SIGEV_NONE, 0, 0, 2);
	thread_timer = create(CLOCK_MONOTONIC, SIGEV_THREAD_ID, SIGRTMIN + 3, tid, 3);
	used = create(CLOCK_PROCESS_CPUTIME_ID, SIGEV_NONE, 0, 0, 0);
	spend_numbers(HIGH);
	spent = create(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, 0);
	MUST(spent >= HIGH);
	set(often, 20, 20);
	set(hour, 3600000, 7200000);
	set(quiet, 1800000, 0);
	set(thread_timer, 30, 30);
	set(used, 500000, 0);
	set(spent, 1, 0);
	while (get(spent).it_value.tv_sec != 0 || get(spent).it_value.tv_nsec != 0)
		(void)nanosleep(&moment, NULL);
	MUST(getrlimit(RLIMIT_SIGPENDING, &many) == 0);
	limit = (struct rlimit){ .rlim_cur = 2, .rlim_max = many.rlim_max };
	MUST(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);

	object_ready();

	MUST(getrlimit(RLIMIT_SIGPENDING, &limit) == 0 && limit.rlim_cur == 2);
	MUST(setrlimit(RLIMIT_SIGPENDING, &many) == 0);
	ticks = told = 0;
	while (ticks < 3 || told < 3)
		(void)nanosleep(&moment, NULL);
	MUST(told_thread == tid);
	now = get(often);
	MUST(now.it_interval.tv_sec == 0 && now.it_interval.tv_nsec == 20000000);
	now = get(hour);
	MUST(now.it_interval.tv_sec == 7200 && now.it_value.tv_sec > 3000 &&
		now.it_value.tv_sec < 3600);
	now = get(quiet);
	MUST(now.it_interval.tv_sec == 0 && now.it_value.tv_sec > 1500 &&
		now.it_value.tv_sec < 1800);
	now = get(used);
	MUST(now.it_value.tv_sec > 400 && now.it_value.tv_sec < 500);
	now = get(spent);
	MUST(now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
	MUST(get(gone[1]).it_value.tv_sec == 0);
	errno = 0;
	MUST(syscall(SYS_timer_gettime, gone[2], &now) < 0 && errno == EINVAL);
	/* a new one takes none of these numbers */
	MUST(create(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, 0) > spent);
	check_own_time();
	set(thread_timer, 0, 0);
	MUST(write(end[1], "x", 1) == 1 && pthread_join(t, NULL) == 0);
	return object_done();
}

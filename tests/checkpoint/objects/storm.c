/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals, all the time: processes that send them to themselves and to each other, each the next one when the last has arrived, so that one that is lost shows as one that is
 * waited for, and one too many is counted. With an argument processes are stopped and told to go on, too.
 */
#include "object.h"

#define ROUNDS_MORE 20 /* behind the snapshot */
#define PATIENCE_S  40 /* of who waits for a signal, before it says that it was lost */

typedef void storm(volatile long *round);

struct shared {
	volatile long rounds[16];
	volatile int failed; /* line */
};

static struct shared *all;
static volatile sig_atomic_t got;
static volatile long *acknowledged; /* by another process */

#define HERE(condition) \
	do { \
		if (!(condition)) { \
			all->failed = __LINE__; \
			_exit(1); \
		} \
	} while (0)

static void on_signal(int sig)
{
	(void)sig;
	got++;
	if (acknowledged != NULL)
		(*acknowledged)++;
}

static void breathe(void)
{
	const struct timespec moment = { 0, 20000 };

	(void)nanosleep(&moment, NULL);
}

static void block(sigset_t *set, int sig)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, sig);
	HERE(sigprocmask(SIG_BLOCK, set, NULL) == 0);
}

/* To itself, with a handler: it has run when raise() comes back. */
static void raises(volatile long *round, int sig)
{
	HERE(signal(sig, on_signal) != SIG_ERR);
	for (long n = 1;; n++) {
		HERE(raise(sig) == 0);
		HERE(got == n);
		*round = n;
		breathe();
	}
}

static void raises_user(volatile long *round)
{
	raises(round, SIGUSR1);
}

static void raises_trap(volatile long *round)
{
	raises(round, SIGTRAP);
}

/* To itself, blocked, for the thread and for the process: each is there once. */
static void waits_for_traps(volatile long *round)
{
	const struct timespec moment = { 0, 0 };
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = SI_QUEUE }, now;
	sigset_t set;

	block(&set, SIGTRAP);
	for (long n = 1;; n++) {
		info.si_value.sival_int = (int)n;
		HERE(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &info) == 0);
		breathe();
		HERE(sigtimedwait(&set, &now, &moment) == SIGTRAP &&
			now.si_value.sival_int == (int)n);
		info.si_value.sival_int = -(int)n;
		HERE(syscall(SYS_rt_sigqueueinfo, getpid(), SIGTRAP, &info) == 0);
		breathe();
		HERE(sigtimedwait(&set, &now, &moment) == SIGTRAP &&
			now.si_value.sival_int == -(int)n);
		HERE(sigtimedwait(&set, &now, &moment) < 0 && errno == EAGAIN);
		*round = n;
	}
}

static pid_t child(void (*live)(void))
{
	pid_t pid = fork();

	HERE(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		live();
		_exit(0);
	}
	return pid;
}

static void sleeps(void)
{
	for (;;)
		(void)pause();
}

static void await(volatile long *what, long n)
{
	for (long i = 0; *what < n; i++) {
		HERE(i < PATIENCE_S * 10000L);
		breathe();
	}
	HERE(*what == n);
}

/* To another process, which sleeps. */
static void sends(volatile long *round)
{
	static volatile long *heard;
	pid_t other;

	heard = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	acknowledged = heard;
	HERE(signal(SIGUSR1, on_signal) != SIG_ERR);
	other = child(sleeps);
	for (long n = 1;; n++) {
		HERE(kill(other, SIGUSR1) == 0);
		await(heard, n);
		*round = n;
	}
}

/* To another process, queued with numbers: they come in order. */
static void receives(void)
{
	sigset_t set;
	siginfo_t info;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGRTMIN);
	for (long n = 1;; n++) {
		while (sigwaitinfo(&set, &info) < 0)
			HERE(errno == EINTR);
		HERE(info.si_value.sival_int == (int)n);
		(*acknowledged)++;
	}
}

static void queues(volatile long *round)
{
	pid_t other;
	sigset_t set;

	acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	block(&set, SIGRTMIN);
	other = child(receives);
	for (long n = 1;; n++) {
		for (long i = 1; i <= 5; i++)
			HERE(sigqueue(other, SIGRTMIN,
				     (union sigval){ .sival_int = (int)(n * 5 - 5 + i) }) == 0);
		await(acknowledged, n * 5);
		*round = n;
	}
}

/* A timer of a kilohertz, whose signals come in the midst of everything. */
static void ticks(volatile long *round)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 };
	const struct itimerspec every = { { 0, 1000000 }, { 0, 1000000 } };
	timer_t timer;

	HERE(signal(SIGRTMIN + 1, on_signal) != SIG_ERR);
	HERE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	HERE(timer_settime(timer, 0, &every, NULL) == 0);
	for (long n = 1;; n++) {
		sig_atomic_t before = got;

		for (long i = 0; got == before; i++) {
			HERE(i < PATIENCE_S * 10000L);
			breathe();
		}
		*round = n;
	}
}

/* Another process is stopped, and goes on. */
static void stops(volatile long *round)
{
	pid_t other = child(sleeps);
	int status;

	for (long n = 1;; n++) {
		HERE(kill(other, SIGSTOP) == 0);
		HERE(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
		breathe();
		HERE(kill(other, SIGCONT) == 0);
		HERE(waitpid(other, &status, WCONTINUED) == other && WIFCONTINUED(status));
		*round = n;
	}
}

/* It stops itself. */
static void stops_itself(void)
{
	for (;;) {
		(void)raise(SIGSTOP);
		(*acknowledged)++;
	}
}

static void sees_stops(volatile long *round)
{
	pid_t other;
	int status;

	acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	other = child(stops_itself);
	for (long n = 1;; n++) {
		HERE(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
		HERE(kill(other, SIGCONT) == 0);
		await(acknowledged, n);
		*round = n;
	}
}

static storm *const storms[] = { raises_user, raises_trap, waits_for_traps, sends, queues, ticks,
	stops, sees_stops };

#define STOPS 6 /* the first of them */

int main(int argc, char **argv)
{
	int n = argc > 1 ? (int)(sizeof(storms) / sizeof(*storms)) : STOPS;
	long before[16];
	char line[16];

	(void)argv;
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(all != MAP_FAILED);
	for (int i = 0; i < n; i++) {
		if (fork() == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			storms[i](&all->rounds[i]);
		}
	}
	for (int i = 0; i < n; i++) {
		while (all->rounds[i] < ROUNDS_MORE && all->failed == 0)
			breathe();
	}

	printf("ready\n");
	(void)fflush(stdout);
	/* each line but the last is answered when all have gone on */
	do {
		while (read(0, line, sizeof(line)) < 0 && errno == EINTR)
			;
		for (int i = 0; i < n; i++)
			before[i] = all->rounds[i];
		for (int i = 0; i < n; i++) {
			for (long j = 0; all->rounds[i] < before[i] + ROUNDS_MORE; j++) {
				if (all->failed != 0 || j > PATIENCE_S * 10000L)
					object_fail("storm %d after %ld rounds, line %d", i,
						all->rounds[i], all->failed);
				breathe();
			}
		}
		if (line[0] == 'm')
			printf("more\n");
		(void)fflush(stdout);
	} while (line[0] == 'm');
	return object_done();
}

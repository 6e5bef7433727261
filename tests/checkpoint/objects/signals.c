/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: what they do, what is blocked, what waits with its value (more than there may be by now), interval timers. */
#include "object.h"

#include <sys/resource.h>
#include <sys/time.h>

#define FEWER 3

static volatile sig_atomic_t alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void on_info(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
}

/* What waits stays when there may be no more than a few. */
static void allow_fewer(void)
{
	struct rlimit limit;

	MUST(getrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	limit.rlim_cur = FEWER;
	MUST(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
}

static void check_fewer(void)
{
	struct rlimit limit;

	MUST(getrlimit(RLIMIT_SIGPENDING, &limit) == 0 && limit.rlim_cur == FEWER);
}

int main(void)
{
	struct sigaction info = { .sa_sigaction = on_info, .sa_flags = SA_SIGINFO | SA_RESTART },
			 now;
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } }, timer;
	struct itimerval used = { { 70, 0 }, { 50000, 0 } }; /* of the processor's time */
	struct timespec moment = { 0, 0 };
	sigset_t blocked, queued;
	siginfo_t got;
	int sum = 0;

	(void)sigaddset(&info.sa_mask, SIGUSR2);
	MUST(sigaction(SIGUSR1, &info, NULL) == 0);
	(void)signal(SIGHUP, SIG_IGN);
	MUST(sigaction(SIGTRAP, &info, NULL) == 0); /* by which debuggers hear of steps */
	(void)sigemptyset(&blocked);
	(void)sigaddset(&blocked, SIGRTMIN);
	(void)sigaddset(&blocked, SIGRTMIN + 1);
	(void)sigaddset(&blocked, SIGTERM);
	MUST(sigprocmask(SIG_SETMASK, &blocked, NULL) == 0);
	for (int i = 1; i <= 20; i++)
		MUST(sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = i }) == 0);
	for (int i = 1; i <= 5; i++)
		MUST(pthread_sigqueue(
			     pthread_self(), SIGRTMIN + 1, (union sigval){ .sival_int = i }) == 0);
	MUST(kill(getpid(), SIGTERM) == 0);
	MUST(pthread_kill(pthread_self(), SIGTERM) == 0);
	(void)signal(SIGALRM, on_alarm);
	MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
	MUST(setitimer(ITIMER_PROF, &used, NULL) == 0);
	used.it_interval.tv_sec++;
	MUST(setitimer(ITIMER_VIRTUAL, &used, NULL) == 0);

	allow_fewer();

	object_ready();

	check_fewer();
	alarms = 0;
	while (alarms < 3)
		(void)usleep(1000);
	MUST(getitimer(ITIMER_REAL, &timer) == 0 && timer.it_interval.tv_usec == 20000);
	for (int i = 0; i < 2; i++) {
		MUST(getitimer(i == 0 ? ITIMER_PROF : ITIMER_VIRTUAL, &timer) == 0);
		MUST(timer.it_interval.tv_sec == 70 + i && timer.it_value.tv_sec > 40000 &&
			timer.it_value.tv_sec <= 50000);
	}
	MUST(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_sigaction == on_info);
	MUST((now.sa_flags & (SA_SIGINFO | SA_RESTART)) == (SA_SIGINFO | SA_RESTART) &&
		sigismember(&now.sa_mask, SIGUSR2) == 1);
	MUST(sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
	MUST(sigaction(SIGTRAP, NULL, &now) == 0 && now.sa_sigaction == on_info);
	MUST(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
	MUST(sigpending(&queued) == 0 && sigismember(&queued, SIGTERM) == 1 &&
		sigismember(&queued, SIGCHLD) == 0);
	(void)sigemptyset(&queued);
	(void)sigaddset(&queued, SIGRTMIN);
	for (int i = 1; i <= 20; i++) {
		MUST(sigtimedwait(&queued, &got, &moment) == SIGRTMIN);
		MUST(got.si_value.sival_int == i && got.si_pid == getpid());
		sum += got.si_value.sival_int;
	}
	MUST(sum == 210 && sigtimedwait(&queued, &got, &moment) < 0 && errno == EAGAIN);
	(void)sigemptyset(&queued);
	(void)sigaddset(&queued, SIGRTMIN + 1);
	for (int i = 1; i <= 5; i++)
		MUST(sigtimedwait(&queued, &got, &moment) == SIGRTMIN + 1 &&
			got.si_value.sival_int == i);
	(void)sigemptyset(&queued);
	(void)sigaddset(&queued, SIGTERM);
	/* one for the thread, one for the process */
	MUST(sigtimedwait(&queued, &got, &moment) == SIGTERM);
	MUST(sigtimedwait(&queued, &got, &moment) == SIGTERM);
	MUST(sigtimedwait(&queued, &got, &moment) < 0);
	return object_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System call filters of a program's own: one for all threads, one more in each, inherited ones, one of a thread alone, and one below another that can be installed only
 * by prctl(2). Each answers a call that nobody else makes with an error that tells it.
 */
#include "filtered.h"

enum { THREADS = 4, FIRST = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int started;
static bool checking;

static long install(struct sock_filter *code, size_t n, unsigned int flags)
{
	struct sock_fprog program = { .len = (unsigned short)n, .filter = code };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* Call @nr fails with @error. */
static long refuse(long nr, int error, unsigned int flags)
{
	struct sock_filter code[] = { LOAD(nr), IS((unsigned int)nr),
		RETURN(SECCOMP_RET_ERRNO | (unsigned int)error), RETURN(SECCOMP_RET_ALLOW) };

	return install(code, sizeof(code) / sizeof(code[0]), flags);
}

static int says(long nr)
{
	errno = 0;
	return syscall(nr, -1, -1, -1) < 0 ? errno : 0;
}

static void wait_for_check(void)
{
	MUST(pthread_mutex_lock(&lock) == 0);
	started++;
	MUST(pthread_cond_broadcast(&changed) == 0);
	while (!checking)
		MUST(pthread_cond_wait(&changed, &lock) == 0);
	MUST(pthread_mutex_unlock(&lock) == 0);
}

static void wait_for_threads(int n)
{
	MUST(pthread_mutex_lock(&lock) == 0);
	while (started < n)
		MUST(pthread_cond_wait(&changed, &lock) == 0);
	MUST(pthread_mutex_unlock(&lock) == 0);
}

static void let_check(void)
{
	MUST(pthread_mutex_lock(&lock) == 0);
	checking = true;
	MUST(pthread_cond_broadcast(&changed) == 0);
	MUST(pthread_mutex_unlock(&lock) == 0);
}

/* All but the last add one of their own. */
static void *work(void *arg)
{
	int i = (int)(intptr_t)arg, filters;

	if (i < THREADS - 1)
		MUST(refuse(SYS_sched_rr_get_interval, FIRST + i, 0) == 0);
	filters = filters_of(gettid());
	wait_for_check();
	MUST(filters_of(gettid()) == filters);
	MUST(says(SYS_getpriority) == EDOM);
	MUST(says(SYS_sched_rr_get_interval) == (i < THREADS - 1 ? FIRST + i : EINVAL));
	return NULL;
}

/* Its threads have the same filters, so that a later one can be for all. */
static void *follow(void *arg)
{
	wait_for_check();
	while (says(SYS_sched_get_priority_max) != ENOTTY)
		(void)sched_yield();
	return arg;
}

static int together(int commands)
{
	pthread_t threads[2];
	char c;

	MUST(refuse(SYS_sched_rr_get_interval, EXDEV, 0) == 0);
	for (int i = 0; i < 2; i++)
		MUST(pthread_create(&threads[i], NULL, follow, NULL) == 0);
	wait_for_threads(2);
	MUST(refuse(SYS_times, EBADMSG, SECCOMP_FILTER_FLAG_TSYNC) == 0);
	MUST(read(commands, &c, 1) == 1);
	MUST(says(SYS_getpriority) == EDOM && says(SYS_sched_rr_get_interval) == EXDEV &&
		says(SYS_times) == EBADMSG);
	MUST(refuse(SYS_sched_get_priority_max, ENOTTY, SECCOMP_FILTER_FLAG_TSYNC) == 0);
	let_check();
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	return 0;
}

static void *alone(void *arg)
{
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(refuse(SYS_getpriority, EL2HLT, SECCOMP_FILTER_FLAG_LOG) == 0);
	wait_for_check();
	MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && says(SYS_getpriority) == EL2HLT);
	return arg;
}

/* Nobody but one thread has given up anything. */
static int one_of_two(int commands)
{
	pthread_t thread;
	int filters = filters_of(gettid());
	char c;

	MUST(pthread_create(&thread, NULL, alone, NULL) == 0);
	wait_for_threads(1);
	MUST(read(commands, &c, 1) == 1);
	MUST(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && filters_of(gettid()) == filters);
	MUST(says(SYS_getpriority) == EINVAL);
	let_check();
	MUST(pthread_join(thread, NULL) == 0);
	return 0;
}

/* The second can be installed only by prctl(2), because the first refuses seccomp(2). */
static int by_prctl(int commands)
{
	struct sock_filter code[] = { LOAD(nr), IS(SYS_sched_rr_get_interval),
		RETURN(SECCOMP_RET_ERRNO | EBADSLT), RETURN(SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { .len = 4, .filter = code };
	char c;

	MUST(refuse(SYS_seccomp, EDEADLK, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	MUST(read(commands, &c, 1) == 1);
	MUST(says(SYS_getpriority) == EDOM && says(SYS_sched_rr_get_interval) == EBADSLT &&
		says(SYS_seccomp) == EDEADLK);
	return 0;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct child free_one, group, second;
	int filters;

	/* below a filter, which is the sandbox's, there is no way into the strict mode: nothing of it is to be carried over */
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) < 0 && errno == EINVAL);
	free_one = child(one_of_two);
	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(refuse(SYS_getpriority, EDOM, SECCOMP_FILTER_FLAG_LOG) == 0);
	group = child(together);
	second = child(by_prctl);
	for (intptr_t i = 0; i < THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	wait_for_threads(THREADS);
	filters = filters_of(gettid());

	object_ready();

	MUST(filters_of(gettid()) == filters && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	MUST(says(SYS_getpriority) == EDOM && says(SYS_sched_rr_get_interval) == EINVAL);
	let_check();
	for (int i = 0; i < THREADS; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	MUST(ends_as(&free_one, "c") == 0);
	MUST(ends_as(&group, "c") == 0);
	MUST(ends_as(&second, "c") == 0);
	return object_done();
}

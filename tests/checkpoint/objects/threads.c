/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: ids, thread-local memory, names, masks, alternate stacks, held and contended locks, waiting in a call. */
#include "object.h"

#include <sys/resource.h>

enum { THREADS = 12 };

static __thread int own;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool checking;
static int started, waiting_for_held;

static void *work(void *arg)
{
	int i = (int)(intptr_t)arg;
	pid_t tid = gettid();
	char name[16], now[16];
	sigset_t mask, got;
	stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536 }, stack_now;

	own = i * 7;
	(void)snprintf(name, sizeof(name), "worker-%d", i);
	MUST(pthread_setname_np(pthread_self(), name) == 0);
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGRTMIN + i);
	MUST(pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0);
	MUST(sigaltstack(&stack, NULL) == 0);

	(void)pthread_mutex_lock(&lock);
	started++;
	(void)pthread_cond_broadcast(&changed);
	if (i % 3 == 0) { /* a third waits for the lock that main holds */
		waiting_for_held++;
		(void)pthread_mutex_unlock(&lock);
		(void)pthread_mutex_lock(&held);
		(void)pthread_mutex_unlock(&held);
		(void)pthread_mutex_lock(&lock);
	}
	while (!checking)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);

	MUST(gettid() == tid && own == i * 7);
	MUST(pthread_getname_np(pthread_self(), now, sizeof(now)) == 0 && strcmp(name, now) == 0);
	MUST(pthread_sigmask(SIG_BLOCK, NULL, &got) == 0 && sigismember(&got, SIGRTMIN + i) == 1);
	MUST(sigismember(&got, SIGRTMIN + (i + 1) % THREADS) == 0);
	MUST(sigaltstack(NULL, &stack_now) == 0 && stack_now.ss_sp == stack.ss_sp &&
		stack_now.ss_size == 65536);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct {
		void *head;
		size_t length;
	} robust, robust_now;
	struct rlimit none = { 0, 0 };
	char name[] = "a) R 1 (b\n\\ cd)", now[16];

	MUST(pthread_setname_np(pthread_self(), name) == 0);
	(void)pthread_mutex_lock(&held);
	for (intptr_t i = 0; i < THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	(void)pthread_mutex_lock(&lock);
	while (started < THREADS)
		(void)pthread_cond_wait(&changed, &lock);
	(void)pthread_mutex_unlock(&lock);
	MUST(syscall(SYS_get_robust_list, 0, &robust.head, &robust.length) == 0);
	/* a server that wants no more (haproxy) */
	MUST(setrlimit(RLIMIT_NPROC, &none) == 0);

	object_ready();

	MUST(pthread_getname_np(pthread_self(), now, sizeof(now)) == 0 && strcmp(name, now) == 0);
	MUST(getrlimit(RLIMIT_NPROC, &none) == 0 && none.rlim_cur == 0 && none.rlim_max == 0);

	MUST(syscall(SYS_get_robust_list, 0, &robust_now.head, &robust_now.length) == 0);
	MUST(robust.head == robust_now.head && robust.length == robust_now.length);
	(void)pthread_mutex_unlock(&held);
	(void)pthread_mutex_lock(&lock);
	checking = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
	for (int i = 0; i < THREADS; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	return object_done();
}

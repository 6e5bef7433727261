/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel keeps of a process and its threads beside who it is: scheduling of each thread, the processors that it may run on, its input and output, how exactly it is
 * woken; what it is to the killer of processes; barriers; memory that is never written and executed.
 */
#include "object.h"

#include <linux/membarrier.h>
#include <sys/resource.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#ifndef PR_THP_DISABLE_EXCEPT_ADVISED
#define PR_THP_DISABLE_EXCEPT_ADVISED 2
#endif
#define REGISTRATIONS (1 << 9) /* MEMBARRIER_CMD_GET_REGISTRATIONS */
#define IO_IDLE       (3 << 13)
#define IO_BEST       (2 << 13)

struct has {
	int policy, nice, io;
	long slack;
	cpu_set_t processors;
};

static pthread_barrier_t built, go;

static struct has look(void)
{
	struct has h = { .policy = sched_getscheduler(0),
		.nice = getpriority(PRIO_PROCESS, (id_t)gettid()),
		.io = (int)syscall(SYS_ioprio_get, 1, 0),
		.slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0) };

	MUST(sched_getaffinity(0, sizeof(h.processors), &h.processors) == 0);
	return h;
}

static bool same(const struct has *a, const struct has *b)
{
	return a->policy == b->policy && a->nice == b->nice && a->io == b->io &&
	       a->slack == b->slack && CPU_EQUAL(&a->processors, &b->processors);
}

static void expect(const struct has *before)
{
	struct has now = look();

	if (!same(before, &now))
		object_fail("policy %d nice %d io %x slack %ld on %d, not %d %d %x %ld on %d",
			now.policy, now.nice, (unsigned int)now.io, now.slack,
			CPU_COUNT(&now.processors), before->policy, before->nice,
			(unsigned int)before->io, before->slack, CPU_COUNT(&before->processors));
}

static void set_policy(int policy)
{
	struct sched_param none = { 0 };

	MUST(sched_setscheduler(0, policy, &none) == 0);
}

static void *batch(void *unused)
{
	struct has before;

	(void)unused;
	set_policy(SCHED_BATCH);
	MUST(setpriority(PRIO_PROCESS, (id_t)gettid(), 11) == 0);
	MUST(syscall(SYS_ioprio_set, 1, 0, IO_BEST | 6) == 0);
	MUST(prctl(PR_SET_TIMERSLACK, 123456, 0, 0, 0) == 0);
	before = look();
	(void)pthread_barrier_wait(&built);
	(void)pthread_barrier_wait(&go);
	expect(&before);
	return NULL;
}

/* As a process of a sandbox begins, beside threads that are not. */
static void *plain(void *unused)
{
	struct has before = look();

	(void)unused;
	MUST(before.policy == SCHED_OTHER && before.nice == 0);
	(void)pthread_barrier_wait(&built);
	(void)pthread_barrier_wait(&go);
	expect(&before);
	return NULL;
}

static int read_score(void)
{
	char text[16] = { 0 };
	int fd = open("/proc/self/oom_score_adj", O_RDONLY);

	MUST(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0);
	return atoi(text);
}

static bool may_write_and_execute(void)
{
	void *p = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p != MAP_FAILED && munmap(p, 4096) == 0;
}

/* It never writes what it executes. */
static void child(int said, int asked)
{
	bool denies = prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0;
	char c;

	MUST(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	MUST(write(said, "r", 1) == 1 && read(asked, &c, 1) == 1);
	MUST(!denies || (prctl(PR_GET_MDWE, 0, 0, 0, 0) == 1 && !may_write_and_execute()));
	_exit(0);
}

int main(void)
{
	pthread_t threads[2];
	cpu_set_t last;
	struct has before;
	int barriers, score, huge, said[2], asked[2], status;
	pid_t pid;
	char c;

	MUST(pipe(said) == 0 && pipe(asked) == 0);
	pid = fork();
	if (pid == 0)
		child(said[1], asked[0]);
	MUST(read(said[0], &c, 1) == 1);
	MUST(pthread_barrier_init(&built, NULL, 3) == 0 && pthread_barrier_init(&go, NULL, 3) == 0);
	MUST(pthread_create(&threads[0], NULL, batch, NULL) == 0);
	MUST(pthread_create(&threads[1], NULL, plain, NULL) == 0);
	(void)pthread_barrier_wait(&built);
	/* the first of those that there are, alone */
	MUST(sched_getaffinity(0, sizeof(last), &last) == 0);
	for (size_t i = CPU_SETSIZE, n = (size_t)CPU_COUNT(&last); i > 0 && n > 1; i--) {
		if (CPU_ISSET(i - 1, &last)) {
			CPU_CLR(i - 1, &last);
			n--;
		}
	}
	MUST(sched_setaffinity(0, sizeof(last), &last) == 0);
	MUST(setpriority(PRIO_PROCESS, 0, 5) == 0);
	set_policy(SCHED_IDLE);
	MUST(syscall(SYS_ioprio_set, 1, 0, IO_IDLE) == 0);
	MUST(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
	barriers = (int)syscall(SYS_membarrier, REGISTRATIONS, 0, 0);
	score = read_score();
	/* from Linux 6.18 on all but those who ask for them; before that, all */
	if (prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0) < 0)
		MUST(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	huge = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
	before = look();

	object_ready();

	expect(&before);
	MUST(read_score() == score);
	MUST(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == huge);
	MUST(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
	if (barriers >= 0)
		MUST((syscall(SYS_membarrier, REGISTRATIONS, 0, 0) & barriers) == barriers);
	MUST(may_write_and_execute());
	(void)pthread_barrier_wait(&go);
	for (int i = 0; i < 2; i++)
		MUST(pthread_join(threads[i], NULL) == 0);
	MUST(write(asked[1], "a", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
	return object_done();
}

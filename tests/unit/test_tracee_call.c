/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tracees.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

#define MANY     1000U                       /* more questions than have room at once */
#define STORM_NS (5ULL * 1000 * 1000 * 1000) /* at most; under it a call may take 0.1 s */

/* Without a buffer from the heap: a sanitizer's heap maps memory for it, now and then. */
static int mappings(void)
{
	char text[4096];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), n = 0;

	for (ssize_t got; (got = read(fd, text, sizeof(text))) > 0;) {
		for (ssize_t i = 0; i < got; i++)
			n += text[i] == '\n';
	}
	(void)close(fd);
	return n;
}

static void live(int talk)
{
	int before = mappings();

	live_ready(talk);
	live_answer(talk, mappings() == before);
}

/* Each is asked @n times for its number, and once for an answer in memory. */
static void ask_all(struct somebody *all, size_t count, size_t n)
{
	struct tracee_asked *asked = calloc(count, sizeof(*asked));

	for (size_t i = 0; i < count; i++) {
		struct tracee_question *q = calloc(n + 1, sizeof(*q));

		for (size_t j = 0; j < n; j++)
			q[j] = (struct tracee_question){ .nr = j % 2 == 0 ? SYS_getpid : SYS_fcntl,
				.arguments = { 99999 } };
		q[n] = (struct tracee_question){
			.nr = SYS_prctl, .arguments = { PR_GET_PDEATHSIG }, .into = 2
		};
		asked[i] = (struct tracee_asked){ .t = &all[i].t, .questions = q, .n = n + 1 };
	}
	check_int(tracee_ask(asked, count), 0);
	for (size_t i = 0; i < count; i++) {
		struct tracee_question *q = asked[i].questions;
		int wrong = 0, signal;

		for (size_t j = 0; j < n; j++)
			wrong += q[j].result != (j % 2 == 0 ? all[i].pid : -EBADF);
		check_int(wrong, 0);
		check_int(q[n].result, 0);
		memcpy(&signal, q[n].answer, sizeof(signal));
		check_int(signal, SIGKILL);
		free(q);
	}
	free(asked);
}

static void ask_one(struct somebody *s)
{
	ask_all(s, 1, 10);
}

/* Stopped, asked and let go a hundred times: has it noticed nothing? */
static void disturb(struct somebody *s)
{
	for (int i = 0; i < 100; i++) {
		somebody_stop(s);
		ask_one(s);
		tracee_release(&s->t);
	}
	check_int(somebody_says(s), 'y');
	somebody_end(s);
}

TEST(many_of_many_at_once)
{
	struct somebody all[8];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		all[i] = somebody_start(live);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		somebody_stop(&all[i]);
	ask_all(all, ARRAY_SIZE(all), MANY);
	ask_all(all, ARRAY_SIZE(all), 1);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		tracee_release(&all[i].t);
		check_int(somebody_says(&all[i]), 'y');
		somebody_end(&all[i]);
	}
}

static atomic_int begun;

static void *wait_for_ever(void *unused)
{
	begun++;
	for (;;)
		(void)pause();
	return unused;
}

static void live_with_threads(int talk)
{
	pthread_t thread;

	for (int i = 0; i < 5; i++) {
		if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0)
			_exit(7);
	}
	while (begun < 5) /* what a thread maps for itself is there then */
		(void)sched_yield();
	live(talk);
}

/* What is known keeps its answer, and the others get theirs. */
TEST(what_is_known_is_not_asked)
{
	struct somebody s = somebody_start(live);
	struct tracee_question q[5] = { { .nr = SYS_exit_group, .known = true, .result = 1 },
		{ .nr = SYS_getpid }, { .nr = SYS_exit_group, .known = true, .result = 2 },
		{ .nr = SYS_getppid }, { .nr = SYS_exit_group, .known = true, .result = 3 } };
	struct tracee_asked asked = { .t = &s.t, .questions = q, .n = ARRAY_SIZE(q) },
			    none = { .t = &s.t, .questions = q, .n = 1 };

	somebody_stop(&s);
	for (int i = 0; i < 2; i++) {
		check_int(tracee_ask(&asked, 1), 0);
		check_int(tracee_ask(&none, 1), 0);
		check(q[0].result == 1 && q[2].result == 2 && q[4].result == 3);
		check_int(q[1].result, s.pid);
		check_int(q[3].result, getpid());
		s.t.threads[0].traps = true; /* one by one */
	}
	s.t.threads[0].traps = false;
	tracee_release(&s.t);
	check_int(somebody_says(&s), 'y');
	somebody_end(&s);
}

TEST(threads_answer_for_themselves)
{
	struct somebody s = somebody_start(live_with_threads);
	struct tracee_question q[6];
	struct tracee_asked all[6];

	somebody_stop(&s);
	check_int(s.t.n_threads, 6);
	for (size_t i = 0; i < 6; i++) {
		q[i] = (struct tracee_question){ .nr = SYS_gettid };
		all[i] =
			(struct tracee_asked){ .t = &s.t, .thread = i, .questions = &q[i], .n = 1 };
	}
	check_int(tracee_ask(all, 6), 0);
	for (size_t i = 0; i < 6; i++)
		check_int(q[i].result, s.t.threads[i].host);
	tracee_release(&s.t);
	check_int(somebody_says(&s), 'y');
	somebody_end(&s);
}

/* Computes and makes no call. */
static void live_computing(int talk)
{
	static volatile int asked;
	unsigned long wrong = 0;
	pid_t parent = getppid();
	char c = 'r';

	(void)parent;
	if (write(talk, &c, 1) != 1)
		_exit(8);
	for (unsigned long i = 1; !asked; i++) {
		unsigned long rbx = i * 3, result;

		__asm__ volatile("mov %1, %%rbx\n\t"
				 "mov $1000, %%ecx\n"
				 "1:\tadd $7, %%rbx\n\t"
				 "dec %%ecx\n\t"
				 "jnz 1b\n\t"
				 "mov %%rbx, %0\n\t"
				 : "=r"(result)
				 : "r"(rbx)
				 : "rbx", "rcx", "cc");
		wrong += result != rbx + 7000;
		if (i % 1024 == 0)
			asked = recv(talk, &c, 1, MSG_DONTWAIT) == 1;
	}
	live_answer(talk, wrong == 0);
}

TEST(who_computes_computes_on)
{
	struct somebody s = somebody_start(live_computing);

	disturb(&s);
}

/* Within a restartable sequence, for a while or until the kernel sends it out of it. Return: 1 when it is still within, and the kernel has forgotten it. */
static int stay_in_sequence(struct rseq *own)
{
	int forgotten = 0;

	__asm__ volatile(".pushsection .data.sequence, \"aw\"\n\t"
			 ".balign 32\n"
			 "3:\t.long 0, 0\n\t"
			 ".quad 1f, 2f - 1f, 4f\n\t"
			 ".popsection\n\t"
			 "lea 3b(%%rip), %%rax\n\t"
			 "mov %%rax, %[sequence]\n"
			 "1:\tmov $100000, %%ecx\n"
			 "5:\tcmpq $0, %[sequence]\n\t"
			 "je 6f\n\t"
			 "dec %%ecx\n\t"
			 "jnz 5b\n"
			 "2:\tjmp 4f\n"
			 "6:\tmovl $1, %[forgotten]\n\t"
			 "jmp 4f\n\t"
			 ".long %c[signature]\n"
			 "4:\n\t"
			 : [sequence] "+m"(own->rseq_cs), [forgotten] "+m"(forgotten)
			 : [signature] "i"(RSEQ_SIG)
			 : "rax", "rcx", "cc", "memory");
	return forgotten;
}

static void live_in_sequence(int talk)
{
	struct rseq *own =
		(struct rseq *)(void *)((char *)__builtin_thread_pointer() + __rseq_offset);
	int forgotten = 0;
	char c = 'r';

	if (write(talk, &c, 1) != 1)
		_exit(8);
	do
		forgotten += stay_in_sequence(own);
	while (recv(talk, &c, 1, MSG_DONTWAIT) != 1);
	live_answer(talk, forgotten == 0);
}

TEST(who_is_within_a_sequence_begins_it_anew)
{
	struct somebody s;

	if (__rseq_size == 0)
		skip("no restartable sequences");
	s = somebody_start(live_in_sequence);
	disturb(&s);
}

TEST(who_is_told_to_stop_stops_when_it_is_let_go)
{
	struct somebody s = somebody_start(live_with_threads);
	int status = 0;

	somebody_stop(&s);
	check_int(kill(s.pid, SIGSTOP), 0);
	ask_one(&s);
	check_int(tracee_scratch(&s.t), 0);
	check_int(TRACEE_CALL(&s.t, 1, SYS_gettid), s.t.threads[1].host);
	check_int(kill(s.pid, SIGSTOP), 0);
	ask_one(&s);
	tracee_release(&s.t);
	do
		check_int(waitpid(s.pid, &status, WUNTRACED), s.pid);
	while (WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP);
	check(WIFSTOPPED(status));
	check_int(kill(s.pid, SIGCONT), 0);
	check_int(somebody_says(&s), 'y');
	somebody_end(&s);
}

TEST(who_is_told_to_go_on_goes_on)
{
	struct somebody s = somebody_start(live);

	somebody_stop(&s);
	ask_one(&s);
	check_int(kill(s.pid, SIGSTOP), 0);
	ask_one(&s);
	check_int(kill(s.pid, SIGCONT), 0);
	ask_one(&s);
	tracee_release(&s.t);
	check_int(somebody_says(&s), 'y');
	somebody_end(&s);
}

/* Two SIGTRAPs that wait for the thread and for its process, and one that nobody sent. */
static void live_with_traps(int talk)
{
	siginfo_t info;
	sigset_t trap;
	struct timespec moment = { 0, 0 };
	int sum = 0, n = 0;

	(void)sigemptyset(&trap);
	(void)sigaddset(&trap, SIGTRAP);
	(void)sigprocmask(SIG_BLOCK, &trap, NULL);
	live_ready(talk);
	while (sigtimedwait(&trap, &info, &moment) == SIGTRAP) {
		sum += info.si_value.sival_int;
		n++;
	}
	live_answer(talk, n == 2 && sum == 5);
}

static void send_trap(const struct somebody *s, bool thread, int value)
{
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = SI_QUEUE };

	info.si_value.sival_int = value;
	if (thread)
		check_int(syscall(SYS_rt_tgsigqueueinfo, s->pid, s->pid, SIGTRAP, &info), 0);
	else
		check_int(syscall(SYS_rt_sigqueueinfo, s->pid, SIGTRAP, &info), 0);
}

/* Also when they come between two calls. */
TEST(traps_wait)
{
	for (int i = 0; i < 3; i++) {
		struct somebody s = somebody_start(live_with_traps);

		for (int step = 0; step < 3; step++) {
			if (step == i) {
				send_trap(&s, true, 2);
				send_trap(&s, false, 3);
			}
			if (step == 0)
				somebody_stop(&s);
			else
				ask_one(&s);
			check_int(step == 0 || TRACEE_CALL(&s.t, 0, SYS_getpid) == s.pid, 1);
		}
		tracee_release(&s.t);
		check_int(somebody_says(&s), 'y');
		somebody_end(&s);
	}
}

static volatile sig_atomic_t traps;

static void on_signal(attr_unused int signal)
{
	traps++;
}

static void live_catching(int talk)
{
	struct sigaction now;

	(void)signal(SIGTRAP, on_signal);
	live_ready(talk);
	(void)sigaction(SIGTRAP, NULL, &now);
	live_answer(talk, traps == 0 && now.sa_handler == on_signal);
}

static void live_ignoring(int talk)
{
	struct sigaction now;

	(void)signal(SIGTRAP, SIG_IGN);
	live_ready(talk);
	(void)sigaction(SIGTRAP, NULL, &now);
	live_answer(talk, now.sa_handler == SIG_IGN);
}

TEST(what_is_set_for_traps_stays)
{
	void (*const lives[])(int talk) = { live_catching, live_ignoring };

	for (size_t i = 0; i < ARRAY_SIZE(lives); i++) {
		struct somebody s = somebody_start(lives[i]);

		somebody_stop(&s);
		ask_one(&s);
		tracee_release(&s.t);
		check_int(somebody_says(&s), 'y');
		somebody_end(&s);
	}
}

/* Tells @pid to stop and to go on, for ever. */
static pid_t start_storm(pid_t pid)
{
	pid_t storm = fork();

	if (storm != 0)
		return storm;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		(void)kill(pid, SIGSTOP);
		(void)kill(pid, SIGCONT);
	}
}

/* The kernel begins no process while a signal waits: it says that the call is to be made again. */
TEST(who_is_told_to_stop_while_it_makes_a_process_makes_it)
{
	struct somebody s = somebody_start(live_catching);
	uint64_t end = clock_now_ns() + STORM_NS;
	pid_t storm;

	somebody_stop(&s);
	storm = start_storm(s.pid);
	for (int i = 0; i < 500 && clock_now_ns() < end; i++) {
		long made = TRACEE_CALL(&s.t, 0, SYS_clone, 0);
		pid_t child = s.t.threads[0].child;

		if (made <= 0)
			check_int(made, 1);
		check_int(kill(child, SIGKILL), 0);
		while (waitpid(child, NULL, __WALL) == child && kill(child, 0) == 0)
			;
		check_int(TRACEE_CALL(&s.t, 0, SYS_wait4, (uint64_t)made, 0, __WALL), made);
	}
	check_int(kill(storm, SIGKILL), 0);
	check_int(waitpid(storm, NULL, 0), storm);
	somebody_end(&s);
}

static void live_without_new_code(int talk)
{
	if (prctl(PR_SET_MDWE, 1, 0, 0, 0) < 0)
		_exit(77);
	live(talk);
}

TEST(who_may_have_no_new_code_answers)
{
	struct somebody s;

	if (prctl(PR_SET_MDWE + 1, 0, 0, 0, 0) < 0) /* PR_GET_MDWE */
		skip("no PR_SET_MDWE");
	s = somebody_start(live_without_new_code);
	somebody_stop(&s);
	ask_one(&s);
	check(s.t.no_programs);
	tracee_release(&s.t);
	check_int(somebody_says(&s), 'y');
	somebody_end(&s);
}

static void live_counting(int talk)
{
	(void)signal(SIGUSR1, on_signal);
	live_ready(talk);
	live_answer(talk, traps == 1);
}

TEST(signals_wait)
{
	struct somebody s = somebody_start(live_counting);

	somebody_stop(&s);
	ask_one(&s);
	check_int(kill(s.pid, SIGUSR1), 0);
	ask_one(&s);
	tracee_release(&s.t);
	check_int(somebody_says(&s), 'y');
	somebody_end(&s);
}

TEST(who_has_gone_is_told)
{
	struct somebody all[2] = { somebody_start(live), somebody_start(live) };
	struct tracee_question q[2] = { { .nr = SYS_getpid }, { .nr = SYS_getpid } };
	struct tracee_asked asked[2] = { { .t = &all[0].t, .questions = &q[0], .n = 1 },
		{ .t = &all[1].t, .questions = &q[1], .n = 1 } };

	somebody_stop(&all[0]);
	somebody_stop(&all[1]);
	check_int(kill(all[0].pid, SIGKILL), 0);
	check_int(tracee_ask(asked, 2), -ESRCH);
	tracee_release(&all[1].t);
	check_int(somebody_says(&all[1]), 'y');
	somebody_end(&all[1]);
	tracee_release(&all[0].t);
	(void)waitpid(all[0].pid, NULL, __WALL);
	(void)close(all[0].talk);
}

/* Kills @pid as soon as it waits in a call. */
static pid_t start_killer(pid_t pid)
{
	char path[32], text[256];
	pid_t killer = fork();

	if (killer != 0)
		return killer;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (;;) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

		if (n <= 0)
			_exit(1);
		(void)close(fd);
		text[n] = '\0';
		if (strstr(text, ") S ") != NULL)
			_exit(kill(pid, SIGKILL) < 0);
		(void)usleep(100);
	}
}

/* The kernel tells of the first thread's end only when we have waited for the others. */
TEST(who_is_killed_in_a_call_is_not_waited_for)
{
	struct somebody s = somebody_start(live_with_threads);
	struct tracee_question q = { .nr = SYS_pause };
	struct tracee_asked asked = { .t = &s.t, .questions = &q, .n = 1 };
	pid_t tids[6], killer;
	int status;

	somebody_stop(&s);
	check_int(s.t.n_threads, ARRAY_SIZE(tids));
	for (size_t i = 0; i < ARRAY_SIZE(tids); i++)
		tids[i] = s.t.threads[i].host;
	killer = start_killer(s.pid);
	check_int(tracee_ask(&asked, 1), -ESRCH);
	check(waitpid(killer, &status, 0) == killer && status == 0);
	tracee_release(&s.t);
	for (size_t i = ARRAY_SIZE(tids); i > 0; i--)
		check_int(waitpid(tids[i - 1], NULL, __WALL), tids[i - 1]);
	(void)close(s.talk);
}

/* --- given up --- */

static void live_looking(int talk)
{
	int before = (mappings(), mappings());
	sigset_t blocked;
	char c = 'y';

	while (write(talk, &c, 1) == 1 && read(talk, &c, 1) == 1) {
		bool none = sigprocmask(SIG_BLOCK, NULL, &blocked) == 0 && sigisemptyset(&blocked);

		c = none && mappings() == before ? 'y' : 'n';
	}
}

static sigjmp_buf torn;

static void tear(attr_unused int signal)
{
	siglongjmp(torn, 1);
}

/* Makes calls in it until it is torn out of that. */
static void call_for(struct tracee *t, long ns)
{
	static struct tracee_question q[8];
	static struct tracee_asked asked;
	static timer_t timer;
	struct sigevent by = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTERM };
	const struct itimerspec at = { .it_value = { 0, ns } };

	for (size_t i = 0; i < ARRAY_SIZE(q); i++)
		q[i] = (struct tracee_question){ .nr = SYS_getpid };
	asked = (struct tracee_asked){ .t = t, .questions = q, .n = ARRAY_SIZE(q) };
	check_int(tracee_scratch(t), 0);
	check(signal(SIGTERM, tear) != SIG_ERR && timer_create(CLOCK_MONOTONIC, &by, &timer) == 0);
	if (sigsetjmp(torn, 1) == 0) {
		check(timer_settime(timer, 0, &at, NULL) == 0);
		for (;;) {
			check_int(tracee_ask(&asked, 1), 0);
			check(TRACEE_CALL(t, 0, SYS_getpid) > 0);
		}
	}
	check(timer_delete(timer) == 0);
}

TEST(whoever_is_given_up_at_any_instant_goes_on_as_it_was)
{
	struct somebody s = somebody_start(live_looking);

	for (long i = 0; i < 1000; i++) {
		somebody_stop(&s);
		call_for(&s.t, 1 + i * 7919 % 300000);
		check_int(tracee_give_up(&s.t), 0);
		tracee_release(&s.t);
		check_int(somebody_says(&s), 'y');
	}
	somebody_end(&s);
}

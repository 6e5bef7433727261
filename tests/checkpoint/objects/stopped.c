/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that are stopped: they have not run on anywhere, their parent hears of it once, what they were sent meanwhile waits, and SIGCONT lets them go on. One has threads, one a
 * stopped child of its own.
 */
#include "object.h"

enum { PLAIN, UNHEARD, THREADED, PARENT, CHILD, SIGNALLED, CHILDREN };

struct seen {
	volatile uint64_t rounds[CHILDREN][4];
	volatile uint64_t usr1;
};

static struct seen *seen;
static volatile sig_atomic_t heard;
static int said[2];
static pid_t pids[CHILDREN];

static void on_child(int sig)
{
	(void)sig;
	heard++;
}

static void on_usr1(int sig)
{
	(void)sig;
	seen->usr1++;
}

static void spin(volatile uint64_t *rounds)
{
	for (;;) {
		++*rounds;
		(void)sched_yield();
	}
}

static void *spin_thread(void *rounds)
{
	spin(rounds);
	return NULL;
}

static char state_of(pid_t pid)
{
	char path[32], text[512], *end;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY);
	MUST(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	MUST(n > 0 && close(fd) == 0);
	text[n] = '\0';
	end = strrchr(text, ')');
	return end == NULL ? '?' : end[2];
}

static void wait_stopped(pid_t pid)
{
	int status;

	MUST(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) &&
		WSTOPSIG(status) == SIGSTOP);
}

static void lone(int which)
{
	struct sigaction usr1 = { .sa_handler = on_usr1 };

	if (which == SIGNALLED)
		MUST(sigaction(SIGUSR1, &usr1, NULL) == 0);
	MUST(write(said[1], "r", 1) == 1);
	spin(&seen->rounds[which][0]);
}

static void threaded(void)
{
	pthread_t thread;

	for (int i = 1; i < 4; i++)
		MUST(pthread_create(&thread, NULL, spin_thread,
			     (void *)(uintptr_t)&seen->rounds[THREADED][i]) == 0);
	lone(THREADED);
}

/* Its own child is stopped, and it has heard so. */
static void parent(void)
{
	char c;
	pid_t pid = fork();

	if (pid == 0)
		spin(&seen->rounds[CHILD][0]);
	MUST(kill(pid, SIGSTOP) == 0);
	wait_stopped(pid);
	heard = 0;
	MUST(write(said[1], (void *)&pid, sizeof(pid)) == sizeof(pid));
	MUST(raise(SIGSTOP) == 0);
	/* told to go on, when all has been looked at */
	c = waitpid(pid, NULL, WNOHANG | WUNTRACED) == 0 && heard == 0 && state_of(pid) == 'T'
		    ? 'y'
		    : 'n';
	MUST(write(said[1], &c, 1) == 1);
	MUST(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	_exit(0);
}

static void begin(int which)
{
	char c;

	pids[which] = fork();
	if (pids[which] == 0) {
		if (which == THREADED)
			threaded();
		else
			lone(which);
	}
	MUST(read(said[0], &c, 1) == 1 && kill(pids[which], SIGSTOP) == 0);
	if (which != UNHEARD)
		wait_stopped(pids[which]);
	else
		MUST(waitid(P_PID, (id_t)pids[which], &(siginfo_t){ 0 }, WSTOPPED | WNOWAIT) == 0);
}

static void go_on(int which)
{
	uint64_t before = seen->rounds[which][0];
	int status;

	MUST(kill(pids[which], SIGCONT) == 0);
	MUST(waitpid(pids[which], &status, WCONTINUED) == pids[which] && WIFCONTINUED(status));
	while (seen->rounds[which][0] == before)
		(void)sched_yield();
	MUST(kill(pids[which], SIGKILL) == 0 && waitpid(pids[which], &status, 0) == pids[which]);
}

int main(void)
{
	struct sigaction child = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	struct seen before;
	int status, heard_before;
	char c;

	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(seen != MAP_FAILED && pipe(said) == 0);
	MUST(sigaction(SIGCHLD, &child, NULL) == 0);
	for (int i = 0; i < CHILDREN; i++) {
		if (i != PARENT && i != CHILD)
			begin(i);
	}
	pids[PARENT] = fork();
	if (pids[PARENT] == 0)
		parent();
	MUST(read(said[0], &pids[CHILD], sizeof(pid_t)) == sizeof(pid_t));
	wait_stopped(pids[PARENT]);
	/* these wait until it goes on */
	MUST(kill(pids[SIGNALLED], SIGTERM) == 0 && kill(pids[SIGNALLED], SIGUSR1) == 0);
	memcpy(&before, seen, sizeof(before));
	heard_before = heard;

	object_ready();

	if (heard != heard_before)
		object_fail("heard %d times more of children", heard - heard_before);
	for (int i = 0; i < CHILDREN; i++) {
		for (int j = 0; j < 4; j++) {
			if (seen->rounds[i][j] != before.rounds[i][j])
				object_fail("thread %d of child %d has run on", j, i);
		}
		/* who let it go, still stopped, leaves it a step to be seen in */
		while (state_of(pids[i]) != 'T')
			(void)sched_yield();
	}
	for (int i = 0; i < CHILDREN; i++) {
		if (i != UNHEARD && i != CHILD)
			MUST(waitpid(pids[i], &status, WNOHANG | WUNTRACED) == 0);
	}
	MUST(waitpid(pids[UNHEARD], &status, WNOHANG | WUNTRACED) == pids[UNHEARD] &&
		WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	MUST(waitpid(pids[UNHEARD], &status, WNOHANG | WUNTRACED) == 0);
	MUST(memcmp(&before, seen, sizeof(before)) == 0);
	go_on(PLAIN);
	go_on(UNHEARD);
	go_on(THREADED);
	MUST(kill(pids[PARENT], SIGCONT) == 0);
	MUST(read(said[0], &c, 1) == 1 && c == 'y');
	MUST(waitpid(pids[PARENT], &status, 0) == pids[PARENT] && WIFEXITED(status));
	MUST(kill(pids[SIGNALLED], SIGCONT) == 0);
	MUST(waitpid(pids[SIGNALLED], &status, 0) == pids[SIGNALLED] && WIFSIGNALED(status) &&
		WTERMSIG(status) == SIGTERM && seen->usr1 <= 1);
	return object_done();
}

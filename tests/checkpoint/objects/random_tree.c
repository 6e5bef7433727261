/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of processes as chance would have it: random_tree SEED. One process after the other does one thing: forks, leads or joins a session or group, takes in orphans, ends, or waits
 * for a child. The same number makes the same tree. Afterwards each is where it was, as /proc has it, and nobody else is there.
 */
#include "object.h"
#include <dirent.h>
#include <poll.h>

#define EVENTS    40
#define LIVES_MAX 24
#define SEEN_MAX  256

struct order {
	char what;
	int32_t argument;
};

struct seen {
	int32_t pid, parent, group, session;
	bool ended;
};

static int orders[LIVES_MAX][2], answers[2];
static pid_t pids[LIVES_MAX]; /* 0 = ended; ours alone */
static int n_lives = 1;
static uint32_t random_state;

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 1103515245U + 12345U;
	return (random_state >> 16) % below;
}

/* --- each process --- */

static void answer(void)
{
	pid_t pid = getpid();

	MUST(write(answers[1], &pid, sizeof(pid)) == sizeof(pid));
}

static void live(int index);

/* What may not be is refused, and nothing has happened. */
static void follow(struct order o)
{
	if (o.what == 'f') {
		pid_t pid = fork();

		MUST(pid >= 0);
		if (pid == 0)
			live(o.argument);
		return; /* the child answers */
	}
	if (o.what == 'e')
		_exit(7);
	if (o.what == 's')
		(void)setsid();
	if (o.what == 'g')
		(void)setpgid(0, o.argument);
	if (o.what == 'r')
		MUST(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
	if (o.what == 'w')
		(void)waitpid(-1, NULL, WNOHANG);
	answer();
}

static void live(int index)
{
	struct order o;

	answer();
	while (read(orders[index][0], &o, sizeof(o)) == sizeof(o))
		follow(o);
	_exit(1);
}

/* --- the first one tells them --- */

static pid_t tell(int index, char what, int32_t argument)
{
	struct order o = { .what = what, .argument = argument };
	pid_t who;

	if (index == 0)
		follow(o);
	else
		MUST(write(orders[index][1], &o, sizeof(o)) == sizeof(o));
	MUST(read(answers[0], &who, sizeof(who)) == sizeof(who));
	return who;
}

/* When its end can be seen its children have their new parents. */
static void end(int index)
{
	struct order o = { .what = 'e' };
	struct pollfd p = { .events = POLLIN };

	if (index == 0)
		return;
	p.fd = (int)syscall(SYS_pidfd_open, pids[index], 0);
	MUST(p.fd >= 0 && write(orders[index][1], &o, sizeof(o)) == sizeof(o));
	MUST(poll(&p, 1, -1) == 1 && close(p.fd) == 0);
	pids[index] = 0;
}

static void event(void)
{
	int who = (int)draw((uint32_t)n_lives), other = (int)draw((uint32_t)n_lives);
	uint32_t what = draw(100);

	if (pids[who] == 0)
		return;
	if (what < 42 && n_lives < LIVES_MAX) {
		pids[n_lives] = tell(who, 'f', n_lives);
		n_lives++;
	} else if (what < 56) {
		(void)tell(who, 's', 0);
	} else if (what < 64) {
		(void)tell(who, 'g', 0);
	} else if (what < 70 && pids[other] != 0) {
		(void)tell(who, 'g', getpgid(pids[other]));
	} else if (what < 74) {
		(void)tell(who, 'r', 0);
	} else if (what < 94) {
		end(who);
	} else {
		(void)tell(who, 'w', 0);
	}
}

/* --- what /proc says --- */

static bool look(const char *name, struct seen *ret)
{
	char path[64], text[1024];
	const char *state;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%.16s/stat", name);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		MUST(close(fd) == 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	state = strrchr(text, ')') + 2;
	*ret = (struct seen){ .pid = atoi(name), .ended = *state == 'Z' };
	MUST(sscanf(state + 1, "%d %d %d", &ret->parent, &ret->group, &ret->session) == 3);
	/* what the sandbox keeps ready to be started comes from outside as well */
	return ret->pid != 1 && (ret->parent != 0 || ret->pid == getpid());
}

static int by_pid(const void *a, const void *b)
{
	return ((const struct seen *)a)->pid - ((const struct seen *)b)->pid;
}

/* Return: how many there are; -1 while PID 1 has still somebody to reap. */
static int look_at_all(struct seen *ret)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	bool whole = true;
	int n = 0;

	MUST(d != NULL);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !look(e->d_name, &ret[n]))
			continue;
		whole &= !ret[n].ended || ret[n].parent != 1;
		MUST(++n < SEEN_MAX);
	}
	(void)closedir(d);
	qsort(ret, (size_t)n, sizeof(*ret), by_pid);
	return whole ? n : -1;
}

static int look_when_reaped(struct seen *ret)
{
	int n;

	while ((n = look_at_all(ret)) < 0)
		(void)sched_yield();
	return n;
}

static void print(const char *when, const struct seen *seen, int n)
{
	for (int i = 0; i < n; i++)
		printf("%s: %d%s parent %d group %d session %d\n", when, seen[i].pid,
			seen[i].ended ? " (ended)" : "", seen[i].parent, seen[i].group,
			seen[i].session);
}

int main(int argc, char **argv)
{
	static struct seen before[SEEN_MAX], after[SEEN_MAX];
	int n, m;

	MUST(argc == 2);
	random_state = (uint32_t)atoi(argv[1]) * 2654435761U + 17;
	pids[0] = getpid();
	MUST(pipe(answers) == 0);
	for (int i = 0; i < LIVES_MAX; i++)
		MUST(pipe(orders[i]) == 0);
	for (int i = 0; i < EVENTS; i++)
		event();
	n = look_when_reaped(before);

	object_ready();

	m = look_when_reaped(after);
	if (n != m || memcmp(before, after, (size_t)n * sizeof(*before)) != 0) {
		print("before", before, n);
		print("after", after, m);
		return 1;
	}
	/* each that lives can still be told something */
	for (int i = n_lives - 1; i > 0; i--) {
		if (pids[i] == 0)
			continue;
		MUST(tell(i, 'w', 0) == pids[i]);
		end(i);
	}
	return object_done();
}

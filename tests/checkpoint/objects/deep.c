/* SPDX-License-Identifier: Apache-2.0 */
/* A long chain of processes, each the parent of the next. */
#include "object.h"

#define DEEP 400

struct place {
	int depth;
	pid_t pid, parent;
};

static int report[2], go[2][2];

static void live(int depth)
{
	char c;

	for (int i = 0; i < 2; i++) {
		struct place now = { depth, getpid(), getppid() };

		MUST(write(report[1], &now, sizeof(now)) == sizeof(now));
		MUST(read(go[i][0], &c, 1) == 1);
	}
	_exit(0);
}

static void hear_all(struct place places[DEEP])
{
	struct place one;

	for (int i = 0; i < DEEP; i++) {
		MUST(read(report[0], &one, sizeof(one)) == sizeof(one));
		places[one.depth] = one;
	}
}

/* Nobody ends before all have reported twice. */
static void tell_all(int time)
{
	static const char bytes[DEEP];

	MUST(write(go[time][1], bytes, DEEP) == DEEP);
}

int main(void)
{
	static struct place before[DEEP], after[DEEP];
	pid_t first = 0, pid;

	MUST(pipe(report) == 0 && pipe(go[0]) == 0 && pipe(go[1]) == 0);
	for (int depth = 0; depth < DEEP; depth++) {
		pid = fork();
		MUST(pid >= 0);
		if (pid > 0 && depth > 0)
			live(depth - 1);
		if (pid > 0)
			break;
		if (depth == DEEP - 1)
			live(depth);
	}
	first = pid;
	hear_all(before);

	object_ready();

	tell_all(0);
	hear_all(after);
	for (int i = 0; i < DEEP; i++) {
		MUST(after[i].pid == before[i].pid && after[i].parent == before[i].parent);
		MUST(after[i].parent == (i == 0 ? getpid() : after[i - 1].pid));
	}
	tell_all(1);
	MUST(waitpid(first, NULL, 0) == first);
	return object_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is mapped over more addresses than several processes' can lie at together, with few pages in it, as AddressSanitizer has it: of a process, of one that shares nothing of
 * it, and of a child that has changed some.
 */
#include "object.h"

#define VAST (14UL << 40)
#define PAGE 4096UL

static const unsigned long written[] = { 0, 5 * PAGE, VAST / 2 - PAGE, VAST / 2, VAST - PAGE };
enum { WRITTEN = sizeof(written) / sizeof(written[0]), CHANGED = 2 };

static int ask[2], told[2];

static char *map_vast(char c)
{
	char *p = mmap(NULL, VAST, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	MUST(p != MAP_FAILED);
	for (int i = 0; i < WRITTEN; i++)
		p[written[i] + 7] = (char)(c + i);
	return p;
}

static void check_vast(char *p, char c, int changed)
{
	for (int i = 0; i < WRITTEN; i++)
		MUST(p[written[i] + 7] == (i == changed ? '!' : (char)(c + i)) &&
			p[written[i]] == 0);
	MUST(p[VAST / 4] == 0 && p[VAST - 2 * PAGE] == 0);
	p[VAST / 4] = 'n';
	MUST(mprotect(p, VAST, PROT_READ) == 0 && p[VAST / 4] == 'n' && munmap(p, VAST) == 0);
}

static pid_t begin(char c, char *inherited)
{
	pid_t child = fork();
	char *p, byte;

	if (child > 0) {
		MUST(read(told[0], &byte, 1) == 1 && byte == c);
		return child;
	}
	MUST(child == 0);
	p = inherited != NULL ? inherited : map_vast(c);
	if (inherited != NULL)
		p[written[CHANGED] + 7] = '!';
	MUST(write(told[1], &c, 1) == 1 && read(ask[0], &byte, 1) == 1);
	check_vast(p, inherited != NULL ? 'a' : c, inherited != NULL ? CHANGED : -1);
	_exit(0);
}

int main(void)
{
	pid_t children[2];
	int status;
	char *p;

	MUST(pipe(ask) == 0 && pipe(told) == 0);
	children[0] = begin('k', NULL);
	p = map_vast('a');
	children[1] = begin('h', p);

	object_ready();

	check_vast(p, 'a', -1);
	for (int i = 0; i < 2; i++) {
		MUST(write(ask[1], "c", 1) == 1 && wait(&status) > 0 && status == 0);
	}
	MUST(waitpid(children[0], NULL, 0) < 0 && waitpid(children[1], NULL, 0) < 0);
	return object_done();
}

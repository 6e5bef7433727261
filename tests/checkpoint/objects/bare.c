/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes without the code that the kernel maps into every one (the vDSO), as valgrind's are: with the data beside it and without; with SIGTRAP caught, and a thread.
 */
#include "object.h"

static int ask[2], told[2];

static void on_trap(int sig)
{
	(void)sig;
}

/* The kernel's mappings whose name begins so. @drop: unmap them. Return: how many there are. */
static int kernels(const char *name, bool drop)
{
	unsigned long from[8], to[8], inode;
	char line[256], named[64];
	FILE *f = fopen("/proc/self/maps", "re");
	int n = 0;

	MUST(f != NULL);
	while (n < 8 && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu %63s", &from[n], &to[n], &inode, named) ==
				4 &&
			inode == 0 && strncmp(named, name, strlen(name)) == 0)
			n++;
	}
	(void)fclose(f);
	for (int i = 0; drop && i < n; i++)
		MUST(munmap((void *)from[i], to[i] - from[i]) == 0);
	return n;
}

static void *wait_in_thread(void *unused)
{
	char c;

	MUST(read(ask[0], &c, 1) == 1 && kernels("[vdso]", false) == 0);
	MUST(write(told[1], &c, 1) == 1);
	return unused;
}

int main(void)
{
	pthread_t thread;
	pid_t child;
	char c;
	int status;

	MUST(pipe(ask) == 0 && pipe(told) == 0);
	MUST(kernels("[vdso]", true) == 1);
	child = fork();
	if (child == 0) {
		MUST(kernels("[vvar", true) > 0 && signal(SIGTRAP, on_trap) != SIG_ERR);
		MUST(pthread_create(&thread, NULL, wait_in_thread, NULL) == 0);
		MUST(write(told[1], "b", 1) == 1);
		MUST(pthread_join(thread, NULL) == 0);
		_exit(kernels("[v", false) != 1); /* [vsyscall] */
	}
	MUST(read(told[0], &c, 1) == 1 && c == 'b');

	object_ready();

	MUST(kernels("[vdso]", false) == 0 && kernels("[vvar", false) > 0);
	MUST(write(ask[1], "t", 1) == 1 && read(told[0], &c, 1) == 1 && c == 't');
	MUST(wait(&status) == child && status == 0);
	return object_done();
}

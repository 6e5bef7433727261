/* SPDX-License-Identifier: Apache-2.0 */
/* What was said of mappings: what fork() does with them, locks, huge pages, guards, reading ahead, growing downwards. */
#include "object.h"

enum { PAGE = 4096, SIZE = 64 * PAGE, LOCKED_SIZE = 8 * PAGE, GUARDED = 16 };

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, from Linux 6.13 on */

struct said {
	int advice; /* -1 = none: see main() */
	const char *flag;
	unsigned char *at;
	char before[256];
};

static struct said all[] = {
	{ MADV_DONTFORK, " dc", NULL, "" },
	{ MADV_WIPEONFORK, " wf", NULL, "" },
	{ MADV_HUGEPAGE, " hg", NULL, "" },
	{ MADV_NOHUGEPAGE, " nh", NULL, "" },
	{ MADV_DONTDUMP, " dd", NULL, "" },
	{ MADV_SEQUENTIAL, " sr", NULL, "" },
	{ MADV_RANDOM, " rr", NULL, "" },
	{ -1, " lo", NULL, "" },
	{ -1, " gd", NULL, "" },
};

enum { DONTFORK, WIPEONFORK, LOCKED = 7, GROWS, SAID };

static unsigned char *map(int flags)
{
	unsigned char *p = mmap(
		NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	MUST(p != MAP_FAILED);
	return p;
}

/* The line of smaps with the flags of the mapping that @at is in. */
static void flags_of(const unsigned char *at, char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[4096];
	bool here = false;

	MUST(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		unsigned long start, end;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (unsigned long)at && (unsigned long)at < end;
		if (!here || strncmp(line, "VmFlags:", 8) != 0)
			continue;
		MUST(strlen(line + 8) < size);
		memcpy(ret, line + 8, strlen(line + 8) + 1);
		MUST(fclose(f) == 0);
		return;
	}
	object_fail("no mapping at %p", (const void *)at);
}

static unsigned long locked_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long n = 0;

	MUST(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL)
		(void)sscanf(line, "VmLck: %lu", &n);
	MUST(fclose(f) == 0);
	return n;
}

/* What the child's byte at @p is; -1: it cannot be read. */
static int in_child(const volatile unsigned char *p)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(*p);
	MUST(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
	unsigned char *guarded = map(0), *none = map(0), *file;
	int fd = open("/tmp/advised", O_RDWR | O_CREAT | O_TRUNC, 0600);
	bool guards;
	unsigned long locked, content;
	char now[256], file_before[256];

	for (size_t i = 0; i < SAID; i++) {
		struct said *s = &all[i];

		s->at = map(i == GROWS ? MAP_GROWSDOWN : 0);
		memset(s->at, (int)i + 1, SIZE);
		if (s->advice >= 0)
			MUST(madvise(s->at, SIZE, s->advice) == 0);
		else if (i == LOCKED)
			MUST(mlock(s->at, LOCKED_SIZE) == 0);
	}
	MUST(ftruncate(fd, SIZE) == 0);
	file = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	MUST(file != MAP_FAILED && madvise(file, SIZE, MADV_RANDOM) == 0);
	/* a mapping that no child has, and of which nothing is there */
	MUST(madvise(none, SIZE, MADV_DONTFORK) == 0);
	memset(guarded, 7, SIZE);
	guards = madvise(guarded + GUARDED * PAGE, 2 * PAGE, GUARD_INSTALL) == 0;
	for (size_t i = 0; i < SAID; i++)
		flags_of(all[i].at, all[i].before, sizeof(all[i].before));
	flags_of(file, file_before, sizeof(file_before));
	locked = locked_kib();
	MUST(locked == LOCKED_SIZE / 1024);

	object_ready();

	for (size_t i = 0; i < SAID; i++) {
		flags_of(all[i].at, now, sizeof(now));
		if (strstr(all[i].before, all[i].flag) != NULL && strstr(now, all[i].flag) == NULL)
			object_fail("mapping %zu has flags%s, not%s", i, now, all[i].before);
		content = i == WIPEONFORK && access("/run/cay/generation", F_OK) == 0 ? 0 : i + 1;
		MUST(all[i].at[0] == content && all[i].at[SIZE - 1] == content);
	}
	flags_of(file, now, sizeof(now));
	MUST(strstr(file_before, " rr") != NULL && strstr(now, " rr") != NULL);
	flags_of(none, now, sizeof(now));
	MUST(strstr(now, " dc") != NULL && none[0] == 0);
	MUST(locked_kib() == locked);
	MUST(in_child(all[DONTFORK].at) == -1 && in_child(none) == -1);
	MUST(in_child(all[WIPEONFORK].at) == 0);
	MUST(in_child(all[LOCKED].at) == LOCKED + 1);
	if (guards) {
		MUST(in_child(guarded + GUARDED * PAGE - 1) == 7);
		MUST(in_child(guarded + GUARDED * PAGE) == -1);
		MUST(in_child(guarded + (GUARDED + 2) * PAGE - 1) == -1);
		MUST(in_child(guarded + (GUARDED + 2) * PAGE) == 7);
	}
	return object_done();
}

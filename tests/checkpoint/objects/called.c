/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files with names that /proc writes otherwise, or that look like what it adds: a newline, which is \012 in maps, alone and beside the file that is called as it is written
 * there; names that end in " (deleted)", of files that are there and of those that are not; a program of such a name; one that was renamed by link(2) and unlink(2). All of it in a
 * directory whose name has both.
 */
#include "object.h"

#define PLACE "/var/tmp/a\nb (deleted)/"

enum { PAGE = 4096 };

/** struct mapped - a page of a file, which is full of @fill. */
struct mapped {
	const char *path;
	char fill, *at;
};

static char *map(const char *path, char fill, int flags)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char page[PAGE], *at;

	memset(page, fill, PAGE);
	MUST(fd >= 0 && write(fd, page, PAGE) == PAGE);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	MUST(at != MAP_FAILED && close(fd) == 0);
	return at;
}

static char byte_of(const char *path, int at)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char c;

	MUST(fd >= 0 && pread(fd, &c, 1, at) == 1 && close(fd) == 0);
	return c;
}

/* What is written to the mapping is in the file, and in no other. */
static void check_shared(const struct mapped *all, int n)
{
	for (int i = 0; i < n; i++) {
		MUST(all[i].at[5] == all[i].fill && byte_of(all[i].path, 5) == all[i].fill);
		all[i].at[6] = 'z';
		for (int k = 0; k < n; k++)
			MUST(byte_of(all[k].path, 6) == (k == i ? 'z' : all[k].fill));
		all[i].at[6] = all[i].fill;
	}
}

/* Of a file that is there: a page of its own, and behind it what is in the file. */
static void check_private(const struct mapped *m)
{
	MUST(m->at[1] == 'q' && m->at[5] == m->fill && byte_of(m->path, 1) == m->fill);
	MUST(madvise(m->at, PAGE, MADV_DONTNEED) == 0 && m->at[1] == m->fill);
	m->at[1] = 'q';
}

static pid_t start_program(const char *path, int *ret_in)
{
	int in[2], out[2];
	pid_t pid;
	char c;

	MUST(system("cp /proc/$PPID/exe /var/tmp/program") == 0 &&
		rename("/var/tmp/program", path) == 0);
	MUST(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		MUST(dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1);
		(void)execl(path, path, path, NULL);
		_exit(2);
	}
	MUST(pid > 0 && read(out[0], &c, 1) == 1);
	*ret_in = in[1];
	return pid;
}

/* Its program is the one that is there. */
static int program_main(const char *path)
{
	struct stat own, there;
	char c, now[256] = { 0 };

	MUST(write(1, "c", 1) == 1 && read(0, &c, 1) == 1);
	MUST(readlink("/proc/self/exe", now, sizeof(now) - 1) > 0 && strcmp(now, path) == 0);
	MUST(stat("/proc/self/exe", &own) == 0 && stat(path, &there) == 0);
	return own.st_ino == there.st_ino && own.st_nlink == 1 ? 7 : 3;
}

int main(int argc, char **argv)
{
	struct mapped shared[] = { { PLACE "newline\nalone", 'A', NULL },
		{ PLACE "newline\nbeside", 'B', NULL }, { PLACE "newline\\012beside", 'C', NULL },
		{ PLACE "there (deleted)", 'D', NULL }, { "/dev/shm/there\n (deleted)", 'E', NULL },
		{ PLACE "back\\slash", 'F', NULL }, { PLACE "linked.new", 'L', NULL } };
	const int n = (int)(sizeof(shared) / sizeof(shared[0]));
	struct mapped own = { PLACE "own (deleted)", 'P', NULL };
	char *gone, *gone_twice;
	int in, status;
	pid_t program;

	if (argc == 2)
		return program_main(argv[1]);
	MUST(mkdir("/var/tmp/a\nb (deleted)", 0700) == 0);
	for (int i = 0; i < n; i++)
		shared[i].at = map(shared[i].path, shared[i].fill, MAP_SHARED);
	MUST(link(shared[n - 1].path, PLACE "linked") == 0 && unlink(shared[n - 1].path) == 0);
	shared[n - 1].path = PLACE "linked";
	own.at = map(own.path, own.fill, MAP_PRIVATE);
	own.at[1] = 'q';
	gone = map(PLACE "gone\n", 'G', MAP_SHARED);
	MUST(unlink(PLACE "gone\n") == 0);
	gone_twice = map(PLACE "gone (deleted)", 'H', MAP_PRIVATE);
	MUST(unlink(PLACE "gone (deleted)") == 0);
	program = start_program(PLACE "program\n (deleted)", &in);

	object_ready();

	check_shared(shared, n);
	check_private(&own);
	MUST(gone[5] == 'G' && gone_twice[5] == 'H');
	MUST(write(in, "g", 1) == 1 && waitpid(program, &status, 0) == program);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return object_done();
}

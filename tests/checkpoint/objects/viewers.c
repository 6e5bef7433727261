/* SPDX-License-Identifier: Apache-2.0 */
/* Files that one process maps to write and another one to read, in both directions and without descriptors; and one that is mapped privately to read as well, and becomes longer. */
#include "object.h"

#define PAGE 4096

static char *map(const char *path, int access, int how, size_t pages)
{
	int fd = open(path, access | O_CREAT | O_CLOEXEC, 0600);
	int may = access == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
	char *at;

	MUST(fd >= 0 && (access != O_RDWR || ftruncate(fd, PAGE) == 0));
	at = mmap(NULL, pages * PAGE, may, how, fd, 0);
	MUST(at != MAP_FAILED && close(fd) == 0);
	return at;
}

static void make(const char *path)
{
	char *at = map(path, O_RDWR, MAP_SHARED, 1);

	memcpy(at, "before", 6);
	MUST(munmap(at, PAGE) == 0);
}

/* Writes to @theirs, and sees what is written to @ours. */
static void other(const char *ours, const char *theirs, int said, int asked)
{
	char *write_to = map(theirs, O_RDWR, MAP_SHARED, 1), c;
	const char *look_at = map(ours, O_RDONLY, MAP_SHARED, 1);

	MUST(write(said, "r", 1) == 1 && read(asked, &c, 1) == 1);
	MUST(memcmp(look_at, "after.", 6) == 0);
	memcpy(write_to, "after.", 6);
	_exit(0);
}

int main(void)
{
	const char *ours = "/var/tmp/ours", *theirs = "/var/tmp/theirs", *look_at, *own;
	int said[2], asked[2], status;
	char *write_to, c;
	pid_t pid;

	make(ours);
	make(theirs);
	MUST(pipe(said) == 0 && pipe(asked) == 0);
	look_at = map(theirs, O_RDONLY, MAP_SHARED, 1);
	own = map(ours, O_RDONLY, MAP_PRIVATE, 2);
	pid = fork();
	if (pid == 0)
		other(ours, theirs, said[1], asked[0]);
	write_to = map(ours, O_RDWR, MAP_SHARED, 2);
	MUST(read(said[0], &c, 1) == 1);

	object_ready();

	MUST(memcmp(look_at, "before", 6) == 0 && memcmp(own, "before", 6) == 0);
	memcpy(write_to, "after.", 6);
	MUST(memcmp(own, "after.", 6) == 0);
	MUST(write(asked[1], "a", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
	MUST(memcmp(look_at, "after.", 6) == 0);
	MUST(truncate(ours, (off_t)2 * PAGE) == 0);
	write_to[PAGE] = 'x';
	MUST(own[PAGE] == 'x');
	return object_done();
}

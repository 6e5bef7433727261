/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory files that are opened once more through /proc, as browsers do for what they give away to be read only: one file for all descriptions, with the access of each, and mappings
 * that may do what they might.
 */
#include "object.h"

enum { PAGE = 4096 };

static int open_again(int fd, int flags)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST((again = open(path, flags | O_CLOEXEC)) >= 0);
	return again;
}

static char *map(int fd, int prot)
{
	char *p = mmap(NULL, PAGE, prot, MAP_SHARED, fd, 0);

	MUST(p != MAP_FAILED);
	return p;
}

static int memory_file(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	MUST(fd >= 0 && ftruncate(fd, PAGE) == 0);
	return fd;
}

static bool same_file(int a, int b)
{
	struct stat first, second;

	MUST(fstat(a, &first) == 0 && fstat(b, &second) == 0);
	return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static int access_of(int fd)
{
	return fcntl(fd, F_GETFL) & O_ACCMODE;
}

/* Nobody makes more of a mapping than what it was made of allows. */
static bool may_become_writable(char *p)
{
	int rc = mprotect(p, PAGE, PROT_READ | PROT_WRITE);

	MUST(rc == 0 || errno == EACCES);
	return rc == 0;
}

/* Whoever has mapped it goes on writing, nobody else begins to. */
struct sealed {
	int fd;
	unsigned int seals;
	char *writer, *reader;
};

static struct sealed make_sealed(int access, unsigned int seals)
{
	int fd = memory_file("sealed");
	struct sealed s = { .fd = open_again(fd, access), .seals = seals };

	s.writer = map(fd, PROT_READ | PROT_WRITE);
	MUST(fcntl(fd, F_ADD_SEALS, seals) == 0);
	s.reader = map(s.fd, PROT_READ);
	MUST(close(fd) == 0);
	return s;
}

static void check_sealed(const struct sealed *s)
{
	char c = 0;

	s->writer[7] = 's';
	MUST(s->reader[7] == 's' && pread(s->fd, &c, 1, 7) == 1 && c == 's');
	MUST(fcntl(s->fd, F_GET_SEALS) == (int)s->seals && !may_become_writable(s->reader));
	MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0) == MAP_FAILED);
	MUST(fcntl(s->fd, F_ADD_SEALS, F_SEAL_GROW) < 0 || (s->seals & F_SEAL_SEAL) == 0);
}

int main(void)
{
	const struct sealed sealed[] = { make_sealed(O_RDWR, F_SEAL_FUTURE_WRITE | F_SEAL_GROW |
								     F_SEAL_SHRINK | F_SEAL_SEAL),
		make_sealed(O_RDONLY, F_SEAL_FUTURE_WRITE | F_SEAL_GROW) };
	int both = memory_file("both"), both_read = open_again(both, O_RDONLY),
	    both_write = open_again(both, O_WRONLY), first = memory_file("first"), other, file;
	int given = memory_file("given"), given_read = open_again(given, O_RDONLY),
	    nameless = memory_file(""), go[2], back[2], status;
	char *both_map = map(both, PROT_READ | PROT_WRITE), *given_map, *given_again, *whole, *part,
	     *later, *alone, *alone_read, *unnamed, c = 0;
	pid_t child;

	/* one that is only open to be read, with the greater number */
	other = dup2(open_again(first, O_RDONLY), 100);
	MUST(other == 100 && write(first, "first", 5) == 5 && lseek(other, 2, SEEK_SET) == 2);
	MUST(fcntl(first, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	/* whoever has made it keeps a mapping, everybody else may but read */
	given_map = map(given, PROT_READ | PROT_WRITE);
	given_again = map(given, PROT_READ);
	MUST(close(given) == 0);
	whole = map(given_read, PROT_READ);
	part = map(both_read, PROT_READ);
	/* nobody has it open at all */
	alone = map(other = memory_file("alone"), PROT_READ | PROT_WRITE);
	alone_read = map(open_again(other, O_RDONLY), PROT_READ);
	MUST(close(other) == 0);
	/* without a name, and what it was mapped by is open no more */
	other = open_again(nameless, O_RDONLY);
	unnamed = map(other, PROT_READ);
	MUST(close(other) == 0);
	other = 100;
	/* read only so far */
	MUST((file = open("/tmp/later", O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
	MUST(ftruncate(file, PAGE) == 0);
	later = map(file, PROT_READ);
	MUST(close(file) == 0);
	MUST(pipe(go) == 0 && pipe(back) == 0);
	child = fork();
	if (child == 0) {
		MUST(munmap(given_map, PAGE) == 0 && munmap(given_again, PAGE) == 0);
		MUST(read(go[0], &c, 1) == 1 && whole[9] == 'g');
		MUST(write(back[1], &c, 1) == 1 && !may_become_writable(whole));
		_exit(7);
	}

	object_ready();

	MUST(same_file(both, both_read) && same_file(both, both_write) && same_file(first, other));
	MUST(!same_file(both, first) && !same_file(first, given_read));
	MUST(access_of(both) == O_RDWR && access_of(both_read) == O_RDONLY);
	MUST(access_of(both_write) == O_WRONLY && access_of(given_read) == O_RDONLY);
	MUST(access_of(first) == O_RDWR && access_of(other) == O_RDONLY);
	MUST(fcntl(first, F_GET_SEALS) == F_SEAL_SHRINK &&
		fcntl(other, F_GET_SEALS) == F_SEAL_SHRINK);
	MUST(lseek(first, 0, SEEK_CUR) == 5 && read(other, &c, 1) == 1 && c == 'r');
	both_map[1] = 'b';
	MUST(pwrite(both_write, "w", 1, 2) == 1 && pread(both_read, &c, 1, 1) == 1 && c == 'b');
	MUST(part[1] == 'b' && part[2] == 'w' && both_map[2] == 'w');
	given_map[9] = 'g';
	MUST(pread(given_read, &c, 1, 9) == 1 && c == 'g' && whole[9] == 'g' &&
		given_again[9] == 'g');
	alone[3] = 'a';
	MUST(alone_read[3] == 'a' && !may_become_writable(alone_read));
	MUST(pwrite(nameless, "n", 1, 4) == 1 && unnamed[4] == 'n' &&
		!may_become_writable(unnamed));
	MUST(may_become_writable(given_again) && !may_become_writable(whole));
	MUST(!may_become_writable(part) && may_become_writable(later));
	later[0] = 'l';
	for (int i = 0; i < 2; i++)
		check_sealed(&sealed[i]);
	MUST(write(go[1], "x", 1) == 1 && read(back[0], &c, 1) == 1);
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return object_done();
}

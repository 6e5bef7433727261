/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are mapped and were removed: private with changed pages and shared, by several processes, with and without descriptors, in a directory that is gone too,
 * ending in the middle of a page, not inherited, and the program itself; also one that has another file where its code was.
 */
#include "object.h"

enum { PAGE = 4096, PAGES = 6 };

/* Where @page of file @name differs from all others. */
static char stamp(const char *name, int page)
{
	return (char)(name[0] + page);
}

/* Open, of @size bytes. */
static int make(const char *path, const char *name, size_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	char page[PAGE];

	MUST(fd >= 0);
	for (int i = 0; i * PAGE < (int)size; i++) {
		memset(page, stamp(name, i), PAGE);
		MUST(write(fd, page, PAGE) == PAGE);
	}
	MUST(ftruncate(fd, (off_t)size) == 0);
	return fd;
}

static char *map(int fd, int pages, int prot, int flags)
{
	char *at = mmap(NULL, (size_t)pages * PAGE, prot, flags, fd, 0);

	MUST(at != MAP_FAILED);
	return at;
}

static void is(const char *at, int page, char want)
{
	MUST(at[page * PAGE] == want && at[page * PAGE + PAGE - 1] == want);
}

struct state {
	char *library, *apart, *part, *common, *open_one, *memory, *first;
	int both, read_only, set_id, second;
	uid_t owner; /* of that, at first */
};

static void build(struct state *s)
{
	int fd;

	MUST(mkdir("/var/tmp/gone", 0755) == 0);
	fd = make("/var/tmp/gone/library", "library", PAGES * (size_t)PAGE);
	s->library = map(fd, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	MUST(close(fd) == 0);
	memset(s->library + PAGE, '1', PAGE);
	MUST(mprotect(s->library + 3 * PAGE, PAGE, PROT_READ | PROT_EXEC) == 0);
	MUST(mprotect(s->library + 4 * PAGE, PAGE, PROT_NONE) == 0);
	MUST(munmap(s->library + 5 * PAGE, PAGE) == 0);
	fd = make("/var/tmp/gone/apart", "apart", 3 * PAGE);
	s->apart = map(fd, 3, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	MUST(close(fd) == 0 && madvise(s->apart, 3 * PAGE, MADV_DONTFORK) == 0);
	memset(s->apart + PAGE, '1', PAGE);
	fd = make("/var/tmp/gone/part", "part", PAGE + PAGE / 2);
	s->part = map(fd, 4, PROT_READ, MAP_PRIVATE);
	MUST(close(fd) == 0);
	fd = make("/var/tmp/gone/common", "common", 2 * PAGE);
	s->common = map(fd, 2, PROT_READ | PROT_WRITE, MAP_SHARED);
	MUST(close(fd) == 0);
	s->both = make("/var/tmp/gone/open", "open", 2 * PAGE);
	s->read_only = open("/var/tmp/gone/open", O_RDONLY | O_CLOEXEC);
	MUST(s->read_only >= 0);
	s->open_one = map(s->both, 2, PROT_READ | PROT_WRITE, MAP_SHARED);
	s->set_id = open("/var/tmp/gone/set-id", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	MUST(s->set_id >= 0);
	/* a sandbox with one user has no other */
	s->owner = fchown(s->set_id, 7, 7) == 0 ? 7 : getuid();
	MUST(fchmod(s->set_id, 06755) == 0);
	/* two of one name: one is mapped, the other open */
	fd = make("/var/tmp/gone/twice", "first", PAGE);
	s->first = map(fd, 1, PROT_READ | PROT_WRITE, MAP_SHARED);
	MUST(close(fd) == 0 && unlink("/var/tmp/gone/twice") == 0);
	s->second = make("/var/tmp/gone/twice", "second", PAGE);
	MUST(unlink("/var/tmp/gone/twice") == 0);
	fd = memfd_create("private", MFD_CLOEXEC);
	MUST(fd >= 0 && write(fd, "memory", 6) == 6);
	s->memory = map(fd, 1, PROT_READ, MAP_PRIVATE);
	MUST(close(fd) == 0);
	MUST(unlink("/var/tmp/gone/library") == 0 && unlink("/var/tmp/gone/apart") == 0);
	MUST(unlink("/var/tmp/gone/part") == 0);
	MUST(unlink("/var/tmp/gone/common") == 0 && unlink("/var/tmp/gone/open") == 0);
	MUST(unlink("/var/tmp/gone/set-id") == 0 && rmdir("/var/tmp/gone") == 0);
}

static void check(const struct state *s, char changed)
{
	struct stat st;
	char c;

	is(s->library, 0, stamp("library", 0));
	is(s->library, 1, changed);
	is(s->library, 2, stamp("library", 2));
	is(s->library, 3, stamp("library", 3));
	/* what nobody has changed is the file's */
	memset(s->library + 2 * PAGE, 'x', PAGE);
	MUST(madvise(s->library + 2 * PAGE, PAGE, MADV_DONTNEED) == 0);
	is(s->library, 2, stamp("library", 2));
	MUST(mprotect(s->library + 4 * PAGE, PAGE, PROT_READ) == 0);
	is(s->library, 4, stamp("library", 4));
	is(s->apart, 0, stamp("apart", 0));
	is(s->apart, 1, '1');
	is(s->apart, 2, stamp("apart", 2));
	is(s->part, 0, stamp("part", 0));
	MUST(s->part[PAGE + PAGE / 2 - 1] == stamp("part", 1) && s->part[2 * PAGE - 1] == 0);
	is(s->common, 1, stamp("common", 1));
	MUST(memcmp(s->memory, "memory", 7) == 0);
	/* one file through two descriptions and a mapping */
	MUST(pwrite(s->both, "w", 1, PAGE) == 1 && s->open_one[PAGE] == 'w');
	MUST(pread(s->read_only, &c, 1, PAGE) == 1 && c == 'w');
	s->open_one[PAGE + 1] = 'm';
	MUST(pread(s->read_only, &c, 1, PAGE + 1) == 1 && c == 'm');
	MUST(pwrite(s->read_only, "w", 1, 0) < 0 && errno == EBADF);
	is(s->first, 0, stamp("first", 0));
	memset(s->first, 'f', PAGE);
	MUST(pread(s->second, &c, 1, 0) == 1 && c == stamp("second", 0));
	memset(s->first, stamp("first", 0), PAGE);
	/* nobody becomes root by it whom it did not make so before */
	MUST(fstat(s->set_id, &st) == 0);
	MUST(st.st_uid == s->owner || (st.st_mode & 06000) == 0);
}

/* What the other one writes comes here. */
static void relative(const struct state *s, int in, int out)
{
	char c;

	memset(s->library, 'r', PAGE);
	MUST(write(out, "r", 1) == 1 && read(in, &c, 1) == 1);
	MUST(s->common[0] == c);
	is(s->library, 0, 'r');
	is(s->library, 1, '1');
	is(s->library, 2, stamp("library", 2));
	s->common[1] = 'b';
	_exit(9);
}

/** struct shared_apart - a file that two processes map so that a child has nothing of it, each with a page of its own. */
struct shared_apart {
	char *at;
	int go;
	pid_t other;
};

static void build_apart(struct shared_apart *a)
{
	int fd = make("/var/tmp/apart", "shared", 3 * PAGE), go[2], report[2];
	char c;

	MUST(pipe(go) == 0 && pipe(report) == 0);
	a->go = go[1];
	a->other = fork();
	a->at = map(fd, 3, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	MUST(close(fd) == 0 && madvise(a->at, 3 * PAGE, MADV_DONTFORK) == 0);
	if (a->other == 0) {
		memset(a->at + 2 * PAGE, '2', PAGE);
		MUST(write(report[1], "r", 1) == 1 && read(go[0], &c, 1) == 1);
		is(a->at, 0, stamp("shared", 0));
		is(a->at, 1, stamp("shared", 1));
		is(a->at, 2, '2');
		_exit(9);
	}
	memset(a->at + PAGE, '1', PAGE);
	MUST(read(report[0], &c, 1) == 1 && unlink("/var/tmp/apart") == 0);
}

static void check_apart(const struct shared_apart *a)
{
	int status;

	is(a->at, 0, stamp("shared", 0));
	is(a->at, 1, '1');
	is(a->at, 2, stamp("shared", 2));
	MUST(write(a->go, "g", 1) == 1 && waitpid(a->other, &status, 0) == a->other);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

#define ALIKE "/var/tmp/alike"

/* The program, when it has been executed from a copy of itself. */
static int copy_main(const char *path)
{
	char c, now[256] = { 0 };

	MUST(unlink(path) == 0 && write(1, "c", 1) == 1 && read(0, &c, 1) == 1);
	MUST(readlink("/proc/self/exe", now, sizeof(now) - 1) > 0 &&
		strstr(now, " (deleted)") != NULL);
	(void)execl("/proc/self/exe", "again", "again", "-", NULL);
	return 1;
}

/* As above, but its code comes from another file with the same code, which others map too. */
static int moved_main(const char *path)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int fd = open(ALIKE, O_RDONLY | O_CLOEXEC);
	unsigned long start, end, offset;
	char c, line[512], rights[5];

	MUST(maps != NULL && fd >= 0);
	do {
		MUST(fgets(line, sizeof(line), maps) != NULL);
		MUST(sscanf(line, "%lx-%lx %4s %lx", &start, &end, rights, &offset) == 4);
	} while (strcmp(rights, "r-xp") != 0);
	MUST(mmap((void *)start, end - start, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd,
		     (off_t)offset) == (void *)start);
	MUST(close(fd) == 0 && fclose(maps) == 0);
	MUST(unlink(path) == 0 && write(1, "c", 1) == 1 && read(0, &c, 1) == 1);
	return 7;
}

static pid_t start_copy(const char *path, const char *how, int *ret_in)
{
	int in[2], out[2];
	char c, command[128];
	pid_t pid;

	(void)snprintf(command, sizeof(command), "cp /proc/$PPID/exe %s", path);
	MUST(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
	MUST(system(command) == 0);
	pid = fork();
	if (pid == 0) {
		MUST(dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1);
		(void)execl(path, path, how, path, NULL);
		_exit(2);
	}
	MUST(pid > 0 && read(out[0], &c, 1) == 1);
	*ret_in = in[1];
	return pid;
}

static void end_copy(pid_t pid, int in)
{
	int status;

	MUST(write(in, "g", 1) == 1 && waitpid(pid, &status, 0) == pid);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* The program with a page more, which is mapped. */
static char *make_alike(void)
{
	char page[PAGE], *at;
	struct stat st;
	off_t size;
	int fd;

	memset(page, 'A', PAGE);
	MUST(system("cp /proc/$PPID/exe " ALIKE) == 0);
	fd = open(ALIKE, O_RDWR | O_CLOEXEC);
	MUST(fd >= 0 && fstat(fd, &st) == 0);
	size = (st.st_size + PAGE - 1) / PAGE * PAGE;
	MUST(pwrite(fd, page, PAGE, size) == PAGE);
	at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, size);
	MUST(at != MAP_FAILED && close(fd) == 0);
	return at;
}

int main(int argc, char **argv)
{
	struct state s;
	struct shared_apart apart;
	int go[2], report[2], copy_in, moved_in, status;
	pid_t copy, moved, other;
	char *alike;
	char c;

	if (argc == 3 && strcmp(argv[1], "copy") == 0)
		return copy_main(argv[2]);
	if (argc == 3 && strcmp(argv[1], "moved") == 0)
		return moved_main(argv[2]);
	if (argc == 3)
		return 7;
	copy = start_copy("/var/tmp/copy", "copy", &copy_in);
	alike = make_alike();
	moved = start_copy("/var/tmp/moved", "moved", &moved_in);
	MUST(unlink(ALIKE) == 0);
	build(&s);
	build_apart(&apart);
	MUST(pipe(go) == 0 && pipe(report) == 0);
	other = fork();
	if (other == 0)
		relative(&s, go[0], report[1]);
	MUST(read(report[0], &c, 1) == 1);

	object_ready();

	s.common[0] = 'a';
	MUST(write(go[1], "a", 1) == 1 && waitpid(other, &status, 0) == other);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 9 && s.common[1] == 'b');
	check(&s, '1');
	check_apart(&apart);
	is(alike, 0, 'A');
	end_copy(copy, copy_in);
	end_copy(moved, moved_in);
	return object_done();
}

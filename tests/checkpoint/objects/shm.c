/* SPDX-License-Identifier: Apache-2.0 */
/* Memory file systems: /dev/shm with what is open, mapped, mapped by nobody, sparse, linked twice, called otherwise by now, of others, of other kinds. */
#include "object.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { PAGE = 4096, BIG = 64 << 20 };

static int make(const char *path, mode_t mode, const char *text)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

	MUST(fd >= 0 && fchmod(fd, mode) == 0);
	MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static char *map(int fd, size_t n, int prot, int flags)
{
	char *p = mmap(NULL, n, prot, flags, fd, 0);

	MUST(p != MAP_FAILED);
	return p;
}

static bool holds(const char *path, const char *text)
{
	char found[64] = { 0 };
	int fd = open(path, O_RDONLY);
	bool same = fd >= 0 && read(fd, found, sizeof(found)) == (ssize_t)strlen(text) &&
		    strcmp(found, text) == 0;

	(void)close(fd);
	return same;
}

/* As sem_open(3) does: mapped under a name that it has no more. */
static char *map_and_call(const char *path)
{
	int fd = make("/dev/shm/first-name", 0600, "called");
	char *p = map(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);

	MUST(close(fd) == 0 && link("/dev/shm/first-name", path) == 0 &&
		unlink("/dev/shm/first-name") == 0);
	return p;
}

static char *map_by_name(const char *path)
{
	int fd = open(path, O_RDWR);
	char *p = map(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);

	MUST(close(fd) == 0);
	return p;
}

int main(void)
{
	struct timespec old[2] = { { 1000000000, 123456789 }, { 1100000000, 987654321 } };
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/dev/shm/dir/socket" };
	int open_file = make("/dev/shm/open", 0644, "0123456789"), fd, go[2], back[2], status,
	    gone_open;
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	char *shared, *same, *own, *gone, *both, *called, *alone, *named, c;
	struct stat st, first;
	pid_t child;

	MUST(lseek(open_file, 4, SEEK_SET) == 4);
	MUST(mkdir("/dev/shm/dir", 0750) == 0 && symlink("../open", "/dev/shm/dir/link") == 0);
	MUST(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	MUST(listen(listener, 3) == 0);
	fd = make("/dev/shm/dir/alone", 04711, "by nobody");
	MUST(fchown(fd, 1234, 4321) == 0 && fchmod(fd, 04711) == 0 && close(fd) == 0);
	MUST(link("/dev/shm/dir/alone", "/dev/shm/twice") == 0);
	fd = make("/dev/shm/sparse", 0600, "start");
	MUST(pwrite(fd, "middle", 6, BIG / 2) == 6 && ftruncate(fd, BIG) == 0 && close(fd) == 0);
	fd = make("/dev/shm/mapped", 0600, "mapped");
	MUST(ftruncate(fd, 3 * PAGE) == 0);
	shared = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	same = map(fd, 3 * PAGE, PROT_READ, MAP_SHARED);
	own = map(fd, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	MUST(close(fd) == 0);
	shared[PAGE] = 's', own[2 * PAGE] = 'o';
	fd = make("/dev/shm/gone", 0600, "gone");
	MUST(ftruncate(fd, 2 * PAGE) == 0 && unlink("/dev/shm/gone") == 0);
	gone = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	MUST(close(fd) == 0);
	gone_open = make("/dev/shm/gone-open", 0600, "open");
	MUST(ftruncate(gone_open, PAGE) == 0 && unlink("/dev/shm/gone-open") == 0);
	both = map(gone_open, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	called = map_and_call("/dev/shm/called");
	alone = map_and_call("/dev/shm/called-alone");
	MUST(utimensat(AT_FDCWD, "/dev/shm/sparse", old, 0) == 0);
	MUST(pipe(go) == 0 && pipe(back) == 0);
	child = fork();
	if (child == 0) {
		named = map_by_name("/dev/shm/called");
		MUST(write(back[1], "m", 1) == 1 && read(go[0], &c, 1) == 1);
		named[1] = named[0];
		shared[2] = shared[PAGE];
		gone[PAGE] = gone[0];
		MUST(write(back[1], "d", 1) == 1);
		_exit(0);
	}
	MUST(read(back[0], &c, 1) == 1);
	called[0] = 'C';

	object_ready();

	MUST(read(open_file, &c, 1) == 1 && c == '4' && write(open_file, "!", 1) == 1);
	MUST(holds("/dev/shm/open", "01234!6789") && stat("/dev/shm/open", &st) == 0);
	MUST((st.st_mode & 07777) == 0644 && fstat(open_file, &first) == 0 &&
		first.st_ino == st.st_ino);
	MUST(stat("/dev/shm/dir", &st) == 0 && (st.st_mode & 07777) == 0750);
	MUST(stat("/dev/shm", &st) == 0 && (st.st_mode & 07777) == 01777);
	MUST(holds("/dev/shm/dir/link", "01234!6789") && holds("/dev/shm/twice", "by nobody"));
	MUST(stat("/dev/shm/dir/alone", &st) == 0 && stat("/dev/shm/twice", &first) == 0);
	MUST(st.st_ino == first.st_ino && st.st_nlink == 2 && (st.st_mode & 07777) == 04711);
	MUST(st.st_uid == 1234 && st.st_gid == 4321);
	MUST(stat("/dev/shm/sparse", &st) == 0 && st.st_size == BIG && st.st_blocks <= 64);
	MUST(st.st_mtim.tv_sec == 1100000000 && st.st_mtim.tv_nsec == 987654321);
	MUST((fd = open("/dev/shm/sparse", O_RDONLY)) >= 0);
	MUST(pread(fd, &c, 1, BIG / 2 + 1) == 1 && c == 'i' && pread(fd, &c, 1, BIG - 1) == 1 &&
		c == 0);
	MUST(same[PAGE] == 's' && own[PAGE] == 's' && own[2 * PAGE] == 'o' && same[2 * PAGE] == 0);
	MUST(write(go[1], "g", 1) == 1 && read(back[0], &c, 1) == 1 && same[2] == 's');
	MUST(waitpid(child, &status, 0) == child && status == 0);
	MUST(strcmp(called, "CClled") == 0);
	named = map_by_name("/dev/shm/called-alone");
	alone[0] = 'A', named[1] = 'L';
	MUST(strcmp(alone, "ALlled") == 0 && strcmp(named, alone) == 0);
	MUST(strcmp(gone, "gone") == 0 && gone[PAGE] == 'g');
	MUST(strcmp(both, "open") == 0 && pwrite(gone_open, "O", 1, 0) == 1 && both[0] == 'O');
	fd = open("/dev/shm/mapped", O_RDWR);
	MUST(pwrite(fd, "new", 3, 100) == 3 && memcmp(same + 100, "new", 3) == 0);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	MUST(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	MUST(accept(listener, NULL, NULL) >= 0);
	return object_done();
}

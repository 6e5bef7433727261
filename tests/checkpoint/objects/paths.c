/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that are places and not contents (O_PATH), of every kind of file; directories in the middle of being read. */
#include "object.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Their names are so long that the C library does not read all at once. */
enum { FILES = 400, HALF = 150, NAME = 200, REMOVED = 37 };

/** struct reading - a directory in the middle of being read. */
struct reading {
	DIR *dir;
	int written; /* one of its files, which is copied up where it is opened again */
	unsigned char seen[FILES];
};

static int place(const char *path, int flags)
{
	int fd = open(path, O_PATH | flags);

	MUST(fd >= 0);
	return fd;
}

static void make(const char *directory, const char *name, const char *text)
{
	char path[2 * NAME];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

/* Up to @max entries. Return: how many there were. */
static int read_some(struct reading *r, int max)
{
	const struct dirent *e;
	int n = 0, i;

	while (n < max && (e = readdir(r->dir)) != NULL) {
		if (sscanf(e->d_name, "file-%d", &i) != 1)
			continue;
		MUST(i >= 0 && i < FILES);
		r->seen[i]++;
		n++;
	}
	return n;
}

/* What was removed leaves places without an entry, of which a new directory with the same entries has none. */
static struct reading read_half(const char *directory)
{
	struct reading r = { 0 };
	char name[NAME], path[2 * NAME];

	MUST(mkdir(directory, 0755) == 0);
	for (int i = 0; i < REMOVED + FILES; i++) {
		(void)snprintf(name, sizeof(name), i < REMOVED ? "removed-%d" : "file-%d-%0180d",
			i < REMOVED ? i : i - REMOVED, 0);
		make(directory, name, "");
	}
	for (int i = 0; i < REMOVED; i++) {
		(void)snprintf(path, sizeof(path), "%s/removed-%d", directory, i);
		MUST(unlink(path) == 0);
	}
	make(directory, "written", "");
	(void)snprintf(path, sizeof(path), "%s/written", directory);
	r.written = open(path, O_WRONLY | O_CLOEXEC);
	r.dir = opendir(directory);
	MUST(r.written >= 0 && r.dir != NULL && read_some(&r, HALF) == HALF);
	return r;
}

static void read_rest(struct reading *r)
{
	MUST(read_some(r, FILES) == FILES - HALF);
	for (int i = 0; i < FILES; i++) {
		if (r->seen[i] != 1)
			object_fail("file %d was seen %d times", i, r->seen[i]);
	}
	MUST(readdir(r->dir) == NULL && close(r->written) == 0);
}

static void same_kind(int fd, mode_t kind)
{
	struct stat st;

	MUST(fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind);
	MUST((fcntl(fd, F_GETFL) & O_PATH) != 0);
}

int main(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/tmp/paths/socket" };
	int file, directory, link, socket_file, fifo, server = socket(AF_UNIX, SOCK_STREAM, 0), fd;
	static struct reading many, ended, memory;
	char text[16] = { 0 };
	struct stat st[2];

	MUST(mkdir("/tmp/paths", 0755) == 0);
	make("/tmp/paths", "file", "in it");
	MUST(symlink("file", "/tmp/paths/link") == 0 && mkfifo("/tmp/paths/fifo", 0600) == 0);
	MUST(bind(server, (struct sockaddr *)&a, sizeof(a)) == 0);
	file = place("/tmp/paths/file", 0);
	directory = place("/tmp/paths", O_DIRECTORY);
	link = place("/tmp/paths/link", O_NOFOLLOW);
	socket_file = place("/tmp/paths/socket", 0);
	fifo = place("/tmp/paths/fifo", 0);
	many = read_half("/tmp/many");
	memory = read_half("/dev/shm/many");
	MUST(linkat(AT_FDCWD, "/dev/shm/many/written", AT_FDCWD, "/dev/shm/twin", 0) == 0);
	MUST((ended.dir = opendir("/tmp/many")) != NULL && read_some(&ended, FILES) == FILES);
	MUST(readdir(ended.dir) == NULL || readdir(ended.dir) == NULL);

	object_ready();

	same_kind(file, S_IFREG);
	same_kind(directory, S_IFDIR);
	same_kind(link, S_IFLNK);
	same_kind(socket_file, S_IFSOCK);
	same_kind(fifo, S_IFIFO);
	MUST(read(file, text, 1) < 0 && errno == EBADF);
	fd = openat(directory, "file", O_RDONLY);
	MUST(fd >= 0 && read(fd, text, sizeof(text)) == 5 && strcmp(text, "in it") == 0);
	MUST(readlinkat(link, "", text, sizeof(text)) == 4 && memcmp(text, "file", 4) == 0);
	read_rest(&many);
	MUST(stat("/dev/shm/many/written", &st[0]) == 0 && stat("/dev/shm/twin", &st[1]) == 0);
	MUST(st[0].st_ino == st[1].st_ino && st[0].st_nlink == 2);
	read_rest(&memory);
	MUST(readdir(ended.dir) == NULL);
	return object_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that are places and not contents (O_PATH), of every kind of file; directories in the middle of being read. */
#include "object.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Their names are so long that the C library does not read all at once. */
enum { FILES = 400, HALF = 150, NAME = 200 };

static unsigned char seen[FILES];

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
static int read_some(DIR *dir, int max)
{
	const struct dirent *e;
	int n = 0, i;

	while (n < max && (e = readdir(dir)) != NULL) {
		if (sscanf(e->d_name, "file-%d", &i) != 1)
			continue;
		MUST(i >= 0 && i < FILES);
		seen[i]++;
		n++;
	}
	return n;
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
	int written;
	char name[NAME], text[16] = { 0 };
	DIR *dir;

	MUST(mkdir("/tmp/paths", 0755) == 0 && mkdir("/tmp/many", 0755) == 0);
	make("/tmp/paths", "file", "in it");
	MUST(symlink("file", "/tmp/paths/link") == 0 && mkfifo("/tmp/paths/fifo", 0600) == 0);
	MUST(bind(server, (struct sockaddr *)&a, sizeof(a)) == 0);
	file = place("/tmp/paths/file", 0);
	directory = place("/tmp/paths", O_DIRECTORY);
	link = place("/tmp/paths/link", O_NOFOLLOW);
	socket_file = place("/tmp/paths/socket", 0);
	fifo = place("/tmp/paths/fifo", 0);
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "file-%d-%0180d", i, 0);
		make("/tmp/many", name, "");
	}
	/* which is copied up where it is opened again */
	make("/tmp/many", "written", "");
	written = open("/tmp/many/written", O_WRONLY | O_CLOEXEC);
	MUST(written >= 0);
	dir = opendir("/tmp/many");
	MUST(dir != NULL && read_some(dir, HALF) == HALF);

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
	MUST(read_some(dir, FILES) == FILES - HALF);
	for (int i = 0; i < FILES; i++) {
		if (seen[i] != 1)
			object_fail("file %d was seen %d times", i, seen[i]);
	}
	return object_done();
}

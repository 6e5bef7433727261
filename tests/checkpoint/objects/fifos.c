/* SPDX-License-Identifier: Apache-2.0 */
/* Named pipes: with data and both ends, without a reader, a reader that waits for its first writer and one that saw the last one go, an open in progress. */
#include "object.h"

#include <poll.h>

static int make(const char *path, int flags)
{
	int fd;

	MUST(mkfifo(path, 0620) == 0 || errno == EEXIST);
	fd = open(path, flags);
	MUST(fd >= 0);
	return fd;
}

static bool hung_up(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0;
}

int main(void)
{
	int reader = make("/tmp/fifo", O_RDONLY | O_NONBLOCK), writer, both, left, expecting,
	    deserted, back[2], shm;
	char text[70000];
	struct stat st;
	pid_t child;

	MUST((writer = open("/tmp/fifo", O_WRONLY)) >= 0 && fcntl(reader, F_SETFL, 0) == 0);
	MUST(fcntl(writer, F_SETPIPE_SZ, 1 << 17) == 1 << 17);
	memset(text, 'x', sizeof(text));
	MUST(write(writer, text, sizeof(text)) == (ssize_t)sizeof(text));
	both = make("/tmp/fifo-both", O_RDWR);
	MUST(write(both, "both", 4) == 4);
	/* what was written when there was a reader waits for the next one */
	left = make("/tmp/fifo-left", O_RDWR);
	MUST(write(left, "left", 4) == 4 && (shm = open("/tmp/fifo-left", O_WRONLY)) >= 0);
	MUST(close(left) == 0);
	left = shm;
	expecting = make("/tmp/fifo-expecting", O_RDONLY | O_NONBLOCK);
	deserted = make("/tmp/fifo-deserted", O_RDONLY | O_NONBLOCK);
	MUST(close(make("/tmp/fifo-deserted", O_WRONLY)) == 0);
	MUST(!hung_up(expecting) && hung_up(deserted));
	shm = make("/dev/shm/fifo", O_RDWR);
	MUST(write(shm, "shm", 3) == 3);
	MUST(mkfifo("/tmp/fifo-open", 0600) == 0 && pipe(back) == 0);
	child = fork();
	if (child == 0) {
		int waiting = close(writer) == 0 ? open("/tmp/fifo-open", O_WRONLY) : -1;

		MUST(waiting >= 0 && write(waiting, "opened", 6) == 6);
		_exit(0);
	}

	object_ready();

	MUST((fcntl(reader, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == O_RDONLY &&
		fcntl(reader, F_GETPIPE_SZ) == 1 << 17);
	MUST((fcntl(expecting, F_GETFL) & O_NONBLOCK) != 0);
	memset(text, 0, sizeof(text));
	for (size_t n = 0; n < sizeof(text);) {
		ssize_t got = read(reader, text + n, sizeof(text) - n);

		MUST(got > 0);
		n += (size_t)got;
	}
	MUST(text[0] == 'x' && text[sizeof(text) - 1] == 'x');
	MUST(write(writer, "more", 4) == 4 && read(reader, text, 10) == 4);
	MUST(close(writer) == 0 && read(reader, text, 10) == 0);
	MUST(read(both, text, 10) == 4 && memcmp(text, "both", 4) == 0);
	MUST(write(both, "again", 5) == 5 && read(both, text, 10) == 5);
	both = open("/tmp/fifo-left", O_RDONLY | O_NONBLOCK);
	MUST(read(both, text, 10) == 4 && memcmp(text, "left", 4) == 0 && write(left, "+", 1) == 1);
	MUST(!hung_up(expecting) && hung_up(deserted));
	MUST(close(make("/tmp/fifo-expecting", O_WRONLY)) == 0 && hung_up(expecting));
	MUST(read(shm, text, 10) == 3 && memcmp(text, "shm", 3) == 0);
	MUST(stat("/dev/shm/fifo", &st) == 0 && S_ISFIFO(st.st_mode) &&
		(st.st_mode & 0777) == 0600);
	reader = open("/tmp/fifo-open", O_RDONLY);
	MUST(read(reader, text, 10) == 6 && memcmp(text, "opened", 6) == 0);
	MUST(waitpid(child, NULL, 0) == child);
	return object_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* File locks: POSIX ones of each process, flock and OFD ones of descriptions that relatives share, a waiter, and which of them end with what. */
#include "object.h"

#include <sys/file.h>

static const char path[] = "/tmp/locked";

static int set(int fd, int command, short type, off_t start, off_t length)
{
	struct flock lock = { .l_type = type, .l_start = start, .l_len = length };

	return fcntl(fd, command, &lock);
}

/* Whose lock would be in the way of a POSIX lock of ours; 0 = nobody's. */
static pid_t holder(int fd, short type, off_t start)
{
	struct flock lock = { .l_type = type, .l_start = start, .l_len = 1 };

	MUST(fcntl(fd, F_GETLK, &lock) == 0);
	return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

/* Pipes of which one end, or the other, has locked what both are. */
static void lock_ends(int pipes[2][2])
{
	for (int i = 0; i < 2; i++)
		MUST(pipe(pipes[i]) == 0 && flock(pipes[i][i], LOCK_EX) == 0);
}

static void check_ends(int pipes[2][2])
{
	for (int i = 0; i < 2; i++) {
		MUST(flock(pipes[i][1 - i], LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK);
		MUST(flock(pipes[i][i], LOCK_UN) == 0 &&
			flock(pipes[i][1 - i], LOCK_EX | LOCK_NB) == 0);
	}
}

int main(void)
{
	int pipes[2][2];
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), reader = open(path, O_RDONLY);
	int ofd = open(path, O_RDWR), shared = open("/tmp/flocked", O_RDONLY | O_CREAT, 0600);
	int other = open("/tmp/flocked", O_RDONLY), go[2], back[2], status;
	pid_t child, waiter;
	char c;

	MUST(file >= 0 && reader >= 0 && ofd >= 0 && other >= 0);
	MUST(set(file, F_SETLK, F_WRLCK, 0, 10) == 0 && set(reader, F_SETLK, F_RDLCK, 20, 10) == 0);
	MUST(set(file, F_SETLK, F_WRLCK, 1000, 0) == 0);
	MUST(set(ofd, F_OFD_SETLK, F_WRLCK, 100, 5) == 0);
	MUST(set(ofd, F_OFD_SETLK, F_RDLCK, 200, 5) == 0);
	MUST(flock(shared, LOCK_EX) == 0);
	lock_ends(pipes);
	MUST(pipe(go) == 0 && pipe(back) == 0);
	child = fork();
	if (child == 0) {
		/* the same descriptions, but POSIX locks of its own, by a descriptor that its parent has too */
		MUST(set(file, F_SETLK, F_WRLCK, 50, 10) == 0);
		MUST(set(reader, F_SETLK, F_RDLCK, 20, 10) == 0);
		MUST(set(go[1], F_SETLK, F_WRLCK, 7, 1) ==
			0); /* what is no file can be locked, too */
		MUST(write(back[1], "l", 1) == 1 && read(go[0], &c, 1) == 1);
		MUST(holder(file, F_WRLCK, 0) == getppid() && holder(file, F_WRLCK, 50) == 0);
		MUST(holder(file, F_RDLCK, 100) == -1 && holder(file, F_RDLCK, 200) == 0);
		MUST(flock(shared, LOCK_EX | LOCK_NB) ==
			0); /* its own, though the parent took it */
		MUST(flock(other, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
		MUST(write(back[1], "d", 1) == 1 && read(go[0], &c, 1) == 1);
		_exit(0);
	}
	MUST(read(back[0], &c, 1) == 1);
	waiter = fork();
	if (waiter == 0) {
		/* in the kernel, until the lock is given up */
		MUST(close(shared) == 0 && set(file, F_SETLKW, F_WRLCK, 5, 1) == 0);
		MUST(write(back[1], "w", 1) == 1);
		_exit(0);
	}

	object_ready();

	MUST(holder(file, F_WRLCK, 50) == child && holder(file, F_WRLCK, 59) == child);
	MUST(holder(go[1], F_WRLCK, 7) == child && holder(go[1], F_WRLCK, 8) == 0);
	MUST(holder(file, F_WRLCK, 60) == 0 && holder(file, F_WRLCK, 49) == 0);
	MUST(holder(file, F_WRLCK, 20) == child && holder(file, F_RDLCK, 20) == 0);
	MUST(set(ofd, F_OFD_SETLK, F_WRLCK, 104, 1) == 0);
	MUST(set(ofd, F_OFD_SETLK, F_WRLCK, 1 << 20, 1) < 0 && errno == EAGAIN);
	MUST(flock(other, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK);
	MUST(write(go[1], "g", 1) == 1 && read(back[0], &c, 1) == 1 && c == 'd');
	MUST(close(shared) == 0 &&
		flock(other, LOCK_SH | LOCK_NB) < 0); /* the child has it still */
	MUST(write(go[1], "e", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
	MUST(flock(other, LOCK_SH | LOCK_NB) == 0 && holder(file, F_WRLCK, 50) == 0);
	MUST(set(file, F_SETLK, F_UNLCK, 0, 10) == 0);
	MUST(read(back[0], &c, 1) == 1 && c == 'w');
	MUST(waitpid(waiter, &status, 0) == waiter && status == 0);
	check_ends(pipes);
	return object_done();
}

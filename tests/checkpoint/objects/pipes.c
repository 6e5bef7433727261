/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipes: data inside, capacity, flags, a writer that waits because it is full, one whose other end is closed; ends that were opened once more through /proc, as programs do that are
 * given the name /dev/fd/63 or /dev/stderr, those of the standard streams among them.
 */
#include "object.h"

enum { FULL = 65536 };

static int open_again(int fd, int flags)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST((again = open(path, flags | O_CLOEXEC)) >= 0);
	return again;
}

static bool has(int fd, int flags)
{
	return (fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_APPEND)) == flags;
}

static void expect(int fd, const char *what)
{
	char got[16] = { 0 };

	MUST(read(fd, got, sizeof(got)) == (ssize_t)strlen(what) && strcmp(got, what) == 0);
}

/** struct again - pipes with more descriptions than two, or other ones. */
struct again {
	int shell[2], shell_reader; /* bash <(...) */
	int both, both_reader;      /* the first of them is for both */
	int one;                    /* for both, and the only one */
	int log[2], log_writer;     /* tee >(...) */
	int gone, gone_writer;      /* the ends that it was made with are closed */
	int lonely, lonely_again;   /* readers, and nobody writes */
	int in, out, err;           /* standard streams */
};

static struct again make_again(void)
{
	int both[2], one[2], gone[2], lonely[2];
	struct again a = { 0 };

	MUST(pipe(a.shell) == 0 && pipe(a.log) == 0 && pipe(both) == 0 && pipe(one) == 0 &&
		pipe(gone) == 0 && pipe(lonely) == 0);
	a.shell_reader = open_again(a.shell[0], O_RDONLY | O_NONBLOCK);
	MUST(write(a.shell[1], "script", 6) == 6 && close(a.shell[1]) == 0);
	a.log_writer = open_again(a.log[0], O_WRONLY | O_APPEND);
	MUST(write(a.log_writer, "log", 3) == 3);
	a.both_reader = fcntl(both[0], F_DUPFD, 100);
	MUST(a.both_reader >= 100 && close(both[0]) == 0);
	a.both = dup2(open_again(a.both_reader, O_RDWR), both[0]);
	MUST(a.both == both[0] && fcntl(both[1], F_SETPIPE_SZ, 1 << 17) == 1 << 17);
	MUST(write(a.both, "both", 4) == 4 && close(both[1]) == 0);
	a.one = open_again(one[0], O_RDWR | O_NONBLOCK);
	MUST(close(one[0]) == 0 && close(one[1]) == 0 && write(a.one, "one", 3) == 3);
	a.gone_writer = open_again(gone[0], O_WRONLY);
	a.gone = open_again(gone[1], O_RDONLY);
	MUST(close(gone[0]) == 0 && close(gone[1]) == 0 && write(a.gone_writer, "gone", 4) == 4);
	a.lonely = lonely[0];
	a.lonely_again = open_again(lonely[0], O_RDONLY);
	MUST(write(lonely[1], "lonely", 6) == 6 && close(lonely[1]) == 0);
	a.in = open_again(0, O_RDWR | O_NONBLOCK);
	a.out = open_again(1, O_WRONLY | O_APPEND);
	a.err = open_again(2, O_WRONLY | O_NONBLOCK);
	return a;
}

static void check_again(const struct again *a)
{
	struct stat first, second;

	MUST(has(a->shell[0], O_RDONLY) && has(a->shell_reader, O_RDONLY | O_NONBLOCK));
	expect(a->shell_reader, "script");
	expect(a->shell[0], "");
	expect(a->shell_reader, "");
	MUST(has(a->both, O_RDWR) && has(a->both_reader, O_RDONLY));
	MUST(fcntl(a->both_reader, F_GETPIPE_SZ) == 1 << 17);
	expect(a->both_reader, "both");
	object_talk(a->both, a->both_reader);
	MUST(has(a->one, O_RDWR | O_NONBLOCK));
	expect(a->one, "one");
	object_talk(a->one, a->one);
	MUST(has(a->log_writer, O_WRONLY | O_APPEND) && has(a->log[1], O_WRONLY));
	expect(a->log[0], "log");
	object_talk(a->log[1], a->log[0]);
	object_talk(a->log_writer, a->log[0]);
	MUST(close(a->log[1]) == 0 && close(a->log_writer) == 0);
	expect(a->log[0], "");
	expect(a->gone, "gone");
	object_talk(a->gone_writer, a->gone);
	expect(a->lonely_again, "lonely");
	expect(a->lonely, "");
	MUST(has(0, O_RDONLY) && has(a->in, O_RDWR | O_NONBLOCK));
	MUST(has(1, O_WRONLY) && has(a->out, O_WRONLY | O_APPEND));
	MUST(has(2, O_WRONLY) && has(a->err, O_WRONLY | O_NONBLOCK));
	MUST(fstat(1, &first) == 0 && fstat(a->out, &second) == 0 && first.st_ino == second.st_ino);
	object_talk(a->in, 0);
	/* what is said from now on goes this way */
	MUST(dup2(a->out, 1) == 1);
}

int main(void)
{
	static char bytes[FULL + 100], got[FULL + 100];
	int data[2], full[2], ended[2], broken[2], up[2];
	struct again again = make_again();
	pid_t child;
	size_t n = 0;
	char c;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 7);
	MUST(pipe2(data, O_NONBLOCK) == 0 && pipe(full) == 0 && pipe(ended) == 0 &&
		pipe(broken) == 0);
	MUST(fcntl(data[1], F_SETPIPE_SZ, 1 << 17) == 1 << 17);
	MUST(write(data[1], bytes, 1000) == 1000);
	MUST(write(ended[1], "end", 3) == 3 && close(ended[1]) == 0 && close(broken[0]) == 0);
	MUST(pipe(up) == 0);
	child = fork();
	if (child == 0) {
		MUST(write(up[1], "x", 1) == 1);
		/* waits in the middle: the pipe takes 65536. Being stopped makes the kernel say how much went in, to the source too */
		for (ssize_t more; n < FULL + 100; n += (size_t)more) {
			more = write(full[1], bytes + n, FULL + 100 - n);
			MUST(more > 0);
		}
		_exit(0);
	}
	MUST(close(full[1]) == 0 && read(up[0], &c, 1) == 1);

	object_ready();

	MUST(fcntl(data[0], F_GETPIPE_SZ) == 1 << 17 &&
		(fcntl(data[0], F_GETFL) & O_NONBLOCK) != 0);
	MUST(read(data[0], got, sizeof(got)) == 1000 && memcmp(got, bytes, 1000) == 0);
	MUST(read(data[0], got, 1) < 0 && errno == EAGAIN);
	MUST(read(ended[0], got, 10) == 3 && read(ended[0], got, 10) == 0);
	(void)signal(SIGPIPE, SIG_IGN);
	MUST(write(broken[1], "x", 1) < 0 && errno == EPIPE);
	for (ssize_t more; (more = read(full[0], got + n, sizeof(got) - n)) > 0; n += (size_t)more)
		;
	MUST(n == FULL + 100 && memcmp(got, bytes, n) == 0);
	MUST(waitpid(child, NULL, 0) == child);
	check_again(&again);
	return object_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes: data inside, capacity, flags, a writer that waits because it is full, one whose other end is closed. */
#include "object.h"

enum { FULL = 65536 };

int main(void)
{
	static char bytes[FULL + 100], got[FULL + 100];
	int data[2], full[2], ended[2], broken[2], up[2];
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
	return object_done();
}

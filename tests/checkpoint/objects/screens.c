/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo terminals whose master is read by nobody: as full as they get, by small pieces and by large ones, with somebody who waits to write more; and those that were stopped, by ^S and by tcflow(3). */
#include "object.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { MOST = 1 << 16, MORE = 20000, STOP = 023, START = 021 };

struct screen {
	int master, slave;
	size_t n; /* so many bytes are in it */
	pid_t writer;
};

static char byte_at(size_t i)
{
	return (char)(i % 251);
}

static struct screen make(bool plain)
{
	struct screen s = { 0 };
	struct termios t;
	char name[32];
	int unlocked = 0;
	unsigned int n;

	MUST((s.master = open("/dev/ptmx", O_RDWR | O_NOCTTY)) >= 0);
	MUST(ioctl(s.master, TIOCSPTLCK, &unlocked) == 0 && ioctl(s.master, TIOCGPTN, &n) == 0);
	(void)snprintf(name, sizeof(name), "/dev/pts/%u", n);
	MUST((s.slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK)) >= 0);
	MUST(tcgetattr(s.slave, &t) == 0);
	t.c_lflag &= ~(tcflag_t)ECHO;
	if (plain)
		t.c_oflag = 0;
	MUST(tcsetattr(s.slave, TCSANOW, &t) == 0);
	return s;
}

/* The kernel hands on what was written, by and by, and nobody is told when there is room again. */
static void fill(struct screen *s, size_t piece)
{
	static char bytes[MOST];

	for (size_t i = 0; i < MOST; i++)
		bytes[i] = byte_at(i);
	for (int tries = 0; tries < 100;) {
		ssize_t n = write(s->slave, bytes + s->n, piece);

		MUST(n > 0 || (n < 0 && errno == EAGAIN));
		if (n > 0) {
			s->n += (size_t)n;
			tries = 0;
		} else {
			tries++;
			(void)usleep(1000);
		}
	}
}

/* Somebody who waits until there is room. */
static void write_more(struct screen *s)
{
	s->writer = fork();
	if (s->writer != 0)
		return;
	MUST(fcntl(s->slave, F_SETFL, 0) == 0);
	for (size_t i = 0; i < MORE; i++) {
		char c = byte_at(s->n + i);

		MUST(write(s->slave, &c, 1) == 1);
	}
	_exit(7);
}

static void check(const struct screen *s, size_t more)
{
	char got[4096];
	size_t n = 0;
	int status;

	while (n < s->n + more) {
		ssize_t some = read(s->master, got, sizeof(got));

		MUST(some > 0);
		for (ssize_t i = 0; i < some; i++, n++) {
			if (got[i] != byte_at(n))
				object_fail("byte %zu of %zu is another", n, s->n);
		}
	}
	MUST(n == s->n + more);
	if (s->writer != 0)
		MUST(waitpid(s->writer, &status, 0) == s->writer && WEXITSTATUS(status) == 7);
}

static bool is_writable(int fd)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 0) == 1;
}

static void check_stopped(const struct screen *s)
{
	char c = START, got[16];

	MUST(!is_writable(s->slave) && read(s->master, got, sizeof(got)) == 5);
	MUST(memcmp(got, "shown", 5) == 0 && !is_writable(s->slave));
	MUST(write(s->slave, "x", 1) < 0 && errno == EAGAIN);
	MUST(write(s->master, &c, 1) == 1);
	while (!is_writable(s->slave))
		(void)usleep(1000);
	MUST(write(s->slave, "x", 1) == 1 && read(s->master, got, sizeof(got)) == 1);
}

static void check_held(const struct screen *s)
{
	char got[16];

	MUST(!is_writable(s->slave) && read(s->master, got, sizeof(got)) == 4);
	MUST(memcmp(got, "held", 4) == 0 && !is_writable(s->slave));
	MUST(read(s->slave, got, sizeof(got)) == 6 && memcmp(got, "typed\n", 6) == 0);
	MUST(tcflow(s->slave, TCOON) == 0 && is_writable(s->slave));
	MUST(write(s->slave, "x", 1) == 1 && read(s->master, got, sizeof(got)) == 1);
}

int main(void)
{
	struct screen small = make(true), large = make(true), both = make(true),
		      stopped = make(false), held = make(false);
	char c = STOP;

	fill(&small, 3);
	fill(&large, 5000);
	fill(&both, 64);
	fill(&both, 4096);
	write_more(&small);
	MUST(write(stopped.slave, "shown", 5) == 5 && write(stopped.master, &c, 1) == 1);
	while (is_writable(stopped.slave))
		(void)usleep(1000);
	MUST(write(held.slave, "held", 4) == 4 && write(held.master, "typed\n", 6) == 6);
	MUST(poll(&(struct pollfd){ .fd = held.slave, .events = POLLIN }, 1, 10000) == 1);
	MUST(tcflow(held.slave, TCOOFF) == 0);

	object_ready();

	check(&large, 0);
	check(&both, 0);
	check(&small, MORE);
	check_stopped(&stopped);
	check_held(&held);
	return object_done();
}

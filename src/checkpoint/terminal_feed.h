/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/terminal_feed.h - putting bytes into the input of a terminal as if they had been typed, past its echo, its signals and its editing; and into its output.
 *
 * For two programs, one of them without libc: the dumper puts back what it had to take out to look at it, the restorer puts in what the image holds.
 * A line stays a line, the beginning of one can still be edited, an end of file stays one.
 *
 * The kernel takes what is written to a master into the slave's input by itself, later. That it has done so is seen by a last byte that stops the output:
 * in packet mode the master is told.
 */
#ifndef CAY_CHECKPOINT_TERMINAL_FEED_H
#define CAY_CHECKPOINT_TERMINAL_FEED_H

#include "checkpoint/image.h"
#include <asm/ioctls.h>
#include <asm/unistd.h>

#define TERMINAL_FEED_MAX    3500U /* less than what the kernel holds, 4096 */
#define TERMINAL_WAIT_MS     5000
#define TERMINAL_WAIT_ROUNDS 1000000U
#define TERMINAL_PIECE       256U  /* of output: the least that the kernel sets aside for some */
#define TERMINAL_QUEUE       4095U /* what it holds for one who reads; the rest lies before that */

#define TERMINAL_GET_MODES _IOR('T', 0x2A, struct image_termios) /* TCGETS2 */
#define TERMINAL_SET_MODES _IOW('T', 0x2B, struct image_termios) /* TCSETS2 */

/* <asm/termbits.h> and <asm/poll.h>, which cannot be included beside libc's */
enum {
	TERMINAL_POLLIN = 1,
	TERMINAL_POLLPRI = 2,
	TERMINAL_POLLOUT = 4,
	TERMINAL_IXON = 02000,
	TERMINAL_ICANON = 02,
	TERMINAL_IEXTEN = 0100000,
	TERMINAL_VEOF = 4,
	TERMINAL_VTIME = 5,
	TERMINAL_VMIN = 6,
	TERMINAL_VSTOP = 9,
	TERMINAL_VEOL = 11,
	TERMINAL_VEOL2 = 16,
	TERMINAL_HOLD = 0,  /* TCOOFF */
	TERMINAL_GO_ON = 1, /* TCOON */
};

/** terminal_call - a system call: its result or -errno. */
typedef long terminal_call(long nr, long a, long b, long c);

/** terminal_unused() - a byte that is neither 0, nor @other, nor among @n @bytes nor the ends of lines. Return: the byte, -E2BIG when there is none. */
static inline int terminal_unused(
	const struct image_termios *m, const char *bytes, uint64_t n, int other)
{
	for (int byte = 255; byte > 0; byte--) {
		uint64_t i = 0;

		while (i < n && (uint8_t)bytes[i] != byte)
			i++;
		if (i == n && byte != other && byte != '\n' && byte != m->chars[TERMINAL_VEOL] &&
			byte != m->chars[TERMINAL_VEOL2])
			return byte;
	}
	return -7; /* E2BIG */
}

/** terminal_quiet() - modes @m without echo, signals or editing; the ends of lines are as they were. */
static inline struct image_termios terminal_quiet(
	const struct image_termios *m, int stop, int end_of_file)
{
	struct image_termios quiet = *m;
	uint8_t line_end[2] = { m->chars[TERMINAL_VEOL], m->chars[TERMINAL_VEOL2] };

	quiet.input = TERMINAL_IXON;
	quiet.output = 0;
	quiet.local &= TERMINAL_ICANON | TERMINAL_IEXTEN;
	for (unsigned int i = 0; i < sizeof(quiet.chars); i++)
		quiet.chars[i] = 0;
	quiet.chars[TERMINAL_VSTOP] = (uint8_t)stop;
	quiet.chars[TERMINAL_VEOF] = (uint8_t)end_of_file;
	quiet.chars[TERMINAL_VMIN] = 1;
	quiet.chars[TERMINAL_VEOL] = line_end[0];
	quiet.chars[TERMINAL_VEOL2] = line_end[1];
	return quiet;
}

/** terminal_wait() - until the master is told that the output was stopped. Return: 0 or -errno. */
static inline long terminal_wait(terminal_call *call, int master)
{
	/* the kernel wakes those who wait for input, and what it has to say is urgent: output that waits there makes us ask again and again */
	struct {
		int fd;
		short events, revents;
	} p = { .fd = master, .events = TERMINAL_POLLIN | TERMINAL_POLLPRI };
	long rc = 1;

	for (unsigned int i = 0; rc == 1 && i < TERMINAL_WAIT_ROUNDS; i++) {
		rc = call(__NR_poll, (long)&p, 1, TERMINAL_WAIT_MS);
		if (rc == 1 && (p.revents & TERMINAL_POLLPRI) != 0)
			return 0;
	}
	return rc < 0 ? rc : -110; /* ETIMEDOUT */
}

/** terminal_type() - write @n @bytes to @master and then @stop, and wait until the slave has them. An end of file is a 0 among lines. Return: 0 or -errno. */
static inline long terminal_type(
	terminal_call *call, int master, const char *bytes, uint64_t n, int stop, int end_of_file)
{
	char byte = (char)stop;
	long rc = 1;

	for (uint64_t i = 0; rc == 1 && i < n; i++) {
		char c = bytes[i] == 0 && end_of_file != 0 ? (char)end_of_file : bytes[i];

		rc = call(__NR_write, master, (long)&c, 1);
	}
	if (rc == 1)
		rc = call(__NR_write, master, (long)&byte, 1);
	return rc < 0 ? rc : terminal_wait(call, master);
}

/**
 * terminal_feed() - put @n @bytes into the input of the terminal of @master and @slave, whose modes are @m before and after.
 * @n: at most TERMINAL_FEED_MAX. Leaves packet mode off. Return: 0 or -errno.
 */
static inline long terminal_feed(terminal_call *call, int master, int slave,
	const struct image_termios *m, const char *bytes, uint64_t n)
{
	int stop = terminal_unused(m, bytes, n, 0), packets = 1, none = 0, end_of_file = 0;
	struct image_termios quiet, still;
	long rc = stop;

	if ((m->local & TERMINAL_ICANON) != 0 && rc > 0)
		rc = end_of_file = terminal_unused(m, bytes, n, stop);
	if (rc < 0)
		return rc;
	still = quiet = terminal_quiet(m, stop, end_of_file);
	/* without flow control what was stopped goes on */
	still.input = 0;
	rc = call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&still);
	if (rc == 0)
		rc = call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&quiet);
	(void)call(__NR_ioctl, master, TIOCPKT, (long)&none);
	if (rc == 0)
		rc = call(__NR_ioctl, master, TIOCPKT, (long)&packets);
	if (rc == 0)
		rc = terminal_type(call, master, bytes, n, stop, end_of_file);
	(void)call(__NR_ioctl, master, TIOCPKT, (long)&none);
	(void)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&still);
	(void)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)m);
	return rc;
}

/** terminal_has_all() - has the kernel handed on to @master as much as it holds for one who reads? */
static inline bool terminal_has_all(terminal_call *call, int master)
{
	int n = 0;

	return call(__NR_ioctl, master, FIONREAD, (long)&n) < 0 || n >= (int)TERMINAL_QUEUE;
}

/**
 * terminal_print() - put @n @bytes into the output of the terminal of @master and @slave, a description that does not wait, with modes that change nothing of it.
 *
 * What fitted in fits in again: the kernel takes small pieces while there is room, and behind them one of any size. It hands on to the master by itself, later; that there is room
 * again nobody is told. Return: 0 or -errno.
 */
static inline long terminal_print(
	terminal_call *call, int master, int slave, const char *bytes, uint64_t n)
{
	struct {
		int fd;
		short events, revents;
	} p = { .fd = slave, .events = TERMINAL_POLLOUT };
	unsigned int waited_ms = 0;

	while (n > 0) {
		bool room = call(__NR_poll, (long)&p, 1, 0) == 1;
		uint64_t piece = room && n > TERMINAL_PIECE ? TERMINAL_PIECE : n;
		long rc = -11; /* EAGAIN */

		if (room || terminal_has_all(call, master))
			rc = call(__NR_write, slave, (long)bytes, (long)piece);
		if (rc > 0) {
			bytes += rc;
			n -= (uint64_t)rc;
		} else if (rc != -11 || waited_ms++ == TERMINAL_WAIT_MS) {
			return rc < 0 ? rc : -5; /* EIO */
		} else {
			(void)call(__NR_poll, (long)&p, 1, 1);
		}
	}
	return 0;
}

#endif

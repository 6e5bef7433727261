/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo terminals with both ends here: numbers, modes, size, sessions and foreground groups, packet mode, what waits in both directions, echo, those that nobody else may open, or that were locked. */
#include "object.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

struct pair {
	int master, slave;
	char name[32];
};

static int tell[2], answer[2];

static struct pair make(void)
{
	struct pair p;
	int unlocked = 0;
	unsigned int n;

	MUST((p.master = open("/dev/ptmx", O_RDWR | O_NOCTTY)) >= 0);
	MUST(ioctl(p.master, TIOCSPTLCK, &unlocked) == 0 && ioctl(p.master, TIOCGPTN, &n) == 0);
	(void)snprintf(p.name, sizeof(p.name), "/dev/pts/%u", n);
	MUST((p.slave = open(p.name, O_RDWR | O_NOCTTY)) >= 0);
	return p;
}

static void set_local(int fd, tcflag_t on, tcflag_t off)
{
	struct termios t;

	MUST(tcgetattr(fd, &t) == 0);
	t.c_lflag = (t.c_lflag | on) & ~off;
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	MUST(tcsetattr(fd, TCSANOW, &t) == 0);
}

static void expect(int fd, const char *text)
{
	char got[256] = { 0 };
	size_t n = 0;

	while (n < strlen(text)) {
		ssize_t more = read(fd, got + n, strlen(text) - n);

		MUST(more > 0);
		n += (size_t)more;
	}
	if (strcmp(got, text) != 0)
		object_fail("read '%s', not '%s'", got, text);
}

static void expect_line(int fd, const char *text)
{
	char got[256] = { 0 };

	MUST(read(fd, got, sizeof(got) - 1) == (ssize_t)strlen(text));
	if (strcmp(got, text) != 0)
		object_fail("read the line '%s', not '%s'", got, text);
}

static void put(int fd, const char *text)
{
	MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static int status_of(pid_t pid)
{
	int status;

	pid_t got = waitpid(pid, &status, 0);

	MUST((pid == -1 || got == pid) && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static volatile sig_atomic_t interrupts;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupts++;
}

/* In a session that has the terminal, with a child in the background and one in front. */
static void session(struct pair p)
{
	struct sigaction interrupt = { .sa_handler = on_interrupt };
	int own;
	pid_t front;
	char c;

	MUST(setsid() > 0 && ioctl(p.slave, TIOCSCTTY, 0) == 0);
	MUST(sigaction(SIGINT, &interrupt, NULL) == 0 && signal(SIGTTOU, SIG_IGN) != SIG_ERR);
	front = fork();
	if (front == 0) {
		MUST(setpgid(0, 0) == 0 && tcsetpgrp(p.slave, getpid()) == 0);
		MUST(write(answer[1], "f", 1) == 1);
		while (interrupts == 0)
			(void)usleep(1000);
		own = open("/dev/tty", O_RDWR);
		MUST(own >= 0 && tcgetpgrp(own) == getpid() && tcgetsid(own) == getppid());
		_exit(9);
	}
	MUST((own = open("/dev/tty", O_RDWR)) >= 0);
	if (fork() == 0) {
		int status;

		MUST(ioctl(own, TIOCNOTTY, 0) == 0);
		MUST(write(answer[1], "n", 1) == 1 && read(tell[0], &c, 1) == 1);
		errno = 0;
		MUST(open("/dev/tty", O_RDWR) < 0 && errno == ENXIO);
		status = ioctl(p.slave, TIOCGPGRP, &status);
		_exit(status < 0 && errno == ENOTTY ? 8 : 1);
	}
	MUST(write(answer[1], "s", 1) == 1 && read(tell[0], &c, 1) == 1);
	MUST(tcgetpgrp(own) == front && tcgetsid(p.slave) == getpid() && interrupts == 0);
	MUST(write(answer[1], "g", 1) == 1 && status_of(front) == 9);
	_exit(7);
}

int main(void)
{
	struct winsize size = { 47, 132, 3, 4 }, now_size;
	struct pair gone = make(), plain = make(), raw, packets, front, shut;
	struct pair cooked = make();
	struct termios modes, now;
	int on = 1, off = 0, value, locked, locked_slave;
	pid_t leader;
	char c;

	MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(tell) == 0 && pipe(answer) == 0);
	/* a number between others is free */
	MUST(close(plain.master) == 0 && close(plain.slave) == 0);
	raw = make();
	packets = make();
	front = make();
	MUST(strcmp(raw.name, plain.name) == 0);
	MUST(close(gone.master) == 0);
	/* as posix_openpt() gives it */
	MUST((locked = open("/dev/ptmx", O_RDWR | O_NOCTTY)) >= 0);
	/* who has it open goes on, nobody else comes to it */
	shut = make();
	MUST(ioctl(shut.master, TIOCSPTLCK, &on) == 0);

	MUST(ioctl(cooked.master, TIOCSWINSZ, &size) == 0 && fchmod(cooked.slave, 0640) == 0);
	set_local(cooked.slave, 0, ECHO);
	put(cooked.master, "first\nsecond\n\x04half");
	MUST(tcgetattr(cooked.slave, &modes) == 0);
	modes.c_cc[VKILL] = 'K';
	modes.c_lflag |= ECHO;
	MUST(poll(&(struct pollfd){ .fd = cooked.slave, .events = POLLIN }, 1, 10000) == 1);
	while (ioctl(cooked.slave, FIONREAD, &value) == 0 && value < 13)
		(void)sched_yield();
	MUST(tcsetattr(cooked.slave, TCSANOW, &modes) == 0);
	put(cooked.slave, "to the master\n");

	set_local(raw.slave, 0, ECHO | ICANON | ISIG);
	put(raw.master, "ab\x03\x04\x16z");
	put(raw.slave, "screen");
	MUST(ioctl(packets.master, TIOCPKT, &on) == 0);
	MUST(ioctl(packets.slave, TIOCEXCL) == 0 && ioctl(cooked.slave, TIOCEXCL) == 0);
	leader = fork();
	if (leader == 0)
		session(front);
	for (int i = 0; i < 3; i++)
		MUST(read(answer[0], &c, 1) == 1);

	object_ready();

	MUST(read(gone.slave, &c, 1) == 0);
	MUST(write(gone.slave, "x", 1) < 0 && errno == EIO);
	MUST(ioctl(cooked.slave, TIOCGWINSZ, &now_size) == 0 &&
		memcmp(&size, &now_size, sizeof(size)) == 0);
	MUST(tcgetattr(cooked.slave, &now) == 0 && now.c_cc[VKILL] == 'K' &&
		now.c_lflag == modes.c_lflag && now.c_iflag == modes.c_iflag &&
		now.c_oflag == modes.c_oflag && now.c_cflag == modes.c_cflag);
	for (int i = 0; i < 4; i++) {
		struct pair p = ((struct pair[]){ cooked, raw, packets, front })[i];
		struct stat by_name, by_fd;

		MUST(strcmp(ttyname(p.slave), p.name) == 0);
		MUST(stat(p.name, &by_name) == 0 && fstat(p.slave, &by_fd) == 0);
		MUST(by_name.st_ino == by_fd.st_ino);
		MUST(i != 0 || (by_fd.st_mode & 07777) == 0640);
	}
	MUST(ioctl(raw.slave, TIOCGEXCL, &value) == 0 && value == 0);
	MUST(ioctl(cooked.slave, TIOCGEXCL, &value) == 0 && value == 1);
	MUST(open(cooked.name, O_RDWR | O_NOCTTY) < 0 && errno == EBUSY);
	MUST(open(packets.name, O_RDWR | O_NOCTTY) < 0 && errno == EBUSY);
	MUST(open(ptsname(locked), O_RDWR | O_NOCTTY) < 0 && errno == EIO);
	MUST(ioctl(locked, TIOCSPTLCK, &off) == 0);
	MUST((locked_slave = open(ptsname(locked), O_RDWR | O_NOCTTY)) >= 0);
	put(locked_slave, "unlocked\n");
	put(shut.slave, "shut\n");
	expect(shut.master, "shut\r\n");
	MUST(open(shut.name, O_RDWR | O_NOCTTY) < 0 && errno == EIO);
	expect(locked, "unlocked\r\n");
	expect(cooked.master, "to the master\r\n");
	expect_line(cooked.slave, "first\n");
	expect_line(cooked.slave, "second\n");
	MUST(read(cooked.slave, &c, 1) == 0); /* ^D */
	put(cooked.master, "\x7f-ve\n");
	expect(cooked.master, "\b \b-ve\r\n");
	expect_line(cooked.slave, "hal-ve\n");
	expect(raw.slave, "ab\x03\x04\x16z");
	expect(raw.master, "screen");
	put(raw.master, "more");
	expect(raw.slave, "more");
	MUST(ioctl(packets.master, TIOCGPKT, &value) == 0 && value == 1);
	put(packets.slave, "p");
	MUST(read(packets.master, &c, 1) == 1 && c == TIOCPKT_DATA);
	MUST(tcflush(packets.slave, TCIFLUSH) == 0);
	put(tell[1], "12");
	MUST(read(answer[0], &c, 1) == 1 && c == 'g');
	put(front.master, "\x03");
	MUST(status_of(leader) == 7 && status_of(-1) == 8);
	return object_done();
}

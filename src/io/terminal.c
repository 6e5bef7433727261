/* SPDX-License-Identifier: Apache-2.0 */
#include "io/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static struct termios saved;
static int raw_fd = -1;

void terminal_restore(void)
{
	int e = errno;

	if (raw_fd >= 0)
		(void)tcsetattr(raw_fd, TCSADRAIN, &saved);
	raw_fd = -1;
	errno = e;
}

static void on_fault(int sig)
{
	terminal_restore();
	(void)raise(sig); /* SA_RESETHAND: the second time it is deadly */
}

static void restore_always(void)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL };
	static bool done;
	struct sigaction act = { .sa_handler = on_fault };

	if (done)
		return;
	done = true;
	act.sa_flags = (int)(SA_RESETHAND | SA_NODEFER);
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
		(void)sigaction(faults[i], &act, NULL);
	(void)atexit(terminal_restore);
}

int terminal_raw(int fd)
{
	struct termios raw;

	if (raw_fd >= 0)
		return 0;
	if (tcgetattr(fd, &saved) < 0)
		return -errno;
	restore_always();
	raw = saved;
	cfmakeraw(&raw);
	raw_fd = fd;
	if (tcsetattr(fd, TCSADRAIN, &raw) < 0) {
		raw_fd = -1;
		return -errno;
	}
	return 0;
}

void terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_columns)
{
	struct winsize size = { 0 };

	(void)ioctl(fd, TIOCGWINSZ, &size);
	*ret_rows = size.ws_row > 0 ? size.ws_row : 24;
	*ret_columns = size.ws_col > 0 ? size.ws_col : 80;
}

bool terminal_foreground(int fd)
{
	return tcgetpgrp(fd) == getpgrp();
}

bool terminal_background(int fd)
{
	pid_t there = tcgetpgrp(fd);

	return there > 0 && there != getpgrp();
}

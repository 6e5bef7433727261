/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/terminals.c - pseudo terminals with their numbers, modes and what waits in them. In the opener.
 *
 * A terminal of an exec is there already: the fork's keeper has made it and lends its master. Their sessions are tied to them in fork_tree.c, where the
 * processes are cloned.
 */
#include "prog/cay-template/fork.h"

#include "checkpoint/terminal_feed.h"

#define TERMINALS_MAX 256
#define AT_CWD        (-100)
#define O_READ_WRITE  02
#define O_NO_TERMINAL 0400
#define O_NONBLOCKING 04000
#define O_ACCESS      03
#define SIGHUP        1

typedef const struct image_terminal terminal;

static int masters[TERMINALS_MAX], slaves[TERMINALS_MAX];

static uint32_t n_terminals(void)
{
	return (uint32_t)(image->tables[TABLE_TERMINALS].count / sizeof(terminal));
}

static terminal *row(uint64_t i)
{
	if (i >= n_terminals())
		fork_fail("find a terminal", -ENOENT);
	return IMAGE_ROW(struct image_terminal, TABLE_TERMINALS, i);
}

static long call(long nr, long a, long b, long c)
{
	return CALL3(nr, a, b, c);
}

static long control(int fd, uint32_t request, const void *argument, const char *step)
{
	return fork_must(CALL3(__NR_ioctl, fd, request, argument), step);
}

static void name_of(uint32_t number, char path[24])
{
	memcpy(path, "/dev/pts/", 9);
	*bare_digits(path + 9, number, 10) = '\0';
}

static int open_slave(uint32_t number, uint32_t flags)
{
	char path[24];

	name_of(number, path);
	return (int)fork_must(
		CALL4(__NR_openat, AT_CWD, path, flags | BARE_CLOEXEC, 0), "open a terminal");
}

/* --- masters --- */

static int open_master(uint32_t *ret_number)
{
	const int unlocked = 0;
	int fd = (int)fork_must(CALL4(__NR_openat, AT_CWD, "/dev/pts/ptmx",
					O_READ_WRITE | O_NO_TERMINAL | BARE_CLOEXEC, 0),
		"make a terminal");

	(void)control(fd, TIOCGPTN, ret_number, "ask for a terminal's number");
	(void)control(fd, TIOCSPTLCK, &unlocked, "unlock a terminal");
	return fd;
}

/* The kernel gives the lowest that is free: take those below it for a moment. */
static int open_numbered(uint32_t wanted)
{
	int below[TERMINALS_MAX], fd, n = 0;
	uint32_t number;

	while ((fd = open_master(&number), number) < wanted && n < TERMINALS_MAX)
		below[n++] = fd;
	if (number != wanted)
		fork_fail("make a terminal with its number", -EEXIST);
	while (n > 0)
		(void)CALL1(__NR_close, below[--n]);
	return fd;
}

static void set_owner(terminal *t)
{
	char path[24];

	name_of(t->number, path);
	(void)CALL3(__NR_chown, path, t->uid, t->gid);
	(void)CALL2(__NR_chmod, path, t->mode);
}

static void put_output(int master, int slave, terminal *t)
{
	struct image_termios plain = t->modes;

	plain.output = 0;
	(void)control(slave, TERMINAL_SET_MODES, &plain, "set a terminal's modes");
	(void)fork_must(
		terminal_print(call, master, slave, image_bytes(t->output), t->output.length),
		"fill a terminal");
}

static void fill(int master, int slave, terminal *t)
{
	if (t->output.length > 0)
		put_output(master, slave, t);
	(void)control(slave, TERMINAL_SET_MODES, &t->modes, "set a terminal's modes");
	if (t->input.length > 0)
		(void)fork_must(terminal_feed(call, master, slave, &t->modes, image_bytes(t->input),
					t->input.length),
			"fill the input of a terminal");
	if ((t->flags & TERMINAL_STOPPED) != 0)
		(void)fork_must(CALL3(__NR_write, master, &t->modes.chars[TERMINAL_VSTOP], 1),
			"stop a terminal");
	if ((t->flags & TERMINAL_HELD) != 0)
		(void)fork_must(CALL3(__NR_ioctl, slave, TCXONC, TERMINAL_HOLD), "stop a terminal");
}

static void make_one(uint32_t i)
{
	const int packets = 1;
	terminal *t = row(i);
	int master, slave;

	masters[i] = slaves[i] = -1;
	if ((t->flags & TERMINAL_GONE) != 0)
		return;
	master = masters[i] =
		t->slot != IMAGE_NONE ? fork.slots[t->slot] : open_numbered(t->number);
	set_owner(t);
	(void)control(master, TIOCSWINSZ, t->size, "size a terminal");
	(void)control(master, TERMINAL_SET_MODES, &t->modes, "set a terminal's modes");
	if ((t->flags & (TERMINAL_OPEN | TERMINAL_CLOSED)) != 0) {
		/* open until its descriptions are: with the last of them what waits goes */
		slave = slaves[i] =
			open_slave(t->number, O_READ_WRITE | O_NO_TERMINAL | O_NONBLOCKING);
		fill(master, slave, t);
	}
	if ((t->flags & TERMINAL_PACKETS) != 0)
		(void)control(master, TIOCPKT, &packets, "set a terminal's packet mode");
}

void terminals_make(void)
{
	if (n_terminals() > TERMINALS_MAX)
		fork_fail("make terminals", -E2BIG);
	for (uint32_t i = 0; i < n_terminals(); i++)
		make_one(i);
}

int terminals_master(const struct image_description *d)
{
	(void)row(d->a);
	/* ours stays until the end */
	return (int)fork_must(CALL3(__NR_fcntl, masters[d->a], 1030 /* F_DUPFD_CLOEXEC */, 0),
		"take a terminal's master");
}

/* --- slaves --- */

/* All that can be done with it is to be told that it is over. */
static int open_without_master(uint32_t flags)
{
	uint32_t number;
	int master = open_master(&number), fd = open_slave(number, flags);

	(void)CALL1(__NR_close, master);
	return fd;
}

/* By the name that means the terminal of one's own session: so the opener has it for a moment. */
static int open_own(uint32_t number, uint32_t flags)
{
	const uint64_t ignore[4] = { 1 /* SIG_IGN */ };
	int fd, own;

	(void)CALL4(__NR_rt_sigaction, SIGHUP, ignore, 0, 8);
	(void)CALL0(__NR_setsid);
	own = open_slave(number, O_READ_WRITE | O_NO_TERMINAL);
	(void)control(own, TIOCSCTTY, 0, "take a terminal");
	fd = (int)fork_must(
		CALL4(__NR_openat, AT_CWD, "/dev/tty", flags | BARE_CLOEXEC, 0), "open /dev/tty");
	(void)control(own, TIOCNOTTY, 0, "leave a terminal");
	(void)CALL1(__NR_close, own);
	return fd;
}

int terminals_open(const struct image_description *d)
{
	uint32_t flags = (d->flags & (O_ACCESS | O_NONBLOCKING)) | O_NO_TERMINAL;

	if (d->a == IMAGE_NONE || (row(d->a)->flags & TERMINAL_GONE) != 0)
		return open_without_master(flags);
	return d->b != 0 ? open_own(row(d->a)->number, flags)
			 : open_slave(row(d->a)->number, flags);
}

void terminals_end(void)
{
	const int locked = 1;

	for (uint32_t i = 0; i < n_terminals(); i++) {
		terminal *t = row(i);

		if ((t->flags & TERMINAL_EXCLUSIVE) != 0 && slaves[i] >= 0)
			(void)control(slaves[i], TIOCEXCL, 0, "reserve a terminal");
		if ((t->flags & TERMINAL_LOCKED) != 0 && masters[i] >= 0)
			(void)control(masters[i], TIOCSPTLCK, &locked, "lock a terminal");
	}
}

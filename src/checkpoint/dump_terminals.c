/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_terminals.c - pseudo terminals: those that programs made, and those of execs, whose master the keeper has.
 *
 * What waits in a terminal cannot be looked at without taking it out; everybody who could see that is stopped, and it is put back at once. Should we die in
 * between, so do the processes (PTRACE_O_EXITKILL).
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "checkpoint/terminal_feed.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#define MAJOR_OTHER 5 /* /dev/tty, /dev/ptmx */
#define MINOR_TTY   0
#define MINOR_PTMX  2
#define MAJOR_SLAVE 136 /* to 143 */
#define N_TTY       0
#define OUTPUT_MAX  (1U << 20)

static long call(long nr, long a, long b, long c)
{
	long rc = syscall(nr, a, b, c);

	return rc < 0 ? -errno : rc;
}

/* --- which there are --- */

static uint32_t slave_number(dev_t device)
{
	return (major(device) - MAJOR_SLAVE) * 256 + minor(device);
}

static bool is_slave(dev_t device)
{
	return major(device) >= MAJOR_SLAVE && major(device) < MAJOR_SLAVE + 8;
}

/* The slot of a terminal of the keeper's; its master is the so-manieth that came. */
static void find_slot(const struct dump *d, struct dump_terminal *t)
{
	size_t master = 0;

	for (uint32_t i = 0; i < d->order->n_slots; i++) {
		if (d->order->slots[i].is_terminal == 0)
			continue;
		if (d->order->slots[i].number == t->out.number && master < d->n_masters) {
			t->out.slot = i;
			t->master = d->masters[master];
		}
		master++;
	}
}

static uint32_t find_or_add(struct dump *d, const struct subject *s, uint32_t number)
{
	struct dump_terminal *all;

	for (size_t i = 0; i < d->n_terminals; i++) {
		if (d->terminals[i].out.number == number)
			return (uint32_t)i;
	}
	all = realloc(d->terminals, (d->n_terminals + 1) * sizeof(*all));
	if (all == NULL)
		abort();
	d->terminals = all;
	all[d->n_terminals] = (struct dump_terminal){ .p = s->p,
		.fd = s->fd,
		.master = -1,
		.exclusive = -1,
		.out = { .number = number, .slot = IMAGE_NONE } };
	find_slot(d, &all[d->n_terminals]);
	return (uint32_t)d->n_terminals++;
}

static int add_master(struct dump *d, struct subject *s, struct err *err)
{
	unsigned int number;
	struct dump_terminal *t;

	if (ioctl(s->copy, TIOCGPTN, &number) < 0)
		return subject_refuse(s, err, "a terminal of which the kernel tells nothing");
	s->out.kind = DESCRIPTION_MASTER;
	s->out.a = find_or_add(d, s, number);
	/* of those that run nothing more is asked, and none is held */
	if (d->examination != NULL)
		return 1;
	t = &d->terminals[s->out.a];
	t->master = dump_copy(d, s->copy);
	return t->master < 0 ? err_raise_sys(err, t->master, "keep a terminal") : 1;
}

/* Nobody but the host's root opens it once more, so what a program has open must do. */
static int keep_exclusive(struct dump *d, const struct subject *s, struct dump_terminal *t)
{
	int exclusive = 0;

	if (d->examination != NULL || t->exclusive >= 0 ||
		ioctl(s->copy, TIOCGEXCL, &exclusive) < 0 || exclusive == 0)
		return 0;
	t->out.flags |= TERMINAL_EXCLUSIVE;
	t->exclusive = dump_copy(d, s->copy);
	return t->exclusive < 0 ? t->exclusive : 0;
}

static int add_slave(struct dump *d, struct subject *s, dev_t device, struct err *err)
{
	struct image_termios modes;
	int rc;

	s->out.kind = DESCRIPTION_TERMINAL;
	/* one whose master has closed answers nothing any more */
	if (ioctl(s->copy, TERMINAL_GET_MODES, &modes) < 0 || !is_slave(device)) {
		s->out.a = IMAGE_NONE;
		return 1;
	}
	s->out.a = find_or_add(d, s, slave_number(device));
	d->terminals[s->out.a].out.flags |= TERMINAL_OPEN;
	rc = keep_exclusive(d, s, &d->terminals[s->out.a]);
	return rc < 0 ? err_raise_sys(err, rc, "keep a terminal") : 1;
}

/* As the kernel packs one into 32 bits (new_encode_dev() of linux/kdev_t.h). */
static dev_t device_of(uint32_t packed)
{
	return makedev(packed >> 8 & 0xfff, (packed & 0xff) | (packed >> 12 & 0xfff00));
}

int dump_terminal(struct dump *d, struct subject *s, struct err *err)
{
	unsigned int device = 0;

	if (is_slave(s->st.st_rdev))
		return add_slave(d, s, s->st.st_rdev, err);
	if (s->st.st_rdev == makedev(MAJOR_OTHER, MINOR_PTMX))
		return add_master(d, s, err);
	if (s->st.st_rdev != makedev(MAJOR_OTHER, MINOR_TTY))
		return 0;
	s->out.b = 1;
	(void)ioctl(s->copy, TIOCGDEV, &device);
	return add_slave(d, s, device_of(device), err);
}

/* --- what waits in one --- */

static int wait_for(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, 0) == 1 ? p.revents : 0;
}

/* What is there to be read now. Asking whether there is anything makes the kernel hand over what it still has. */
static int waiting(int fd)
{
	int n = 0;

	(void)wait_for(fd, POLLIN);
	return ioctl(fd, FIONREAD, &n) < 0 ? -errno : n;
}

static int take(int fd, struct buf *out)
{
	int n;

	while ((n = waiting(fd)) > 0) {
		char *room = buf_room(out, (size_t)n);
		ssize_t got = room == NULL ? -1 : read(fd, room, (size_t)n);

		if (got <= 0)
			return room == NULL ? -E2BIG : got < 0 ? -errno : -EIO;
		buf_grown(out, (size_t)got);
	}
	return n;
}

/* Typed and not yet read, the beginning of a line too, which only a terminal without lines shows. */
static int take_input(struct dump *d, struct dump_terminal *t, int slave)
{
	cleanup_buf struct buf bytes = BUF_INIT(TERMINAL_FEED_MAX);
	struct image_termios raw = t->out.modes;
	int rc = waiting(slave), back = 0;

	raw.local &= ~(uint32_t)TERMINAL_ICANON;
	raw.chars[TERMINAL_VMIN] = 1;
	raw.chars[TERMINAL_VTIME] = 0;
	if (rc >= 0)
		rc = (int)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&raw);
	if (rc == 0 && waiting(slave) > (int)TERMINAL_FEED_MAX)
		rc = -E2BIG;
	if (rc == 0)
		rc = take(slave, &bytes);
	if (call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&t->out.modes) < 0 && rc == 0)
		rc = -EIO;
	if (bytes.n > 0)
		back = (int)terminal_feed(call, t->master, slave, &t->out.modes, bytes.p, bytes.n);
	t->out.input = image_add_bytes(&d->image, buf_cstr(&bytes), bytes.n);
	return rc < 0 ? rc : back;
}

/* As the master gets it, not as it was written. */
static int put_output(const struct dump_terminal *t, int slave, const struct buf *bytes)
{
	struct image_termios plain = t->out.modes;
	int rc;

	plain.output = 0;
	plain.input = 0;
	(void)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&plain);
	rc = (int)terminal_print(call, t->master, slave, bytes->p, bytes->n);
	(void)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&t->out.modes);
	return rc;
}

static bool is_writable(int fd)
{
	return (wait_for(fd, POLLOUT) & POLLOUT) != 0;
}

/* With room, and yet not writable. Without flow control what a stop character has stopped goes on; what tcflow(3) has goes on for the moment, by the same. */
static void look_whether_stopped(struct dump_terminal *t, int slave)
{
	struct image_termios free = t->out.modes;

	if (is_writable(slave))
		return;
	free.input &= ~(uint32_t)TERMINAL_IXON;
	(void)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&free);
	if (is_writable(slave))
		t->out.flags |= TERMINAL_STOPPED;
	else if (waiting(t->master) == 0)
		t->out.flags |= TERMINAL_HELD;
	(void)call(__NR_ioctl, slave, TERMINAL_SET_MODES, (long)&t->out.modes);
	if ((t->out.flags & TERMINAL_HELD) != 0)
		(void)ioctl(slave, TCXONC, TERMINAL_GO_ON);
}

/* A master that is not read may leave no room; and what is put back lets a terminal go on that was stopped. */
static int take_output(struct dump *d, struct dump_terminal *t, int slave)
{
	cleanup_buf struct buf bytes = BUF_INIT(OUTPUT_MAX);
	int rc = take(t->master, &bytes), back = 0;

	look_whether_stopped(t, slave);
	if (bytes.n > 0)
		back = put_output(t, slave, &bytes);
	t->out.output = image_add_bytes(&d->image, buf_cstr(&bytes), bytes.n);
	return rc < 0 ? rc : back;
}

static void stop_again(const struct dump_terminal *t, int slave)
{
	const char stop = (char)t->out.modes.chars[TERMINAL_VSTOP];

	if ((t->out.flags & TERMINAL_STOPPED) != 0)
		(void)!write(t->master, &stop, 1);
	if ((t->out.flags & TERMINAL_HELD) != 0)
		(void)ioctl(slave, TCXONC, TERMINAL_HOLD);
}

static void set_locked(const struct dump_terminal *t, int locked)
{
	if ((t->out.flags & TERMINAL_LOCKED) != 0)
		(void)ioctl(t->master, TIOCSPTLCK, &locked);
}

/*
 * A description of our own, which does not wait. What keeps others from it is lifted for the moment: whoever could use that stands still. (Who opens a locked one in vain
 * also spoils it for those that have it open: the kernel answers EIO to them from then on.)
 */
static int open_slave(const struct dump_terminal *t)
{
	int slave;

	set_locked(t, 0);
	if (t->exclusive >= 0)
		(void)ioctl(t->exclusive, TIOCNXCL);
	slave = ioctl(t->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (slave < 0)
		slave = -errno;
	if (t->exclusive >= 0)
		(void)ioctl(t->exclusive, TIOCEXCL);
	set_locked(t, 1);
	return slave;
}

/* Packet mode would put a byte of its own before what is read. */
static int look_inside(struct dump *d, struct dump_terminal *t)
{
	cleanup_fd int slave = open_slave(t);
	int none = 0, packets = 1, rc = 0;

	if (slave < 0)
		return slave;
	(void)ioctl(t->master, TIOCPKT, &none);
	if (t->out.slot == IMAGE_NONE && waiting(t->master) > 0)
		rc = take_output(d, t, slave);
	else
		look_whether_stopped(t, slave);
	if (rc == 0)
		rc = take_input(d, t, slave);
	stop_again(t, slave);
	if ((t->out.flags & TERMINAL_PACKETS) != 0)
		(void)ioctl(t->master, TIOCPKT, &packets);
	return rc;
}

/* --- what it is --- */

static int refuse(const struct dump_terminal *t, struct err *err, const char *why)
{
	return dump_refuse(t->p, err, "descriptor %d is a terminal %s (/dev/pts/%u)", t->fd, why,
		t->out.number);
}

static int look_at(struct dump_terminal *t, struct err *err)
{
	int locked = 0, packets = 0;
	char path[40];
	struct stat st;

	(void)snprintf(path, sizeof(path), "root/dev/pts/%u", t->out.number);
	if (ioctl(t->master, TERMINAL_GET_MODES, &t->out.modes) < 0 ||
		ioctl(t->master, TIOCGWINSZ, &t->out.size) < 0 ||
		ioctl(t->master, TIOCGPTLCK, &locked) < 0 ||
		ioctl(t->master, TIOCGPKT, &packets) < 0 ||
		fstatat(t->p->tracee.proc, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(t, err, "of which the kernel tells nothing");
	if (t->out.modes.discipline != N_TTY)
		return refuse(t, err, "with a line discipline that cannot be carried over");
	t->out.mode = st.st_mode & 07777;
	t->out.uid = st.st_uid;
	t->out.gid = st.st_gid;
	if (locked != 0)
		t->out.flags |= TERMINAL_LOCKED;
	if (packets != 0)
		t->out.flags |= TERMINAL_PACKETS;
	if ((wait_for(t->master, POLLIN) & POLLHUP) != 0)
		t->out.flags |= TERMINAL_CLOSED;
	return 0;
}

static int dump_one(struct dump *d, struct dump_terminal *t, struct err *err)
{
	int rc;

	if (t->master < 0) {
		t->out.flags |= TERMINAL_GONE;
		return 0;
	}
	rc = look_at(t, err);
	if (rc < 0)
		return rc;
	if ((t->out.flags & TERMINAL_OPEN) == 0)
		return waiting(t->master) > 0
			       ? refuse(t, err, "that nobody writes to any more, with output in it")
			       : 0;
	rc = look_inside(d, t);
	return rc == -E2BIG ? refuse(t, err, "with too much in it")
	       : rc < 0
		       ? err_raise_sys(err, rc, "look into terminal /dev/pts/%u of process %d (%s)",
				 t->out.number, t->p->tracee.inner, t->p->name)
		       : 0;
}

/* --- sessions --- */

static uint32_t controlling(struct dump *d, struct dump_terminal *t, uint32_t index)
{
	struct image_description out = { .kind = DESCRIPTION_TERMINAL,
		.peer = IMAGE_NONE,
		.flags = O_RDWR | O_NOCTTY,
		.a = index };

	if (t->controlling == 0)
		t->controlling = 1 + IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &out);
	return t->controlling;
}

static struct dump_terminal *terminal_of(
	struct dump *d, const struct dump_process *p, uint32_t *ret)
{
	dev_t device = device_of((uint32_t)p->stat.terminal);

	for (*ret = 0; *ret < d->n_terminals; ++*ret) {
		if (is_slave(device) && d->terminals[*ret].out.number == slave_number(device) &&
			d->terminals[*ret].master >= 0)
			return &d->terminals[*ret];
	}
	return NULL;
}

static struct dump_process *leader_of(const struct dump *d, const struct dump_process *p)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->processes[i].tracee.inner == p->place.session &&
			!d->processes[i].tracee.zombie)
			return &d->processes[i];
	}
	return NULL;
}

static void place(struct dump *d, struct dump_process *p)
{
	const struct dump_process *leader = leader_of(d, p);
	uint32_t index;
	struct dump_terminal *t = leader == NULL ? NULL : terminal_of(d, leader, &index);

	if (t == NULL)
		return;
	p->place.terminal = controlling(d, t, index);
	p->place.no_terminal = p->stat.terminal == 0;
	if (p == leader)
		p->place.foreground = dump_inner_group(d, p->stat.terminal_group);
}

/* The terminal of a session that holds no descriptor of it. */
static void note_terminal(struct dump *d, struct dump_process *p)
{
	struct subject s = { .p = p, .fd = -1 };
	dev_t device = device_of((uint32_t)p->stat.terminal);

	if (is_slave(device))
		(void)find_or_add(d, &s, slave_number(device));
}

int dump_terminals_end(struct dump *d, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; i < d->n; i++)
		note_terminal(d, &d->processes[i]);
	for (size_t i = 0; rc == 0 && i < d->n_terminals; i++) {
		rc = dump_one(d, &d->terminals[i], err);
		(void)IMAGE_ADD(&d->image, TABLE_TERMINALS, &d->terminals[i].out);
	}
	for (size_t i = 0; rc == 0 && i < d->n; i++)
		place(d, &d->processes[i]);
	return rc;
}

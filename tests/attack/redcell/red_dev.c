/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on devices and terminals. */
#include "redcell.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static bool agreed_device(const struct stat *st)
{
	unsigned ma = major(st->st_rdev), mi = minor(st->st_rdev);

	if (ma == 1)
		return mi == 3 || mi == 5 || mi == 7 || mi == 8 || mi == 9;
	return (ma == 5 && (mi == 0 || mi == 2)) || (ma >= 136 && ma <= 143);
}

static void look_into(struct run *r, const char *dir, int depth)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[512];
	struct stat st;

	while (d != NULL && (e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.' ||
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < 0)
			continue;
		if (lstat(path, &st) != 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth < 3)
			look_into(r, path, depth + 1);
		if (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))
			continue;
		r->attempts++;
		/* seen is leaked, opened is escaped */
		if (!agreed_device(&st)) {
			note(r, LEAKED, "%s is there", path);
			attempt(r, path, open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
		}
	}
	if (d != NULL)
		closedir(d);
}

static void dv_01(struct run *r)
{
	look_into(r, "/dev", 0);
	if (r->outcome == BLOCKED)
		remark(r, "%d nodes, all agreed ones", r->attempts);
}

static int own_terminal(struct run *r, int *master)
{
	char name[64];
	int unlock = 0;
	unsigned number = 0;

	*master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*master < 0 || ioctl(*master, TIOCSPTLCK, &unlock) != 0 ||
		ioctl(*master, TIOCGPTN, &number) != 0) {
		remark(r, "no terminal: %s", strerrorname_np(errno));
		return -1;
	}
	snprintf(name, sizeof(name), "/dev/pts/%u", number);
	setsid();
	int slave = open(name, O_RDWR | O_CLOEXEC);

	if (slave >= 0)
		ioctl(slave, TIOCSCTTY, 0);
	return slave;
}

static void inject(struct run *r, const char *what, unsigned long request)
{
	int master, slave = own_terminal(r, &master);
	char c = '\n';
	int waiting = 0;

	if (slave < 0)
		return;
	/* the raw call: the library cuts the request to what it knows */
	long rc = syscall(SYS_ioctl, slave, request, &c);

	attempt(r, what, rc);
	if (rc == 0 && ioctl(slave, FIONREAD, &waiting) == 0)
		remark(r, "%d bytes injected", waiting);
}

static void inject_plain(struct run *r)
{
	inject(r, "TIOCSTI", 0x5412UL);
}

static void inject_high(struct run *r)
{
	inject(r, "TIOCSTI|1<<32", 0x5412UL | 1UL << 32);
}

static void dv_02(struct run *r)
{
	in_child(r, inject_plain);
}

static void dv_02b(struct run *r)
{
	in_child(r, inject_high);
}

static void terminal_control(struct run *r)
{
	int master, slave = own_terminal(r, &master);
	int discipline = 0;
	char arg12[64] = { 12 };

	if (slave < 0)
		return;
	attempt(r, "TIOCSETD", syscall(SYS_ioctl, slave, 0x5423UL, &discipline));
	attempt(r, "TIOCLINUX", syscall(SYS_ioctl, slave, 0x541cUL, arg12));
	attempt(r, "TIOCCONS", syscall(SYS_ioctl, slave, 0x541dUL, 0));
	attempt(r, "KDSETKEYCODE-like", syscall(SYS_ioctl, slave, 0x4b4dUL, arg12));
	attempt(r, "VT_ACTIVATE", syscall(SYS_ioctl, slave, 0x5606UL, 1));
	attempt(r, "TIOCSETD|1<<32", syscall(SYS_ioctl, slave, 0x5423UL | 1UL << 32, &discipline));
}

static void dv_03(struct run *r)
{
	in_child(r, terminal_control);
}

static void write_to_terminal(struct run *r, const char *name)
{
	const char *nonce = arg(r, "nonce", "redcell");
	char path[300];

	snprintf(path, sizeof(path), "/dev/pts/%s", name);
	note(r, LEAKED, "foreign terminal %s", path);
	int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && write(fd, nonce, strlen(nonce)) > 0)
		remark(r, "written to");
	if (fd >= 0)
		close(fd);
}

static void dv_04(struct run *r)
{
	struct stat st;
	DIR *d = opendir("/dev/pts");
	struct dirent *e;

	/* without a controlling terminal there is none to open */
	if (arg_number(r, "tty", 0) == 0)
		attempt(r, "/dev/tty", open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
	attempt(r, "/dev/tty0", open("/dev/tty0", O_RDWR | O_NOCTTY | O_CLOEXEC));
	attempt(r, "/dev/ttyS0", open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
	attempt(r, "/dev/vcs", open("/dev/vcs", O_RDONLY | O_CLOEXEC));
	if (stat("/dev/console", &st) == 0 && major(st.st_rdev) == 5)
		note(r, LEAKED, "/dev/console is the machine's");
	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] >= '0' && e->d_name[0] <= '9' && arg_number(r, "tty", 0) == 0)
			write_to_terminal(r, e->d_name);
	if (d != NULL)
		closedir(d);
}

static void dv_05(struct run *r)
{
	long want = arg_number(r, "ptys", 400);
	long got = 0;

	while (got < want) {
		int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

		if (fd < 0)
			break;
		got++;
	}
	r->attempts++;
	if (got < want)
		r->error = errno;
	remark(r, "%ld terminals", got);
	if (got >= want)
		note(r, ESCAPED, "no limit seen up to %ld", want);
}

static void dv_09(struct run *r)
{
	static const char *const nodes[] = { "/dev/kvm", "/dev/net/tun", "/dev/vfio/vfio",
		"/dev/fuse", "/dev/userfaultfd", "/dev/vsock", "/dev/vhost-vsock", "/dev/vhost-net",
		"/dev/loop-control", "/dev/loop0", "/dev/mem", "/dev/kmsg", "/dev/vda",
		"/dev/hwrng", "/dev/rtc0", "/dev/snapshot", "/dev/btrfs-control", "/dev/autofs",
		"/dev/mapper/control", "/dev/uinput", "/dev/vga_arbiter" };

	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		if (attempt(r, nodes[i], open(nodes[i], O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0 &&
			errno != ENOENT)
			attempt(r, nodes[i], open(nodes[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

/* The node's inode is what watches and locks are about: one that is shared with the host tells of the host, and locks it out. */
static void dv_10(struct run *r)
{
	static const char *const nodes[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random",
		"/dev/urandom", "/dev/tty" };
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	char buf[65536] __attribute__((aligned(8)));
	ssize_t n;

	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		if (inotify_add_watch(watch, nodes[i], IN_OPEN | IN_MODIFY | IN_ATTRIB) < 0)
			attempt(r, nodes[i], -1);
	r->attempts++;
	printf("watching\n");
	fflush(stdout);
	/* the runner opens the host's nodes, then ends our input */
	while (read(STDIN_FILENO, buf, 1) > 0)
		;
	long events = 0;

	while ((n = read(watch, buf, sizeof(buf))) > 0)
		for (char *p = buf; p < buf + n; p += sizeof(struct inotify_event) +
						      ((struct inotify_event *)(void *)p)->len)
			events++;
	remark(r, "%ld events", events);
	if (events > 0)
		note(r, LEAKED, "saw %ld uses of device nodes by others", events);
}

static void dv_11(struct run *r)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	r->attempts++;
	remark(r, "lock of /dev/null: %s",
		flock(fd, LOCK_EX | LOCK_NB) == 0 ? "taken" : strerrorname_np(errno));
	struct timespec times[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } };

	remark(r, "utimens: %s", futimens(fd, times) == 0 ? "done" : strerrorname_np(errno));
}

const struct attack attacks_dev[] = {
	{ "DV-01", "opens everything below /dev", dv_01 },
	{ "DV-02", "injects input into a terminal (TIOCSTI)", dv_02 },
	{ "DV-02B", "the same with high bits set", dv_02b },
	{ "DV-03", "terminal control: line disciplines, console, keyboard", dv_03 },
	{ "DV-04", "opens the host's terminals", dv_04 },
	{ "DV-05", "takes all pseudo terminals", dv_05 },
	{ "DV-10", "watches the device nodes", dv_10 },
	{ "DV-11", "locks a device node", dv_11 },
	{ "DV-09", "opens kvm, tun, fuse, loop, mem and their like", dv_09 },
	{ NULL, NULL, NULL },
};

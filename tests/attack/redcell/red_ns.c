/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on mounts, namespaces and capabilities: undo what was mounted, get a namespace that we own, use capabilities. */
#include "redcell.h"

#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>

#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif
#define OPEN_TREE_CLONE_FLAG 1
#define AT_RECURSIVE_FLAG    0x8000

struct attr {
	uint64_t set, clear, propagation, userns_fd;
};

static const char *const places[] = { "/", "/proc", "/dev", "/ro", "/cow", "/redcell", "/proc/sys",
	"/dev/pts", "/dev/shm", "/sys", "/proc/meminfo" };
#define PLACES (sizeof(places) / sizeof(places[0]))

static void mn_01(struct run *r)
{
	struct attr a = { .clear = 1 };

	mkdir("/tmp/mnt", 0755);
	attempt(r, "mount tmpfs", mount("x", "/tmp/mnt", "tmpfs", 0, "size=4k"));
	attempt(r, "bind", mount("/", "/tmp/mnt", NULL, MS_BIND, NULL));
	attempt(r, "umount2", umount2("/proc", MNT_DETACH));
	attempt(r, "pivot_root", syscall(SYS_pivot_root, ".", "."));
	attempt(r, "open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 0));
	attempt(r, "open_tree clone", syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE_FLAG));
	attempt(r, "open_tree_attr",
		syscall(SYS_open_tree_attr, AT_FDCWD, "/", OPEN_TREE_CLONE_FLAG, &a, sizeof(a)));
	attempt(r, "move_mount",
		syscall(SYS_move_mount, AT_FDCWD, "/proc", AT_FDCWD, "/tmp/mnt", 0));
	attempt(r, "fsopen", syscall(SYS_fsopen, "tmpfs", 1));
	attempt(r, "fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0));
	attempt(r, "mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &a, sizeof(a)));
	attempt(r, "swapon", syscall(SYS_swapon, "/tmp/none", 0));
}

static void mn_02(struct run *r)
{
	mkdir("/tmp/mnt", 0755);
	for (size_t i = 1; i < PLACES; i++)
		attempt(r, places[i], umount2(places[i], MNT_DETACH));
	attempt(r, "bind over /proc", mount("/tmp/mnt", "/proc", NULL, MS_BIND, NULL));
	attempt(r, "move /proc", mount("/proc", "/tmp/mnt", NULL, MS_MOVE, NULL));
	attempt(r, "mount tmpfs", mount("x", "/tmp/mnt", "tmpfs", 0, "size=4k"));
}

static void mn_03(struct run *r)
{
	static const uint64_t flags[] = { 1, 2, 4, 8 }; /* RDONLY NOSUID NODEV NOEXEC */

	for (size_t i = 0; i < PLACES; i++)
		for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++) {
			struct attr a = { .clear = flags[f] };

			attempt(r, places[i],
				syscall(SYS_mount_setattr, AT_FDCWD, places[i], 0, &a, sizeof(a)));
		}
	attempt(r, "remount rw", mount(NULL, "/ro", NULL, MS_REMOUNT | MS_BIND, NULL));
}

static void mn_04(struct run *r)
{
	for (size_t i = 0; i < PLACES; i++)
		attempt(r, places[i],
			syscall(SYS_open_tree, AT_FDCWD, places[i],
				OPEN_TREE_CLONE_FLAG | O_CLOEXEC));
}

static void mount_bomb(struct run *r)
{
	int made = 0;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
		attempt(r, "unshare", -1);
		return;
	}
	mkdir("/tmp/mnt", 0755);
	while (made < 500 && mount("x", "/tmp/mnt", "tmpfs", 0, "size=4k") == 0)
		made++;
	note(r, ESCAPED, "%d mounts made in a nested namespace", made);
}

static void mn_08(struct run *r)
{
	in_child(r, mount_bomb);
}

static const struct {
	const char *name;
	unsigned long flag;
} kinds[] = {
	{ "user", CLONE_NEWUSER },
	{ "mnt", CLONE_NEWNS },
	{ "pid", CLONE_NEWPID },
	{ "net", CLONE_NEWNET },
	{ "ipc", CLONE_NEWIPC },
	{ "uts", CLONE_NEWUTS },
	{ "cgroup", CLONE_NEWCGROUP },
	{ "time", 0x80 },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void try_unshare(struct run *r, const char *what, unsigned long flags)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(syscall(SYS_unshare, flags) == 0 ? 0 : errno);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return;
	errno = WEXITSTATUS(status);
	attempt(r, what, errno == 0 ? 0 : -1);
}

static void try_clone(struct run *r, const char *what, unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, 0);

	if (pid == 0)
		_exit(0);
	attempt(r, what, pid);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
}

static void try_clone3(struct run *r, const char *what, unsigned long flags)
{
	struct clone_args a = { .flags = flags, .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &a, sizeof(a));

	if (pid == 0)
		_exit(0);
	attempt(r, what, pid);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
}

static void ns_01(struct run *r)
{
	char what[64];

	for (size_t i = 0; i < KINDS; i++)
		for (size_t j = i; j < KINDS; j++) {
			unsigned long flags = kinds[i].flag | kinds[j].flag;

			snprintf(what, sizeof(what), "%s+%s", kinds[i].name, kinds[j].name);
			try_unshare(r, what, flags);
			if ((flags & 0x80) == 0)
				try_clone(r, what, flags);
			try_clone3(r, what, flags);
		}
}

static void nested_user(struct run *r)
{
	if (attempt(r, "unshare(CLONE_NEWUSER)", unshare(CLONE_NEWUSER)) == 0)
		remark(r, "CapEff %llx in the nested namespace",
			(unsigned long long)status_number("CapEff", 16));
}

static void ns_02(struct run *r)
{
	in_child(r, nested_user);
}

static void join_all(struct run *r)
{
	char path[64];

	for (int pid = 1; pid < 128; pid++)
		for (size_t i = 0; i < KINDS; i++) {
			snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kinds[i].name);
			int fd = open(path, O_RDONLY | O_CLOEXEC);

			if (fd < 0)
				continue;
			/* joining the user namespace one is in is EINVAL everywhere */
			attempt(r, path, setns(fd, 0));
			close(fd);
		}
	for (int pid = 1; pid < 16; pid++) {
		long fd = syscall(SYS_pidfd_open, pid, 0);

		if (fd < 0)
			continue;
		attempt(r, "setns(pidfd)", setns((int)fd, CLONE_NEWNET | CLONE_NEWNS));
		close((int)fd);
	}
}

static void ns_03(struct run *r)
{
	in_child(r, join_all);
}

/* One operation per capability that matters and is not given by a profile. Where success would hurt the host the arguments are empty. */
static void ns_04(struct run *r)
{
	struct rlimit queue = { RLIM_INFINITY, RLIM_INFINITY };
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { { ~0U, ~0U, ~0U }, { 0x1ff, 0x1ff, 0x1ff } };

	attempt(r, "capset of everything", syscall(SYS_capset, &h, d));
	attempt(r, "SYS_ADMIN sethostname", sethostname("redcell", 7));
	attempt(r, "SYS_BOOT reboot", syscall(SYS_reboot, 0, 0, 0, 0));
	attempt(r, "SYS_MODULE", syscall(SYS_init_module, "", 0, ""));
	attempt(r, "SYS_RAWIO iopl", syscall(SYS_iopl, 3));
	attempt(r, "SYS_RAWIO ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
	attempt(r, "SYS_PACCT", syscall(SYS_acct, NULL));
	attempt(r, "SYS_TTY_CONFIG", syscall(SYS_vhangup));
	attempt(r, "SYSLOG", syscall(SYS_syslog, 3, r->proof, 0));
	attempt(r, "NET_RAW", socket(AF_INET, SOCK_RAW, 1));
	attempt(r, "SYS_RESOURCE", setrlimit(RLIMIT_MSGQUEUE, &queue));
	attempt(r, "IPC_LOCK", syscall(SYS_mlockall, 8));
	attempt(r, "kexec", syscall(SYS_kexec_load, 0, 0, NULL, 0));
	attempt(r, "quotactl", syscall(SYS_quotactl, 0x80000100, "/dev/vda", 0, NULL));
	attempt(r, "SYS_NICE", setpriority(PRIO_PROCESS, 0, -20));
}

static long netlink_request(int protocol, uint16_t type, const void *payload, size_t n)
{
	struct {
		struct nlmsghdr h;
		char body[256];
	} m = { .h = { .nlmsg_type = type,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE } };
	char answer[1024];
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	if (s < 0)
		return -1;
	memcpy(m.body, payload, n);
	m.h.nlmsg_len = (uint32_t)(sizeof(m.h) + n);
	ssize_t got = send(s, &m, m.h.nlmsg_len, 0);

	if (got > 0)
		got = recv(s, answer, sizeof(answer), 0);
	int saved = errno;

	close(s);
	errno = saved;
	if (got < (ssize_t)sizeof(struct nlmsghdr))
		return -1;
	struct nlmsghdr *h = (struct nlmsghdr *)answer;

	if (h->nlmsg_type != NLMSG_ERROR)
		return 0;
	errno = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
	return errno == 0 ? 0 : -1;
}

/* Takes lo down: every network namespace has it, and only its owner may. */
static long take_lo_down(void)
{
	struct ifinfomsg m = { .ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_change = IFF_UP };

	return netlink_request(NETLINK_ROUTE, RTM_SETLINK, &m, sizeof(m));
}

/* nf_tables wants its requests in a batch: begin, new table, end */
static long add_nft_table(void)
{
	struct __attribute__((packed)) nfmsg {
		struct nlmsghdr h;
		uint8_t family, version;
		uint16_t resource;
	};
	struct __attribute__((packed)) {
		struct nfmsg begin, table;
		struct rtattr name;
		char text[8];
		struct nfmsg end;
	} m = {
		.begin = { { 20, 16, NLM_F_REQUEST, 1, 0 }, 0, 0, 0x0a00 },
		.table = { { 32, 10 << 8, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 2, 0 }, 2, 0,
			0 },
		.name = { 12, 1 },
		.text = "redcell",
		.end = { { 20, 17, NLM_F_REQUEST, 3, 0 }, 0, 0, 0x0a00 },
	};
	char answer[1024];
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	struct timeval second = { 1, 0 };

	if (s < 0)
		return -1;
	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	ssize_t got = send(s, &m, sizeof(m), 0);

	if (got > 0)
		got = recv(s, answer, sizeof(answer), 0);
	int saved = errno;

	close(s);
	errno = saved;
	if (got < (ssize_t)sizeof(struct nlmsghdr))
		return -1;
	errno = -((struct nlmsgerr *)NLMSG_DATA((struct nlmsghdr *)answer))->error;
	return errno == 0 ? 0 : -1;
}

static void ns_05(struct run *r)
{
	char host[64];

	attempt(r, "ip link set lo down", take_lo_down());
	attempt(r, "nft add table", add_nft_table());
	attempt(r, "packet socket", socket(AF_PACKET, SOCK_RAW, 0));
	attempt(r, "raw socket", socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
	gethostname(host, sizeof(host));
	attempt(r, "sethostname", sethostname(host, strlen(host)));
}

static void ns_05b(struct run *r)
{
	/* one capability, one namespace each: the network's and the uts namespace's owner decides */
	attempt(r, "ip link set lo down", take_lo_down());
}

static void ns_05c(struct run *r)
{
	char name[64] = "redcell";

	attempt(r, "sethostname", sethostname(name, strlen(name)));
	attempt(r, "setdomainname", setdomainname(name, strlen(name)));
}

static void map_self(struct run *r)
{
	static const char *const files[] = { "/proc/self/uid_map", "/proc/self/gid_map",
		"/proc/self/setgroups", "/proc/self/projid_map" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_WRONLY | O_CLOEXEC);

		attempt(r, files[i], fd < 0 ? -1 : write(fd, i == 2 ? "allow" : "0 0 1", 5));
		close(fd);
	}
	if (unshare(CLONE_NEWUSER) == 0) {
		int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);

		attempt(r, "map in a nested namespace", fd < 0 ? -1 : write(fd, "0 0 1", 5));
	}
}

static void ns_06(struct run *r)
{
	in_child(r, map_self);
}

static void ns_07(struct run *r)
{
	char buf[4096];
	/* KEYCTL_GET_KEYRING_ID, the session keyring (-3) */
	long ring = syscall(SYS_keyctl, 0, -3, 0);

	attempt(r, "session keyring", ring);
	if (ring >= 0) {
		/* KEYCTL_SEARCH for the runner's canary, KEYCTL_READ */
		long key = syscall(SYS_keyctl, 10, -3, "user", arg(r, "key", "cay-attack"), 0);
		long n = key < 0 ? -1 : syscall(SYS_keyctl, 11, key, buf, sizeof(buf));

		if (n > 0)
			prove(r, buf, (size_t)n);
		remark(r, "canary key: %s", n > 0 ? "read" : strerrorname_np(errno));
	}
	attempt(r, "add_key", syscall(SYS_add_key, "user", "redcell", "x", 1, -2));
	attempt(r, "request_key", syscall(SYS_request_key, "user", "cay-attack", NULL, 0));
}

static void ns_07b(struct run *r)
{
	char buf[4096];
	long key = syscall(SYS_keyctl, 10, -3, "user", arg(r, "key", "cay-attack"), 0);
	long n = key < 0 ? -1 : syscall(SYS_keyctl, 11, key, buf, sizeof(buf));

	r->attempts++;
	if (n > 0)
		prove(r, buf, (size_t)n);
	else
		r->error = errno;
	remark(r, "canary key: %s", n > 0 ? "read" : strerrorname_np(errno));
}

static void ns_08(struct run *r)
{
	struct timespec now;
	struct timeval tv;
	struct timex tx = { .modes = 0x0001, .offset = 0 };

	clock_gettime(CLOCK_REALTIME, &now);
	attempt(r, "clock_settime", clock_settime(CLOCK_REALTIME, &now));
	gettimeofday(&tv, NULL);
	attempt(r, "settimeofday", settimeofday(&tv, NULL));
	attempt(r, "adjtimex", adjtimex(&tx));
	attempt(r, "clock_adjtime", clock_adjtime(CLOCK_REALTIME, &tx));
	/* reading asks for no privilege: how the host's clock is disciplined is not the sandbox's business */
	struct timex look = { .modes = 0 };

	if (adjtimex(&look) >= 0)
		note(r, LEAKED, "the host's clock: frequency %ld, offset %ld", look.freq,
			look.offset);
	int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);

	attempt(r, "timens_offsets", fd < 0 ? -1 : write(fd, "monotonic 0 0", 13));
}

static void keep_userns(struct run *r)
{
	int own = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	/* NS_GET_PARENT and NS_GET_USERNS lead outwards */
	attempt(r, "parent of our user namespace", syscall(SYS_ioctl, own, 0xb702, 0));
	int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	attempt(r, "owner of our network namespace", syscall(SYS_ioctl, net, 0xb701, 0));
	attempt(r, "setns(own user namespace)", setns(own, CLONE_NEWUSER));
}

static void ns_09(struct run *r)
{
	in_child(r, keep_userns);
}

static void ns_11(struct run *r)
{
	/* the ambient set and set-uid root are how capabilities come back */
	long long before = status_number("CapEff", 16);
	long long bounding = status_number("CapBnd", 16);
	long long allowed = (long long)strtoull(arg(r, "capmask", "0"), NULL, 16);

	r->attempts++;
	remark(r, "CapEff %llx CapBnd %llx NoNewPrivs %lld", (unsigned long long)before,
		(unsigned long long)bounding, status_number("NoNewPrivs", 10));
	if (((before | bounding) & ~allowed) != 0)
		note(r, ESCAPED, "capabilities beyond the profile");
	for (int cap = 0; cap <= 40; cap++)
		if ((allowed >> cap & 1) == 0)
			attempt(r, "ambient raise",
				prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0));
}

const struct attack attacks_ns[] = {
	{ "MN-01", "calls every system call of the mount family", mn_01 },
	{ "MN-02", "unmounts and covers each mount", mn_02 },
	{ "MN-03", "clears the flags of each mount", mn_03 },
	{ "MN-04", "peels a mask off by a non-recursive clone", mn_04 },
	{ "MN-08", "mount bomb in a nested namespace", mn_08 },
	{ "NS-01", "unshare, clone and clone3 of every namespace, alone and in pairs", ns_01 },
	{ "NS-02", "nested user namespace", ns_02 },
	{ "NS-03", "setns to everything that can be named", ns_03 },
	{ "NS-04", "one operation per capability", ns_04 },
	{ "NS-05", "network administration in its own network namespace", ns_05 },
	{ "NS-05B", "takes the loopback interface down", ns_05b },
	{ "NS-05C", "changes the host name", ns_05c },
	{ "NS-06", "writes id maps", ns_06 },
	{ "NS-07", "reads inherited keyrings", ns_07 },
	{ "NS-07B", "reads a key of the session that started the server", ns_07b },
	{ "NS-08", "sets the clock", ns_08 },
	{ "NS-09", "climbs to the owner of its namespaces", ns_09 },
	{ "NS-11", "raises capabilities", ns_11 },
	{ NULL, NULL, NULL },
};

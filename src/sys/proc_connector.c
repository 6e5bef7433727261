/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/proc_connector.h"

#include <arpa/inet.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define RECEIVE_BYTES (32 << 20)
#define ANSWER_MS     1000

#define FIRST_PID_NAMESPACE 0xEFFFFFFCU /* PROC_PID_INIT_INO of include/linux/proc_ns.h */

struct subscription {
	struct nlmsghdr header;
	struct cn_msg message;
	enum proc_cn_mcast_op op;
} __attribute__((packed));

static int subscribe(int fd, enum proc_cn_mcast_op op)
{
	struct subscription s = { 0 };

	s.header.nlmsg_len = sizeof(s);
	s.header.nlmsg_type = NLMSG_DONE;
	s.message.id.idx = CN_IDX_PROC;
	s.message.id.val = CN_VAL_PROC;
	s.message.len = sizeof(s.op);
	s.op = op;
	return send(fd, &s, sizeof(s), 0) < 0 ? -errno : 0;
}

/* The kernel acknowledges a subscription with PROC_EVENT_NONE and an error number; nothing comes where it does not serve us. */
static int wait_answer(int fd)
{
	_Alignas(struct nlmsghdr) char bytes[4096];

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		const struct cn_msg *m = (const void *)(bytes + NLMSG_HDRLEN);
		struct proc_event e;
		ssize_t n;

		if (poll(&p, 1, ANSWER_MS) <= 0)
			return -EOPNOTSUPP;
		n = recv(fd, bytes, sizeof(bytes), 0);
		if (n < (ssize_t)(NLMSG_HDRLEN + sizeof(*m) +
				  offsetof(struct proc_event, event_data) + 4))
			return -EOPNOTSUPP;
		memset(&e, 0, sizeof(e));
		memcpy(&e, m->data, m->len < sizeof(e) ? m->len : sizeof(e));
		if (e.what == PROC_EVENT_NONE)
			return -(int)e.event_data.ack.err;
	}
}

static int make_socket(void)
{
	int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR);

	if (fd >= 0)
		return fd;
	return errno == EPROTONOSUPPORT || errno == EAFNOSUPPORT ? -EOPNOTSUPP : -errno;
}

static int join_group(int fd)
{
	struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC };

	return bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

/*
 * Lets only execs through, and those whole: what a filter cuts off is missing for every listener of the machine, since they all get the same message
 * (do_one_broadcast() of net/netlink/af_netlink.c clones it only behind the first one). The kernel loads words in network order.
 */
static int filter_execs(int fd)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NLMSG_HDRLEN + sizeof(struct cn_msg)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(PROC_EVENT_EXEC), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = { .len = ARRAY_SIZE(rules), .filter = rules };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno
											   : 0;
}

static int make_wake(int otherwise)
{
	cleanup_fd int fd = make_socket();

	if (fd < 0 || filter_execs(fd) < 0 || join_group(fd) < 0)
		return otherwise;
	return TAKE_FD(fd);
}

bool proc_connector_serves_us(void)
{
	struct stat st;

	/* unknown: it is tried */
	return stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == FIRST_PID_NAMESPACE;
}

int proc_connector_open(struct proc_connector *pc)
{
	int size = RECEIVE_BYTES, rc;

	*pc = (struct proc_connector){ .fd = -1, .wake = -1 };
	if (!proc_connector_serves_us())
		return -ENXIO;
	pc->fd = make_socket();
	if (pc->fd < 0)
		return pc->fd;
	if (setsockopt(pc->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
		(void)setsockopt(pc->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	rc = join_group(pc->fd);
	if (rc == 0)
		rc = subscribe(pc->fd, PROC_CN_MCAST_LISTEN);
	if (rc == 0)
		rc = wait_answer(pc->fd);
	if (rc < 0)
		proc_connector_close(pc);
	else
		pc->wake = make_wake(pc->fd);
	return rc;
}

void proc_connector_close(struct proc_connector *pc)
{
	if (pc->fd >= 0)
		(void)!subscribe(pc->fd, PROC_CN_MCAST_IGNORE);
	if (pc->wake != pc->fd)
		fd_close(&pc->wake);
	fd_close(&pc->fd);
}

/* The kernel numbers the events of each processor: a hole is what was lost. */
static void count_lost(struct proc_connector *pc, uint32_t cpu, uint32_t seq)
{
	if (cpu >= PROC_CONNECTOR_CPUS)
		return;
	if (pc->seen[cpu])
		pc->lost += seq - pc->next_seq[cpu];
	pc->seen[cpu] = true;
	pc->next_seq[cpu] = seq + 1;
}

static bool take(
	struct proc_connector *pc, const char *bytes, size_t n, struct proc_event_note *note)
{
	const struct cn_msg *m = (const void *)(bytes + NLMSG_HDRLEN);
	struct proc_event e;

	if (n < NLMSG_HDRLEN + sizeof(*m) || m->id.idx != CN_IDX_PROC ||
		m->len < offsetof(struct proc_event, event_data) ||
		n < NLMSG_HDRLEN + sizeof(*m) + m->len)
		return false;
	memset(&e, 0, sizeof(e));
	memcpy(&e, m->data, m->len < sizeof(e) ? m->len : sizeof(e));
	count_lost(pc, e.cpu, m->seq);
	switch ((unsigned int)e.what) {
	case PROC_EVENT_FORK:
		*note = (struct proc_event_note){ PROC_EVENT_KIND_FORK,
			e.event_data.fork.child_tgid, e.event_data.fork.parent_tgid, 0,
			e.timestamp_ns };
		return e.event_data.fork.child_pid == e.event_data.fork.child_tgid;
	case PROC_EVENT_EXEC:
		*note = (struct proc_event_note){ PROC_EVENT_KIND_EXEC,
			e.event_data.exec.process_tgid, 0, 0, e.timestamp_ns };
		return true;
	case PROC_EVENT_EXIT:
		*note = (struct proc_event_note){ PROC_EVENT_KIND_EXIT,
			e.event_data.exit.process_tgid, 0, (int)e.event_data.exit.exit_code,
			e.timestamp_ns };
		return e.event_data.exit.process_pid == e.event_data.exit.process_tgid;
	default:
		return false;
	}
}

#define BATCH         64U
#define MESSAGE_BYTES 256U /* an event takes 76 */

/* As many messages as are there with one call: they come from the whole machine. */
struct batch {
	_Alignas(struct nlmsghdr) char bytes[BATCH][MESSAGE_BYTES];
	struct mmsghdr messages[BATCH];
};

/* Return: the number of messages; when fewer than @max, at most BATCH, no more are there; or -errno. */
static int receive(int fd, struct batch *b, size_t max)
{
	struct iovec places[BATCH];
	int n;

	for (size_t i = 0; i < max; i++) {
		places[i] = (struct iovec){ b->bytes[i], MESSAGE_BYTES };
		b->messages[i] =
			(struct mmsghdr){ .msg_hdr = { .msg_iov = &places[i], .msg_iovlen = 1 } };
	}
	do
		n = recvmmsg(fd, b->messages, (unsigned int)max, MSG_DONTWAIT, NULL);
	while (n < 0 &&
		(errno == EINTR ||
			errno == ENOBUFS)); /* the holes in the numbering say how many were lost */
	if (n >= 0)
		return n;
	return errno == EAGAIN ? 0 : -errno;
}

int proc_connector_read(struct proc_connector *pc, struct proc_event_note *notes, size_t max)
{
	static struct batch b; /* one thread reads them; made anew, all of it would be cleared */
	size_t got = 0;
	int n = BATCH;

	while (pc->wake != pc->fd && n == BATCH)
		n = receive(pc->wake, &b, BATCH); /* the same execs again */
	n = BATCH;
	for (size_t asked = BATCH; got < max && (size_t)n == asked;) {
		asked = max - got < BATCH ? max - got : BATCH;
		n = receive(pc->fd, &b, asked);
		if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			got += take(pc, b.bytes[i], b.messages[i].msg_len, &notes[got]);
	}
	return (int)got;
}

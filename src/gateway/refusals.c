/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/refusals.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/packet.h"
#include "gateway/address.h"
#include "gateway/names.h"
#include "gateway/owner.h"
#include "sys/netlink.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <string.h>
#include <sys/socket.h>

#define KINDS_MAX 256
#define WINDOW_MS 1000
#define BATCH     64             /* packets in one turn of the loop, or of a drain */
#define DRAIN_NS  (NS_PER_S / 2) /* of the second that cayd waits */

struct kind {
	char *key;
	json_t *data;       /* of the event, without its count */
	struct owner owner; /* its process only when it is that of all that are told next */
	uint64_t more;      /* since the last event */
	bool recent;        /* in this window */
	uint64_t asked[REFUSAL_WAYS], most,
		fresh; /* in each way; in one of them; of that in this window */
};

static struct kind kinds[KINDS_MAX];
static uint64_t untold;
static uv_timer_t window;
static int log_fd = -1;
static uv_poll_t log_poll;
static uint32_t next_seq;
static bool numbered;    /* a gateway that follows another cannot know what was told before it */
static size_t under_way; /* fibers of refusals_later() */
static struct waiters none_under_way = { { &none_under_way.fibers, &none_under_way.fibers } };
static struct waiters nobody = { { &nobody.fibers, &nobody.fibers } };

/* --- telling --- */

static void kind_free(struct kind *k)
{
	free(k->key);
	json_decref(k->data);
	*k = (struct kind){ 0 };
}

static void tell(struct gateway *gw, const struct kind *k, uint64_t count)
{
	json_t *data = json_copy(k->data);

	(void)json_object_set_new(data, "count", json_integer((json_int_t)count));
	gateway_event(gw, "net.denied", &k->owner, data);
}

/* As often as in the way in which it was asked for most: the others come beside it, or a little later. Return: is it once more? */
static bool is_more(struct kind *k, unsigned int way)
{
	bool more = ++k->asked[way] > k->most;

	k->most += more;
	k->fresh += more;
	return more;
}

/* What lacks in a way behind a window does not come any more, but that of the window. */
static void catch_up(struct kind *k)
{
	for (size_t i = 0; i < REFUSAL_WAYS; i++) {
		if (k->most - k->asked[i] > k->fresh)
			k->asked[i] = k->most - k->fresh;
	}
	k->fresh = 0;
}

/* At the end of a window: what was counted in it; what was quiet is forgotten. */
static void close_window(struct gateway *gw)
{
	for (size_t i = 0; i < KINDS_MAX; i++) {
		struct kind *k = &kinds[i];

		if (k->key == NULL)
			continue;
		if (k->more > 0)
			tell(gw, k, k->more);
		else if (!k->recent)
			kind_free(k);
		k->more = 0;
		k->recent = false;
		catch_up(k);
	}
	if (untold > 0)
		gateway_event(gw, "net.lost", NULL, json_pack("{s:I}", "n", (json_int_t)untold));
	untold = 0;
}

static void on_window(uv_timer_t *timer)
{
	bool any = false;

	if (gateway_congested(timer->data))
		return;
	close_window(timer->data);
	for (size_t i = 0; i < KINDS_MAX; i++)
		any |= kinds[i].key != NULL;
	if (!any)
		(void)uv_timer_stop(timer);
}

static struct kind *kind_find(const char *key, struct kind **ret_empty)
{
	*ret_empty = NULL;
	for (size_t i = 0; i < KINDS_MAX; i++) {
		if (kinds[i].key == NULL)
			*ret_empty = &kinds[i];
		else if (str_eq(kinds[i].key, key))
			return &kinds[i];
	}
	return NULL;
}

static void start_window(struct gateway *gw)
{
	window.data = gw;
	if (!uv_is_active((uv_handle_t *)&window))
		(void)uv_timer_start(&window, on_window, WINDOW_MS, WINDOW_MS);
}

void refusals_lost(struct gateway *gw)
{
	start_window(gw);
	untold++;
}

void refusals_add(struct gateway *gw, const struct refusal *r)
{
	cleanup_free char *key = str_dupf("%s/%s/%s/%s/%s/%u/%s/%s", r->what, r->protocol, r->host,
		r->type != NULL ? r->type : "", r->address, r->port, r->owner->exec, r->reason);
	struct kind *empty, *k = kind_find(key, &empty);

	start_window(gw);
	if (k != NULL) {
		k->recent = true;
		if (!is_more(k, r->way))
			return;
		if (k->more++ == 0)
			k->owner = *r->owner;
		else if (k->owner.pid != r->owner->pid)
			k->owner.pid = 0;
		return;
	}
	if (empty == NULL || gateway_congested(gw)) {
		untold++;
		return;
	}
	*empty = (struct kind){ .key = TAKE_PTR(key), .recent = true };
	empty->data = json_pack("{s:s,s:s,s:s,s:s*,s:s,s:i,s:s}", "what", r->what, "protocol",
		r->protocol, "host", r->host, "type", r->type, "address", r->address, "port",
		r->port, "reason", r->reason);
	BUG_ON(empty->data == NULL);
	empty->owner = *r->owner;
	(void)is_more(empty, r->way);
	tell(gw, empty, 1);
}

/* --- later --- */

struct later {
	void (*fn)(void *arg, bool may_wait);
	void *arg;
};

static void read_on(void);

static void later_main(void *arg)
{
	struct later *l = arg;

	l->fn(l->arg, true);
	free(l);
	if (--under_way == 0)
		waiters_wake(&none_under_way);
	read_on();
}

void refusals_later(void (*fn)(void *arg, bool may_wait), void *arg)
{
	struct later *l;

	if (under_way == REFUSALS_LATER_MAX) {
		fn(arg, false);
		return;
	}
	l = xnew(struct later);
	*l = (struct later){ fn, arg };
	under_way++;
	fiber_start(later_main, l);
}

/* --- what the kernel refused --- */

struct refused {
	struct gateway *gw;
	struct packet packet;
	uint32_t cgroup;
};

static const char *protocol_name(uint8_t protocol, char room[16])
{
	switch (protocol) {
	case IPPROTO_TCP:
		return "tcp";
	case IPPROTO_UDP:
		return "udp";
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return "icmp";
	default:
		(void)snprintf(room, 16, "ip-%u", protocol);
		return room;
	}
}

/* Nobody inside has a raw socket: what is no echo request the kernel has sent by itself. */
static const char *icmp_reason(uint8_t type)
{
	return type == ICMP_ECHO || type == ICMP6_ECHO_REQUEST
		       ? "ICMP (ping) does not leave"
		       : "ICMP of the sandbox's kernel does not leave";
}

static const char *reason_of(const struct packet *p)
{
	switch (p->protocol) {
	case IPPROTO_TCP:
		return "no rule allows this port";
	case IPPROTO_UDP:
		return "datagrams other than DNS do not leave";
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return icmp_reason(p->icmp_type);
	default:
		return "only TCP leaves";
	}
}

static void refused_main(void *arg, bool may_wait)
{
	struct refused *f = arg;
	const struct packet *p = &f->packet;
	char address[INET6_ADDRSTRLEN], room[16];
	struct owner owner = { 0 }; /* of a packet the kernel tells the control group alone */
	const char *name = names_find(f->gw->names, &p->to);
	struct refusal r = { .protocol = protocol_name(p->protocol, room),
		.address = address,
		.port = p->port,
		.owner = &owner };

	address_text(&p->to, address);
	if (may_wait)
		owner_exec(f->cgroup, owner.exec);
	else
		(void)owner_exec_known(f->cgroup, owner.exec);
	r.host = name != NULL ? name : address;
	r.what = p->protocol == IPPROTO_TCP   ? "connection"
		 : p->protocol == IPPROTO_UDP ? "datagram"
					      : "packet";
	r.reason = reason_of(p);
	refusals_add(f->gw, &r);
	free(f);
}

static void take_packet(struct gateway *gw, const char *attrs, size_t n)
{
	struct refused *f = xnew(struct refused);
	size_t size = 0, mark_size = 0;
	const unsigned char *payload = netlink_find(attrs, n, NFULA_PAYLOAD, &size);
	const void *mark = netlink_find(attrs, n, NFULA_MARK, &mark_size);
	char exec[ID_LEN + 1];
	uint32_t big;

	f->gw = gw;
	if (mark != NULL && mark_size == sizeof(big)) {
		memcpy(&big, mark, sizeof(big));
		f->cgroup = ntohl(big);
	}
	if (payload == NULL || packet_parse(payload, size, &f->packet) < 0) {
		refusals_lost(gw);
		free(f);
		return;
	}
	if (owner_exec_known(f->cgroup, exec))
		refused_main(f, false);
	else
		refusals_later(refused_main, f);
}

/* The messages are numbered: what the queue could not hold is a gap. */
static void take_number(const char *attrs, size_t n)
{
	size_t size = 0;
	const void *p = netlink_find(attrs, n, NFULA_SEQ, &size);
	uint32_t seq;

	if (p == NULL || size != sizeof(seq))
		return;
	memcpy(&seq, p, sizeof(seq));
	seq = ntohl(seq);
	untold += numbered ? seq - next_seq : 0;
	numbered = true;
	next_seq = seq + 1;
}

static void take_messages(struct gateway *gw, const char *p, size_t n)
{
	const size_t head = sizeof(struct nlmsghdr) + sizeof(struct nfgenmsg);

	while (n >= head) {
		struct nlmsghdr h;
		size_t whole;

		memcpy(&h, p, sizeof(h));
		if (h.nlmsg_len < head || h.nlmsg_len > n)
			return;
		if (h.nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET)) {
			take_number(p + head, h.nlmsg_len - head);
			take_packet(gw, p + head, h.nlmsg_len - head);
		}
		whole = (h.nlmsg_len + 3U) & ~3U;
		if (whole >= n)
			return;
		p += whole;
		n -= whole;
	}
}

/* Return: was there anything? */
static bool read_log(struct gateway *gw)
{
	static char bytes[65536];
	ssize_t n = recv(log_fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0)
		take_messages(gw, bytes, (size_t)n);
	return n > 0 || (n < 0 && errno == ENOBUFS); /* the gap tells how many */
}

/* As many ask as may, and the keeper is not known to owe answers for long: who is read now would be told without the exec that is known in a moment. The kernel keeps and counts them. */
static bool is_full(void)
{
	return under_way == REFUSALS_LATER_MAX && !owner_overdue();
}

/* A queue that ran over is an error of the socket, at which the loop stops looking: reading takes it away. */
static void on_log(uv_poll_t *poll, int status, attr_unused int events)
{
	if (status < 0)
		(void)uv_poll_start(poll, UV_READABLE, on_log);
	for (int i = 0; i < BATCH && !is_full() && read_log(poll->data); i++)
		;
	if (is_full())
		(void)uv_poll_stop(poll);
}

/* One who asked is done. */
static void read_on(void)
{
	if (log_fd >= 0 && !uv_is_active((uv_handle_t *)&log_poll))
		(void)uv_poll_start(&log_poll, UV_READABLE, on_log);
}

int refusals_watch(struct gateway *gw, int fd)
{
	int rc = uv_timer_init(gw->loop, &window);

	log_poll.data = gw;
	log_fd = fd;
	if (rc == 0)
		rc = uv_poll_init(gw->loop, &log_poll, fd);
	return rc < 0 ? rc : uv_poll_start(&log_poll, UV_READABLE, on_log);
}

void refusals_drain(struct gateway *gw)
{
	uint64_t deadline = clock_now_ns() + DRAIN_NS;

	for (size_t n = 1; clock_now_ns() < deadline && read_log(gw); n++)
		if (n % BATCH == 0)
			(void)!waiters_wait(&nobody, clock_now_ns() + NS_PER_MS);
	while (under_way > 0 && waiters_wait(&none_under_way, deadline) == 0)
		;
	close_window(gw);
}

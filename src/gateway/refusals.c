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
#include <string.h>
#include <sys/socket.h>

#define KINDS_MAX 256
#define WINDOW_MS 1000
#define BATCH     64             /* packets in one turn of the loop */
#define DRAIN_NS  (NS_PER_S / 2) /* of the second that cayd waits */

struct kind {
	char *key;
	json_t *data; /* of the event, without its count */
	char exec[ID_LEN + 1];
	uint64_t more; /* since the last event */
	bool recent;   /* in this window */
};

static struct kind kinds[KINDS_MAX];
static uint64_t untold;
static uv_timer_t window;
static int log_fd = -1;
static uint32_t next_seq;
static bool numbered;    /* a gateway that follows another cannot know what was told before it */
static size_t under_way; /* fibers of refusals_later() */
static struct waiters none_under_way = { { &none_under_way.fibers, &none_under_way.fibers } };

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
	gateway_event(gw, "net.denied", k->exec, data);
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

void refusals_add(struct gateway *gw, const struct refusal *r)
{
	cleanup_free char *key = str_dupf("%s/%s/%s/%s/%u/%s/%s", r->what, r->protocol, r->host,
		r->address, r->port, r->exec, r->reason);
	struct kind *empty, *k = kind_find(key, &empty);

	if (!uv_is_active((uv_handle_t *)&window))
		(void)uv_timer_start(&window, on_window, WINDOW_MS, WINDOW_MS);
	if (k != NULL) {
		k->more++;
		k->recent = true;
		return;
	}
	if (empty == NULL || gateway_congested(gw)) {
		untold++;
		return;
	}
	*empty = (struct kind){ .key = TAKE_PTR(key), .recent = true };
	empty->data = json_pack("{s:s,s:s,s:s,s:s,s:i,s:s}", "what", r->what, "protocol",
		r->protocol, "host", r->host, "address", r->address, "port", r->port, "reason",
		r->reason);
	BUG_ON(empty->data == NULL);
	(void)!str_copy(empty->exec, sizeof(empty->exec), r->exec);
	tell(gw, empty, 1);
}

/* --- later --- */

struct later {
	void (*fn)(void *arg);
	void *arg;
};

static void later_main(void *arg)
{
	struct later *l = arg;

	l->fn(l->arg);
	free(l);
	if (--under_way == 0)
		waiters_wake(&none_under_way);
}

void refusals_later(void (*fn)(void *arg), void *arg)
{
	struct later *l = xnew(struct later);

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

static void refused_main(void *arg)
{
	struct refused *f = arg;
	const struct packet *p = &f->packet;
	char address[INET6_ADDRSTRLEN], room[16], exec[ID_LEN + 1];
	const char *name = names_find(f->gw->names, &p->to);
	struct refusal r = { .protocol = protocol_name(p->protocol, room),
		.address = address,
		.port = p->port,
		.exec = exec,
		.reason = "no rule allows this port" };

	address_text(&p->to, address);
	owner_exec(f->gw, f->cgroup, exec);
	r.host = name != NULL ? name : address;
	r.what = p->protocol == IPPROTO_TCP   ? "connection"
		 : p->protocol == IPPROTO_UDP ? "datagram"
					      : "packet";
	if (p->protocol != IPPROTO_TCP)
		r.reason = p->protocol == IPPROTO_UDP ? "datagrams other than DNS do not leave"
						      : "only TCP leaves";
	refusals_add(f->gw, &r);
	free(f);
}

static void take_packet(struct gateway *gw, const char *attrs, size_t n)
{
	struct refused *f = xnew(struct refused);
	size_t size = 0, mark_size = 0;
	const unsigned char *payload = netlink_find(attrs, n, NFULA_PAYLOAD, &size);
	const void *mark = netlink_find(attrs, n, NFULA_MARK, &mark_size);
	uint32_t big;

	f->gw = gw;
	if (mark != NULL && mark_size == sizeof(big)) {
		memcpy(&big, mark, sizeof(big));
		f->cgroup = ntohl(big);
	}
	if (payload == NULL || packet_parse(payload, size, &f->packet) < 0) {
		untold++;
		free(f);
		return;
	}
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

static void on_log(uv_poll_t *poll, attr_unused int status, attr_unused int events)
{
	for (int i = 0; i < BATCH && read_log(poll->data); i++)
		;
}

int refusals_watch(struct gateway *gw, int fd)
{
	static uv_poll_t poll;
	int rc = uv_timer_init(gw->loop, &window);

	window.data = poll.data = gw;
	log_fd = fd;
	if (rc == 0)
		rc = uv_poll_init(gw->loop, &poll, fd);
	return rc < 0 ? rc : uv_poll_start(&poll, UV_READABLE, on_log);
}

void refusals_drain(struct gateway *gw)
{
	uint64_t deadline = clock_now_ns() + DRAIN_NS;

	while (read_log(gw))
		;
	while (under_way > 0 && waiters_wait(&none_under_way, deadline) == 0)
		;
	close_window(gw);
}

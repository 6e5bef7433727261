/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/nameserver.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/dns.h"
#include "gateway/address.h"
#include "gateway/lookup.h"
#include "gateway/names.h"
#include "gateway/owner.h"
#include "gateway/refusals.h"

#include <string.h>
#include <sys/socket.h>

#define TTL_S       60
#define TTL_LOCAL_S 604800
#define IDLE_NS     (30 * NS_PER_S)
#define WRITTEN_NS  (10 * NS_PER_S) /* how long a list may take to be written down */
#define BATCH       64              /* datagrams in one turn of the loop */
#define OUTSIDE_MAX \
	256 /* of them whose answers are outside, or whose events wait to know whose they were */

/* --- what is answered --- */

static void add_address(struct dns_answer *a, const struct in6_addr *address, uint32_t ttl_s)
{
	if (IN6_IS_ADDR_V4MAPPED(address))
		dns_answer_add(a, DNS_A, ttl_s, address->s6_addr + 12, 4);
	else
		dns_answer_add(a, DNS_AAAA, ttl_s, address->s6_addr, 16);
}

static bool wants(const struct dns_query *q, enum dns_type type)
{
	return q->type == type || q->type == DNS_ANY;
}

static bool is_localhost(const char *name)
{
	size_t n = strlen(name), tail = strlen(".localhost");

	return str_eq(name, "localhost") || (n > tail && str_eq(name + n - tail, ".localhost"));
}

static void answer_localhost(struct dns_answer *a, const struct dns_query *q)
{
	static const struct in6_addr v4 = { .s6_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };

	if (wants(q, DNS_A))
		add_address(a, &v4, TTL_LOCAL_S);
	if (wants(q, DNS_AAAA))
		add_address(a, &in6addr_loopback, TTL_LOCAL_S);
}

/* Addresses of ours have the name that they were given for. */
static const char *reverse_name(const struct gateway *gw, const struct dns_query *q)
{
	struct in6_addr address;

	if (dns_reverse(q->name, &address) < 0)
		return NULL;
	return address_own(&address) ? "localhost" : names_find(gw->names, &address);
}

/* How the name may be used, as bits 1 << enum policy_transport; 0: it does not exist for this sandbox. */
static unsigned int name_allowed(const struct gateway *gw, const struct dns_query *q)
{
	const struct policy_request rq = { .stage = POLICY_NAME, .host = q->name };
	struct policy_verdict v;

	if (gw->policy == NULL || !q->plain || q->name[0] == '\0')
		return 0;
	if (ablated("gateway_names"))
		return 1U << POLICY_HTTP;
	policy_decide(gw->policy, &rq, &v);
	return v.need_more ? v.transports : 0;
}

/*
 * Names are written down as one list, so while one is on its way what is new waits for it: of every name that somebody looks up a list would be more than there is room for here, and keep
 * the server busy.
 */
static struct {
	bool under_way, more;
	uint64_t number;
} names_told;

static void on_names_told(void *arg);

static void tell_names(struct gateway *gw)
{
	names_told.more = names_told.under_way;
	if (names_told.under_way)
		return;
	names_told.under_way = true;
	names_told.number = gateway_state(gw, "names", names_json(gw->names));
	fiber_start(on_names_told, gw);
}

static void on_names_told(void *arg)
{
	struct gateway *gw = arg;

	(void)!gateway_state_written(gw, names_told.number, clock_now_ns() + WRITTEN_NS);
	names_told.under_way = false;
	if (names_told.more)
		tell_names(gw);
}

/* What others find in the state is every name that was given out. */
static void on_hold(struct gateway *gw)
{
	if (names_told.more)
		(void)gateway_state(gw, "names", names_json(gw->names));
	names_told.more = false;
}

/* The name is allowed: its address of the asked family, unless only its records may be looked up. Other types are empty: lookup.c has those that a rule knows. */
static void answer_name(struct dns_answer *a, const struct dns_query *q, uint32_t n)
{
	struct in6_addr address;

	for (int v6 = 0; n != 0 && v6 < 2; v6++) {
		names_address(n, v6 != 0, &address);
		if (wants(q, v6 != 0 ? DNS_AAAA : DNS_A))
			add_address(a, &address, TTL_S);
	}
}

/* FULL: there are as many names as a sandbox can have, for ever */
enum outcome { ANSWERED, DENIED, FULL, SILENT, OUTSIDE };

/*
 * A number for a name that can be reached, once somebody asks for its address: names are few, and given for ever, and who reads a log looks up those of all addresses in it.
 * Return: false when there is none left. @ret_n: 0 where it takes none.
 */
static bool give_number(
	struct gateway *gw, const struct dns_query *q, unsigned int transports, uint32_t *ret_n)
{
	bool new = false, reachable = (transports & ~(1U << POLICY_DNS)) != 0;
	bool wanted = reachable && (wants(q, DNS_A) || wants(q, DNS_AAAA));

	*ret_n = wanted ? names_give(gw->names, q->name, &new) : 0;
	if (new)
		tell_names(gw);
	return !wanted || *ret_n != 0;
}

static void answer_reverse(struct dns_answer *a, const struct dns_query *q, const char *name)
{
	unsigned char encoded[255];
	ssize_t n = dns_name_encode(name, encoded);

	if (n > 0 && wants(q, DNS_PTR))
		dns_answer_add(a, DNS_PTR, TTL_S, encoded, (size_t)n);
}

static size_t limit_of(const struct dns_query *q, bool datagram)
{
	if (!datagram)
		return DNS_MESSAGE_MAX;
	return q->edns_size > DNS_PLAIN_MAX ? q->edns_size : DNS_PLAIN_MAX;
}

/* Write the answer to the message at @p to @out, unless it is to be had outside. @q, @v: filled for the caller. */
static enum outcome answer(struct gateway *gw, const unsigned char *p, size_t n, struct buf *out,
	bool datagram, struct dns_query *q, struct policy_verdict *v)
{
	int rc = dns_parse_query(p, n, q);
	const char *reverse = rc == 0 ? reverse_name(gw, q) : NULL;
	unsigned int transports = rc == 0 ? name_allowed(gw, q) : 0;
	enum outcome outcome = ANSWERED;
	struct dns_answer a;
	uint32_t number;

	if (rc == -EINVAL)
		return SILENT;
	if (rc == 0 && lookup_decide(gw, q, v))
		return OUTSIDE;
	if (rc < 0) {
		dns_answer_begin(&a, out, q, rc == -ENOTSUP ? DNS_NOTIMP : DNS_FORMERR);
	} else if (is_localhost(q->name)) {
		dns_answer_begin(&a, out, q, DNS_NOERROR);
		answer_localhost(&a, q);
	} else if (reverse != NULL) {
		dns_answer_begin(&a, out, q, DNS_NOERROR);
		answer_reverse(&a, q, reverse);
	} else if (gw->policy == NULL) { /* it cannot be had */
		dns_answer_begin(&a, out, q, DNS_SERVFAIL);
	} else if (transports != 0 && !give_number(gw, q, transports, &number)) {
		dns_answer_begin(&a, out, q, DNS_SERVFAIL);
		outcome = FULL;
	} else if (transports != 0) {
		dns_answer_begin(&a, out, q, DNS_NOERROR);
		answer_name(&a, q, number);
		if (lookup_record(q->type) != NULL)
			outcome = DENIED; /* the name is there as if it had none */
	} else {
		dns_answer_begin(&a, out, q, DNS_NXDOMAIN);
		outcome = DENIED;
	}
	dns_answer_end(&a, limit_of(q, datagram));
	return outcome;
}

struct denied_name {
	struct gateway *gw;
	struct owner_search *whose; /* a reference */
	enum outcome outcome;
	const char *record; /* that was asked for; NULL: an address, or what no rule can name */
	uint16_t type;
	char name[DNS_NAME_MAX + 1];
};

static void tell_denied(const struct denied_name *d, const struct owner *owner)
{
	bool full = d->outcome == FULL;
	const char *record = full ? NULL : d->record;
	const struct refusal r = { .what = record != NULL ? "records" : "name",
		.protocol = "dns",
		.host = d->name[0] != '\0' ? d->name : ".",
		.type = record,
		.address = "",
		.owner = owner,
		/* who looks a name up asks for its addresses of both kinds, and browsers for more */
		.way = d->type == DNS_A      ? 0
		       : d->type == DNS_AAAA ? 1
					     : 2,
		.reason = full ? "this sandbox has looked up as many names as it can have"
			  : record != NULL ? "no rule of transport dns allows these records"
					   : "no rule allows this name" };

	refusals_add(d->gw, &r);
}

/* --- datagrams --- */

static void denied_main(void *arg, bool may_wait)
{
	struct denied_name *d = arg;

	tell_denied(d, may_wait ? owner_search_result(d->whose) : owner_search_known(d->whose));
	owner_search_unref(d->whose);
	free(d);
}

static struct owner_search *datagram_owner(
	struct gateway *gw, const struct sockaddr_in6 *from, const struct in6_addr *to)
{
	const struct owner_socket s = { .protocol = IPPROTO_UDP,
		.from = from->sin6_addr,
		.from_port = ntohs(from->sin6_port),
		.to = *to,
		.to_port = 53 };

	return owner_search_new(gw, &s);
}

/* The answer does not wait for that. @whose: stolen. */
static void name_denied(struct gateway *gw, const struct dns_query *q, enum outcome outcome,
	struct owner_search *whose)
{
	struct denied_name *d = xnew(struct denied_name);

	d->gw = gw;
	d->whose = whose;
	d->outcome = outcome;
	d->record = lookup_record(q->type);
	d->type = q->type;
	memcpy(d->name, q->name, sizeof(d->name));
	str_utf8_tidy(d->name); /* any bytes may be asked for */
	refusals_later(denied_main, d);
}

/* The answer leaves from the address that was asked; the kernel makes its port 53 (sandbox/network.c). */
static void send_answer(
	int fd, const struct buf *out, struct sockaddr_in6 *to, const struct in6_addr *from)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control = { 0 };
	struct iovec iov = { .iov_base = out->p, .iov_len = out->n };
	struct msghdr m = { .msg_name = to,
		.msg_namelen = sizeof(*to),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes) };
	struct in6_pktinfo info = { .ipi6_addr = *from };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = IPPROTO_IPV6;
	h->cmsg_type = IPV6_PKTINFO;
	h->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(h), &info, sizeof(info));
	(void)!sendmsg(fd, &m, MSG_DONTWAIT); /* one that is lost is asked again */
}

/* A question whose answer is outside: a copy of all that is needed to send it later. */
struct question {
	struct gateway *gw;
	int fd;
	struct owner_search *whose; /* a reference */
	struct sockaddr_in6 from;
	struct in6_addr to;
	struct dns_query q;
	struct policy *policy; /* a reference */
	struct policy_verdict v;
	unsigned char bytes[DNS_QUESTION_MAX];
};

static size_t n_outside;

static void outside_main(void *arg)
{
	struct question *d = arg;
	cleanup_buf struct buf out = BUF_INIT(DNS_MESSAGE_MAX);

	lookup_answer(d->gw, &d->q, d->policy, &d->v, d->whose, limit_of(&d->q, true), &out);
	if (!buf_failed(&out))
		send_answer(d->fd, &out, &d->from, &d->to);
	policy_unref(d->policy);
	owner_search_unref(d->whose);
	free(d);
	n_outside--;
}

/* Return: false when too many are under way, or too many events wait for cayd. */
static bool datagram_outside(struct gateway *gw, int fd, const struct dns_query *q,
	const struct policy_verdict *v, const struct sockaddr_in6 *from, const struct in6_addr *to)
{
	struct question *d;

	if (n_outside == OUTSIDE_MAX || gateway_congested(gw))
		return false;
	n_outside++;
	d = xnew(struct question);
	*d = (struct question){ .gw = gw,
		.fd = fd,
		.whose = datagram_owner(gw, from, to),
		.from = *from,
		.to = *to,
		.q = *q,
		.policy = policy_ref(gw->policy),
		.v = *v };
	BUG_ON(q->question_n > sizeof(d->bytes));
	memcpy(d->bytes, q->question, q->question_n);
	d->q.question = d->bytes;
	fiber_start(outside_main, d);
	return true;
}

/* It is not asked outside, and told only by number. */
static void try_later(struct gateway *gw, const struct dns_query *q, struct buf *out)
{
	struct dns_answer a;

	dns_answer_begin(&a, out, q, DNS_SERVFAIL);
	dns_answer_end(&a, limit_of(q, true));
	refusals_lost(gw);
}

static bool dialled(struct msghdr *m, struct in6_addr *ret)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
		if (h->cmsg_level == IPPROTO_IPV6 && h->cmsg_type == IPV6_PKTINFO) {
			memcpy(ret, CMSG_DATA(h) + offsetof(struct in6_pktinfo, ipi6_addr),
				sizeof(*ret));
			return true;
		}
	}
	return false;
}

/* Return: was there a datagram? */
static bool take_datagram(struct gateway *gw, int fd)
{
	static unsigned char bytes[DNS_MESSAGE_MAX];
	cleanup_buf struct buf out = BUF_INIT(DNS_MESSAGE_MAX);
	char control[256];
	struct sockaddr_in6 from;
	struct iovec iov = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	struct msghdr m = { .msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
	struct in6_addr to;
	struct policy_verdict v;
	struct dns_query q;
	enum outcome outcome;

	if (n < 0)
		return false;
	if (!dialled(&m, &to))
		return true;
	outcome = answer(gw, bytes, (size_t)n, &out, true, &q, &v);
	if (outcome == DENIED || outcome == FULL)
		name_denied(gw, &q, outcome, datagram_owner(gw, &from, &to));
	if (outcome == SILENT ||
		(outcome == OUTSIDE && datagram_outside(gw, fd, &q, &v, &from, &to)))
		return true;
	if (outcome == OUTSIDE)
		try_later(gw, &q, &out);
	send_answer(fd, &out, &from, &to);
	return true;
}

/* Without a policy nothing is known of any name yet: the kernel keeps the questions. */
static bool may_answer(const struct gateway *gw)
{
	return gw->policy != NULL || gw->refuses;
}

static void on_datagrams(uv_poll_t *poll, attr_unused int status, attr_unused int events)
{
	struct gateway *gw = poll->data;
	uv_os_fd_t fd;

	if (uv_fileno((uv_handle_t *)poll, &fd) < 0)
		return;
	for (int i = 0; i < BATCH && may_answer(gw) && take_datagram(gw, fd); i++)
		;
	if (!may_answer(gw))
		(void)uv_poll_stop(poll);
}

static uv_poll_t datagrams;

void nameserver_go_on(void)
{
	(void)uv_poll_start(&datagrams, UV_READABLE, on_datagrams);
}

static void on_config(attr_unused struct gateway *gw)
{
	nameserver_go_on();
}

int nameserver_watch(struct gateway *gw, int fd)
{
	datagrams.data = gw;
	gateway_on_config(on_config);
	gateway_on_hold(on_hold);
	return uv_poll_init(gw->loop, &datagrams, fd);
}

/* --- connections --- */

static int read_exactly(struct conn *c, unsigned char *p, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t more = recv(c->fd, p + got, n - got, MSG_DONTWAIT);

		if (more == 0)
			return -EPIPE;
		if (more > 0)
			got += (size_t)more;
		else if (errno != EAGAIN)
			return -errno;
		else if (fdwatch_wait(&c->watch, false, clock_now_ns() + IDLE_NS) < 0)
			return -ETIMEDOUT;
	}
	return 0;
}

static int write_all(struct conn *c, const char *p, size_t n)
{
	for (size_t sent = 0; sent < n;) {
		ssize_t more = send(c->fd, p + sent, n - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (more > 0)
			sent += (size_t)more;
		else if (errno != EAGAIN)
			return -errno;
		else if (fdwatch_wait(&c->watch, true, clock_now_ns() + IDLE_NS) < 0)
			return -ETIMEDOUT;
	}
	return 0;
}

/* One question and its answer. */
static int serve_one(struct conn *c, unsigned char *message)
{
	cleanup_buf struct buf out = BUF_INIT(DNS_MESSAGE_MAX + 2);
	unsigned char length[2];
	struct policy_verdict v;
	struct dns_query q;
	enum outcome outcome;
	size_t n;
	int rc = read_exactly(c, length, sizeof(length));

	n = (size_t)length[0] << 8 | length[1];
	if (rc == 0)
		rc = read_exactly(c, message, n);
	if (rc < 0)
		return rc;
	buf_add(&out, length, sizeof(length)); /* room for ours */
	policy_unref(c->policy);               /* a connection may ask for hours */
	c->policy = policy_ref(c->gw->policy);
	outcome = answer(c->gw, message, n, &out, false, &q, &v);
	if (outcome == DENIED || outcome == FULL)
		name_denied(c->gw, &q, outcome, owner_search_ref(c->whose));
	if (outcome == OUTSIDE)
		lookup_answer(c->gw, &q, c->policy, &v, c->whose, DNS_MESSAGE_MAX, &out);
	if (outcome == SILENT || buf_failed(&out))
		return -EPROTO;
	out.p[0] = (char)((out.n - 2) >> 8);
	out.p[1] = (char)(out.n - 2);
	return write_all(c, out.p, out.n);
}

void nameserver_serve(struct conn *c)
{
	cleanup_free unsigned char *message = xalloc(DNS_MESSAGE_MAX);

	while (serve_one(c, message) == 0)
		;
}

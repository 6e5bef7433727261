/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/netlink.h"

#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

/* NLMSG_ALIGN and NLA_ALIGN, in one type */
#define ALIGNED(n)     (((size_t)(n) + 3U) & ~(size_t)3U)
#define ATTR_HEADER    sizeof(struct nlattr)
#define MESSAGE_HEADER sizeof(struct nlmsghdr)

void netlink_init(struct netlink *nl)
{
	*nl = (struct netlink){ .bytes = BUF_INIT(NETLINK_BATCH_MAX), .seq = 1 };
}

void netlink_fini(struct netlink *nl)
{
	buf_free(&nl->bytes);
}

static void pad(struct netlink *nl)
{
	static const char zero[4];

	buf_add(&nl->bytes, zero, ALIGNED(nl->bytes.n) - nl->bytes.n);
}

void netlink_open(struct netlink *nl, uint16_t type, uint16_t flags, const void *fixed, size_t n)
{
	struct nlmsghdr h = { .nlmsg_type = type,
		.nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST),
		.nlmsg_seq = nl->seq++ };

	nl->wanted += (flags & NLM_F_ACK) != 0;
	nl->message = nl->bytes.n;
	buf_add(&nl->bytes, &h, sizeof(h));
	buf_add(&nl->bytes, fixed, n);
	pad(nl);
}

void netlink_close(struct netlink *nl)
{
	uint32_t length = (uint32_t)(nl->bytes.n - nl->message);

	if (!buf_failed(&nl->bytes))
		memcpy(nl->bytes.p + nl->message + offsetof(struct nlmsghdr, nlmsg_len), &length,
			sizeof(length));
}

void netlink_want_answer(struct netlink *nl)
{
	char *flags = nl->bytes.p + nl->message + offsetof(struct nlmsghdr, nlmsg_flags);
	uint16_t value;

	if (buf_failed(&nl->bytes))
		return;
	memcpy(&value, flags, sizeof(value));
	value |= NLM_F_ACK;
	memcpy(flags, &value, sizeof(value));
	nl->wanted++;
}

void netlink_attr(struct netlink *nl, uint16_t type, const void *p, size_t n)
{
	struct nlattr a = { .nla_len = (uint16_t)(ATTR_HEADER + n), .nla_type = type };

	buf_add(&nl->bytes, &a, sizeof(a));
	buf_add(&nl->bytes, p, n);
	pad(nl);
}

size_t netlink_nest(struct netlink *nl, uint16_t type)
{
	size_t at = nl->bytes.n;

	netlink_attr(nl, type | NLA_F_NESTED, NULL, 0);
	return at;
}

void netlink_nest_end(struct netlink *nl, size_t nest)
{
	uint16_t length = (uint16_t)(nl->bytes.n - nest);

	if (!buf_failed(&nl->bytes))
		memcpy(nl->bytes.p + nest, &length, sizeof(length));
}

/* Counts the acknowledgements in one datagram. Return: 0, or the error that one of them carries. */
static int read_answers(struct netlink *nl, const char *p, size_t n)
{
	int rc = 0;

	while (n >= MESSAGE_HEADER) {
		struct nlmsghdr h;
		int code;

		memcpy(&h, p, sizeof(h));
		if (h.nlmsg_len < MESSAGE_HEADER)
			return -EBADMSG;
		if (h.nlmsg_type == NLMSG_ERROR) {
			if (n < MESSAGE_HEADER + sizeof(code))
				return -EBADMSG;
			memcpy(&code, p + MESSAGE_HEADER, sizeof(code));
			nl->wanted -= nl->wanted > 0;
			rc = rc == 0 ? code : rc;
		}
		/* an error repeats what it answers, which may have no room here */
		if (ALIGNED(h.nlmsg_len) >= n)
			break;
		p += ALIGNED(h.nlmsg_len);
		n -= ALIGNED(h.nlmsg_len);
	}
	return rc;
}

int netlink_talk(struct netlink *nl, int fd)
{
	char answer[4096];
	int rc = 0;

	if (buf_failed(&nl->bytes))
		return -EMSGSIZE;
	if (send(fd, nl->bytes.p, nl->bytes.n, 0) < 0)
		return -errno;
	/* a batch that fails is answered for its first bad message; what waits behind it belongs to this call alone */
	while (rc == 0 && nl->wanted > 0) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);

		if (n < 0 && errno == EINTR)
			continue;
		rc = n < 0 ? -errno : read_answers(nl, answer, (size_t)n);
	}
	return rc;
}

ssize_t netlink_ask(const struct netlink *nl, int fd, void *ret, size_t size)
{
	if (send(fd, nl->bytes.p, nl->bytes.n, 0) < 0)
		return -1;
	return recv(fd, ret, size, MSG_DONTWAIT);
}

int netlink_socket(int protocol)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	return fd < 0 ? -errno : fd;
}

const void *netlink_find(const void *p, size_t n, uint16_t type, size_t *ret_n)
{
	const char *at = p;

	while (n >= ATTR_HEADER) {
		struct nlattr a;

		memcpy(&a, at, sizeof(a));
		if (a.nla_len < ATTR_HEADER || a.nla_len > n)
			return NULL;
		if ((a.nla_type & NLA_TYPE_MASK) == type) {
			*ret_n = a.nla_len - ATTR_HEADER;
			return at + ATTR_HEADER;
		}
		if (ALIGNED(a.nla_len) >= n)
			return NULL;
		at += ALIGNED(a.nla_len);
		n -= ALIGNED(a.nla_len);
	}
	return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/holders.h"
#include "sys/netlink.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdalign.h>
#include <string.h>
#include <sys/socket.h>

#define PIECE 32768 /* as much as the kernel says at once */
/* TCP sockets that are bound and no more, which Linux lists since 6.8 (TCP_BOUND_INACTIVE): as before they are among those that are looked at one by one */
#define ONLY_BOUND (1U << 13)

void holders_add(struct holders *h, uint64_t group, uint64_t bytes)
{
	size_t i = 0;

	if (bytes == 0 || (group != 0 && group == h->ours))
		return;
	h->bytes += bytes;
	while (i < h->n && h->all[i].group != group)
		i++;
	if (i == HOLDERS_MAX) /* the first one stands for all that have no place */
		h->all[i = 0].group = 0;
	if (i == h->n)
		h->all[h->n++] = (struct holder){ .group = group };
	h->all[i].bytes += bytes;
}

void holders_add_all(struct holders *h, const struct holders *more)
{
	for (size_t i = 0; i < more->n; i++)
		holders_add(h, more->all[i].group, more->all[i].bytes);
}

const struct holder *holders_largest(const struct holders *h)
{
	const struct holder *most = NULL;

	for (size_t i = 0; i < h->n; i++) {
		if (most == NULL || h->all[i].bytes > most->bytes)
			most = &h->all[i];
	}
	return most;
}

/* @p, @n: what the kernel says of one socket. */
static void add_socket(struct holders *h, const char *p, size_t n)
{
	const void *memory, *id;
	uint32_t said[SK_MEMINFO_VARS];
	uint64_t group = 0;
	size_t size;

	if (n < sizeof(struct inet_diag_msg))
		return;
	p += sizeof(struct inet_diag_msg);
	n -= sizeof(struct inet_diag_msg);
	memory = netlink_find(p, n, INET_DIAG_SKMEMINFO, &size);
	if (memory == NULL || size < (SK_MEMINFO_WMEM_QUEUED + 1) * sizeof(said[0]))
		return; /* of one that is about to be made, or has ended, nothing is kept */
	memcpy(said, memory, size < sizeof(said) ? size : sizeof(said));
	id = netlink_find(p, n, INET_DIAG_CGROUP_ID, &size);
	if (id != NULL && size == sizeof(group))
		memcpy(&group, id, sizeof(group));
	holders_add(h, group,
		(uint64_t)said[SK_MEMINFO_RMEM_ALLOC] + said[SK_MEMINFO_FWD_ALLOC] +
			said[SK_MEMINFO_WMEM_QUEUED]);
}

/* Return: 1 at the end, 0 when more comes, -errno. */
static int add_piece(struct holders *h, const char *p, size_t n)
{
	struct nlmsghdr head;
	int code;

	while (n >= sizeof(head)) {
		memcpy(&head, p, sizeof(head));
		if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > n)
			return -EBADMSG;
		if (head.nlmsg_type == NLMSG_DONE)
			return 1;
		if (head.nlmsg_type == NLMSG_ERROR) {
			if (head.nlmsg_len < sizeof(head) + sizeof(code))
				return -EBADMSG;
			memcpy(&code, p + sizeof(head), sizeof(code));
			return code < 0 ? code : -EBADMSG;
		}
		add_socket(h, p + sizeof(head), head.nlmsg_len - sizeof(head));
		n -= NLMSG_ALIGN(head.nlmsg_len) < n ? NLMSG_ALIGN(head.nlmsg_len) : n;
		p += NLMSG_ALIGN(head.nlmsg_len);
	}
	return 0;
}

static int ask_of(int fd, uint8_t family, uint8_t protocol, struct holders *h)
{
	static alignas(struct nlmsghdr) char piece[PIECE];
	const struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 request;
	} m = { .head = { .nlmsg_len = sizeof(m),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.request = { .sdiag_family = family,
			.sdiag_protocol = protocol,
			.idiag_ext = 1U << (INET_DIAG_SKMEMINFO - 1),
			.idiag_states = ~ONLY_BOUND } };
	int rc = 0;

	if (send(fd, &m, sizeof(m), 0) < 0)
		return -errno;
	while (rc == 0) {
		ssize_t n = recv(fd, piece, sizeof(piece), 0);

		rc = n < 0 ? -errno : add_piece(h, piece, (size_t)n);
	}
	return rc < 0 ? rc : 0;
}

int holders_ask(int diag_fd, struct holders *h)
{
	static const struct {
		uint8_t family, protocol;
	} kinds[] = { { AF_INET, IPPROTO_TCP }, { AF_INET6, IPPROTO_TCP }, { AF_INET, IPPROTO_UDP },
		{ AF_INET6, IPPROTO_UDP } };
	int rc = 0, told = 0;

	/* each protocol is told of by a module of its own, which may not be there */
	for (size_t i = 0; (rc == 0 || rc == -ENOENT) && i < ARRAY_SIZE(kinds); i++) {
		rc = ask_of(diag_fd, kinds[i].family, kinds[i].protocol, h);
		told += rc == 0;
	}
	return rc == -ENOENT && told > 0 ? 0 : rc;
}

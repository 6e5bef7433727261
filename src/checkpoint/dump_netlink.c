/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_netlink.c - netlink sockets that ask about routes and devices, or listen for changes of them: the only ones that a program in a sandbox can have. The other end is the
 * kernel, so there is nothing but number, groups and options, which are its options in the image too (dump_options.c).
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

#define WORDS 8 /* of 32 groups each: there are some forty */

/* Behind its other options. */
static int add_groups(struct dump *d, struct subject *s)
{
	uint32_t groups[WORDS] = { 0 };
	socklen_t n = sizeof(groups);

	if (getsockopt(s->copy, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &n) < 0)
		return -errno;
	if (n > sizeof(groups))
		return -E2BIG;
	for (uint32_t i = 0; i < 32 * WORDS; i++) {
		const uint32_t group = i + 1;

		if ((groups[i / 32] >> i % 32 & 1) != 0)
			dump_add_option(
				d, s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group));
	}
	return 0;
}

int dump_netlink(struct dump *d, struct subject *s, struct err *err)
{
	struct pollfd state = { .fd = s->copy, .events = POLLIN };
	struct sockaddr_nl own = { 0 }, other = { 0 };
	socklen_t own_n = sizeof(own), other_n = sizeof(other);

	s->out.kind = DESCRIPTION_SOCKET;
	s->out.path = (struct image_span){ 0 };
	if (poll(&state, 1, 0) != 0)
		return subject_busy(
			d, s, err, "a netlink socket with answers that nobody has read yet");
	if (getsockname(s->copy, (struct sockaddr *)&own, &own_n) < 0 ||
		getpeername(s->copy, (struct sockaddr *)&other, &other_n) < 0 ||
		add_groups(d, s) < 0)
		return subject_refuse(s, err, "a netlink socket of which the kernel tells nothing");
	if (other.nl_pid != 0 || other.nl_groups != 0)
		return subject_refuse(
			s, err, "a netlink socket that leads to another than the kernel");
	own.nl_groups = 0;
	if (own.nl_pid != 0)
		s->out.path = image_add_bytes(&d->image, &own, sizeof(own));
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/datagrams.c - UDP datagrams that waited, sent again: by the socket that has the sender's address, else by one that has it for the moment.
 *
 * What came from outside the sandbox is lost, as connections to there are. In the opener.
 */
#include "checkpoint/ip_place.h"
#include "prog/cay-template/fork.h"

#define AF_INET     2
#define DATAGRAMS   2 /* SOCK_DGRAM */
#define IPPROTO_UDP 17
#define SOL_SOCKET  1
#define SO_RCVBUF   8
#define SO_MEMINFO  55
#define DONTWAIT    0x40
#define NOSIGNAL    0x4000
#define LARGEST     (1 << 30) /* as far as the machine allows */
#define ARRIVE_MS   1000      /* all of them together, where the kernel tells of neither */

/* index of what SO_MEMINFO gives (linux/sock_diag.h) */
enum { MEMINFO_WAITING = 0, MEMINFO_DROPPED = 8 };

typedef const struct image_description description;

static description *description_at(uint32_t i)
{
	return IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);
}

static int domain_of(description *d)
{
	return (int)(d->c & 0xffff);
}

static struct place place_of_span(struct image_span span)
{
	return place_of(image_bytes(span), span.length);
}

static struct place_address address_of(int domain, const struct place *p)
{
	struct place_address out = {
		.family = (uint16_t)domain, .port = p->port, .length = PLACE_V4_LENGTH
	};

	if (domain == AF_INET) {
		out.words[0] = p->words[3];
		return out;
	}
	memcpy(&out.words[1], p->words, sizeof(p->words));
	out.length = PLACE_V6_LENGTH;
	return out;
}

/* Nothing else stays inside: the gateway takes what goes to other addresses. */
static bool is_loopback(const struct place *p)
{
	if (p->words[0] != 0 || p->words[1] != 0)
		return false;
	return (p->words[2] == 0xffff0000U && (p->words[3] & 0xff) == 127) ||
	       (p->words[2] == 0 && p->words[3] == 0x01000000U);
}

static bool is_udp(description *d)
{
	return d->kind == DESCRIPTION_SOCKET && d->c >> 16 == IPPROTO_UDP;
}

/* Who has it: with all addresses (@any) or with this one. */
static uint32_t find_owner(const struct place *from, bool any)
{
	for (uint32_t i = 0; from->port != 0 && i < plan->n_descriptions; i++) {
		description *d = description_at(i);
		struct place own = place_of_span(d->path);

		if (is_udp(d) && own.port == from->port && place_can_be(d, from) &&
			(any ? place_is_any(&own) : place_same_address(&own, from)))
			return i;
	}
	return IMAGE_NONE;
}

/** struct counts - what a socket has taken in and thrown away. */
struct counts {
	uint32_t bytes; /* memory of what waits to be received */
	uint32_t dropped;
};

static struct counts counts_of(int fd)
{
	uint32_t info[16] = { 0 }, n = sizeof(info);

	(void)CALL5(__NR_getsockopt, fd, SOL_SOCKET, SO_MEMINFO, info, &n);
	return (struct counts){ info[MEMINFO_WAITING], info[MEMINFO_DROPPED] };
}

/* And wait until it is there, or has been thrown away: the kernel may take its time, and the next must not overtake it. Return: whether it was thrown away. */
static bool send_once(int fd, const struct place_address *to, int receiver, struct image_span data)
{
	static int waited_ms;
	struct counts before = counts_of(receiver), now = before;
	long rc = CALL6(__NR_sendto, fd, image_bytes(data), data.length, DONTWAIT | NOSIGNAL, to,
		to->length);

	if (rc >= 0)
		now = counts_of(receiver);
	while (rc >= 0 && now.bytes == before.bytes && now.dropped == before.dropped &&
		waited_ms < ARRIVE_MS) {
		(void)CALL3(__NR_poll, 0, 0, 1);
		waited_ms++;
		now = counts_of(receiver);
	}
	return now.dropped != before.dropped;
}

/* A program may have made its receive buffer smaller than what waits in it. */
static void send_from(
	int fd, int domain, const struct place *to, int receiver, struct image_span data)
{
	struct place_address a = address_of(domain, to);
	int size = 0, large = LARGEST;
	uint32_t n = sizeof(size);

	if (!send_once(fd, &a, receiver, data))
		return;
	(void)CALL5(__NR_getsockopt, receiver, SOL_SOCKET, SO_RCVBUF, &size, &n);
	(void)CALL5(__NR_setsockopt, receiver, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large));
	(void)send_once(fd, &a, receiver, data);
	size /= 2; /* the kernel counts twice what it is told */
	(void)CALL5(__NR_setsockopt, receiver, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
}

/* One that is there for the moment. */
static int make_sender(int domain, struct image_span from)
{
	int fd = (int)fork_must(
		CALL3(__NR_socket, domain, DATAGRAMS | BARE_CLOEXEC, 0), "make a socket");

	if (CALL3(__NR_bind, fd, image_bytes(from), from.length) == 0)
		return fd;
	(void)CALL1(__NR_close, fd);
	return -1;
}

void datagrams_fill(uint32_t receiver, const struct image_packet *p)
{
	description *d = description_at(receiver);
	struct place from = place_of_span(p->from), to = place_of_span(d->path);
	uint32_t owner = find_owner(&from, false);
	int fd;

	if (!is_loopback(&from))
		return;
	if (place_is_any(&to))
		memcpy(to.words, from.words, sizeof(to.words));
	if (owner == IMAGE_NONE)
		owner = find_owner(&from, true);
	if (owner != IMAGE_NONE) {
		send_from(opener_kept(owner), domain_of(description_at(owner)), &to,
			opener_kept(receiver), p->data);
		return;
	}
	fd = make_sender(domain_of(d), p->from);
	if (fd < 0)
		return;
	send_from(fd, domain_of(d), &to, opener_kept(receiver), p->data);
	(void)CALL1(__NR_close, fd);
}

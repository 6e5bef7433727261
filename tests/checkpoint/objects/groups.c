/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of multicast: who has joined one can leave it, from whom it wants to hear and from whom not; who has not joined one, though others have, has not. */
#include "object.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define LOOPBACK 1 /* its number */

enum { SOURCES = 3, MAX = 8 };

/** struct joined - which socket wants what of which group; mode 0: it has not joined it. */
static struct joined {
	int fd;
	const char *group;
	uint32_t mode, n;
	const char *sources[SOURCES];
} all[MAX];
static int n_all;

static int level_of(const char *group)
{
	return strchr(group, ':') != NULL ? IPPROTO_IPV6 : IPPROTO_IP;
}

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage out = { 0 };
	struct sockaddr_in *four = (struct sockaddr_in *)&out;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&out;

	out.ss_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
	MUST(inet_pton(out.ss_family, text,
		     out.ss_family == AF_INET6 ? (void *)&six->sin6_addr
					       : (void *)&four->sin_addr) == 1);
	return out;
}

static int change(int fd, const char *group, int how)
{
	struct group_req g = { .gr_interface = LOOPBACK, .gr_group = address(group) };

	return setsockopt(fd, level_of(group), how, &g, sizeof(g));
}

static void of_source(int fd, const char *group, const char *source, int how)
{
	struct group_source_req g = { .gsr_interface = LOOPBACK,
		.gsr_group = address(group),
		.gsr_source = address(source) };

	MUST(setsockopt(fd, level_of(group), how, &g, sizeof(g)) == 0);
}

/* @sources: those that it does not want to hear, or (@only) those that it wants. */
static void join(int fd, const char *group, bool only, uint32_t n, const char *const *sources)
{
	struct joined *j = &all[n_all++];

	MUST(n_all < MAX);
	*j = (struct joined){
		.fd = fd, .group = group, .mode = only ? MCAST_INCLUDE : MCAST_EXCLUDE, .n = n
	};
	if (!only)
		MUST(change(fd, group, MCAST_JOIN_GROUP) == 0);
	for (uint32_t i = 0; i < n; i++) {
		j->sources[i] = sources[i];
		of_source(
			fd, group, sources[i], only ? MCAST_JOIN_SOURCE_GROUP : MCAST_BLOCK_SOURCE);
	}
}

static void expect(const struct joined *j)
{
	union {
		struct group_filter f;
		char room[GROUP_FILTER_SIZE(SOURCES)];
	} now = { .f = { .gf_interface = LOOPBACK,
			  .gf_group = address(j->group),
			  .gf_numsrc = SOURCES } };
	socklen_t n = sizeof(now);

	MUST(getsockopt(j->fd, level_of(j->group), MCAST_MSFILTER, &now, &n) == 0);
	if (now.f.gf_fmode != j->mode || now.f.gf_numsrc != j->n)
		object_fail("%s: mode %u with %u, not %u with %u", j->group, now.f.gf_fmode,
			now.f.gf_numsrc, j->mode, j->n);
	for (uint32_t i = 0; i < j->n; i++) {
		struct sockaddr_storage want = address(j->sources[i]);
		bool found = false;

		for (uint32_t k = 0; k < j->n; k++)
			found |= memcmp(&now.f.gf_slist[k], &want, sizeof(want)) == 0;
		MUST(found);
	}
	MUST(change(j->fd, j->group, MCAST_LEAVE_GROUP) == 0);
}

static void expect_none(int fd, const char *group)
{
	errno = 0;
	MUST(change(fd, group, MCAST_LEAVE_GROUP) < 0 && errno == EADDRNOTAVAIL);
}

int main(void)
{
	static const char *const four[] = { "10.0.0.1", "10.0.0.2" }, *const six[] = {
		"2001:db8::1"
	};
	int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0),
	    c = socket(AF_INET6, SOCK_DGRAM, 0), none = socket(AF_INET6, SOCK_DGRAM, 0);

	join(a, "224.0.0.251", false, 0, NULL);
	join(a, "239.1.2.3", false, 2, four);
	join(b, "232.1.2.3", true, 2, four);
	/* every machine is in these */
	join(b, "224.0.0.1", false, 0, NULL);
	join(c, "ff02::1", false, 0, NULL);
	join(c, "ff02::fb", false, 1, six);
	join(c, "224.0.0.251", false, 0, NULL);

	object_ready();

	for (int i = 0; i < n_all; i++)
		MUST(all[i].mode != MCAST_EXCLUDE ||
			(change(all[i].fd, all[i].group, MCAST_JOIN_GROUP) < 0 &&
				errno == EADDRINUSE));
	expect_none(b, "224.0.0.251");
	expect_none(a, "224.0.0.1");
	expect_none(none, "ff02::1");
	expect_none(none, "ff02::fb");
	expect_none(none, "224.0.0.251");
	for (int i = 0; i < n_all; i++)
		expect(&all[i]);
	return object_done();
}

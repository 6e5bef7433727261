/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/address.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <string.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

void address_text(const struct in6_addr *address, char ret[INET6_ADDRSTRLEN])
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(address);

	(void)inet_ntop(
		v4 ? AF_INET : AF_INET6, address->s6_addr + (v4 ? 12 : 0), ret, INET6_ADDRSTRLEN);
}

int address_parse(const char *text, struct in6_addr *ret)
{
	memcpy(ret->s6_addr, mapped, sizeof(mapped));
	if (inet_pton(AF_INET, text, ret->s6_addr + 12) == 1)
		return 0;
	return inet_pton(AF_INET6, text, ret) == 1 ? 0 : -EINVAL;
}

socklen_t address_socket(
	const struct in6_addr *address, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *address
	};

	*ret = (struct sockaddr_storage){ 0 };
	if (!IN6_IS_ADDR_V4MAPPED(address)) {
		memcpy(ret, &v6, sizeof(v6));
		return sizeof(v6);
	}
	memcpy(&v4.sin_addr, address->s6_addr + 12, 4);
	memcpy(ret, &v4, sizeof(v4));
	return sizeof(v4);
}

/* --- ranges --- */

struct range {
	uint8_t bytes[16];
	uint8_t bits; /* how many of them count */
	const char *what;
};

#define V4(a, b, c, d, n, what) \
	{ \
		{ [10] = 0xff, 0xff, (a), (b), (c), (d) }, 96 + (n), what \
	}

/* IANA's special-purpose registries (RFC 6890), and the addresses where clouds answer for their machines. The first that holds the address names it. */
static const struct range ranges[] = {
	V4(169, 254, 169, 254, 32, "metadata"),
	V4(169, 254, 170, 2, 32, "metadata"),
	V4(168, 63, 129, 16, 32, "metadata"),
	V4(100, 100, 100, 200, 32, "metadata"),
	{ { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54 }, 128, "metadata" },
	V4(0, 0, 0, 0, 8, "unspecified"),
	V4(127, 0, 0, 0, 8, "loopback"),
	V4(10, 0, 0, 0, 8, "private"),
	V4(172, 16, 0, 0, 12, "private"),
	V4(192, 168, 0, 0, 16, "private"),
	V4(100, 64, 0, 0, 10, "shared"),
	V4(169, 254, 0, 0, 16, "link-local"),
	V4(192, 0, 0, 0, 24, "reserved"),
	V4(192, 0, 2, 0, 24, "reserved"),
	V4(198, 18, 0, 0, 15, "reserved"),
	V4(198, 51, 100, 0, 24, "reserved"),
	V4(203, 0, 113, 0, 24, "reserved"),
	V4(224, 0, 0, 0, 4, "multicast"),
	V4(240, 0, 0, 0, 4, "reserved"),
	{ { 0 }, 128, "unspecified" },
	{ { [15] = 1 }, 128, "loopback" },
	{ { 0 }, 80, "reserved" }, /* ::/80 but mapped: those of IPv4 within */
	{ { 0x00, 0x64, 0xff, 0x9b }, 32, "translated" }, /* 64:ff9b::/96 and 64:ff9b:1::/48 */
	{ { 0x01, 0x00 }, 64, "reserved" },
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, "translated" }, /* Teredo */
	{ { 0x20, 0x02 }, 16, "translated" },             /* 6to4 */
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, "reserved" },
	{ { 0xfc }, 7, "private" },
	{ { 0xfe, 0x80 }, 10, "link-local" },
	{ { 0xfe, 0xc0 }, 10, "private" },
	{ { 0xff }, 8, "multicast" },
};

static bool in_range(const struct in6_addr *address, const struct range *r)
{
	size_t whole = r->bits / 8;
	uint8_t mask = (uint8_t)(0xff00U >> r->bits % 8);

	if (memcmp(address->s6_addr, r->bytes, whole) != 0)
		return false;
	return r->bits % 8 == 0 || (address->s6_addr[whole] & mask) == (r->bytes[whole] & mask);
}

const char *address_forbidden(const struct in6_addr *address)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(address);

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		if ((ranges[i].bits >= 96 || !v4) && in_range(address, &ranges[i]))
			return ranges[i].what;
	}
	return NULL;
}

const char *address_host_forbidden(const char *host)
{
	static const char *const zones[] = { "localhost", "local", "home.arpa", "internal" };
	struct in6_addr address;

	if (address_parse(host, &address) == 0)
		return address_forbidden(&address);
	for (size_t i = 0; i < ARRAY_SIZE(zones); i++) {
		size_t n = strlen(host), zone = strlen(zones[i]);

		if (n > zone && host[n - zone - 1] == '.' && str_eq(host + n - zone, zones[i]))
			return "not public";
	}
	return strchr(host, '.') == NULL ? "not public" : NULL;
}

bool address_own(const struct in6_addr *address)
{
	static const struct range own[] = {
		V4(127, 0, 0, 0, 8, ""),
		V4(0, 0, 0, 0, 32, ""),
		V4(10, 0, 0, 2, 32, ""),
		{ { 0 }, 128, "" },
		{ { [15] = 1 }, 128, "" },
		{ { 0xfd, [15] = 2 }, 128, "" },
	};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		if (in_range(address, &own[i]))
			return true;
	}
	return false;
}

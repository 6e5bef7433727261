/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/address.h"
#include "t.h"

static const char *why(const char *text)
{
	struct in6_addr address;

	check_int(address_parse(text, &address), 0);
	return address_forbidden(&address) != NULL ? address_forbidden(&address) : "";
}

TEST(what_is_not_of_the_world_is_forbidden)
{
	static const char *const rows[][2] = {
		{ "127.0.0.1", "loopback" },
		{ "127.255.255.255", "loopback" },
		{ "10.0.0.1", "private" },
		{ "172.16.0.1", "private" },
		{ "172.31.255.255", "private" },
		{ "192.168.1.1", "private" },
		{ "169.254.169.254", "metadata" },
		{ "169.254.1.1", "link-local" },
		{ "100.64.0.1", "shared" },
		{ "100.100.100.200", "metadata" },
		{ "168.63.129.16", "metadata" },
		{ "0.0.0.0", "unspecified" },
		{ "224.0.0.1", "multicast" },
		{ "255.255.255.255", "reserved" },
		{ "198.18.0.1", "reserved" },
		{ "::1", "loopback" },
		{ "::", "unspecified" },
		{ "::ffff:127.0.0.1", "loopback" },
		{ "::ffff:169.254.169.254", "metadata" },
		{ "::7f00:1", "reserved" },
		{ "fe80::1", "link-local" },
		{ "fd00:ec2::254", "metadata" },
		{ "fd12::1", "private" },
		{ "fc00::1", "private" },
		{ "ff02::1", "multicast" },
		{ "64:ff9b::7f00:1", "translated" },
		{ "2002:7f00:1::", "translated" },
		{ "2001::1", "translated" },
		{ "2001:db8::1", "reserved" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		check_str(why(rows[i][0]), rows[i][1]);
}

TEST(the_world_is_not)
{
	static const char *const rows[] = { "93.184.216.34", "172.15.255.255", "172.32.0.1",
		"100.63.255.255", "100.128.0.1", "169.253.255.255", "8.8.8.8", "2606:4700::1111",
		"2001:4860:4860::8888", "2003::1" };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		check_str(why(rows[i]), "");
}

TEST(text_is_canonical)
{
	struct in6_addr address;
	char text[INET6_ADDRSTRLEN];

	check_int(address_parse("::ffff:1.2.3.4", &address), 0);
	address_text(&address, text);
	check_str(text, "1.2.3.4");
	check_int(address_parse("2606:4700:0:0::1111", &address), 0);
	address_text(&address, text);
	check_str(text, "2606:4700::1111");
	check_int(address_parse("1.2.3", &address), -EINVAL);
	check_int(address_parse("0x7f.1", &address), -EINVAL);
}

TEST(hosts_that_another_looks_up_are_judged_by_what_they_say_of_themselves)
{
	static const char *const forbidden[] = { "127.0.0.1", "169.254.169.254", "::1", "localhost",
		"a.localhost", "printer.local", "metadata.google.internal", "router.home.arpa",
		"intranet" };
	static const char *const fine[] = { "93.184.216.34", "example.org", "local.example",
		"notlocal.example", "internal.example.org", "xlocalhost.example" };

	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++)
		check(address_host_forbidden(forbidden[i]) != NULL);
	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		check(address_host_forbidden(fine[i]) == NULL);
}

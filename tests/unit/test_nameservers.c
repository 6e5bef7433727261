/* SPDX-License-Identifier: Apache-2.0 */
#include "api/nameservers.h"
#include "t.h"

#include <stdlib.h>

static const char *csv(const char *text)
{
	static char *got;

	free(got);
	got = nameservers_csv(text);
	return got != NULL ? got : "none";
}

TEST(servers_in_their_order)
{
	check_str(csv("nameserver 9.9.9.9\n"), "9.9.9.9:53");
	check_str(
		csv("# one\n; two\nsearch x\n nameserver\t10.0.0.1 # a\nnameserver 2620:fe::fe;b\r\noptions x\nnameserver 1.1.1.1"),
		"10.0.0.1:53,[2620:fe::fe]:53,1.1.1.1:53");
}

TEST(what_names_none)
{
	check_str(csv(""), "none");
	check_str(csv("\n\n#nameserver 9.9.9.9\nnameservers 9.9.9.9\nnameserver"), "none");
}

/* Of a link alone too: the others are used. */
TEST(what_is_no_address)
{
	check_str(csv("nameserver 9.9.9.9\nnameserver fe80::1%eth0\n"), "9.9.9.9:53");
	check_str(csv("nameserver \nnameserver 9.9.9.9\n"), "9.9.9.9:53");
	check_str(csv("nameserver 0123456789012345678901234567890123456789012345678901234567890\n"),
		"none");
}

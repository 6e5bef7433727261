/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/address.h"
#include "gateway/names.h"
#include "t.h"

TEST(a_name_keeps_its_address)
{
	struct names *n = names_new(), *again = names_new();
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;
	json_t *list;
	bool new;

	check_int(names_give(n, "a.example", &new), 1);
	check(new);
	check_int(names_give(n, "b.example", &new), 2);
	check_int(names_give(n, "a.example", &new), 1);
	check(!new);
	list = names_json(n);
	names_load(again, list);
	names_load(again, list);
	json_decref(list);
	check_int(names_give(again, "b.example", &new), 2);
	check_int(names_give(again, "c.example", &new), 3);
	names_address(3, false, &address);
	address_text(&address, text);
	check_str(text, "198.18.0.3");
	check_str(names_find(again, &address), "c.example");
	names_address(2, true, &address);
	address_text(&address, text);
	check_str(text, "fd00:cafe::2");
	check_str(names_find(again, &address), "b.example");
	names_free(n);
	names_free(again);
}

TEST(an_address_that_was_not_given_out_has_no_name)
{
	struct names *n = names_new();
	struct in6_addr address;

	for (uint32_t i = 0; i < 3; i++) {
		names_address(i, i == 1, &address);
		check(names_find(n, &address) == NULL);
	}
	check_int(address_parse("93.184.216.34", &address), 0);
	check(names_find(n, &address) == NULL);
	names_free(n);
}

TEST(the_list_is_bounded)
{
	struct names *n = names_new();
	char name[32];
	bool new;

	for (unsigned int i = 1; i <= NAMES_MAX; i++) {
		(void)snprintf(name, sizeof(name), "n%u.example", i);
		check_int(names_give(n, name, &new), i);
	}
	check_int(names_give(n, "one.more.example", &new), 0);
	check_int(names_give(n, "n7.example", &new), 7);
	names_free(n);
}

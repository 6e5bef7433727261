/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/pax.h"
#include "t.h"

static int next(const char *text, size_t n, struct pax_record *r, size_t *ret_used)
{
	const char *at = text;
	int rc = pax_next(&at, text + n, r);

	*ret_used = (size_t)(at - text);
	return rc;
}

static struct pax_record value(const char *text)
{
	return (struct pax_record){
		.key = "k", .key_size = 1, .value = text, .value_size = strlen(text)
	};
}

TEST(malformed_records_are_refused_and_not_passed)
{
	static const char *const bad[] = { "x", " 6 a=b\n", "06 a=b\n", "+6 a=b\n", "7 a=b\n",
		"5 a=b\n", "6\ta=b\n", "6 a=bx", "6 aab\n", "5 =b\n", "4 a\n", "3 \n", "0 a=b\n",
		"6", "99999999999999999999 a=b\n", "6 a=b" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct pax_record r;
		size_t used;

		if (next(bad[i], strlen(bad[i]), &r, &used) != -EBADMSG || used != 0)
			t_fail("accepted record %zu '%s'", i, bad[i]);
	}
}

TEST(a_nul_in_a_key_is_refused_in_a_value_it_is_a_byte)
{
	struct pax_record r;
	size_t used;

	check_int(next("7 a\0=b\n", 7, &r, &used), -EBADMSG);
	check_int(next("7 a=\0b\n", 7, &r, &used), 1);
	check_int(r.value_size, 2);
}

TEST(records_follow_each_other)
{
	static const char text[] = "6 a=b\n12 path=x=\n\n";
	const char *at = text, *end = text + sizeof(text) - 1;
	struct pax_record r;

	check_int(pax_next(&at, end - 1, &r), 1);
	check(pax_key_is(&r, "a"));
	check(!pax_key_is(&r, "ab"));
	check(!pax_key_is(&r, ""));
	check_int(pax_next(&at, end, &r), 1);
	check(pax_key_is(&r, "path"));
	check_int(r.value_size, 3); /* an equals sign and a newline may stand in a value */
	check_int(pax_next(&at, end, &r), 0);
}

TEST(u64_refuses)
{
	static const char *const bad[] = { "", "-1", "+1", "1 ", " 1", "1.0", "0x1" };
	struct pax_record r;
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		r = value(bad[i]);
		check_int(pax_u64(&r, UINT64_MAX, &v), -EBADMSG);
	}
	r = value("11");
	check_int(pax_u64(&r, 10, &v), -ERANGE);
	r = value("18446744073709551616");
	check_int(pax_u64(&r, UINT64_MAX, &v), -ERANGE);
	r = value("10");
	check_int(pax_u64(&r, 10, &v), 0);
	check_int(v, 10);
}

TEST(time_refuses)
{
	static const char *const bad[] = { "", "-", ".5", "-.5", "1,5", "1.5.5", "1.5x", "x", "+1",
		" 1", "1e3" };
	struct pax_record r;
	uint32_t ns;
	int64_t s;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		r = value(bad[i]);
		check_int(pax_time(&r, &s, &ns), -EBADMSG);
	}
	r = value("253402300800");
	check_int(pax_time(&r, &s, &ns), -ERANGE);
}

TEST(time_rounds_down_also_below_zero)
{
	struct pax_record r = value("1700000000.25");
	uint32_t ns;
	int64_t s;

	check_int(pax_time(&r, &s, &ns), 0);
	check_int(s, 1700000000);
	check_int(ns, 250000000);
	r = value("-1.5");
	check_int(pax_time(&r, &s, &ns), 0);
	check_int(s, -2);
	check_int(ns, 500000000);
	r = value("1.");
	check_int(pax_time(&r, &s, &ns), 0);
	check_int(ns, 0);
	r = value("0.1234567899");
	check_int(pax_time(&r, &s, &ns), 0);
	check_int(ns, 123456789);
}

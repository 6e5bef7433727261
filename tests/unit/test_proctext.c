/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "codec/proctext.h"

#include <errno.h>

static int parse(const char *line, struct proc_map *m)
{
	const char *at = line;

	return proc_map_next(&at, line + strlen(line), m);
}

TEST(a_mapping)
{
	struct proc_map m;

	check_int(parse("7f00aa000000-7f00ab000000 r-xs 0001f000 fd:1b 4242    /usr/lib/a b\n", &m),
		1);
	check_int(m.start, 0x7f00aa000000);
	check_int(m.end, 0x7f00ab000000);
	check_int(m.offset, 0x1f000);
	check_int(m.major, 0xfd);
	check_int(m.minor, 0x1b);
	check_int(m.inode, 4242);
	check(m.readable && !m.writable && m.executable && m.shared);
	check(m.name_size == 12 && memcmp(m.name, "/usr/lib/a b", 12) == 0);
}

TEST(numbers_that_just_fit_and_just_do_not)
{
	struct proc_map m;

	check_int(
		parse("ffffffffff600000-ffffffffffffffff --xp 00000000 00:00 18446744073709551615\n",
			&m),
		1);
	check(m.end == UINT64_MAX && m.inode == UINT64_MAX);
	check_int(parse("1-2 --xp 00000000 00:00 18446744073709551616\n", &m), -EINVAL);
	check_int(parse("1-2 --xp 00000000 00:00 20000000000000000000\n", &m), -EINVAL);
	check_int(parse("1-10000000000000000 --xp 00000000 00:00 0\n", &m), -EINVAL);
}

TEST(what_is_no_number)
{
	struct proc_map m;

	check_int(parse("-2 --xp 00000000 00:00 0\n", &m), -EINVAL);
	check_int(parse("1-2 --xp 00000000 00:00 a\n", &m), -EINVAL);
	check_int(parse("1-2 --xp 00000000 00:00\n", &m), -EINVAL);
	check_int(parse("A-B --xp 00000000 00:00 0\n", &m), -EINVAL);
}

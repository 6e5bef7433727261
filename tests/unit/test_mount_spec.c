/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/mount_spec.h"
#include "t.h"

static struct mount_spec m;
static struct err err;

TEST(three_parts_two_and_one)
{
	check_int(mount_spec_parse(".:/shop", "/home/u/shop", &m, &err), 0);
	check_str(m.source, "/home/u/shop");
	check_str(m.target, "/shop");
	check_str(m.mode, "cow");
	check_int(mount_spec_parse("../x/:/y/./z/:ro", "/home/u/shop", &m, &err), 0);
	check_str(m.source, "/home/u/x");
	check_str(m.target, "/y/z");
	check_str(m.mode, "ro");
	check_int(mount_spec_parse("/a\\:b:/c:rw", "/", &m, &err), 0);
	check_str(m.source, "/a:b");
	check_str(m.mode, "rw");
	check_int(mount_spec_parse("./x", "/home/u", &m, &err), 0);
	check_str(m.source, "/home/u/x");
	check_str(m.target, "/home/u/x");
	check_str(m.mode, "cow");
}

TEST(what_is_no_mount)
{
	static const char *const bad[] = { "", ":", "/", "x:", ":/y", "x:y", "x:/y:wr", "x:/y:ro:z",
		"x:/", "x:/y:", "x:/\x01", "x:/.." };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err = (struct err){ 0 };
		if (mount_spec_parse(bad[i], "/tmp", &m, &err) >= 0 || err.code != ERR_USAGE)
			t_fail("accepted '%s' as %s:%s", bad[i], m.source, m.target);
	}
}

TEST(a_path_that_is_too_long)
{
	static char text[2 * PATH_MAX];

	memset(text, 'x', sizeof(text) - 10);
	memcpy(text + sizeof(text) - 11, ":/y", 4);
	check(mount_spec_parse(text, "/tmp", &m, &err) < 0);
}

TEST(paths_become_absolute_and_clean)
{
	char path[PATH_MAX];

	check_int(path_absolute("/a/b", "../../../../c", path), 0);
	check_str(path, "/c");
	check_int(path_absolute("/a/b", ".", path), 0);
	check_str(path, "/a/b");
	check_int(path_absolute("/a", "/", path), 0);
	check_str(path, "/");
	check_int(path_absolute("/a", "//x//.//y", path), 0);
	check_str(path, "/x/y");
	check_int(path_absolute("/a", "", path), -EINVAL);
}

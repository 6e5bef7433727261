/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/ownermap.h"
#include "t.h"

static void want(uint32_t owner, const char *lines)
{
	cleanup_buf struct buf text = BUF_INIT(256);

	ownermap_text(&text, owner, 1000000);
	if (strcmp(buf_cstr(&text), lines) != 0)
		t_fail("owner %u: got '%s'", owner, buf_cstr(&text));
}

TEST(ownermap_never_names_root_on_disk)
{
	want(1, "1 1000000 1\n2 1000002 65534\n");
	want(1000, "1 1000001 999\n1000 1000000 1\n1001 1001001 64535\n");
}

TEST(ownermap_at_the_edges)
{
	want(65534, "1 1000001 65533\n65534 1000000 1\n65535 1065535 1\n");
	want(65535, "1 1000001 65534\n65535 1000000 1\n");
	want(65536, "1 1000001 65535\n65536 1000000 1\n");
	want(4294967294U, "1 1000001 65535\n4294967294 1000000 1\n");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What mappings are, by the kernel's text of them. */
#include "checkpoint/dump.h"
#include "t.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* As Linux 6.2 and later show it where they are built with CONFIG_ANON_VMA_NAME. */
static const char text[] =
	"7f0000000000-7f0000001000 rw-s 00000000 00:01 1024                       /dev/zero (deleted)\n"
	"7f0000002000-7f0000003000 rw-s 00000000 00:01 1025                       [anon_shmem:OTEL_CTX]\n"
	"7f0000004000-7f0000005000 rw-p 00000000 00:01 1026                       [anon_shmem:of one alone]\n"
	"7f0000006000-7f0000007000 rw-p 00000000 00:00 0                          [anon:arena]\n"
	"7f0000008000-7f0000009000 r-xp 00000000 00:00 0                          [vdso]\n";

struct seen {
	bool shared, gone;
	const char *name;
};

static void expect(const struct proc_map *m, struct seen want)
{
	check_int(dump_is_shared_memory(m), want.shared);
	check_int(dump_is_gone_file(m), want.gone);
	check_int(m->name_size, strlen(want.name));
	check(memcmp(m->name, want.name, m->name_size) == 0);
}

TEST(memory_that_its_program_has_named_is_what_it_is)
{
	struct mappings maps = { 0 };
	char path[32];
	int fd = memfd_create("maps", MFD_CLOEXEC);

	check(write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check_int(mappings_read(AT_FDCWD, path, &maps), 0);
	check_int(maps.n, 5);
	expect(&maps.list[0], (struct seen){ true, false, "/dev/zero (deleted)" });
	expect(&maps.list[1], (struct seen){ true, true, "/memfd:OTEL_CTX (deleted)" });
	expect(&maps.list[2], (struct seen){ false, true, "/memfd:of one alone (deleted)" });
	expect(&maps.list[3], (struct seen){ false, false, "[anon:arena]" });
	expect(&maps.list[4], (struct seen){ false, false, "[vdso]" });
	mappings_fini(&maps);
	(void)close(fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/ownermap.h"
#include "base/str.h"
#include "sys/cred.h"
#include "sys/file.h"

#include <fcntl.h>

#define IDS 65536U

void ownermap_text(struct buf *text, uint32_t owner, uint32_t base)
{
	uint32_t below = owner < IDS ? owner : IDS;

	if (below > 1)
		buf_fmt(text, "1 %u %u\n", base + 1, below - 1);
	buf_fmt(text, "%u %u 1\n", owner, base);
	if (owner < IDS - 1)
		buf_fmt(text, "%u %u %u\n", owner + 1, base + owner + 1, IDS - owner - 1);
}

struct owner {
	uid_t uid;
	gid_t gid;
	uint32_t base;
};

static int write_map(int proc_fd, pid_t pid, const char *which, uint32_t owner, uint32_t base)
{
	cleanup_buf struct buf text = BUF_INIT(256);
	char path[64];

	(void)snprintf(path, sizeof(path), "%d/%s", pid, which);
	ownermap_text(&text, owner, base);
	return file_write_at(proc_fd, path, buf_cstr(&text));
}

static int map_owner(int proc_fd, pid_t pid, const void *arg)
{
	const struct owner *o = arg;
	int rc = write_map(proc_fd, pid, "uid_map", o->uid, o->base);

	return rc < 0 ? rc : write_map(proc_fd, pid, "gid_map", o->gid, o->base);
}

int ownermap_userns(uid_t uid, gid_t gid, uint32_t base)
{
	struct owner owner = { uid, gid, base };
	cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return proc < 0 ? -errno : cred_make_userns(proc, map_owner, &owner);
}

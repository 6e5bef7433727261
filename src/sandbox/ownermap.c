/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/ownermap.h"
#include "base/str.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

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

static int write_map(pid_t pid, const char *which, uint32_t owner, uint32_t base)
{
	cleanup_buf struct buf text = BUF_INIT(256);
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, which);
	ownermap_text(&text, owner, base);
	return file_write_at(AT_FDCWD, path, buf_cstr(&text));
}

int ownermap_userns(uid_t uid, gid_t gid, uint32_t base)
{
	struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	char path[64];
	/* a child that exists only to own the namespace until its descriptor is open */
	int pid = raw_clone3(&args), rc;

	if (pid < 0)
		return pid;
	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	rc = write_map(pid, "uid_map", uid, base);
	if (rc == 0)
		rc = write_map(pid, "gid_map", gid, base);
	if (rc == 0) {
		(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
		rc = open(path, O_RDONLY | O_CLOEXEC);
		rc = rc < 0 ? -errno : rc;
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return rc;
}

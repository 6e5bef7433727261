/* SPDX-License-Identifier: Apache-2.0 */
/* Whose a file without a name is, and who may open it again through /proc: pipes, memory files, removed ones. A memory file that nobody may execute can be written to. */
#include "object.h"

#define USER  33
#define GROUP 44
#define SEALS 1034 /* F_GET_SEALS */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum { FILES = 6 };

static int open_again(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static int memory(unsigned int flags, mode_t mode)
{
	int fd = memfd_create("memory", flags);

	/* from Linux 6.3 on */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("memory", MFD_ALLOW_SEALING);
	MUST(fd >= 0 && write(fd, "here", 4) == 4);
	MUST(mode == 0 || fchmod(fd, mode) == 0);
	return fd;
}

static int removed(mode_t mode)
{
	int fd = open("/tmp/removed", O_RDWR | O_CREAT | O_EXCL, 0600);

	MUST(fd >= 0 && unlink("/tmp/removed") == 0 && fchmod(fd, mode) == 0);
	return fd;
}

/* What is a user's own. */
static void as_user(int ready, int go)
{
	int ends[2], fd, again;
	char c;

	MUST(setresgid(GROUP, GROUP, GROUP) == 0 && setresuid(USER, USER, USER) == 0);
	/* who has changed its user is no longer open to be looked at by itself */
	MUST(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	MUST(pipe(ends) == 0 && (fd = memory(MFD_ALLOW_SEALING, 0600)) >= 0);
	MUST(write(ready, "r", 1) == 1 && read(go, &c, 1) == 1);
	MUST((again = open_again(ends[1], O_WRONLY)) >= 0);
	object_talk(again, ends[0]);
	MUST((again = open_again(fd, O_RDWR)) >= 0 && read(again, &c, 1) == 1 && c == 'h');
	_exit(0);
}

int main(void)
{
	int ready[2], go[2], pipe_ends[2], fds[FILES], seals[FILES], status;
	struct stat before[FILES], now;
	pid_t child;
	char c;

	MUST(pipe(ready) == 0 && pipe(go) == 0 && pipe(pipe_ends) == 0);
	child = fork();
	if (child == 0)
		as_user(ready[1], go[0]);
	MUST(read(ready[0], &c, 1) == 1);
	fds[0] = memory(MFD_NOEXEC_SEAL, 0);
	fds[1] = memory(MFD_ALLOW_SEALING, 0640);
	fds[2] = memory(0, 0);
	fds[3] = removed(0461);
	fds[4] = pipe_ends[0];
	MUST(fchown(fds[1], USER, GROUP) == 0 && fchown(fds[3], USER, GROUP) == 0);
	MUST(fchown(fds[4], USER, GROUP) == 0 && fchmod(fds[4], 0622) == 0);
	/* as entry points of containers do it, so that servers may open /dev/stdout */
	fds[5] = STDOUT_FILENO;
	(void)!fchown(fds[5], USER, GROUP);
	(void)!fchmod(fds[5], 0622);
	for (int i = 0; i < FILES; i++) {
		MUST(fstat(fds[i], &before[i]) == 0);
		seals[i] = fcntl(fds[i], SEALS);
	}

	object_ready();

	for (int i = 0; i < FILES; i++) {
		MUST(fstat(fds[i], &now) == 0);
		if (now.st_mode != before[i].st_mode || now.st_uid != before[i].st_uid ||
			now.st_gid != before[i].st_gid)
			object_fail("file %d is %o of %u:%u, not %o of %u:%u", i, now.st_mode,
				now.st_uid, now.st_gid, before[i].st_mode, before[i].st_uid,
				before[i].st_gid);
		if (fcntl(fds[i], SEALS) != seals[i])
			object_fail("file %d has seals %x, not %x", i,
				(unsigned int)fcntl(fds[i], SEALS), (unsigned int)seals[i]);
	}
	MUST(write(fds[0], "more", 4) == 4 && ftruncate(fds[0], 100) == 0);
	MUST(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return object_done();
}

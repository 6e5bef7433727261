/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/confine.h"
#include "base/buf.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define CONFINE_TOLD_MAX 256
#define STATUS_MAX       65536

int confine_seccomp(const struct sock_filter *filter, unsigned short n)
{
	struct sock_fprog program = { .len = n, .filter = (struct sock_filter *)(uintptr_t)filter };

	return raw_result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program, CONFINE_OURS));
}

int confine_told(const struct sock_filter *filter, unsigned short n, bool listen, int error)
{
	struct sock_filter refusing[CONFINE_TOLD_MAX];
	struct sock_fprog program = { .len = n, .filter = (struct sock_filter *)(uintptr_t)filter };
	unsigned int flags =
		SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	int fd = -EBUSY, rc;

	if (listen)
		fd = raw_result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
	if (fd >= 0)
		(void)ioctl(fd, CONFINE_SET_FLAGS, CONFINE_SYNC_WAKE_UP);
	if (fd != -EBUSY)
		return fd;
	if (n > CONFINE_TOLD_MAX)
		return -E2BIG;
	for (unsigned short i = 0; i < n; i++) {
		refusing[i] = filter[i];
		if (filter[i].code != (BPF_RET | BPF_K))
			continue;
		if (filter[i].k == SECCOMP_RET_USER_NOTIF)
			refusing[i].k = SECCOMP_RET_ERRNO | (uint32_t)error;
		else if (filter[i].k == CONFINE_LEARN)
			refusing[i].k = SECCOMP_RET_ALLOW;
		else if (filter[i].k == CONFINE_KNOW)
			refusing[i].k = SECCOMP_RET_ERRNO | EOPNOTSUPP;
	}
	rc = confine_seccomp(refusing, n);
	return rc < 0 ? rc : -ENOTCONN;
}

int confine_strict(void)
{
	static const struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return confine_seccomp(filter, ARRAY_SIZE(filter));
}

int confine_core(void)
{
	const struct rlimit one = { 1, 1 }, none = { 0, 0 };

	if (setrlimit(RLIMIT_CORE, &one) == 0)
		return 0;
	return errno == EPERM && setrlimit(RLIMIT_CORE, &none) == 0 ? 0 : -errno;
}

uint32_t confine_filters(void)
{
	cleanup_buf struct buf status = BUF_INIT(STATUS_MAX);
	const char *line;
	unsigned int n;

	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0)
		return 0;
	line = file_read_at(AT_FDCWD, "/proc/self/status", &status) < 0
		       ? NULL
		       : strstr(buf_cstr(&status), "Seccomp_filters:");
	return line != NULL && sscanf(line, "Seccomp_filters: %u", &n) == 1 ? n : 1;
}

/* linux/landlock.h of 6.1 ends at ABI 2; these are the stable values of later ones (Documentation/userspace-api/landlock.rst). */
struct landlock_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

struct landlock_path_beneath {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

#define LANDLOCK_VERSION_FLAG   1U
#define LANDLOCK_PATH_BENEATH   1
#define LANDLOCK_SCOPE_ABSTRACT (1ULL << 0)
#define LANDLOCK_SCOPE_SIGNALS  (1ULL << 1)
#define LANDLOCK_FS_ABI1        ((1ULL << 13) - 1)
#define LANDLOCK_FS_REFER       (1ULL << 13)
#define LANDLOCK_FS_TRUNCATE    (1ULL << 14)
#define LANDLOCK_FS_IOCTL_DEV   (1ULL << 15)

static uint64_t fs_rights(int abi)
{
	uint64_t rights = LANDLOCK_FS_ABI1;

	if (abi >= 2)
		rights |= LANDLOCK_FS_REFER;
	if (abi >= 3)
		rights |= LANDLOCK_FS_TRUNCATE;
	if (abi >= 5)
		rights |= LANDLOCK_FS_IOCTL_DEV;
	return rights;
}

int confine_landlock_rights(struct confine_rights *ret)
{
	int abi = raw_result(syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_VERSION_FLAG));

	*ret = (struct confine_rights){ 0 };
	if (abi < 0)
		return abi == -ENOSYS || abi == -EOPNOTSUPP ? 0 : abi;
	ret->files = fs_rights(abi);
	if (abi >= 6)
		ret->scoped = LANDLOCK_SCOPE_ABSTRACT | LANDLOCK_SCOPE_SIGNALS;
	/* an older kernel takes a larger struct only if what it does not know is zero; the size follows the ABI all the same */
	ret->size = abi >= 6 ? sizeof(struct landlock_attr) : sizeof(ret->files);
	return abi;
}

int confine_landlock(void)
{
	struct landlock_path_beneath root = { 0 };
	struct confine_rights rights;
	struct landlock_attr attr;
	cleanup_fd int ruleset = -1, dir = -1;
	int abi = confine_landlock_rights(&rights), rc;

	if (abi <= 0)
		return abi;
	attr = (struct landlock_attr){ .handled_access_fs = rights.files, .scoped = rights.scoped };
	ruleset = raw_result(syscall(SYS_landlock_create_ruleset, &attr, rights.size, 0));
	if (ruleset < 0)
		return ruleset;
	dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	root.allowed_access = attr.handled_access_fs;
	root.parent_fd = dir;
	rc = raw_result(syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_PATH_BENEATH, &root, 0));
	if (rc == 0)
		rc = raw_result(syscall(SYS_landlock_restrict_self, ruleset, 0));
	return rc < 0 ? rc : abi;
}

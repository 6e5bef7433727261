/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-import/import_jail.h"
#include "base/ablate.h"
#include "sys/confine.h"
#include "sys/cred.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define KEEP_CAPS \
	(CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FOWNER) | \
		CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_SETFCAP))

/* What reading descriptors and writing a tree takes; everything else answers ENOSYS. */
static attr_unused const char *const allowed[] = { "brk", "clock_gettime", "close", "exit",
	"exit_group", "faccessat", "faccessat2", "fchmod", "fchmodat", "fchown", "fchownat",
	"fcntl", "flistxattr", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "ftruncate",
	"futex", "getdents64", "getpid", "getrandom", "gettid", "linkat", "lseek", "madvise",
	"mkdirat", "mknodat", "mmap", "mprotect", "mremap", "munmap", "newfstatat", "openat",
	"openat2", "pread64", "pwrite64", "read", "recvmsg", "renameat", "rt_sigaction",
	"rt_sigprocmask", "rt_sigreturn", "sendmsg", "symlinkat", "tgkill", "unlinkat", "utimensat",
	"write", "writev" };

static int limit(int which, uint64_t value)
{
	struct rlimit l = { .rlim_cur = value, .rlim_max = value };

	return setrlimit((__rlimit_resource_t)which, &l) < 0 ? -errno : 0;
}

static int set_limits(uint64_t limit_bytes)
{
	int rc = confine_core();

	if (rc == 0)
		rc = limit(RLIMIT_NOFILE, 256);
	if (rc == 0)
		rc = limit(RLIMIT_FSIZE, limit_bytes < INT64_MAX ? limit_bytes : INT64_MAX);
#ifndef __SANITIZE_ADDRESS__
	if (rc == 0)
		rc = limit(RLIMIT_AS, 1ULL << 30);
#endif
	return rc;
}

/* Make the tree the root of this mount namespace and let go of everything else in it. */
static int become_root(int tree)
{
	/* Any directory will do; it is covered for the moment between the two calls. */
	int rc = mount_propagation(MS_PRIVATE);

	if (rc == 0)
		rc = mount_attach_at(tree, AT_FDCWD, "/usr");
	if (rc < 0)
		return rc;
	if (fchdir(tree) < 0)
		return -errno;
	rc = raw_pivot_root(".", ".");
	if (rc == 0 && umount2(".", MNT_DETACH) < 0)
		return -errno;
	return rc;
}

static int enter_tree(int tree)
{
	int rc = become_root(tree);

	if (rc < 0 && (fchdir(tree) < 0 || chroot(".") < 0))
		return -errno;
	return chdir("/") < 0 ? -errno : 0;
}

static int filter_calls(void)
{
#ifndef __SANITIZE_ADDRESS__
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
	int rc = filter == NULL ? -ENOMEM : 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(allowed); i++) {
		int nr = seccomp_syscall_resolve_name(allowed[i]);

		if (nr != __NR_SCMP_ERROR)
			rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, nr, 0);
	}
	if (rc == 0)
		rc = seccomp_load(filter);
	seccomp_release(filter);
	return rc;
#else
	return 0; /* the sanitizer's runtime needs more than any list says */
#endif
}

int import_jail_enter(int tree, uint64_t limit_bytes, struct err *err)
{
	int rc = set_limits(limit_bytes);

	if (rc < 0)
		return err_raise_sys(err, rc, "set the limits of the import");
	rc = ablated("import_jail") ? 0 : enter_tree(tree);
	if (rc < 0)
		return err_raise_sys(err, rc, "enter the new tree");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_raise_sys(err, -errno, "give up privileges");
	rc = cred_bound(KEEP_CAPS);
	if (rc == 0)
		rc = cred_set_caps(KEEP_CAPS);
	if (rc < 0)
		return err_raise_sys(err, rc, "give up privileges");
	rc = filter_calls();
	return rc < 0 ? err_raise_sys(err, rc, "filter system calls") : 0;
}

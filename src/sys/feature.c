/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys/feature.c - the probes behind defs/kernel.def.
 *
 * Each probe_<name>() tries the feature with arguments that change nothing, or in a child that is thrown away, and answers whether it works for
 * this caller. Numbers and structures are written out where the headers of Linux 6.1 lack them; they are stable ABI.
 */
#include "sys/feature.h"
#include "base/str.h"
#include "sys/confine.h"
#include "sys/cred.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/netlink.h"
#include "sys/nft.h"
#include "sys/probe.h"
#include "sys/proc_connector.h"
#include "sys/procmem.h"
#include "sys/raw.h"
#include "sys/timens.h"

#include <linux/kcmp.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define HANDLE_FID               0x200    /* AT_HANDLE_FID */
#define MEMBARRIER_REGISTRATIONS (1 << 9) /* MEMBARRIER_CMD_GET_REGISTRATIONS */
#define SYS_STATMOUNT            457
#define SYS_OPEN_TREE_ATTR       467
#define FLOOR_RELEASE            601
#define FLOOR_LANDLOCK_ABI       2

/* A call with senseless arguments: anything but "no such call" and "forbidden" means that the kernel looked at them. */
static bool call_exists(long rc)
{
	return rc >= 0 || (errno != ENOSYS && errno != EPERM && errno != EOPNOTSUPP);
}

static bool lists(const char *file, const char *word)
{
	cleanup_buf struct buf text = BUF_INIT(1 << 20);
	char *save = NULL;

	if (file_read_at(AT_FDCWD, file, &text) < 0 || text.n == 0)
		return false;
	for (char *p = strtok_r(text.p, " \t\n", &save); p != NULL;
		p = strtok_r(NULL, " \t\n", &save)) {
		if (str_eq(p, word))
			return true;
	}
	return false;
}

static int try_userns(attr_unused void *arg)
{
	return probe_enter_userns(CLONE_NEWNS);
}

static bool probe_userns(void)
{
	return probe_run(try_userns, NULL, PROBE_TIMEOUT_MS) == 0;
}

static bool probe_overlay(void)
{
	cleanup_fd int fs = fsopen("overlay", FSOPEN_CLOEXEC); /* loads the module, if we may */

	return fs >= 0 || lists("/proc/filesystems", "overlay");
}

/* Before the conversion to the new mount interface any key was accepted and looked at later, so a senseless one is tried first. */
static int try_overlay_key(void *arg)
{
	cleanup_fd int fs = fsopen("overlay", FSOPEN_CLOEXEC), dir = -1;
	bool by_fd = *(bool *)arg;

	if (fs < 0)
		return -errno;
	if (fsconfig(fs, FSCONFIG_SET_STRING, "cay_no_such_key", "1", 0) == 0)
		return 0;
	if (!by_fd)
		return fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir+", "/", 0) == 0;
	dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, dir) == 0;
}

static int try_overlay_key_in_userns(void *arg)
{
	int rc = probe_enter_userns(CLONE_NEWNS);

	return rc < 0 ? rc : try_overlay_key(arg);
}

static bool overlay_key(bool by_fd)
{
	int rc = try_overlay_key(&by_fd);

	if (rc == -EPERM)
		rc = probe_run(try_overlay_key_in_userns, &by_fd, PROBE_TIMEOUT_MS);
	return rc > 0;
}

static bool probe_overlay_append(void)
{
	return overlay_key(false);
}

static bool probe_overlay_fd_layers(void)
{
	return overlay_key(true);
}

static int try_overlay_mount(attr_unused void *arg)
{
	static const char *const dirs[] = { "/tmp/l", "/tmp/u", "/tmp/w", "/tmp/m" };
	int rc = probe_enter_userns(CLONE_NEWNS);

	if (rc < 0)
		return rc;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (mkdir(dirs[i], 0755) < 0)
			return -errno;
	}
	return raw_result(mount("overlay", "/tmp/m", "overlay", 0,
		"lowerdir=/tmp/l,upperdir=/tmp/u,workdir=/tmp/w,userxattr"));
}

static bool probe_overlay_in_userns(void)
{
	return probe_run(try_overlay_mount, NULL, PROBE_TIMEOUT_MS) == 0;
}

static bool probe_seccomp(void)
{
	unsigned int action = SECCOMP_RET_KILL_PROCESS;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

static int seize(pid_t pid, uintptr_t options)
{
	return raw_result(ptrace(PTRACE_SEIZE, pid, NULL, (void *)options));
}

/* Have a child seized, and looked at, by @fn. */
static int try_on_child(int (*fn)(pid_t pid))
{
	pid_t pid = fork();
	int rc;

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)pause();
		_exit(0);
	}
	if (pid < 0)
		return -errno;
	rc = fn(pid);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return rc;
}

/* Only the host's root may, and the kernel looks at that when the option is set. */
static int suspend_filters(pid_t pid)
{
	return seize(pid, PTRACE_O_SUSPEND_SECCOMP);
}

static int try_suspend_filters(attr_unused void *arg)
{
	return try_on_child(suspend_filters);
}

static bool probe_program_filters(void)
{
	return probe_run(try_suspend_filters, NULL, PROBE_TIMEOUT_MS) == 0;
}

/* Containers often have it read-only. */
static bool probe_cgroup_v2(void)
{
	struct statvfs fs;
	char path[512];
	bool root;

	return probe_cgroup(path, sizeof(path), &root) == 0 && statvfs(path, &fs) == 0 &&
	       (fs.f_flag & ST_RDONLY) == 0;
}

static bool probe_cgroup_v2_controllers(void)
{
	char path[512], file[560];
	bool root;

	if (probe_cgroup(path, sizeof(path), &root) < 0)
		return false;
	(void)snprintf(file, sizeof(file), "%s/cgroup.controllers", path);
	return lists(file, "memory") && lists(file, "pids") && lists(file, "cpu");
}

static int try_clone_into(void *arg)
{
	struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
	cleanup_fd int dir = open(arg, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int pid, status;

	if (dir < 0)
		return -errno;
	args.cgroup = (unsigned int)dir;
	pid = raw_clone3(&args);
	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return pid;
	return waitpid(pid, &status, 0) == pid ? 0 : -errno;
}

static bool probe_clone_into_cgroup(void)
{
	char path[512];
	bool root;

	return probe_cgroup(path, sizeof(path), &root) == 0 &&
	       probe_run(try_clone_into, path, PROBE_TIMEOUT_MS) == 0;
}

/* The root of the tree has no cgroup.kill, so a group is made and removed there. */
static bool probe_cgroup_kill(void)
{
	char path[512], dir[560], file[600];
	bool root, found;

	if (probe_cgroup(path, sizeof(path), &root) < 0)
		return false;
	(void)snprintf(dir, sizeof(dir), root ? "%s/cay-probe-%d" : "%s", path, (int)getpid());
	if (root && mkdir(dir, 0755) < 0)
		return false;
	(void)snprintf(file, sizeof(file), "%s/cgroup.kill", dir);
	found = access(file, F_OK) == 0;
	if (root)
		(void)rmdir(dir);
	return found;
}

static int map_foreign(int proc_fd, pid_t pid, attr_unused const void *arg)
{
	return cred_map_user_ns(proc_fd, pid, 0, 1000000, 65536);
}

static int try_idmap(void *arg)
{
	cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), userns = -1,
		       tree = -1;
	int rc;

	if (proc < 0)
		return -errno;
	rc = userns = cred_make_userns(proc, map_foreign, NULL);
	if (rc >= 0)
		rc = tree = mount_clone(AT_FDCWD, arg, false);
	if (rc >= 0)
		rc = mount_set_idmap(tree, userns);
	if (rc == -EINVAL)
		return 0; /* this file system cannot */
	return rc < 0 ? rc : 1;
}

int feature_idmap_works(const char *path)
{
	return probe_run(try_idmap, (void *)(uintptr_t)path, PROBE_TIMEOUT_MS);
}

static bool probe_idmapped_mounts(void)
{
	return feature_idmap_works("/") == 1;
}

static bool probe_open_tree_attr(void)
{
	return call_exists(syscall(SYS_OPEN_TREE_ATTR, -1, "", AT_EMPTY_PATH, NULL, 0));
}

static bool probe_statmount(void)
{
	return call_exists(syscall(SYS_STATMOUNT, NULL, NULL, 0, 0));
}

static bool probe_membarrier_list(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_REGISTRATIONS, 0, 0) >= 0;
}

/* As in defs/kernel.def: 601 is 6.1; 0 = not known. */
static unsigned int running_release(void)
{
	struct utsname u;
	unsigned int major = 0, minor = 0;

	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2)
		return 0;
	return major * 100 + minor;
}

/* "ovl: implement tmpfile" of 6.3; nothing short of an overlay shows it. */
static bool probe_overlay_tmpfile(void)
{
	return running_release() >= 603;
}

static bool probe_eventfd_semaphore(void)
{
	cleanup_fd int fd = eventfd(0, EFD_CLOEXEC);
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	return lists(path, "eventfd-semaphore:");
}

static bool probe_file_ids(void)
{
	struct file_handle none = { .handle_bytes = 0 };
	int mount;

	return name_to_handle_at(AT_FDCWD, "/", &none, &mount, HANDLE_FID) == 0 || errno != EINVAL;
}

/* PR_TIMER_CREATE_RESTORE_IDS, PR_TIMER_CREATE_RESTORE_IDS_GET */
static bool probe_timer_ids(void)
{
	return prctl(77, 2, 0, 0, 0) >= 0;
}

/* struct pm_scan_arg of linux/fs.h, 6.7 */
struct pagemap_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

static bool probe_pagemap_scan(void)
{
	cleanup_fd int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct pagemap_scan arg = { .size = sizeof(arg) };

	return fd >= 0 && ioctl(fd, _IOWR('f', 16, struct pagemap_scan), &arg) == 0;
}

static bool probe_procmap_query(void)
{
	return procmem_asks();
}

/* What keeps namespaces apart there is "inet: ping: check sock_net() in ping_get_port() and ping_lookup()" of 6.18; nothing short of two namespaces whose hashes are equal shows it. */
static bool probe_ping_sockets(void)
{
	return running_release() >= 618;
}

static int trace_clones(pid_t pid)
{
	int rc = seize(pid, PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
				    PTRACE_O_TRACEEXEC);

	/* (there are kernels without it) */
	return rc < 0 ? rc : raw_kcmp(getpid(), pid, KCMP_VM, 0, 0);
}

static int try_trace_clones(attr_unused void *arg)
{
	int rc = try_on_child(trace_clones);

	return rc < 0 ? rc : 0;
}

static int try_listener(attr_unused void *arg)
{
	const struct sock_filter nothing = { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return confine_told(&nothing, 1, true, EPERM);
}

static bool probe_seccomp_listener(void)
{
	return probe_run(try_listener, NULL, PROBE_TIMEOUT_MS) >= 0;
}

/* A fork may be told only to whom the host trusts. */
static bool probe_lazy_resume(void)
{
	struct uffdio_api api = { .api = UFFD_API,
		.features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
			    UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP };
	cleanup_fd int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	return fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 &&
	       probe_run(try_trace_clones, NULL, PROBE_TIMEOUT_MS) == 0;
}

/* struct pidfd_info of linux/pidfd.h, first version, 6.13 */
struct pidfd_info_v0 {
	uint64_t mask, cgroup;
	uint32_t ids[12];
};

static bool probe_pidfd_info(void)
{
	cleanup_fd int fd = raw_pidfd_open(getpid());
	struct pidfd_info_v0 info = { 0 };

	return fd >= 0 && ioctl(fd, _IOWR(0xFF, 11, struct pidfd_info_v0), &info) == 0;
}

static int landlock_abi(void)
{
	return raw_result(syscall(SYS_landlock_create_ruleset, NULL, 0, 1U));
}

static bool probe_landlock(void)
{
	return landlock_abi() >= 1;
}

static bool probe_landlock_scope(void)
{
	return landlock_abi() >= 6;
}

static bool probe_btrfs_squota(void)
{
	return access("/sys/fs/btrfs/features/simple_quota", F_OK) == 0;
}

static bool probe_memfd_noexec(void)
{
	cleanup_fd int fd = memfd_create("cay-probe", MFD_CLOEXEC | 0x8U /* MFD_NOEXEC_SEAL */);

	return fd >= 0;
}

static int try_connector(attr_unused void *arg)
{
	struct proc_connector pc;
	int rc;

	if (geteuid() == 0 &&
		(setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
		return -errno;
	rc = proc_connector_open(&pc);
	if (rc == 0)
		proc_connector_close(&pc);
	return rc;
}

/* What only the kernel's own modules can say: a rule of each kind that sandbox/network.c needs. */
static int try_packet_filter(attr_unused void *arg)
{
	cleanup_fd int fd = -1;
	struct nft nft;
	int rc = probe_enter_userns(CLONE_NEWNET);

	if (rc < 0)
		return rc;
	fd = netlink_socket(NETLINK_NETFILTER);
	if (fd < 0)
		return fd;
	nft_begin(&nft, "cay-probe");
	nft_table(&nft);
	nft_chain(&nft, "prerouting", NF_INET_PRE_ROUTING, -150);
	nft_rule(&nft, "prerouting");
	nft_protocol(&nft, IPPROTO_TCP);
	nft_tproxy(&nft, 1);
	nft_rule_end(&nft);
	nft_chain(&nft, "output", NF_INET_LOCAL_OUT, 0);
	nft_rule(&nft, "output");
	nft_log(&nft, 1, 96);
	nft_rule_end(&nft);
	nft_rule(&nft, "output");
	nft_reject(&nft, false);
	nft_rule_end(&nft);
	return nft_commit(&nft, fd);
}

static bool probe_packet_filter(void)
{
	return probe_run(try_packet_filter, NULL, PROBE_TIMEOUT_MS) == 0;
}

static int try_timens(attr_unused void *arg)
{
	cleanup_fd int fd = -1;
	int rc = probe_enter_userns(0);

	if (rc == 0)
		rc = fd = timens_new(1, 1);
	return rc < 0 ? rc : 0;
}

static bool probe_timens(void)
{
	return probe_run(try_timens, NULL, PROBE_TIMEOUT_MS) == 0;
}

static bool probe_proc_connector_unprivileged(void)
{
	return probe_run(try_connector, NULL, PROBE_TIMEOUT_MS) == 0;
}

static const struct {
	struct feature_info info;
	bool (*probe)(void);
} table[FEATURE_COUNT] = {
#define FEATURE(NAME, wire, probe_name, cost, release, lvl, does, without, remedy) \
	[FEATURE_##NAME] = { .info = { .id = wire, \
				     .since = release, \
				     .level = FEATURE_LEVEL_##lvl, \
				     .what = does, \
				     .lost = without, \
				     .fix = remedy }, \
		.probe = probe_##probe_name },
#include "kernel.def"
#undef FEATURE
};

static signed char cached[FEATURE_COUNT]; /* 0 = not asked, 1 = works, -1 = does not */

bool feature_withheld(enum feature feature)
{
	const char *list = getenv("CAY_WITHOUT");

	return str_list_has(list, table[feature].info.id) ||
	       (str_list_has(list, "all") && table[feature].info.since > FLOOR_RELEASE);
}

bool feature_has(enum feature feature)
{
	BUG_ON(feature >= FEATURE_COUNT);
	if (cached[feature] == 0) {
		bool works = !feature_withheld(feature) && table[feature].probe();

		cached[feature] = works ? 1 : -1;
	}
	return cached[feature] > 0;
}

const struct feature_info *feature_info(enum feature feature)
{
	BUG_ON(feature >= FEATURE_COUNT);
	return &table[feature].info;
}

enum feature feature_find(const char *id)
{
	enum feature f = 0;

	while (f < FEATURE_COUNT && !str_eq(table[f].info.id, id))
		f++;
	return f;
}

int feature_landlock_abi(void)
{
	int abi = feature_has(FEATURE_LANDLOCK) ? landlock_abi() : 0;

	if (feature_withheld(FEATURE_LANDLOCK_SCOPE) && abi > FLOOR_LANDLOCK_ABI)
		abi = FLOOR_LANDLOCK_ABI;
	return abi < 0 ? 0 : abi;
}

void feature_forget(void)
{
	memset(cached, 0, sizeof(cached));
}

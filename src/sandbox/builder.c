/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/builder.c - see the header. Runs as PID 1 of the sandbox until it executes cay-init.
 *
 * Invariants
 *  (1) every mount is attached to a descriptor or to a name below a file system that we made ourselves; nothing of an image is seen here;
 *  (2) the mount, pid, net, ipc, uts and cgroup namespaces belong to U1; the payload's U2 is made last and owns nothing;
 *  (3) what /proc shows beyond processes is an allow-list: an unknown entry of a newer kernel is masked.
 * Failure: any step sends a struct err to the keeper and exits; the namespaces vanish with the last process.
 */
#include "sandbox/builder.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sandbox/rootfs.h"
#include "sandbox/synth.h"
#include "sys/confine.h"
#include "sys/cred.h"
#include "sys/fdpass.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <dirent.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#define ATTRS_DATA (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* cay-init finds the payload's user namespace on this descriptor */
#define INIT_USERNS_FD 3
#define INIT_DONE_FD   4 /* closed when it is there */

#define PING_GROUP_MAX 0x7fffffffU /* the kernel takes none above */

/* bytes of options of one socket: what kernels before 6.8 gave, which programs are known to live with */
#define OPTIONS_MAX "20480"

struct builder {
	const struct builder_options *o;
	int staging; /* tmpfs with the directories below; those of sys and synth are in it */
	int proc;    /* our procfs */
	int synth;   /* writable view of the synthetic files */
	int sys;     /* /sys, writable until it is in place */
	int limits;  /* /proc/sys/user, from before it became read-only */
	int u2;      /* payload's user namespace */
	int devices; /* directory of the sandbox's own device nodes, from before it was covered */
	struct network network;
};

static void fail(const struct builder *b, const struct err *err) attr_noreturn;

static void fail(const struct builder *b, const struct err *err)
{
	(void)!fdpass_send(b->o->sock, err, sizeof(*err), NULL, 0);
	_exit(1);
}

static int wait_go(const struct builder *b)
{
	char go;
	size_t n_fds;
	ssize_t n = fdpass_recv(b->o->sock, &go, 1, NULL, 0, &n_fds);

	return n == 1 ? 0 : -EPIPE;
}

/* Become root of U1: the keeper has written the maps by now. */
static int enter_ids(const struct builder *b, struct err *err)
{
	int rc = wait_go(b);

	if (rc < 0)
		return err_raise_sys(err, rc, "wait for the id maps");
	if (b->o->new_userns &&
		(setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		return err_raise_sys(err, -errno, "become root of the set-up namespace");
	/* the change of ids made us undumpable, which would close /proc/PID of our child to us; no payload exists yet */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return err_raise_sys(err, -errno, "open our own /proc entries");
	return 0;
}

static int attach_new(int parent, const char *name, const char *type, const char *const *options,
	unsigned int attrs)
{
	cleanup_fd int mount = -1;
	int rc;

	if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	mount = mount_fs_new(type, options, attrs);
	if (mount < 0)
		return mount;
	rc = mount_attach_at(mount, parent, name);
	return rc < 0 ? rc : TAKE_FD(mount);
}

static int make_staging(struct builder *b, struct err *err)
{
	static const char *const options[] = { "mode=755", "size=1m", "nr_inodes=1024", NULL };
	cleanup_fd int mount = mount_fs_new("tmpfs", options, ATTRS_DATA);
	int rc = mount;

	if (rc >= 0)
		rc = mount_attach_at(mount, AT_FDCWD, BUILDER_STAGING);
	if (rc < 0)
		return err_raise_sys(err, rc, "make the staging file system");
	b->staging = TAKE_FD(mount);
	return 0;
}

/* Make, and open, a directory of staging. */
static int make_part(const struct builder *b, const char *name)
{
	int fd;

	if (mkdirat(b->staging, name, 0755) < 0)
		return -errno;
	fd = openat(b->staging, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The directory that all masks and synthetic files are cloned from. */
static int make_synth(struct builder *b, struct err *err)
{
	int rc = b->synth = make_part(b, "synth");

	if (rc >= 0)
		rc = file_create_at(b->synth, ".empty", 0444, "", 0);
	if (rc == 0 && mkdirat(b->synth, ".none", 0555) < 0)
		rc = -errno;
	if (rc < 0)
		return err_raise_sys(err, rc, "make the directory of synthetic files");
	synth_write(b->synth, &(struct synth_view){ .limits = b->o->limits });
	return 0;
}

/* A read-only view of synth, of which each mask is a bind mount: that has the flags of what it is made of. */
static int make_masks(const struct builder *b)
{
	cleanup_fd int mount = mount_clone(b->staging, "synth", false);
	int rc = mount;

	if (rc >= 0)
		rc = mount_set(mount, MOUNT_ATTR_RDONLY | ATTRS_DATA, false);
	if (rc == 0 && mkdirat(b->staging, "masks", 0755) < 0)
		rc = -errno;
	return rc < 0 ? rc : mount_attach_at(mount, b->staging, "masks");
}

/* Put masks/@from over proc/@name: by one call, because a kernel shows some forty entries that are masked. */
static int mask(const char *from, const char *name)
{
	char source[sizeof(BUILDER_STAGING "/masks/") + NAME_MAX];
	char target[sizeof(BUILDER_STAGING "/proc/") + NAME_MAX];

	(void)snprintf(source, sizeof(source), BUILDER_STAGING "/masks/%s", from);
	(void)snprintf(target, sizeof(target), BUILDER_STAGING "/proc/%s", name);
	return mount(source, target, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static bool proc_entry_allowed(const char *name)
{
	static const char *const allowed[] = { "self", "thread-self", "net", "mounts",
		"filesystems", "sys", "sysvipc",
		"uptime" /* that goes on: ps and top measure by it */ };

	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
		if (str_eq(name, allowed[i]))
			return true;
	}
	return false;
}

static bool is_synthetic(const char *name)
{
	for (const struct synth_file *f = synth_proc_files(); f->name != NULL; f++) {
		if (str_eq(name, f->name))
			return true;
	}
	return false;
}

static int mask_entry(const struct dirent *e)
{
	if (e->d_name[0] == '.' || (e->d_name[0] >= '0' && e->d_name[0] <= '9') ||
		proc_entry_allowed(e->d_name))
		return 0;
	if (e->d_type == DT_LNK)
		return 0; /* links of procfs lead into self/ only */
	if (is_synthetic(e->d_name))
		return mask(e->d_name, e->d_name);
	return mask(e->d_type == DT_DIR ? ".none" : ".empty", e->d_name);
}

static int mask_proc(const struct builder *b, struct err *err)
{
	int fd = openat(b->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	if (dir == NULL)
		return err_raise_sys(err, -errno, "list /proc");
	rc = make_masks(b);
	if (rc < 0)
		(void)err_raise_sys(err, rc, "make the masks of /proc");
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		rc = mask_entry(e);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "mask /proc/%s", e->d_name);
	}
	(void)closedir(dir);
	return rc;
}

static int proc_sys_readonly(const struct builder *b)
{
	cleanup_fd int mount = mount_clone(b->proc, "sys", false);
	int rc = mount;

	if (rc >= 0)
		rc = mount_set(mount, MOUNT_ATTR_RDONLY | ATTRS_DATA, false);
	if (rc == 0)
		rc = mount_attach_at(mount, b->proc, "sys");
	return rc;
}

/* Without a packet filter there is a loopback device and nothing else: closed all the same. */
static int make_network(struct builder *b, struct err *err)
{
	int rc = ablated("netns_lo_only") ? 0 : network_make(&b->network, b->o->group_level, err);

	if (rc == -EOPNOTSUPP) {
		*err = (struct err){ 0 };
		rc = 0;
	}
	return rc;
}

/*
 * The groups that may make sockets for echo requests: all that the sandbox has. The kernel keeps the range by the numbers of the machine, and takes none that ends below
 * where it begins, so it goes as far as each extent of the map lies above the one before.
 */
static uint32_t last_group(const struct builder *b)
{
	cleanup_buf struct buf map = BUF_INIT(8192);
	uint32_t last = 0, above = 0;
	char *save = NULL;

	if (file_read_at(b->proc, "self/gid_map", &map) < 0)
		return 0;
	for (char *line = map.n > 0 ? strtok_r(map.p, "\n", &save) : NULL; line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		uint32_t inside, outside, count;

		if (sscanf(line, "%u %u %u", &inside, &outside, &count) != 3 || outside < above)
			break;
		last = inside + count - 1;
		above = outside;
	}
	return last < PING_GROUP_MAX ? last : PING_GROUP_MAX;
}

/* Every program may ask "are you there?" (ping): itself gets an answer, the packet filter refuses and tells the rest. */
static void allow_echo(const struct builder *b)
{
	char range[32];

	if (!feature_has(FEATURE_PING_SOCKETS))
		return;
	(void)snprintf(range, sizeof(range), "0 %u", last_group(b));
	(void)!file_write_at(b->proc, "sys/net/ipv4/ping_group_range", range);
}

/* Settings of the new network namespace. A kernel without one of them has nothing to close there. */
static int set_network(const struct builder *b, struct err *err)
{
	int rc;

	if (ablated("netns_lo_only"))
		return 0; /* the host's: nothing of it is ours to set */
	rc = file_write_at(b->proc, "sys/net/ipv4/ip_unprivileged_port_start", "0");
	if (rc < 0)
		return err_raise_sys(err, rc, "open low ports to the sandbox");
	(void)!file_write_at(b->proc, "sys/net/ipv4/tcp_fastopen", "0");
	(void)!file_write_at(b->proc, "sys/net/mptcp/enabled", "0");
	/* each socket's options are charged to nobody; a kernel before 6.8 has this for all alike */
	if (!ablated("rations"))
		(void)!file_write_at(b->proc, "sys/net/core/optmem_max", OPTIONS_MAX);
	allow_echo(b);
	return 0;
}

/* Ablation: a mount of the machine itself in place of one of our own. Takes @mount. */
static int attach_host(int mount, int parent, const char *name)
{
	cleanup_fd int fd = mount;
	int rc = fd;

	if (rc >= 0 && mkdirat(parent, name, 0755) < 0)
		rc = -errno;
	if (rc >= 0)
		rc = mount_attach_at(fd, parent, name);
	return rc < 0 ? rc : TAKE_FD(fd);
}

static int make_proc(struct builder *b, struct err *err)
{
	static const char *const options[] = { NULL };
	/* without a pid namespace of its own a sandbox cannot have a /proc of its own */
	int rc = ablated("pidns")
			 ? attach_host(mount_clone(AT_FDCWD, "/proc", true), b->staging, "proc")
			 : attach_new(b->staging, "proc", "proc", options, ATTRS_DATA);

	if (rc == -EPERM)
		return err_hint(err,
			err_raise(err, ERR_HOST, "mount /proc: the kernel refuses it here"),
			"inside a container whose /proc is masked, start it with an unmasked one (docker: --security-opt systempaths=unconfined)");
	if (rc < 0)
		return err_raise_sys(err, rc, "mount /proc");
	b->proc = rc;
	/* by a mount of their own, that nobody sees: /proc itself may be read-only by the time they are written */
	b->limits = mount_clone(b->proc, "sys/user", false);
	if (b->limits < 0)
		return err_raise_sys(err, b->limits, "open the namespace limits");
	return 0;
}

static int finish_proc(const struct builder *b, struct err *err)
{
	int rc = ablated("proc_mask") ? 0 : mask_proc(b, err);

	if (rc < 0)
		return rc;
	rc = ablated("proc_sys_readonly") ? 0 : proc_sys_readonly(b);
	return rc < 0 ? err_raise_sys(err, rc, "make /proc/sys read-only") : 0;
}

struct device {
	const char *name;
	unsigned int major, minor;
};

/* Bind one device node of the machine, after making sure that it is what its name says. */
static int bind_device(const struct builder *b, int dev, const struct device *d)
{
	char path[64];
	cleanup_fd int mount = -1;
	struct stat st;
	int rc;

	mount = b->devices < 0 ? -ENOENT : mount_clone(b->devices, d->name, false);
	if (mount == -ENOENT) {
		(void)snprintf(path, sizeof(path), "/dev/%s", d->name);
		mount = mount_clone(AT_FDCWD, path, false);
	}
	if (mount < 0)
		return mount;
	if (fstat(mount, &st) < 0)
		return -errno;
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(d->major, d->minor))
		return -ENODEV;
	rc = file_create_at(dev, d->name, 0666, "", 0);
	if (rc == 0)
		rc = mount_set(mount, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false);
	if (rc == 0)
		rc = mount_attach_at(mount, dev, d->name);
	return rc;
}

static int bind_devices(const struct builder *b, int dev, struct err *err)
{
	static const struct device nodes[] = {
		{ "null", 1, 3 },
		{ "zero", 1, 5 },
		{ "full", 1, 7 },
		{ "random", 1, 8 },
		{ "urandom", 1, 9 },
		{ "tty", 5, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		int rc = bind_device(b, dev, &nodes[i]);

		if (rc < 0)
			return err_raise_sys(err, rc, "device /dev/%s", nodes[i].name);
	}
	if (ablated("dev_nodes"))
		(void)!bind_device(b, dev, &(const struct device){ "fuse", 10, 229 });
	return 0;
}

static int link_devices(int dev)
{
	static const struct {
		const char *to, *name;
	} links[] = {
		{ "/proc/self/fd", "fd" },
		{ "/proc/self/fd/0", "stdin" },
		{ "/proc/self/fd/1", "stdout" },
		{ "/proc/self/fd/2", "stderr" },
		{ "pts/ptmx", "ptmx" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		if (symlinkat(links[i].to, dev, links[i].name) < 0)
			return -errno;
	}
	return 0;
}

static int make_dev(struct builder *b, struct err *err)
{
	static const char *const dev_options[] = { "mode=755", "size=64k", "nr_inodes=64", NULL };
	static const char *const shm_options[] = { "mode=1777", "size=1g", "nr_inodes=65536",
		NULL };
	/* gid 5 is tty in every distribution; it has no meaning where only one id is mapped */
	static const char *const pts_options[] = { "ptmxmode=0666", "mode=0620", "gid=5", "max=64",
		NULL };
	static const char *const pts_single[] = { "ptmxmode=0666", "mode=0620", "max=64", NULL };
	static const char *const pts_unbounded[] = { "ptmxmode=0666", "mode=0620", "gid=5", NULL };
	const char *const *pts = b->o->single_id ? pts_single : pts_options;
	cleanup_fd int dev = attach_new(
		b->staging, "dev", "tmpfs", dev_options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	cleanup_fd int terminals = -1, shm = -1;
	int rc;

	if (dev < 0)
		return err_raise_sys(err, dev, "mount /dev");
	rc = bind_devices(b, dev, err);
	if (rc < 0)
		return rc;
	rc = link_devices(dev);
	if (rc < 0)
		return err_raise_sys(err, rc, "links in /dev");
	if (ablated("own_devpts"))
		terminals = attach_host(mount_clone(AT_FDCWD, "/dev/pts", false), dev, "pts");
	else
		terminals = attach_new(dev, "pts", "devpts",
			ablated("devpts_max") ? pts_unbounded : pts,
			MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (terminals < 0)
		return err_raise_sys(err, terminals, "mount /dev/pts");
	shm = attach_new(dev, "shm", "tmpfs", shm_options, ATTRS_DATA);
	if (shm < 0)
		return err_raise_sys(err, shm, "mount /dev/shm");
	return 0;
}

/* What runtimes read to count CPUs, and nothing else; for all CPUs, the placer takes some away. */
static int fill_sys(int sys)
{
	const struct cgroup_limits none = { 0 };
	cleanup_fd int cpu = -1;
	int rc = file_mkdirs_at(sys, "devices/system/cpu", 0755);

	if (rc < 0)
		return rc;
	cpu = raw_openat2(sys, "devices/system/cpu", O_PATH | O_DIRECTORY, 0, 0);
	rc = cpu < 0 ? cpu : synth_cpu_lists(cpu, &none);
	for (unsigned int i = 0; rc == 0 && i < synth_cpus(&none); i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "cpu%u", i);
		rc = mkdirat(cpu, name, 0755) < 0 ? -errno : 0;
	}
	return rc;
}

/* Nothing but these two read-only views of staging comes into the sandbox: /sys and the masks. */
static int make_sys(struct builder *b, struct err *err)
{
	int rc;

	if (ablated("no_sysfs")) {
		rc = attach_host(TAKE_FD(b->sys), b->staging, "sys");
	} else {
		cleanup_fd int made = make_part(b, "sys");

		rc = made < 0 ? made : mount_clone(b->staging, "sys", false);
	}
	b->sys = rc;
	if (rc >= 0 && !ablated("no_sysfs"))
		rc = mount_attach_at(b->sys, b->staging, "sys");
	if (rc >= 0 && !ablated("no_sysfs"))
		rc = fill_sys(b->sys);
	return rc < 0 ? err_raise_sys(err, rc, "make /sys") : 0;
}

/*
 * From now on no namespace can be made in U1 or below, whatever a program manages to call. Last of all: a detached mount counts as a mount
 * namespace, so nothing could be mounted afterwards.
 */
static int forbid_namespaces(const struct builder *b)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup",
		"time" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		char path[64];
		int rc;

		(void)snprintf(path, sizeof(path), "max_%s_namespaces", kinds[i]);
		rc = file_write_at(b->limits, path, "0");
		if (rc < 0 && rc != -ENOENT)
			return rc;
	}
	return 0;
}

static int map_payload(int proc_fd, pid_t pid, attr_unused const void *arg)
{
	return cred_map_identity(proc_fd, pid);
}

static int make_payload_userns(struct builder *b, struct err *err)
{
	if (ablated("userns_last")) {
		b->u2 = openat(b->proc, "self/ns/user", O_RDONLY | O_CLOEXEC);
		return b->u2 < 0 ? err_raise_sys(err, -errno, "open our own user namespace") : 0;
	}
	b->u2 = cred_make_userns(b->proc, map_payload, NULL);
	return b->u2 < 0 ? err_raise_sys(err, b->u2, "make the payload's user namespace") : 0;
}

static int prepare(struct builder *b, struct err *err)
{
	int rc = enter_ids(b, err);

	if (rc == 0)
		rc = make_network(b, err);
	if (rc == 0 && !ablated("cgroupns") && unshare(CLONE_NEWCGROUP) < 0)
		rc = err_raise_sys(err, -errno, "make the cgroup namespace");
	if (ablated("no_sysfs"))
		b->sys = mount_clone(AT_FDCWD, "/sys", true); /* before it is covered */
	b->devices = open(ROOTFS_DEVICES, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0)
		rc = make_staging(b, err);
	if (rc == 0)
		rc = make_synth(b, err);
	if (rc == 0)
		rc = make_proc(b, err);
	if (rc == 0)
		rc = set_network(b, err);
	if (rc == 0)
		rc = make_payload_userns(b, err);
	if (rc == 0)
		rc = finish_proc(b, err);
	if (rc == 0)
		rc = make_dev(b, err);
	if (rc == 0)
		rc = make_sys(b, err);
	return rc;
}

static void become_init(const struct builder *b, struct err *err)
{
	static char name[] = "cay-init";
	/* an argument is how init, which sees no environment, learns that it is ablated */
	static char open_to_all[] = "dumpable";
	char *const argv[] = { name, ablated("init_nondumpable") ? open_to_all : NULL, NULL };
	static char *const envp[] = { NULL };

	int program = fcntl(b->o->init_fd, F_DUPFD_CLOEXEC, 10);
	int u2 = fcntl(b->u2, F_DUPFD_CLOEXEC, 10);
	int done = fcntl(b->o->sock, F_DUPFD_CLOEXEC, 10);

	int rc = ablated("max_user_namespaces") ? 0 : forbid_namespaces(b);

	if (rc < 0)
		(void)err_raise_sys(err, rc, "forbid further namespaces");
	else if (program < 0 || u2 < 0 || done < 0 || dup2(u2, INIT_USERNS_FD) < 0 ||
		 dup2(done, INIT_DONE_FD) < 0)
		(void)err_raise_sys(err, -errno, "hand the namespace to init");
	else if (syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH) < 0)
		(void)err_raise_sys(err, -errno, "execute cay-init");
}

static int send_prepared(struct builder *b)
{
	int fds[1 + NETWORK_FDS] = { b->u2 };
	bool network = b->network.tcp >= 0;
	struct err none = { 0 };
	int rc;

	network_fds(&b->network, fds + 1);
	rc = fdpass_send(b->o->sock, &none, sizeof(none), fds, 1 + (network ? NETWORK_FDS : 0));
	network_close(&b->network);
	return rc;
}

void builder_main(const struct builder_options *options)
{
	struct builder b = { .o = options,
		.staging = -1,
		.proc = -1,
		.synth = -1,
		.sys = -1,
		.limits = -1,
		.devices = -1,
		.u2 = -1,
		.network = NETWORK_NONE };
	struct err err = { 0 };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (prepare(&b, &err) < 0)
		fail(&b, &err);
	if (send_prepared(&b) < 0)
		_exit(1);
	if (wait_go(&b) < 0)
		_exit(0); /* a prepared sandbox that nobody claimed */
	become_init(&b, &err);
	fail(&b, &err);
}

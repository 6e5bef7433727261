/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/doctor_checks.c - one function for each CHECK row of defs/kernel.def.
 *
 * A check reads what the kernel and the machine's files say, or tries something in a throw-away process. None changes anything; each fills a
 * struct finding, also when it could not look.
 */
#include "base/str.h"
#include "base/subids.h"
#include "sandbox/doctor.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/mountinfo.h"
#include "sys/probe.h"
#include "sys/proc_connector.h"
#include "sys/raw.h"

#include <dirent.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define PLANNED_SANDBOXES 5000
#define IDLE_PROCESSES    6 /* of one idle sandbox, ours and its init, with room */

/* Append a word to a comma-separated list. */
static void list_add(struct buf *list, const char *word)
{
	buf_str(list, list->n > 0 ? ", " : "");
	buf_str(list, word);
}

static void check_kernel(attr_unused const struct doctor *d, struct finding *f)
{
	struct utsname un = { 0 };
	unsigned int major = 0, minor = 0;

	if (uname(&un) < 0 || sscanf(un.release, "%u.%u", &major, &minor) != 2)
		finding_set(f, false, "unknown");
	else
		finding_set(f, major * 100 + minor >= 601, "Linux %s", un.release);
}

static void check_capabilities(const struct doctor *d, struct finding *f)
{
	static const struct {
		unsigned int bit;
		const char *name;
	} wanted[] = { { CAP_CHOWN, "CAP_CHOWN" }, { CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE" },
		{ CAP_FOWNER, "CAP_FOWNER" }, { CAP_FSETID, "CAP_FSETID" },
		{ CAP_KILL, "CAP_KILL" }, { CAP_SETUID, "CAP_SETUID" },
		{ CAP_SETGID, "CAP_SETGID" }, { CAP_SETPCAP, "CAP_SETPCAP" },
		{ CAP_NET_ADMIN, "CAP_NET_ADMIN" }, { CAP_SYS_CHROOT, "CAP_SYS_CHROOT" },
		{ CAP_SYS_ADMIN, "CAP_SYS_ADMIN" }, { CAP_SETFCAP, "CAP_SETFCAP" },
		{ CAP_MKNOD, "CAP_MKNOD" } };
	cleanup_buf struct buf status = BUF_INIT(65536), missing = BUF_INIT(500);
	unsigned long caps = 0;
	const char *line;

	if (!d->root) {
		finding_set(f, true, "not needed: cay runs as an ordinary user");
		return;
	}
	if (file_read_at(AT_FDCWD, "/proc/self/status", &status) < 0)
		buf_reset(&status);
	line = strstr(buf_cstr(&status), "CapEff:");
	if (line == NULL || sscanf(line, "CapEff: %lx", &caps) != 1) {
		finding_set(f, false, "unknown: /proc/self/status does not say");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		if ((caps >> wanted[i].bit & 1) == 0)
			list_add(&missing, wanted[i].name);
	}
	finding_set(f, missing.n == 0, "%s%s%s",
		missing.n == 0 ? "all there" : "missing: ", buf_cstr(&missing),
		(caps >> CAP_SYS_RESOURCE & 1) == 0
			? " (without CAP_SYS_RESOURCE: hard limits of this process cannot be raised)"
			: "");
}

static const char *const container_calls[] = { "mount", "fsopen", "open_tree", "clone3", "keyctl",
	"seccomp" };

/* Return: a bit for each of container_calls that is refused although the caller holds every capability in its own namespaces. */
static int try_container_calls(attr_unused void *arg)
{
	int refused = 0, fs, rc = probe_enter_userns(CLONE_NEWNS);

	if (rc < 0)
		return rc;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		refused |= 1 << 0;
	fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs < 0)
		refused |= 1 << 1;
	if (mount_clone(AT_FDCWD, "/", true) < 0)
		refused |= 1 << 2;
	if (syscall(SYS_clone3, NULL, 0) < 0 && errno != EINVAL)
		refused |= 1 << 3;
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
		refused |= 1 << 4;
	if (!feature_has(FEATURE_SECCOMP))
		refused |= 1 << 5;
	return refused;
}

static const char *container_kind(void)
{
	const char *env = getenv("container");

	if (access("/.dockerenv", F_OK) == 0)
		return "inside docker";
	if (access("/run/.containerenv", F_OK) == 0)
		return "inside podman";
	if (access("/run/systemd/container", F_OK) == 0 || (env != NULL && env[0] != '\0'))
		return "inside a container";
	return "no container seen";
}

static void check_container(attr_unused const struct doctor *d, struct finding *f)
{
	cleanup_buf struct buf refused = BUF_INIT(200);
	int rc = probe_run(try_container_calls, NULL, PROBE_TIMEOUT_MS);

	if (rc < 0) {
		finding_set(f, false, "%s; no user namespace could be made: %s", container_kind(),
			strerror(-rc));
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(container_calls); i++) {
		if ((rc >> i & 1) != 0)
			list_add(&refused, container_calls[i]);
	}
	finding_set(f, rc == 0, "%s; refused: %s", container_kind(),
		rc == 0 ? "nothing" : buf_cstr(&refused));
}

static int try_proc_mount(attr_unused void *arg)
{
	static const char *const options[] = { NULL };
	int rc = probe_enter_userns(CLONE_NEWNS | CLONE_NEWPID), status = 0;
	pid_t child;

	if (rc < 0)
		return rc;
	child = fork(); /* only a member of the new pid namespace may mount its /proc */
	if (child < 0)
		return -errno;
	if (child == 0) {
		rc = mount_fs_new("proc", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
		_exit(rc < 0 ? -rc & 0xff : 0);
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -ECHILD;
	return -WEXITSTATUS(status);
}

static void check_proc_mount(attr_unused const struct doctor *d, struct finding *f)
{
	int rc = probe_run(try_proc_mount, NULL, PROBE_TIMEOUT_MS);

	if (rc == 0)
		finding_set(f, true, "works");
	else
		finding_set(f, false, "refused: %s", strerror(-rc));
}

/* Name of @uid in /etc/passwd (no NSS in static programs); the number itself when it is not there. */
static void user_name(uid_t uid, char *name, size_t size)
{
	cleanup_fclose FILE *passwd = fopen("/etc/passwd", "re");
	char line[1024], found[64];
	unsigned int id;

	(void)snprintf(name, size, "%u", uid);
	while (passwd != NULL && fgets(line, sizeof(line), passwd) != NULL) {
		if (sscanf(line, "%63[^:]:%*[^:]:%u:", found, &id) == 2 && id == uid) {
			(void)snprintf(name, size, "%s", found);
			return;
		}
	}
}

static bool program_exists(const char *name)
{
	static const char *const dirs[] = { "/usr/bin", "/usr/sbin", "/bin", "/sbin",
		"/usr/local/bin", "/usr/local/sbin" };
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* What is missing, as commands. @start: of ids that nobody has. */
static void fix_subids(
	struct finding *f, bool programs, bool uids, bool gids, uint64_t start, const char *name)
{
	cleanup_buf struct buf fix = BUF_INIT(sizeof(f->fix));

	if (!programs)
		buf_str(&fix, "apt-get install uidmap");
	if (!uids || !gids)
		buf_fmt(&fix, "%susermod", fix.n > 0 ? " && " : "");
	if (!uids)
		buf_fmt(&fix, " --add-subuids %lu-%lu", start, start + SUBIDS_LENT - 1);
	if (!gids)
		buf_fmt(&fix, " --add-subgids %lu-%lu", start, start + SUBIDS_LENT - 1);
	if (!uids || !gids)
		buf_fmt(&fix, " %s", name);
	(void)snprintf(f->fix, sizeof(f->fix), "%s", buf_cstr(&fix));
}

static void check_subids(const struct doctor *d, struct finding *f)
{
	bool programs = program_exists("newuidmap") && program_exists("newgidmap"), uids, gids;
	cleanup_buf struct buf subuid = BUF_INIT(SUBIDS_FILE), subgid = BUF_INIT(SUBIDS_FILE);
	uint64_t most_uids, most_gids;
	char name[64];

	if (d->root) {
		finding_set(f, true, "not needed: root gives each sandbox its own range");
		return;
	}
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) {
		finding_set(f, false,
			"newuidmap and newgidmap have no effect: what is started here gains no privileges (no_new_privs)");
		(void)snprintf(f->fix, sizeof(f->fix), "%s",
			"start the server without no_new_privs: in a unit without NoNewPrivileges= and, as an ordinary user's, without what filters system calls");
		return;
	}
	user_name(d->user, name, sizeof(name));
	(void)!file_read_at(AT_FDCWD, "/etc/subuid", &subuid);
	(void)!file_read_at(AT_FDCWD, "/etc/subgid", &subgid);
	uids = subids_find(buf_cstr(&subuid), name, d->user, &most_uids) != 0;
	gids = subids_find(buf_cstr(&subgid), name, d->user, &most_gids) != 0;
	finding_set(f, programs && uids && gids,
		"newuidmap and newgidmap %s; %lu uids and %lu gids in one range for %s",
		programs ? "installed" : "missing", most_uids, most_gids, name);
	fix_subids(f, programs, uids, gids,
		subids_free((const char *const[]){ buf_cstr(&subuid), buf_cstr(&subgid) }, 2),
		name);
}

static int add_v1(void *ctx, const struct mountinfo *m)
{
	static const char *const names[] = { "memory", "pids", "cpu" };

	for (size_t i = 0; str_eq(m->type, "cgroup") && i < ARRAY_SIZE(names); i++) {
		if (str_list_has(m->options, names[i]))
			list_add(ctx, names[i]);
	}
	return 0;
}

/* Which v1 controllers are mounted, as a list. */
static void v1_controllers(struct buf *list)
{
	(void)!mountinfo_each("/proc/self/mountinfo", add_v1, list);
}

static void check_cgroup_layout(const struct doctor *d, struct finding *f)
{
	cleanup_buf struct buf v1 = BUF_INIT(200);
	bool v2 = feature_has(FEATURE_CGROUP_V2);

	v1_controllers(&v1);
	if (v2 && feature_has(FEATURE_CGROUP_V2_CONTROLLERS))
		finding_set(f, true, "v2 with controllers");
	else if (v2 && v1.n > 0)
		finding_set(f,
			d->root && strstr(v1.p, "memory") != NULL && strstr(v1.p, "pids") != NULL,
			"hybrid: v2 without the controllers, v1 with %s%s", v1.p,
			d->root ? "" : " (of use to root only)");
	else
		finding_set(f, false, v2 ? "v2 without memory, pids and cpu" : "no v2 tree");
}

static void check_cgroup_delegation(const struct doctor *d, struct finding *f)
{
	char path[512], procs[560];
	bool root_group;

	if (d->root) {
		finding_set(f, true, "not needed: root makes its own groups");
		return;
	}
	if (probe_cgroup(path, sizeof(path), &root_group) < 0) {
		finding_set(f, false, "no v2 tree");
		return;
	}
	(void)snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
	if (access(path, W_OK) < 0 || access(procs, W_OK) < 0)
		finding_set(f, false, "%s belongs to another user", path);
	else
		finding_set(f, feature_has(FEATURE_CGROUP_V2_CONTROLLERS),
			"%s is ours, %s controllers", path,
			feature_has(FEATURE_CGROUP_V2_CONTROLLERS) ? "with" : "without");
}

static const char *fs_name(const struct statfs *fs)
{
	switch ((unsigned long)fs->f_type) {
	case 0xEF53:
		return "ext4";
	case 0x58465342:
		return "XFS";
	case 0x9123683E:
		return "btrfs";
	case 0x01021994:
		return "tmpfs";
	case 0x794C7630:
		return "overlayfs";
	case 0x6969:
		return "NFS";
	default:
		return "another file system";
	}
}

static void check_state_idmap(const struct doctor *d, struct finding *f)
{
	int rc;

	if (!d->root) {
		finding_set(f, true, "not needed: a user's sandboxes share one range");
		return;
	}
	rc = feature_idmap_works(d->state);
	if (rc < 0)
		finding_set(f, false, "%s: could not be tried: %s", d->state, strerror(-rc));
	else
		finding_set(f, rc == 1, "%s: %s", d->state,
			rc == 1 ? "works" : "this file system cannot");
}

/* Why nothing can be written to the pool although its server runs; NULL: it can, or there is no pool. */
static const char *why_no_pool(const struct doctor *d)
{
	cleanup_free char *pool = str_dupf("%s/pool", d->state);
	cleanup_free char *file = str_dupf("%s/pool.btrfs", d->state);
	struct stat above, st;
	struct statvfs fs;

	if (!d->served || statvfs(pool, &fs) < 0)
		return NULL;
	if ((fs.f_flag & ST_RDONLY) != 0)
		return "is read-only, since the disk below it was full or failed";
	if (d->root && access(file, F_OK) == 0 && stat(d->state, &above) == 0 &&
		stat(pool, &st) == 0 && above.st_dev == st.st_dev)
		return "is not mounted";
	return NULL;
}

static void check_state_writable(const struct doctor *d, struct finding *f)
{
	const char *no_pool = why_no_pool(d);
	struct statvfs fs;

	if (statvfs(d->state, &fs) < 0) {
		finding_set(f, false, "%s: %s", d->state, strerror(errno));
	} else if ((fs.f_flag & ST_RDONLY) != 0) {
		finding_set(f, false, "%s: the file system is mounted read-only", d->state);
	} else if (no_pool != NULL) {
		finding_set(f, false, "the pool in %s %s", d->state, no_pool);
		(void)snprintf(f->fix, sizeof(f->fix),
			"stop every sandbox (cay storage info names those that hold it), make room on the disk of %s, then cay storage init",
			d->state);
	} else {
		finding_set(f, true, "%s", d->state);
	}
}

static void check_state_space(const struct doctor *d, struct finding *f)
{
	struct statfs fs;
	uint64_t mib;
	bool inodes;

	if (statfs(d->state, &fs) < 0) {
		finding_set(f, false, "%s: %s", d->state, strerror(errno));
		return;
	}
	mib = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >> 20;
	inodes = fs.f_files == 0 || fs.f_ffree >= 100000; /* btrfs makes inodes as it needs them */
	finding_set(f, mib >= 2048 && inodes, "%s: %s, %lu MiB and %s%lu inodes free", d->state,
		fs_name(&fs), mib, fs.f_files == 0 ? "unlimited: " : "", fs.f_ffree);
}

static void check_disk_limits(const struct doctor *d, struct finding *f)
{
	struct statfs fs = { 0 };
	bool quota = feature_has(FEATURE_BTRFS_SQUOTA);
	bool loop = access("/dev/loop-control", R_OK | W_OK) == 0;
	bool mkfs = program_exists("mkfs.btrfs"), disks = loop && program_exists("mkfs.ext4");

	(void)statfs(d->state, &fs);
	if (!d->root) {
		finding_set(f, false,
			"neither bytes nor inodes: a pool file or a disk can be mounted by root only");
		(void)snprintf(f->fix, sizeof(f->fix),
			"run the server as root (systemctl enable --now cayd)");
	} else if (str_eq(fs_name(&fs), "btrfs")) {
		finding_set(f, quota && disks,
			"bytes: the state directory is on btrfs, simple quotas %s; inodes: %s",
			quota ? "work" : "are missing", disks ? "disks" : "not");
	} else {
		finding_set(f, disks,
			"bytes: %s (btrfs simple quotas %s, loop devices %s, mkfs.btrfs %s); inodes: %s",
			quota && loop && mkfs ? "quota"
			: disks               ? "a disk for each sandbox"
					      : "not",
			quota ? "yes" : "no", loop ? "yes" : "no", mkfs ? "yes" : "no",
			disks ? "a disk for each sandbox that asks"
			      : "not (mkfs.ext4, loop devices)");
	}
}

/* Open files that the memory of one sandbox pays for: all that it has by default, and the kernel's struct file of 192 bytes. Nothing else bounds their number. */
#define FILES_OF_ONE ((2UL << 30) / 192)

static const struct {
	const char *name, *path;
	uint64_t each; /* that one idle sandbox takes, ours and its init */
	uint64_t
		one; /* that one which wants all it can get takes, and leaves others without; 0 = it is bounded otherwise */
	uint64_t ample;
} limits[DOCTOR_LIMITS] = {
	{ "kernel.pid_max", "/proc/sys/kernel/pid_max", IDLE_PROCESSES, 0, 4194304 },
	{ "kernel.threads-max", "/proc/sys/kernel/threads-max", IDLE_PROCESSES, 0, 131072 },
	/* as systemd sets it: each file is charged to who opens it */
	{ "fs.file-max", "/proc/sys/fs/file-max", 32, FILES_OF_ONE, INT64_MAX },
	{ "user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", 2, 0, 65536 },
	{ "user.max_mnt_namespaces", "/proc/sys/user/max_mnt_namespaces", 2, 0, 65536 },
	/* our filters of its programs, compiled */
	{ "net.core.bpf_jit_limit", "/proc/sys/net/core/bpf_jit_limit", 32768, 0, 1UL << 30 },
};

void doctor_group_find(struct doctor_group *ret, const char *path)
{
	cleanup_free char *dir = str_dup(path);

	*ret = (struct doctor_group){ .pids = DOCTOR_UNREAD };
	for (char *end; (end = strrchr(dir, '/')) != NULL; *end = '\0') {
		cleanup_free char *file = str_dupf("%s/pids.max", dir);
		uint64_t pids;

		if (file_read_u64_at(AT_FDCWD, file, &pids) < 0 || pids >= ret->pids)
			continue;
		ret->pids = pids;
		(void)snprintf(ret->path, sizeof(ret->path), "%s", dir);
	}
}

/* Whoever made the group is asked: systemd writes its units' limits anew. */
static void raise_group(const struct doctor_group *group, struct buf *fix)
{
	const char *unit = strrchr(group->path, '/') + 1;
	const char *manager = strstr(group->path, "/user@");
	bool users = manager != NULL && manager + 1 < unit; /* a unit of a user's own systemd */
	bool systemd =
		str_ends(unit, ".slice") || str_ends(unit, ".service") || str_ends(unit, ".scope");

	buf_str(fix, fix->n > 0 ? "; " : "");
	if (systemd)
		buf_fmt(fix, "systemctl %sset-property %s TasksMax=infinity",
			users ? "--user " : "", unit);
	else
		buf_fmt(fix, "echo max > %s/pids.max", group->path);
}

void doctor_limits(
	const uint64_t values[DOCTOR_LIMITS], const struct doctor_group *group, struct finding *f)
{
	cleanup_buf struct buf found = BUF_INIT(sizeof(f->found)), fix = BUF_INIT(sizeof(f->fix));
	uint64_t least = UINT64_MAX;
	bool taken = false;

	for (size_t i = 0; i < DOCTOR_LIMITS; i++) {
		uint64_t room = values[i] / limits[i].each;

		if (values[i] == DOCTOR_UNREAD)
			continue;
		least = room < least ? room : least;
		buf_fmt(&found, "%s%s = %lu", found.n > 0 ? ", " : "", limits[i].name, values[i]);
		if (values[i] < limits[i].one)
			buf_fmt(&found, " (one sandbox can take %lu)", limits[i].one);
		taken |= values[i] < limits[i].one;
		if (room < PLANNED_SANDBOXES || values[i] < limits[i].one)
			buf_fmt(&fix, "%s %s=%lu", fix.n > 0 ? "" : "sysctl -w", limits[i].name,
				limits[i].ample);
	}
	if (group->pids != DOCTOR_UNREAD) {
		uint64_t room = group->pids / IDLE_PROCESSES;

		least = room < least ? room : least;
		buf_fmt(&found, "%spids.max of %s = %lu", found.n > 0 ? ", " : "", group->path,
			group->pids);
		if (room < PLANNED_SANDBOXES)
			raise_group(group, &fix);
	}
	finding_set(f, least >= PLANNED_SANDBOXES && !taken, "%s: room for %lu sandboxes",
		buf_cstr(&found), least);
	(void)snprintf(f->fix, sizeof(f->fix), "%s", buf_cstr(&fix));
}

static void check_host_limits(attr_unused const struct doctor *d, struct finding *f)
{
	uint64_t values[DOCTOR_LIMITS], terminals;
	struct doctor_group group = { .pids = DOCTOR_UNREAD };
	char path[sizeof(group.path)];
	bool is_root;
	size_t n;

	for (size_t i = 0; i < DOCTOR_LIMITS; i++) {
		if (file_read_u64_at(AT_FDCWD, limits[i].path, &values[i]) < 0)
			values[i] = DOCTOR_UNREAD;
	}
	if (probe_cgroup(path, sizeof(path), &is_root) == 0)
		doctor_group_find(&group, path);
	doctor_limits(values, &group, f);
	n = strlen(f->found);
	if (file_read_u64_at(AT_FDCWD, "/proc/sys/kernel/pty/max", &terminals) == 0)
		(void)snprintf(f->found + n, sizeof(f->found) - n,
			"; kernel.pty.max = %lu terminals", terminals);
}

static void check_device_nodes(const struct doctor *d, struct finding *f)
{
	bool own = d->root && prctl(PR_CAPBSET_READ, CAP_MKNOD, 0, 0, 0) == 1;

	finding_set(f, own, "%s",
		own ? "six for each sandbox" : "the host's are bound into each sandbox");
}

static void check_core_pattern(attr_unused const struct doctor *d, struct finding *f)
{
	cleanup_buf struct buf text = BUF_INIT(512);

	if (file_read_at(AT_FDCWD, "/proc/sys/kernel/core_pattern", &text) < 0)
		buf_reset(&text);
	finding_set(f, buf_cstr(&text)[0] != '|' && buf_cstr(&text)[0] != '@', "%.*s",
		(int)strcspn(buf_cstr(&text), "\n"), buf_cstr(&text));
}

static void check_cpu_vulnerabilities(attr_unused const struct doctor *d, struct finding *f)
{
	static const char dir_name[] = "/sys/devices/system/cpu/vulnerabilities";
	cleanup_buf struct buf found = BUF_INIT(sizeof(f->found));
	DIR *dir = opendir(dir_name);
	const struct dirent *e;
	char path[320];

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		cleanup_buf struct buf line = BUF_INIT(4096);

		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", dir_name, e->d_name);
		if (file_read_at(AT_FDCWD, path, &line) < 0 ||
			!str_starts(buf_cstr(&line), "Vulnerable"))
			continue;
		buf_fmt(&found, "%s%s (%.*s)", found.n > 0 ? ", " : "", e->d_name,
			(int)strcspn(line.p, "\n"), line.p);
	}
	finding_set(f, dir != NULL && found.n == 0, "%s",
		dir == NULL    ? "unknown: /sys does not say"
		: found.n == 0 ? "none"
			       : found.p);
	if (dir != NULL)
		(void)closedir(dir);
}

static void check_process_events(attr_unused const struct doctor *d, struct finding *f)
{
	bool served = proc_connector_serves_us();

	finding_set(f, served, "%s", served ? "this is it" : "this is another one");
}

static void check_tainted(attr_unused const struct doctor *d, struct finding *f)
{
	uint64_t bits;

	if (file_read_u64_at(AT_FDCWD, "/proc/sys/kernel/tainted", &bits) < 0)
		finding_set(f, true, "unknown");
	else
		finding_set(f, bits == 0, "kernel.tainted is %lu", bits);
}

static void check_time_source(attr_unused const struct doctor *d, struct finding *f)
{
	static const char *const fast[] = { "tsc", "kvm-clock", "hyperv_clocksource_tsc_page",
		"arch_sys_counter" };
	cleanup_buf struct buf text = BUF_INIT(256);
	bool ok = false;

	if (file_read_at(AT_FDCWD,
		    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
		    &text) < 0 ||
		text.n == 0) {
		finding_set(f, true, "unknown");
		return;
	}
	text.p[strcspn(text.p, "\n")] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(fast); i++)
		ok = ok || str_eq(text.p, fast[i]);
	finding_set(f, ok, "%s", text.p);
}

void doctor_check(enum doctor_check check, const struct doctor *d, struct finding *f)
{
	static void (*const functions[DOCTOR_CHECK_COUNT])(
		const struct doctor *d, struct finding *f) = {
		[DOCTOR_KERNEL] = check_kernel,
		[DOCTOR_CAPABILITIES] = check_capabilities,
		[DOCTOR_CONTAINER] = check_container,
		[DOCTOR_PROCESS_EVENTS] = check_process_events,
		[DOCTOR_PROC_MOUNT] = check_proc_mount,
		[DOCTOR_SUBIDS] = check_subids,
		[DOCTOR_CGROUP_LAYOUT] = check_cgroup_layout,
		[DOCTOR_CGROUP_DELEGATION] = check_cgroup_delegation,
		[DOCTOR_STATE_IDMAP] = check_state_idmap,
		[DOCTOR_STATE_WRITABLE] = check_state_writable,
		[DOCTOR_STATE_SPACE] = check_state_space,
		[DOCTOR_DISK_LIMITS] = check_disk_limits,
		[DOCTOR_HOST_LIMITS] = check_host_limits,
		[DOCTOR_DEVICE_NODES] = check_device_nodes,
		[DOCTOR_CORE_PATTERN] = check_core_pattern,
		[DOCTOR_CPU_VULNERABILITIES] = check_cpu_vulnerabilities,
		[DOCTOR_TAINTED] = check_tainted,
		[DOCTOR_TIME_SOURCE] = check_time_source,
	};

	BUG_ON(check >= DOCTOR_CHECK_COUNT || functions[check] == NULL);
	functions[check](d, f);
}

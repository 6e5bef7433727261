/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/placer.c - see the header.
 *
 * Invariant: nothing of an image is resolved outside the finished root, and in it only with RESOLVE_IN_ROOT and without magic links: paths are those that the
 * payload would see.
 */
#include "sandbox/placer.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sandbox/builder.h"
#include "sandbox/synth.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

static int open_part(int staging, const char *name)
{
	int fd = openat(staging, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int placer_open(struct placer *p, const struct cgroup_limits *shown)
{
	*p = (struct placer){ .parts = -1, .synth = -1, .sys = -1, .shown.limits = *shown };
	p->parts = open_part(AT_FDCWD, BUILDER_STAGING);
	if (p->parts < 0)
		return p->parts;
	p->synth = open_part(p->parts, "synth");
	p->sys = p->synth < 0 ? p->synth : open_part(p->parts, "sys");
	return p->sys < 0 ? p->sys : 0;
}

void placer_close(struct placer *p)
{
	fd_close(&p->parts);
	fd_close(&p->synth);
	fd_close(&p->sys);
}

/* proc, dev and sys go from where they are to the new root. */
static int move_parts(const struct placer *p, int root, struct err *err)
{
	static const char *const parts[] = { "proc", "dev", "sys" };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct stat st;
		int rc;

		if (ablated("fresh_dev") && str_eq(parts[i], "dev"))
			continue;
		/* a real directory of the layer that cay puts on top: never a link that an image brought */
		if (fstatat(root, parts[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_raise_sys(err, -errno, "'/%s' of the image", parts[i]);
		if (!S_ISDIR(st.st_mode))
			return err_raise(err, ERR_INVALID, "'/%s' of the image is not a directory",
				parts[i]);
		rc = mount_move_at(p->parts, parts[i], root, parts[i]);
		if (rc < 0)
			return err_raise_sys(err, rc, "put /%s in place", parts[i]);
	}
	return 0;
}

/* Attach the mount of one target, resolved as the payload would see it, and never through a magic link. */
static int attach_target(int root, const char *target, int mount, struct err *err)
{
	cleanup_fd int at =
		raw_openat2(root, target, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	int rc = at;

	if (rc >= 0)
		rc = mount_attach(mount, at);
	return rc < 0 ? err_raise_sys(err, rc, "mount at '%s'", target) : 0;
}

/* The targets of @order from number @first on. */
static int attach_targets(
	int root, const struct placement *order, const int *mounts, uint32_t first, struct err *err)
{
	const char *target = order->targets;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < order->n_targets; i++, target += strlen(target) + 1) {
		if (i >= first)
			rc = attach_target(root, target, mounts[i], err);
	}
	return rc;
}

/* The new root covers the old one; afterwards the old one covers the new and is taken off. */
static int pivot(int root, struct err *err)
{
	if (fchdir(root) < 0)
		return err_raise_sys(err, -errno, "enter the root");
	if (raw_pivot_root(".", ".") < 0)
		return err_raise_sys(err, -errno, "pivot to the root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_raise_sys(err, -errno, "leave the old root");
	return 0;
}

int placer_root(struct placer *p, const struct placement *order, const int *mounts, struct err *err)
{
	cleanup_fd int root = -1;
	int rc = mount_attach_at(mounts[0], AT_FDCWD, "/");

	if (rc < 0)
		return err_raise_sys(err, rc, "attach the root");
	root = open_part(mounts[0], ".");
	if (root < 0)
		return err_raise_sys(err, root, "open the root");
	rc = move_parts(p, root, err);
	if (rc == 0)
		rc = attach_targets(root, order, mounts, 1, err);
	if (rc == 0)
		rc = pivot(root, err);
	if (rc < 0)
		return rc;
	(void)close(p->parts);
	p->parts = TAKE_FD(root);
	return 0;
}

/* Take away the CPUs that the limits do not show. */
static int trim_sys(int sys, const struct cgroup_limits *limits)
{
	const struct cgroup_limits none = { 0 };
	cleanup_fd int cpu = -1;
	int rc;

	if (synth_cpus(limits) == synth_cpus(&none))
		return 0;
	cpu = raw_openat2(sys, "devices/system/cpu", O_PATH | O_DIRECTORY, 0, 0);
	rc = cpu < 0 ? cpu : synth_cpu_lists(cpu, limits);
	for (unsigned int i = synth_cpus(limits); rc == 0 && i < synth_cpus(&none); i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "cpu%u", i);
		rc = unlinkat(cpu, name, AT_REMOVEDIR) < 0 ? -errno : 0;
	}
	return rc;
}

static int finish_sys(const struct placer *p, const struct cgroup_limits *limits, struct err *err)
{
	int rc;

	if (ablated("no_sysfs"))
		return 0;
	rc = trim_sys(p->sys, limits);
	if (rc == 0)
		rc = mount_set(p->sys, MOUNT_ATTR_RDONLY, false);
	return rc < 0 ? err_raise_sys(err, rc, "make /sys read-only") : 0;
}

static int ignore_setuid(const struct placer *p, struct err *err)
{
	int rc = ablated("nosuid_strict") ? 0 : mount_set(p->parts, MOUNT_ATTR_NOSUID, true);

	return rc < 0 ? err_raise_sys(err, rc, "ignore set-uid bits of the root") : 0;
}

/*
 * Nothing of /proc is for a payload to write: its own out-of-memory score, with which it would outlive the host's processes, its memory past all
 * protection, its id maps. Only now, because the builder wrote the namespace limits there.
 */
static int close_proc(const struct placer *p, struct err *err)
{
	cleanup_fd int proc = open_part(p->parts, "proc");
	int rc = proc;

	if (rc >= 0 && !ablated("proc_readonly"))
		rc = mount_set(proc, MOUNT_ATTR_RDONLY, false);
	return rc < 0 ? err_raise_sys(err, rc, "make /proc read-only") : 0;
}

/* What was done ahead of time is not what is wanted: it is done again. */
static int reopen(struct placer *p, struct err *err)
{
	cleanup_fd int proc = open_part(p->parts, "proc");
	int rc = proc < 0 ? proc : mount_clear(proc, MOUNT_ATTR_RDONLY);

	if (rc == 0)
		rc = mount_clear(p->sys, MOUNT_ATTR_RDONLY);
	p->ahead = false;
	return rc < 0 ? err_raise_sys(err, rc, "make /proc and /sys writable") : 0;
}

static int finish(struct placer *p, const struct finish *f, struct err *err)
{
	int rc = finish_sys(p, &f->view.limits, err);

	if (rc < 0)
		return rc;
	synth_update(p->synth, &p->shown, &f->view);
	p->shown = f->view;
	if (!ablated("utsns") && sethostname(f->hostname, strlen(f->hostname)) < 0)
		return err_raise_sys(err, -errno, "set the host name");
	if (f->strict != 0)
		rc = ignore_setuid(p, err);
	if (rc == 0 && f->debug == 0)
		rc = close_proc(p, err);
	return rc;
}

int placer_ahead(struct placer *p, const struct placement *order, struct err *err)
{
	int rc = finish(p, &order->finish, err);

	if (rc < 0)
		return rc;
	p->done = order->finish;
	p->ahead = true;
	return 0;
}

int placer_finish(
	struct placer *p, const struct placement *order, const int *mounts, struct err *err)
{
	bool done = p->ahead && memcmp(&p->done, &order->finish, sizeof(p->done)) == 0;
	int rc = p->ahead && !done ? reopen(p, err) : 0;

	if (!done && rc == 0)
		rc = finish(p, &order->finish, err);
	if (rc == 0)
		rc = attach_targets(p->parts, order, mounts, 0, err);
	placer_close(p);
	return rc;
}

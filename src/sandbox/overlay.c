/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/overlay.h"
#include "base/ablate.h"
#include "base/buf.h"
#include "base/str.h"
#include "sys/cred.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"
#include "sys/urgency.h"

#include <dirent.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define TRIES 7 /* to get the right numbers */

void overlay_fini(struct overlay *o)
{
	for (size_t i = 0; i < o->n; i++)
		free(o->lower[i]);
	free(o->lower);
}

void overlay_add_lower(struct overlay *o, const char *path)
{
	char **grown = realloc(o->lower, (o->n + 1) * sizeof(*grown));

	if (grown == NULL)
		abort();
	o->lower = grown;
	o->lower[o->n++] = str_dup(path);
}

static int option(int fs, const char *key, const char *value)
{
	return raw_result(fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0));
}

static int configure_layers(int fs, const struct overlay *o)
{
	for (size_t i = 0; i < o->n; i++) {
		int rc = option(fs, "lowerdir+", o->lower[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int configure_upper(int fs, const struct overlay *o)
{
	int rc = option(fs, "upperdir", o->upper);

	if (rc == 0)
		rc = option(fs, "workdir", o->work);
	return rc < 0 ? rc : raw_result(fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0));
}

static int configure(const struct rootfs *r, int fs, const struct overlay *o)
{
	int rc = configure_layers(fs, o);

	if (rc == 0 && o->upper[0] != '\0')
		rc = configure_upper(fs, o);
	if (rc == 0)
		rc = option(fs, "index", "off");
	if (rc == 0)
		rc = option(fs, "metacopy", "off");
	if (rc == 0)
		rc = option(fs, "xino", "off");
	if (rc == 0 && r->rootless)
		return raw_result(fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0));
	/* so that a directory of a lower layer can be renamed; the payload cannot forge trusted.* attributes */
	if (rc == 0)
		rc = option(fs, "redirect_dir", "on");
	return rc;
}

/* In the instant in which it is made. */
static void give_numbers(const struct overlay *o)
{
	if (o->devices != NULL)
		devices_give(o->devices, o->place, o->try);
}

static int create_overlay(const struct rootfs *r, const struct overlay *o, unsigned int attrs)
{
	cleanup_fd int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int rc = fs < 0 ? -errno : configure(r, fs, o);

	if (rc < 0)
		return rc;
	give_numbers(o);
	rc = raw_result(fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
	return rc < 0 ? rc : raw_result(fsmount(fs, FSMOUNT_CLOEXEC, attrs));
}

/* Kernels before 6.5 take overlay options through mount(2) only, in one page of text: make the mount in the staging directory, then take it off. */
static int create_overlay_old(const struct rootfs *r, const struct overlay *o, unsigned int attrs)
{
	cleanup_buf struct buf text = BUF_INIT(4000);
	cleanup_fd int mount_fd = -1;
	int rc;

	for (size_t i = 0; i < o->n; i++)
		buf_fmt(&text, "%s%s", i == 0 ? "lowerdir=" : ":", o->lower[i]);
	if (o->upper[0] != '\0')
		buf_fmt(&text, ",upperdir=%s,workdir=%s,volatile", o->upper, o->work);
	buf_fmt(&text, ",index=off,metacopy=off,xino=off,%s",
		r->rootless ? "userxattr" : "redirect_dir=on");
	if (buf_failed(&text))
		return -E2BIG;
	if (mkdirat(r->stage, "old", 0755) < 0 && errno != EEXIST)
		return -errno;
	give_numbers(o);
	if (mount("overlay", ROOTFS_STAGE "/old", "overlay", 0, buf_cstr(&text)) < 0)
		return -errno;
	mount_fd = mount_clone(AT_FDCWD, ROOTFS_STAGE "/old", false);
	rc = umount2(ROOTFS_STAGE "/old", MNT_DETACH) < 0 ? -errno : mount_fd;
	if (rc >= 0)
		rc = mount_set(mount_fd, attrs, false);
	return rc < 0 ? rc : TAKE_FD(mount_fd);
}

/*
 * A volatile overlay marks its work directory so that it is not mounted again unknowingly, for a crash of the machine may have lost what programs
 * had synced. Here that is known: what survives a crash is said in the header.
 */
static int remove_volatile_mark(const struct overlay *o)
{
	static const struct {
		const char *path;
		int flags;
	} mark[] = { { "work/incompat/volatile/dirty", 0 },
		{ "work/incompat/volatile", AT_REMOVEDIR }, { "work/incompat", AT_REMOVEDIR } };
	cleanup_fd int work = -1;

	if (o->work[0] == '\0')
		return 0;
	work = open(o->work, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (work < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(mark); i++) {
		if (unlinkat(work, mark[i].path, mark[i].flags) < 0 && errno != ENOENT)
			return -errno;
	}
	return 0;
}

static int mount_anew(const struct rootfs *r, const struct overlay *o, unsigned int attrs)
{
	int rc = remove_volatile_mark(o);

	if (rc < 0)
		return rc;
	return feature_has(FEATURE_OVERLAY_APPEND) ? create_overlay(r, o, attrs)
						   : create_overlay_old(r, o, attrs);
}

/* No capability but the one that mounts; root of the host, which the map of ids shows as nobody's owner. */
static int mount_as_stranger(const struct rootfs *r, const struct overlay *o, unsigned int attrs)
{
	uint64_t caps;
	int rc = cred_set_effective(CAP_BIT(CAP_SYS_ADMIN), &caps), mount, back;

	if (rc < 0)
		return rc;
	mount = mount_anew(r, o, attrs);
	back = cred_set_effective(caps, NULL);
	if (back < 0 && mount >= 0)
		(void)close(mount);
	return back < 0 ? back : mount;
}

/* Over idmapped layers the mounter's file-system ids must be mapped, else the overlay comes up read-only without a word. */
static int mount_as_owner(const struct rootfs *r, const struct overlay *o, unsigned int attrs)
{
	int rc = r->rootless ? 0 : cred_set_fsids(r->base, r->base), mount, back;

	if (rc < 0)
		return rc;
	mount = mount_anew(r, o, attrs);
	back = r->rootless ? 0 : cred_set_fsids(0, 0);
	if (back < 0 && mount >= 0)
		(void)close(mount);
	return back < 0 ? back : mount;
}

static int mount_numbered(const struct rootfs *r, struct overlay *o, unsigned int attrs)
{
	int mount;

	/* who waits for a processor meanwhile finds the numbers gone */
	urgency_set(true);
	for (o->try = 0;; o->try++) {
		mount = mount_as_owner(r, o, attrs);
		if (mount < 0 || devices_right(o->devices, o->place, mount) || o->try == TRIES)
			break;
		(void)close(mount);
	}
	urgency_set(false);
	return mount;
}

int overlay_mount(const struct rootfs *r, struct overlay *o, unsigned int attrs)
{
	if (o->stranger && !ablated("host_as_stranger"))
		return mount_as_stranger(r, o, attrs);
	if (o->devices != NULL && devices_kept(o->devices, o->place))
		return mount_numbered(r, o, attrs);
	return mount_as_owner(r, o, attrs);
}

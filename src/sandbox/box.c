/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/box.c - see the header.
 *
 * Order of box_prepare(): groups; private mount namespace; live directory; starter (joins v1 groups); builder with its namespaces; id maps; the builder's
 * stage 1. Order of box_start(): limits; mount points; overlays; the builder's stage 2; init; the starter joins.
 * Failure: the keeper exits, cay-spawn kills what is left in the groups and removes them; nothing else outlives the processes except the live
 * directory, which belongs to cayd.
 */
#include "sandbox/box.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/live.h"
#include "sys/btrfs.h"
#include "sys/cred.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <dirent.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

/* Host ids of sandboxes: 16384 slots of 65536 from 2^30 on. */
#define SLOT_FIRST_ID 0x40000000U
#define SLOT_COUNT    16384U
#define IDS_PER_BOX   65536U

static int prepare_groups(struct box *box, struct err *err)
{
	int rc = cgroup_prepare(&box->cgroup, box->config->tag, box->id, !box->config->rootless);

	if (rc < 0)
		return err_raise_sys(err, rc, "make the control groups of '%s'", box->id);
	if (box->cgroup.box[0] == '\0' && !box->config->no_limits_ok)
		return err_hint(err,
			err_raise(err, ERR_HOST,
				"no control group can be made here: limits, freezing and killing would not hold"),
			"see cay doctor for how to delegate a cgroup; a server started with CAY_ACCEPT_NO_LIMITS=1 runs without");
	return 0;
}

static void live_path(const struct box *box, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%s/pool/live/%s", box->config->state, box->id);
}

/* The live directory may exist already: then this is another start of a stopped sandbox. */
static int make_live(struct box *box, struct err *err)
{
	char path[PATH_MAX];
	cleanup_fd int pool = -1;

	(void)snprintf(path, sizeof(path), "%s/pool", box->config->state);
	pool = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pool < 0)
		return err_raise_sys(err, -errno, "open '%s'", path);
	box->live = store_live_create(pool, box->id, 1, 0);
	return box->live < 0
		       ? err_raise_sys(err, box->live, "make the live directory of '%s'", box->id)
		       : 0;
}

static int start_starter(struct box *box, struct err *err)
{
	int rc = starter_new(&box->starter, &box->cgroup);

	return rc < 0 ? err_raise_sys(err, rc, "start the starter in its control groups") : 0;
}

/* What the builder answers: an error, or nothing and perhaps descriptors, at most @max. Return: how many. */
static int builder_answer(struct box *box, int *fds, size_t max, struct err *err)
{
	struct err answer;
	size_t n_fds = 0;
	ssize_t n = fdpass_recv(box->builder_sock, &answer, sizeof(answer), fds, max, &n_fds);

	if (n != sizeof(answer))
		return err_raise(err, ERR_INTERNAL, "the builder ended without a word (%zd)", n);
	if (answer.code != ERR_NONE) {
		*err = answer;
		return -EIO;
	}
	return (int)n_fds;
}

static int start_builder(struct box *box, struct err *err)
{
	const struct box_config *c = box->config;
	cleanup_fd int leaf = -1, init = openat(c->program_dir, "cay-init", O_RDONLY | O_CLOEXEC);
	struct builder_options options = {
		.init_fd = init, .single_id = c->single_id, .new_userns = !c->rootless
	};
	int pair[2], pid;

	if (init < 0)
		return err_raise_sys(err, -errno, "open the program cay-init");
	if (box->cgroup.box[0] != '\0') {
		leaf = cgroup_leaf_new(&box->cgroup, "init");
		if (leaf < 0)
			return err_raise_sys(err, leaf, "make init's control group");
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_raise_sys(err, -errno, "make a socket pair");
	box->builder_sock = pair[0];
	options.sock = pair[1];
	pid = starter_clone_builder(&box->starter, &options, leaf);
	(void)close(pair[1]);
	if (pid < 0)
		return err_raise_sys(err, pid, "clone the builder into new namespaces");
	box->init_pid = pid;
	box->init_pidfd = raw_pidfd_open(pid);
	return box->init_pidfd < 0 ? err_raise_sys(err, box->init_pidfd, "open the builder's pidfd")
				   : 0;
}

/* Root mode: give U1 its ids. */
static int map_ids(struct box *box, struct err *err)
{
	cleanup_fd int proc = -1;
	char path[64];
	int rc;

	if (box->config->rootless)
		return 0;
	proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0)
		return err_raise_sys(err, -errno, "open /proc");
	rc = cred_map_user_ns(proc, box->init_pid, 0, box->rootfs.base, IDS_PER_BOX);
	if (rc < 0)
		return err_raise_sys(err, rc, "map the ids of the set-up namespace");
	(void)snprintf(path, sizeof(path), "%d/ns/user", box->init_pid);
	box->rootfs.userns = openat(proc, path, O_RDONLY | O_CLOEXEC);
	return box->rootfs.userns < 0 ? err_raise_sys(err, -errno, "open the set-up namespace") : 0;
}

static int builder_go(struct box *box, struct err *err)
{
	int rc = fdpass_send(box->builder_sock, "", 1, NULL, 0);

	return rc < 0 ? err_raise_sys(err, rc, "release the builder") : 0;
}

static int prepare_builder(struct box *box, struct err *err)
{
	int fds[BUILDER_FDS + NETWORK_FDS], rc = start_builder(box, err);

	if (rc == 0)
		rc = map_ids(box, err);
	if (rc == 0)
		rc = builder_go(box, err);
	if (rc == 0)
		rc = builder_answer(box, fds, ARRAY_SIZE(fds), err);
	if (rc < 0)
		return rc;
	BUG_ON(rc != BUILDER_FDS && rc != BUILDER_FDS + NETWORK_FDS);
	box->u2 = fds[0];
	box->pts = fds[1];
	if (rc > BUILDER_FDS)
		network_from_fds(&box->network, fds + BUILDER_FDS);
	return 0;
}

static int prepare_root(
	struct box *box, const char *image, const struct spec_layers *lower, struct err *err)
{
	char live[PATH_MAX];

	live_path(box, live);
	box->root = rootfs_root(&box->rootfs, image, lower, live, err);
	if (box->root < 0)
		return box->root;
	box->root_image = str_dup(image);
	box->root_lower.dirs = xalloc((lower->n + 1) * sizeof(char *));
	for (size_t i = 0; i < lower->n; i++)
		box->root_lower.dirs[box->root_lower.n++] = str_dup(lower->dirs[i]);
	return 0;
}

int box_prepare(struct box *box, const struct box_config *config, const char *id, uint32_t slot,
	const char *image, const struct spec_layers *lower, struct err *err)
{
	char live[PATH_MAX];
	int rc;

	*box = (struct box){ .config = config,
		.live = -1,
		.root = -1,
		.builder_sock = -1,
		.init_pidfd = -1,
		.u2 = -1,
		.pts = -1,
		.network = NETWORK_NONE };
	box->rootfs.stage = box->rootfs.userns = -1;
	box->starter.sock = -1;
	if (str_copy(box->id, sizeof(box->id), id) < 0 || !id_valid(id))
		return err_raise(err, ERR_INVALID, "sandbox id '%s' is malformed", id);
	if (slot >= SLOT_COUNT)
		return err_raise(err, ERR_INVALID, "id slot %u is out of range", slot);
	rc = prepare_groups(box, err);
	if (rc == 0)
		rc = make_live(box, err);
	if (rc == 0) {
		live_path(box, live);
		rc = rootfs_points_base(live, err);
	}
	if (rc == 0)
		rc = rootfs_init(&box->rootfs, config->state, config->rootless, err);
	box->rootfs.base = ablated("uid_shift") ? 0 : SLOT_FIRST_ID + slot * IDS_PER_BOX;
	if (rc == 0)
		rc = start_starter(box, err);
	if (rc == 0)
		rc = prepare_builder(box, err);
	if (rc == 0 && image != NULL)
		rc = prepare_root(box, image, lower, err);
	if (rc < 0)
		err_context(err, "prepare sandbox '%s'", id);
	return rc;
}

static int set_limits(const struct box *box, const struct spec *spec, struct err *err)
{
	struct cgroup_limits limits = spec->limits;
	int rc;

	if (ablated("memory_limit"))
		limits.memory_bytes = 0;
	if (ablated("pids_limit"))
		limits.pids = 0;
	rc = cgroup_set_limits(&box->cgroup, &limits);
	if (rc == -EOPNOTSUPP && box->config->no_limits_ok)
		return 0;
	if (rc == -EOPNOTSUPP)
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"a limit was asked for that this machine cannot enforce"),
			"see cay doctor; a server started with CAY_ACCEPT_NO_LIMITS=1 runs without limits");
	return rc < 0 ? err_raise_sys(err, rc, "set the limits") : 0;
}

/* Everything that the builder attaches, in order: the root, parts of it, the mounts of the specification. */
struct order {
	struct builder_attach *message;
	size_t text; /* bytes used of message->targets */
	int mounts[1 + ROOTFS_PARTS_MAX + SPEC_MOUNTS_MAX];
	size_t n;
};

static void order_fini(struct order *o)
{
	while (o->n > 0)
		(void)close(o->mounts[--o->n]);
	free(o->message);
}

/* Takes @mount, also on failure. @target NULL: the root itself. */
static int order_add(
	struct order *o, int mount, const char *prefix, const char *target, struct err *err)
{
	size_t room = sizeof(o->message->targets) - o->text;
	int n;

	BUG_ON(o->n >= ARRAY_SIZE(o->mounts));
	o->mounts[o->n++] = mount;
	if (target == NULL)
		return 0;
	n = snprintf(o->message->targets + o->text, room, "%s%s", prefix, target);
	if (n < 0 || (size_t)n >= room)
		return err_raise(err, ERR_TOO_LARGE, "the mount targets are too long together");
	o->text += (size_t)n + 1;
	o->message->n_targets++;
	return 0;
}

static int place_root(struct box *box, const struct order *o, struct err *err)
{
	int rc = fdpass_send(box->builder_sock, o->message,
		offsetof(struct builder_attach, targets) + o->text, o->mounts, o->n);

	if (rc < 0)
		return err_raise_sys(err, rc, "send the mounts to the builder");
	return builder_answer(box, NULL, 0, err);
}

/* One tree for each cow mount; the merged directory has mode and owner of its upper, which must be the source's. */
static int make_trees(const struct box *box, const struct spec *spec, struct err *err)
{
	unsigned int n = 1;
	int rc;

	for (size_t i = 0; i < spec->n_mounts; i++)
		n += spec->mounts[i].mode == MOUNT_COW;
	rc = store_live_trees(box->live, n);
	for (size_t i = 0; rc == 0 && i < spec->n_mounts; i++) {
		const struct spec_mount *m = &spec->mounts[i];
		cleanup_fd int source = -1;

		if (m->mode != MOUNT_COW)
			continue;
		source = open(m->source, O_PATH | O_DIRECTORY | O_CLOEXEC);
		rc = source < 0 ? -errno : store_live_tree(box->live, m->tree, source);
	}
	return rc < 0 ? err_raise_sys(err, rc, "make the trees of '%s'", box->id) : 0;
}

static int set_disk_limit(const struct box *box, const struct spec *spec, struct err *err)
{
	int rc = spec->disk_bytes == 0 || ablated("disk_limit")
			 ? 0
			 : store_live_limit(box->live, spec->disk_bytes);

	if (rc == -EOPNOTSUPP && box->config->no_limits_ok)
		return 0;
	if (rc == -EOPNOTSUPP)
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"a disk limit was asked for that this pool cannot enforce"),
			"a btrfs pool can: see cay storage and cay doctor");
	return rc < 0 ? err_raise_sys(err, rc, "set the disk limit of '%s'", box->id) : 0;
}

/* The root made ahead of time if it is what @spec wants, else a new one. */
static int take_root(struct box *box, const struct spec *spec, const char *live, struct err *err)
{
	if (box->root >= 0 && str_eq(box->root_image, spec->image) &&
		spec_layers_equal(&box->root_lower, &spec->lower))
		return TAKE_FD(box->root);
	return rootfs_root(&box->rootfs, spec->image, &spec->lower, live, err);
}

static int order_root(struct box *box, const struct spec *spec, const char *live, struct order *o,
	struct err *err)
{
	struct rootfs_parts parts = { .n = 0 };
	int rc = take_root(box, spec, live, err);

	if (rc >= 0)
		rc = order_add(o, rc, NULL, NULL, err);
	if (rc == 0)
		rc = rootfs_parts(&box->rootfs, spec, live, &parts, err);
	for (size_t i = 0; rc == 0 && i < parts.n; i++)
		rc = order_add(o, TAKE_FD(parts.mount[i]), "/", parts.name[i], err);
	for (size_t i = 0; rc == 0 && i < o->n; i++) {
		if (spec->profile == PROFILE_STRICT && !ablated("nosuid_strict") &&
			mount_set(o->mounts[i], MOUNT_ATTR_NOSUID, false) < 0)
			rc = err_raise(err, ERR_INTERNAL, "ignore set-uid bits of the root");
	}
	for (size_t i = 0; i < parts.n; i++)
		fd_close(&parts.mount[i]);
	return rc;
}

static int mount_root(struct box *box, const struct spec *spec, struct err *err)
{
	cleanup(order_fini) struct order o = { .message = xnew(struct builder_attach) };
	int mounts[SPEC_MOUNTS_MAX], rc;
	char live[PATH_MAX];

	live_path(box, live);
	o.message->limits = spec->limits;
	if (str_copy(o.message->hostname, sizeof(o.message->hostname), spec->hostname) < 0)
		return err_raise(err, ERR_INVALID, "host name is too long");
	rc = 0;
	if (box->root_image != NULL && str_eq(box->root_image, "host") &&
		!str_eq(spec->image, "host"))
		rc = rootfs_skeleton_remove(&box->rootfs, live, err);
	if (rc == 0)
		rc = rootfs_points(&box->rootfs, spec, live, err);
	if (rc == 0)
		rc = make_trees(box, spec, err);
	if (rc == 0)
		rc = order_root(box, spec, live, &o, err);
	if (rc == 0)
		rc = rootfs_mounts(&box->rootfs, spec, live, mounts, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < spec->n_mounts; i++) {
		int added = order_add(&o, mounts[i], "", spec->mounts[i].target, err);

		rc = rc == 0 ? added : rc;
	}
	return rc < 0 ? rc : place_root(box, &o, err);
}

int box_start(struct box *box, struct spec *spec, struct err *err)
{
	int rc = set_limits(box, spec, err);

	if (rc == 0)
		rc = set_disk_limit(box, spec, err);
	if (rc == 0)
		rc = mount_root(box, spec, err);
	if (rc == 0)
		rc = fault("keeper.start.mounted") < 0
			     ? err_raise(err, ERR_INTERNAL, "told to fail here")
			     : 0;
	if (rc == 0) {
		rc = starter_join(&box->starter, box->init_pidfd, box->u2);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "join the sandbox's namespaces");
	}
	if (rc == 0)
		rc = builder_go(box, err);
	/* the builder's end of the pair closes when cay-init is executed; an answer would be an error */
	if (rc == 0) {
		struct err answer;
		size_t none;

		if (fdpass_recv(box->builder_sock, &answer, sizeof(answer), NULL, 0, &none) ==
			sizeof(answer)) {
			*err = answer;
			rc = -EIO;
		}
	}
	if (rc < 0) {
		err_context(err, "start sandbox '%s'", box->id);
		return rc;
	}
	fd_close(&box->builder_sock);
	fd_close(&box->rootfs.userns);
	box->spec = *spec;
	*spec = (struct spec){ 0 };
	return 0;
}

void box_kill(const struct box *box)
{
	(void)!cgroup_kill(&box->cgroup, NULL);
	/* the death of PID 1 takes its pid namespace along, cgroup or not; frozen tasks die too */
	if (box->init_pidfd >= 0)
		(void)raw_pidfd_kill(box->init_pidfd, SIGKILL);
}

int box_wait_empty(const struct box *box, int timeout_ms)
{
	int rc = cgroup_wait_empty(&box->cgroup, timeout_ms);

	return rc == -ENOENT ? 0 : rc; /* no cgroup: the end of PID 1 was the end of all */
}

bool box_disk_full(const struct box *box)
{
	static const char zeroes[32768];
	cleanup_fd int probe = openat(box->live, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int rc = probe < 0 ? -errno : file_write_all(probe, zeroes, sizeof(zeroes));

	return rc == -EDQUOT || rc == -ENOSPC;
}

uint64_t box_disk_bytes(const struct box *box)
{
	uint64_t bytes;

	return btrfs_is(box->live) && btrfs_subvolume_usage(box->live, &bytes) == 0 ? bytes
										    : UINT64_MAX;
}

int box_charge(struct box *box, uint64_t bytes)
{
	uint64_t limit = box->spec.disk_bytes, used = box_disk_bytes(box);
	int rc;

	if (limit == 0)
		return 0;
	if (used == UINT64_MAX)
		used = 0;
	if (used + box->charged + bytes >= limit)
		return -EDQUOT;
	rc = store_live_limit(box->live, limit - box->charged - bytes);
	if (rc == 0)
		box->charged += bytes;
	return rc;
}

int box_terminal(const struct box *box, int *ret_slave)
{
	cleanup_fd int master = -1;
	int unlock = 0, slave, rc;

	/* the inode of the new terminal belongs to whoever opens the multiplexer */
	if (!box->config->rootless) {
		rc = cred_set_fsids(box->rootfs.base, box->rootfs.base);
		if (rc < 0)
			return rc;
	}
	master = openat(box->pts, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	rc = master < 0 ? -errno : 0;
	if (!box->config->rootless && cred_set_fsids(0, 0) < 0)
		return -EPERM;
	if (rc < 0)
		return rc;
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	*ret_slave = slave;
	return TAKE_FD(master);
}

/* Attributes that overlayfs itself keeps on the top of an upper tree do not count. */
static bool has_own_xattr(int dir)
{
	char names[4096];
	ssize_t n = flistxattr(dir, names, sizeof(names));

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		if (!str_starts(p, "trusted.overlay.") && !str_starts(p, "user.overlay."))
			return true;
	}
	return n < 0 && errno != EOPNOTSUPP;
}

static bool has_entry(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *e = NULL;

	if (dir == NULL) {
		if (copy >= 0)
			(void)close(copy);
		return true;
	}
	errno = 0;
	do
		e = readdir(dir);
	while (e != NULL && (str_eq(e->d_name, ".") || str_eq(e->d_name, "..")));
	(void)closedir(dir);
	return e != NULL || errno != 0;
}

static bool tree_changed(const struct box *box, const struct spec_mount *m)
{
	cleanup_fd int upper = -1;
	struct stat now, source;
	char path[32];

	(void)snprintf(path, sizeof(path), "%u/upper", m->tree);
	upper = raw_openat2(
		box->live, path, O_RDONLY | O_DIRECTORY, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (upper < 0 || fstat(upper, &now) < 0 || stat(m->source, &source) < 0)
		return true;
	return now.st_mode != source.st_mode || now.st_uid != source.st_uid ||
	       now.st_gid != source.st_gid || has_own_xattr(upper) || has_entry(upper);
}

bool box_changed(const struct box *box)
{
	for (size_t i = 0; i < box->spec.n_mounts; i++) {
		const struct spec_mount *m = &box->spec.mounts[i];

		if (m->mode == MOUNT_COW && tree_changed(box, m))
			return true;
	}
	return false;
}

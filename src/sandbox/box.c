/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/box.c - see the header.
 *
 * Order of box_prepare(): groups; private mount namespace; live directory; starter (joins v1 groups); builder with its namespaces; id maps; the builder's
 * parts; the starter joins and clones the placer; expected limits and root, with the foreseen mount; init, and what the placer does last (root mode). Order of box_start(): limits; another root if it must be; mount
 * points; overlays; the placer puts them in place, unless there are none and all else is as expected; init (rootless: its namespace is also the keeper's, which may mount nothing once further namespaces are forbidden).
 * Failure: the keeper exits, cay-spawn kills what is left in the groups and removes them; nothing else outlives the processes except the live
 * directory, which belongs to cayd.
 */
#include "sandbox/box.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "sandbox/filters.h"
#include "sandbox/numbers.h"
#include "store/disk.h"
#include "store/live.h"
#include "store/source.h"
#include "sys/btrfs.h"
#include "sys/cred.h"
#include "sys/fdpass.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"
#include "sys/timens.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FORGET_TRIES 200 /* a millisecond each */

/* Host ids of sandboxes: 16384 slots of 65536 from 2^30 on. */
#define SLOT_FIRST_ID    0x40000000U
#define SLOT_COUNT       16384U
#define IDS_PER_BOX      65536U
#define GATEWAY_FIRST_ID (SLOT_FIRST_ID + SLOT_COUNT * IDS_PER_BOX)

#define TREES_AHEAD 2U /* the root's, and that of one cow mount, which nearly every run has */

static int prepare_groups(struct box *box, struct err *err)
{
	int rc = cgroup_prepare(&box->cgroup, box->config->tag, box->id, !box->config->rootless);

	if (rc < 0)
		return err_raise_sys(err, rc, "make the control groups of '%s'", box->id);
	if (box->cgroup.box[0] == '\0' && !box->config->no_limits_ok)
		return err_hint(err,
			err_raise(err, ERR_HOST,
				"no control group can be made here: limits, freezing and killing would not hold"),
			"see cay doctor for how to delegate a cgroup; a server started with CAY_ACCEPT_NO_LIMITS=1 runs without (cay shutdown ends the one that runs now)");
	return 0;
}

static void live_path(const struct box *box, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%s/pool/live/%s", box->config->state, box->id);
}

/* The live directory may exist already: then this is another start of a stopped sandbox. */
static int make_live(struct box *box, const struct box_ahead *ahead, struct err *err)
{
	char path[PATH_MAX];
	cleanup_fd int pool = -1;

	(void)snprintf(path, sizeof(path), "%s/pool", box->config->state);
	pool = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (pool < 0)
		return err_raise_sys(err, -errno, "open '%s'", path);
	box->trees = ahead->point != NULL ? 1 : TREES_AHEAD;
	box->live = store_live_create(pool, box->id, box->trees, 0);
	return box->live < 0
		       ? err_raise_sys(err, box->live, "make the live directory of '%s'", box->id)
		       : 0;
}

static int start_starter(struct box *box, struct err *err)
{
	int rc = starter_new(&box->starter, &box->cgroup);

	if (rc == -EDQUOT)
		return err_hint(err,
			err_raise(err, ERR_LIMIT,
				"this user has all the kernel keys that it may have (kernel.keys.maxkeys), and every sandbox takes one"),
			"stop sandboxes that are not needed, or as root: sysctl -w kernel.keys.maxkeys=65536");
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

static int start_builder(struct box *box, const struct spec *expect, struct err *err)
{
	const struct box_config *c = box->config;
	cleanup_fd int leaf = -1, init = box_program(c, "cay-init");
	struct builder_options options = {
		.init_fd = init,
		.single_id = c->single_id,
		.new_userns = !c->rootless,
		.owner = c->rootless ? 0 : box->rootfs.base,
		.group_level = box->cgroup.level,
	};
	int pair[2], pid;

	if (expect != NULL)
		options.limits = expect->limits;
	if (init < 0)
		return err_raise_sys(err, init, "open the program cay-init");
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
	return 0;
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

static int prepare_builder(struct box *box, const struct spec *expect, struct err *err)
{
	int fds[1 + NETWORK_FDS], rc = start_builder(box, expect, err);

	if (rc == 0)
		rc = map_ids(box, err);
	if (rc == 0)
		rc = builder_go(box, err);
	if (rc == 0)
		rc = builder_answer(box, fds, ARRAY_SIZE(fds), err);
	if (rc < 0)
		return rc;
	BUG_ON(rc != 1 && rc != 1 + NETWORK_FDS);
	box->u2 = fds[0];
	if (rc > 1)
		network_from_fds(&box->network, fds + 1);
	return 0;
}

/* A defence that is off leaves its limit out. */
struct cgroup_limits box_group_limits(const struct spec *spec)
{
	struct cgroup_limits limits = spec->limits;

	if (ablated("memory_limit"))
		limits.memory_bytes = 0;
	if (ablated("pids_limit"))
		limits.pids = 0;
	return limits;
}

static int set_limits(struct box *box, const struct spec *spec, struct err *err)
{
	struct cgroup_limits was = box_group_limits(&box->done), now = box_group_limits(spec);
	int rc = cgroup_set_limits(&box->cgroup, &was, &now);

	if (rc == -EOPNOTSUPP && box->config->no_limits_ok)
		rc = 0;
	if (rc == 0)
		box->done.limits = spec->limits;
	if (rc == -EOPNOTSUPP)
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"a limit was asked for that this machine cannot enforce"),
			"see cay doctor; a server started with CAY_ACCEPT_NO_LIMITS=1 runs without limits (cay shutdown ends the one that runs now)");
	return rc < 0 ? err_raise_sys(err, rc, "set the limits") : 0;
}

static int set_disk_limit(struct box *box, const struct spec *spec, struct err *err)
{
	int rc = spec->disk_bytes == box->done.disk_bytes || ablated("disk_limit")
			 ? 0
			 : store_live_limit(box->live, spec->disk_bytes);

	if (rc == -EOPNOTSUPP && box->config->no_limits_ok)
		rc = 0;
	if (rc == 0)
		box->done.disk_bytes = spec->disk_bytes;
	if (rc == -EOPNOTSUPP)
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"a disk limit was asked for that this pool cannot enforce"),
			"a btrfs pool can: see cay storage and cay doctor");
	return rc < 0 ? err_raise_sys(err, rc, "set the disk limit of '%s'", box->id) : 0;
}

/* One at a time. Most of it is room for texts, which is not touched where there are none. */
static struct placement *placement_empty(void)
{
	static struct placement placement;

	memset(&placement, 0, offsetof(struct placement, targets));
	return &placement;
}

/* Mounts for the placer, in order. */
struct order {
	struct placement *message;
	size_t text; /* bytes used of message->targets */
	int mounts[FDPASS_MAX];
	size_t n;
};

/* Root, parts and what is foreseen go in one message, the mounts of the specification in another. */
_Static_assert(ROOTFS_PARTS_MAX + 2 <= FDPASS_MAX && SPEC_MOUNTS_MAX <= FDPASS_MAX, "room for all");

static void order_fini(struct order *o)
{
	while (o->n > 0)
		(void)close(o->mounts[--o->n]);
}

/* Takes @mount, also on failure. */
static int order_add(
	struct order *o, int mount, const char *prefix, const char *target, struct err *err)
{
	size_t room = sizeof(o->message->targets) - o->text;
	int n;

	BUG_ON(o->n >= ARRAY_SIZE(o->mounts));
	o->mounts[o->n++] = mount;
	n = snprintf(o->message->targets + o->text, room, "%s%s", prefix, target);
	if (n < 0 || (size_t)n >= room)
		return err_raise(err, ERR_TOO_LARGE, "the mount targets are too long together");
	o->text += (size_t)n + 1;
	o->message->n_targets++;
	return 0;
}

/* A root of the host image, made ahead of time without root, leaves things that another image must not see. */
static int clear_root(struct box *box, const char *image, const char *live, struct err *err)
{
	if (box->done.image == NULL || !str_eq(box->done.image, "host") || str_eq(image, "host"))
		return 0;
	return rootfs_skeleton_remove(&box->rootfs, live, err);
}

static bool has_root(const struct box *box, const struct spec *spec)
{
	return box->done.image != NULL && !box->foresight.wrong &&
	       str_eq(box->done.image, spec->image) &&
	       spec_layers_equal(&box->done.lower, &spec->lower);
}

/* There is none any more: what was foreseen on it, and what @image must not see of it, goes. */
static int leave_root(struct box *box, const char *image, const char *live, struct err *err)
{
	int rc = clear_root(box, image, live, err);

	if (rc == 0 && foresight_any(&box->foresight))
		rc = foresight_undo(&box->foresight, live, err);
	free(box->done.image);
	box->done.image = NULL;
	return rc;
}

/* The layers of the snapshot that was foreseen have been removed meanwhile: whoever takes this sandbox wants something else. */
static int give_up_root(
	struct box *box, const struct spec *expect, const char *live, struct err *err)
{
	int rc =
		str_eq(expect->image, "host") ? rootfs_skeleton_remove(&box->rootfs, live, err) : 0;

	return rc == 0 ? leave_root(box, expect->image, live, err) : rc;
}

/*
 * The merged directory has mode and owner of its upper. What a new one is to show is that of the layer below it, or of @source (NULL: it stays as it
 * was made). Of a layer that is missing the mount tells.
 */
static int set_top(const struct box *box, unsigned int tree, const struct spec_layers *lower,
	const char *source)
{
	cleanup_fd int dir = -1;

	if ((lower->n == 0 && source == NULL) || !store_live_is_new(box->live, tree))
		return 0;
	if (lower->n == 0)
		dir = source_find(source);
	else
		dir = open(lower->dirs[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return lower->n > 0 ? 0 : dir;
	return store_live_tree(box->live, tree, dir);
}

/* Make the root that @spec wants. @ahead: with what is foreseen; NULL: nothing. */
static int make_root(struct box *box, const struct spec *spec, const struct box_ahead *ahead,
	const char *live, struct err *err)
{
	cleanup(order_fini) struct order o = { .message = placement_empty() };
	struct rootfs_parts parts = { .n = 0 };
	cleanup_fd int foreseen = -1;
	int rc = leave_root(box, spec->image, live, err);

	if (rc == 0 && set_top(box, 0, &spec->lower, NULL) < 0)
		rc = err_raise(err, ERR_INTERNAL, "make the tree of the root");
	if (rc == 0 && ahead != NULL && ahead->point != NULL && !box->config->rootless)
		rc = foresight_point(&box->foresight, &box->rootfs, spec, ahead->point, live, err);
	if (rc == 0 && ahead != NULL && ahead->foresee)
		rc = foresight_make(
			&box->foresight, &box->rootfs, spec, live, box->live, &foreseen, err);
	if (rc == 0)
		rc = rootfs_root(&box->rootfs, spec->image, &spec->lower, live, err);
	if (rc < 0 && ahead != NULL && ahead->point != NULL)
		return give_up_root(box, spec, live, err);
	if (rc >= 0)
		rc = order_add(&o, rc, "", "/", err);
	if (rc == 0)
		rc = rootfs_parts(&box->rootfs, spec->image, &spec->lower, live, &parts, err);
	for (size_t i = 0; rc == 0 && i < parts.n; i++)
		rc = order_add(&o, TAKE_FD(parts.mount[i]), "/", parts.name[i], err);
	for (size_t i = 0; i < parts.n; i++)
		fd_close(&parts.mount[i]);
	if (rc == 0 && foreseen >= 0)
		rc = order_add(&o, TAKE_FD(foreseen), "", spec->mounts->target, err);
	if (rc == 0)
		rc = starter_place(&box->starter, STARTER_PLACE_ROOT, o.message, o.mounts, err);
	if (rc < 0)
		return rc;
	spec_layers_fini(&box->done.lower);
	box->done.image = str_dup(spec->image);
	box->done.lower = spec_layers_copy(&spec->lower);
	return 0;
}

/* Unless it is there already. */
static int set_root(struct box *box, const struct spec *spec, const struct box_ahead *ahead,
	const char *live, struct err *err)
{
	return has_root(box, spec) ? 0 : make_root(box, spec, ahead, live, err);
}

/* Nothing will be mounted in U1's name any more: init may forbid it and begin. */
static int run_init(struct box *box, struct err *err)
{
	struct err answer;
	size_t none;
	int rc = builder_go(box, err);

	if (rc < 0)
		return rc;
	/* the builder's end of the pair closes when init is in the payload's namespace; an answer would be an error */
	if (fdpass_recv(box->builder_sock, &answer, sizeof(answer), NULL, 0, &none) ==
		sizeof(answer)) {
		*err = answer;
		return -EIO;
	}
	fd_close(&box->builder_sock);
	fd_close(&box->u2);
	return 0;
}

/* The sandbox as it will probably be asked for. A limit that does not work is refused when it is asked for. */
static int prepare_expected(struct box *box, const struct box_ahead *ahead, struct err *err)
{
	const struct spec *expect = ahead->expect;
	char live[PATH_MAX];
	int rc = set_limits(box, expect, err);

	live_path(box, live);
	if (rc == 0)
		rc = set_disk_limit(box, expect, err);
	if (rc < 0 && err->code == ERR_UNSUPPORTED)
		rc = 0;
	if (rc < 0)
		return rc;
	numbers_skip(box->live, expect);
	return set_root(box, expect, ahead, live, err);
}

/* @shown: the limits that the builder was told; NULL: the mounts are in place. @places: the starter is only to place mounts. */
static int join(struct box *box, const struct cgroup_limits *shown, bool places, struct err *err)
{
	cleanup_fd int init = raw_pidfd_open(box->init_pid);
	int rc = init;

	if (rc >= 0 && places)
		rc = starter_become_placer(&box->starter, init, shown);
	else if (rc >= 0)
		rc = starter_join(&box->starter, init, shown);
	return rc < 0 ? err_raise_sys(err, rc, "join the sandbox's namespaces") : 0;
}

static struct launch_place place_of(const struct box *box, const struct spec *spec)
{
	return (struct launch_place){
		.files = spec->files,
		.profile = (uint8_t)spec->profile,
		.single_id = box->config->single_id,
		.tells = filter_tells(),
		.learns = filter_learns(box->config->rootless),
	};
}

static int describe(
	const struct box *box, const struct spec *spec, struct finish *f, struct err *err)
{
	f->view.limits = spec->limits;
	f->view.ahead_ns = (uint64_t)box->clocks.boottime_ns;
	f->strict = spec->profile == PROFILE_STRICT;
	f->debug = spec->profile == PROFILE_DEBUG;
	return str_copy(f->hostname, sizeof(f->hostname), spec->hostname) < 0
		       ? err_raise(err, ERR_INVALID, "host name is too long")
		       : 0;
}

/* What could not be taken back is left for box_start(), and all where init does not run yet. */
static int finish_ahead(struct box *box, const struct spec *expect, struct err *err)
{
	struct placement *message = placement_empty();
	const struct cgroup_limits none = { 0 };
	int rc = describe(box, expect, &message->finish, err);

	if (rc < 0 || box->builder_sock >= 0 || expect->profile == PROFILE_STRICT ||
		synth_cpus(&expect->limits) != synth_cpus(&none))
		return rc;
	rc = starter_place(&box->starter, STARTER_PLACE_AHEAD, message, NULL, err);
	if (rc < 0)
		return rc;
	box->is_finished = true;
	box->finished = message->finish;
	return 0;
}

int box_prepare(struct box *box, const struct box_config *config, const char *id, uint32_t slot,
	const struct box_ahead *ahead, struct err *err)
{
	const struct spec *expect = ahead->expect;
	const struct cgroup_limits none = { 0 };
	char live[PATH_MAX];
	int rc;

	*box = (struct box){ .config = config,
		.live = -1,
		.builder_sock = -1,
		.timens = -1,
		.pids_max = -1,
		.u2 = -1,
		.filters = filter_inherited() + FILTERS_OURS,
		.starter = STARTER_NONE,
		.network = NETWORK_NONE };
	box->rootfs.stage = box->rootfs.userns = -1;
	if (str_copy(box->id, sizeof(box->id), id) < 0 || !id_valid(id))
		return err_raise(err, ERR_INVALID, "sandbox id '%s' is malformed", id);
	if (slot >= SLOT_COUNT)
		return err_raise(err, ERR_INVALID, "id slot %u is out of range", slot);
	rc = prepare_groups(box, err);
	if (rc == 0)
		rc = make_live(box, ahead, err);
	if (rc == 0) {
		live_path(box, live);
		rc = rootfs_points_base(live, err);
	}
	if (rc == 0)
		rc = rootfs_init(&box->rootfs, config->state, config->rootless, err);
	box->slot = slot;
	box->rootfs.base = ablated("uid_shift") ? 0 : SLOT_FIRST_ID + slot * IDS_PER_BOX;
	if (rc == 0)
		rc = start_starter(box, err);
	if (rc == 0)
		rc = prepare_builder(box, expect, err);
	if (rc == 0)
		rc = join(box, expect != NULL ? &expect->limits : &none, ahead->point != NULL, err);
	if (rc == 0 && expect != NULL)
		rc = prepare_expected(box, ahead, err);
	if (rc == 0 && expect != NULL)
		box->place = place_of(box, expect);
	if (rc == 0 && !config->rootless)
		rc = run_init(box, err);
	if (rc == 0 && expect != NULL && box->done.image != NULL)
		rc = finish_ahead(box, expect, err);
	if (rc < 0)
		err_context(err, "prepare sandbox '%s'", id);
	return rc;
}

/* How many of the first mounts are on the root already. */
static size_t foreseen(const struct box *box)
{
	return box->foresight.source != NULL;
}

/* One for each cow mount, and the root's. */
static int add_trees(const struct box *box, const struct spec *spec)
{
	unsigned int n = 1;

	for (size_t i = 0; i < spec->n_mounts; i++)
		n += spec->mounts[i].mode == MOUNT_COW;
	return n > box->trees ? store_live_trees(box->live, n) : 0;
}

static int make_trees(const struct box *box, const struct spec *spec, struct err *err)
{
	int rc = add_trees(box, spec);

	for (size_t i = 0; rc == 0 && i < spec->n_mounts; i++) {
		const struct spec_mount *m = &spec->mounts[i];

		if (m->mode != MOUNT_COW)
			continue;
		if (i >= foreseen(box))
			rc = set_top(box, m->tree, &m->lower, m->source);
		if (rc < 0)
			return source_refuse("mount", m->source, rc, err);
		rc = store_live_begin(box->live, m->tree);
	}
	if (rc == 0)
		rc = store_live_begin(box->live, 0);
	return rc < 0 ? err_raise_sys(err, rc, "make the trees of '%s'", box->id) : 0;
}

/* A disk of the sandbox's own: its trees lie there, and its size is the limit. */
static int take_disk(struct box *box, struct err *err)
{
	cleanup_fd int mount = disk_mount(box->live, box->id);
	int rc, trees = mount < 0 ? mount : disk_open(box->live, box->id);

	if (trees < 0)
		return err_raise_sys(err, trees, "mount the disk of '%s'", box->id);
	fd_close(&box->live);
	box->live = trees;
	/* the root that was made ahead of time is of other trees */
	free(box->done.image);
	box->done.image = NULL;
	rc = rootfs_disk(&box->rootfs, mount);
	return rc < 0 ? err_raise_sys(err, rc, "place the disk of '%s'", box->id) : 0;
}

/* Has the placer done all of it ahead of time? A start waits for this: without the room for an order of 64 KiB. */
static bool is_finished(const struct box *box, const struct spec *spec)
{
	struct err ignored; /* place_mounts() finds it again */
	struct finish f;

	memset(&f, 0, sizeof(f));
	return foreseen(box) == spec->n_mounts && box->builder_sock < 0 && box->is_finished &&
	       describe(box, spec, &f, &ignored) == 0 && memcmp(&f, &box->finished, sizeof(f)) == 0;
}

/* The mounts that only the specification says, and all else that the placer finishes. */
static int place_mounts(struct box *box, const struct spec *spec, const char *live, struct err *err)
{
	cleanup(order_fini) struct order o = { .message = placement_empty() };
	size_t first = foreseen(box);
	int mounts[SPEC_MOUNTS_MAX], rc;

	rc = describe(box, spec, &o.message->finish, err);
	if (rc == 0)
		rc = rootfs_mounts(&box->rootfs, spec, first, live, mounts, err);
	if (rc < 0)
		return rc;
	for (size_t i = first; i < spec->n_mounts; i++) {
		int added = order_add(&o, mounts[i - first], "", spec->mounts[i].target, err);

		rc = rc == 0 ? added : rc;
	}
	/* rootless: the last mount is made, and behind this the way is closed through which init's predecessor forbids further ones */
	if (rc == 0 && box->builder_sock >= 0)
		rc = run_init(box, err);
	if (rc < 0)
		return rc;
	return starter_place(&box->starter, STARTER_PLACE_FINISH, o.message, o.mounts, err);
}

static int finish_mounts(
	struct box *box, const struct spec *spec, const char *live, struct err *err)
{
	return is_finished(box, spec) ? 0 : place_mounts(box, spec, live, err);
}

static bool are_seen(int root, const struct spec *spec, size_t first)
{
	for (size_t i = first; i < spec->n_mounts; i++) {
		cleanup_fd int point = raw_openat2(root, spec->mounts[i].target, O_PATH, 0,
			RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

		if (point < 0)
			return false;
	}
	return true;
}

/*
 * Somebody outside may have looked into a root that was made ahead of time (/proc/PID/root, as many tools do), and what was found stays found: nothing, where a mount point is now. What is
 * in use just then, by whoever looks, is not forgotten: it is tried again.
 */
static int forget_lookups(
	const struct box *box, const struct spec *spec, size_t first, struct err *err)
{
	char path[64];
	cleanup_fd int root = -1;
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/%d/root", box->init_pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = root < 0 ? -errno : mount_forget(root);
	for (int tries = FORGET_TRIES; rc == 0 && tries > 0 && !are_seen(root, spec, first);
		tries--) {
		(void)poll(NULL, 0, 1);
		rc = mount_forget(root);
	}
	return rc < 0 ? err_raise_sys(err, rc, "look anew into the root of '%s'", box->id) : 0;
}

/* Behind keep_numbers(). Before a root that is made anew nobody can have looked, so mount points come first. Not rootless: the links of the skeleton must be there before them. */
static int set_points_and_root(
	struct box *box, const struct spec *spec, const char *live, struct err *err)
{
	bool first = !has_root(box, spec) && !box->config->rootless;
	int rc = first ? rootfs_points(&box->rootfs, spec, 0, live, err) : 0;

	if (rc >= 0)
		rc = set_root(box, spec, NULL, live, err);
	/* the point of its only mount was foreseen, and the root with it */
	if (first || rc < 0 || box->foresight.point != NULL)
		return rc;
	rc = rootfs_points(&box->rootfs, spec, foreseen(box), live, err);
	return rc > 0 ? forget_lookups(box, spec, foreseen(box), err) : rc;
}

/* A root that does not suit goes, and one that does where it would not see what comes into its upper, or has the numbers that were free. */
static int keep_numbers(struct box *box, const struct spec *spec, const char *live, struct err *err)
{
	const struct devices *devices = &box->rootfs.devices;
	const json_t *numbers = box->numbers;
	/* with what was foreseen wrongly, before there is something of @spec's in the same tree */
	int rc = has_root(box, spec) ? 0 : leave_root(box, spec->image, live, err);
	/* rootless the root is many overlays */
	bool anew = box->config->rootless ? devices->n_places > 0 : devices_kept(devices, "/");

	box->devices_changed = numbers != NULL;
	if (rc == 0 && numbers != NULL)
		rc = add_trees(box, spec);
	if (rc < 0 && err->code == ERR_NONE)
		(void)err_raise_sys(err, rc, "make the trees of '%s'", box->id);
	if (rc == 0 && numbers != NULL && !box->config->rootless)
		anew = numbers_keep(box->live, spec, numbers) || anew;
	if (rc == 0 && anew && has_root(box, spec))
		rc = leave_root(box, spec->image, live, err);
	return rc;
}

/* Before anybody writes there; what cannot be looked at is not told. */
static void look_for_databases(struct box *box)
{
	char path[64];
	cleanup_fd int root = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/root", box->init_pid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0)
		box->databases = numbers_databases(root, box->numbers);
}

static int set_mounts(struct box *box, const struct spec *spec, struct err *err)
{
	char live[PATH_MAX];
	int rc;

	live_path(box, live);
	numbers_skip(box->live, spec);
	rc = keep_numbers(box, spec, live, err);
	if (rc == 0)
		rc = set_points_and_root(box, spec, live, err);
	if (rc == 0)
		rc = make_trees(box, spec, err);
	if (rc == 0)
		rc = finish_mounts(box, spec, live, err);
	if (devices_all_right(&box->rootfs.devices))
		box->devices_changed = false;
	if (rc == 0 && box->devices_changed)
		look_for_databases(box);
	json_decref(box->numbers);
	box->numbers = NULL;
	return rc;
}

/* Before init's predecessor forbids further namespaces: rootless that holds for us too. */
uint64_t box_set_clocks(struct box *box, const json_t *then, bool stood)
{
	struct clocks ahead;
	int fd;

	clocks_load(then, stood, &ahead);
	if (ahead.monotonic_ns == 0 && ahead.boottime_ns == 0)
		return 0;
	fd = feature_withheld(FEATURE_TIMENS) ? -EOPNOTSUPP
					      : timens_new(ahead.monotonic_ns, ahead.boottime_ns);
	if (fd < 0)
		return clocks_back_ns(then);
	box->timens = fd;
	box->clocks = ahead;
	return 0;
}

void box_judge(struct box *box, const struct spec *spec)
{
	foresight_judge(&box->foresight, spec);
	box->disk = disk_exists(box->live);
}

bool box_suits(const struct box *box, const struct spec *spec)
{
	struct launch_place wanted = place_of(box, spec);

	return has_root(box, spec) && !box->disk &&
	       memcmp(&wanted, &box->place, sizeof(wanted)) == 0;
}

int box_order_waiter(struct box *box, int sock, int leaf)
{
	cleanup_fd int u2 = box_payload_userns(box), cgroups = box_namespace(box, "cgroup");
	const struct waiter_fds own = { sock, u2, cgroups, leaf };

	if (u2 < 0 || cgroups < 0)
		return u2 < 0 ? u2 : cgroups;
	box->has_waiters = true;
	return starter_order_waiter(&box->starter, &box->place, &own);
}

/* One that is in no domain yet: the old one's is of another root, or of another profile. Processes that are about to come bring one of their own. */
static int renew_starter(struct box *box, struct err *err)
{
	struct starter old = box->starter;
	int rc;

	fd_close(&box->starter.sock);
	box->has_waiters = false;
	if (box->awaits_processes)
		return 0;
	if (old.pid > 0)
		(void)waitpid(old.pid, NULL, 0);
	rc = start_starter(box, err);
	box->starter.placer_sock = old.placer_sock;
	box->starter.placer_pid = old.placer_pid;
	return rc == 0 ? join(box, NULL, false, err) : rc;
}

int box_start(struct box *box, struct spec *spec, struct err *err)
{
	bool suits = (box->starter.sock >= 0 && (!box->has_waiters || box_suits(box, spec))) ||
		     box->awaits_processes;
	int rc = 0;

	/* it ends meanwhile */
	if (box->awaits_processes)
		rc = renew_starter(box, err);
	if (rc == 0)
		rc = set_limits(box, spec, err);
	if (rc == 0 && spec->ports.n > 0)
		rc = box_allow_ports(box, &spec->ports, err);
	if (rc == 0)
		rc = set_disk_limit(box, spec, err);
	if (rc == 0 && box->disk)
		rc = take_disk(box, err);
	if (rc == 0)
		rc = set_mounts(box, spec, err);
	if (rc == 0 && !suits)
		rc = renew_starter(box, err);
	if (rc == 0)
		rc = fault("keeper.start.mounted") < 0
			     ? err_raise(err, ERR_INTERNAL, "told to fail here")
			     : 0;
	if (rc < 0) {
		err_context(err, "start sandbox '%s'", box->id);
		return rc;
	}
	box->place = place_of(box, spec);
	box->spec = *spec;
	*spec = (struct spec){ 0 };
	return 0;
}

void box_started(struct box *box)
{
	fd_close(&box->rootfs.userns);
	fd_close(&box->rootfs.stage);
	devices_fini(&box->rootfs.devices);
	if (box->rootfs.disk[0] ==
		'\0') /* a disk has no path that is ours: where it is mounted only the payload's ids can write */
		fd_close(&box->live);
}

uid_t box_gateway_id(const struct box *box)
{
	return GATEWAY_FIRST_ID + box->slot;
}

int box_allow_ports(struct box *box, const struct spec_ports *ports, struct err *err)
{
	const struct spec_ports *was = &box->spec.ports;
	cleanup_fd int netns = -1;
	int rc;

	if (ablated("netns_lo_only"))
		return 0; /* nothing stands between it and the host's network */
	if (box->network.tcp < 0 && ports->n > 0)
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"the policy allows connections, and this kernel cannot steer them to a gateway"),
			"cay doctor names the missing part (packet_filter) and the fix; without a policy the sandbox runs, and reaches nothing");
	if (box->network.tcp < 0)
		return 0;
	netns = box_namespace(box, "net");
	rc = netns < 0 ? netns
		       : network_change_ports(netns, (struct nft_ranges){ was->ranges, was->n },
				 (struct nft_ranges){ ports->ranges, ports->n });
	if (rc < 0)
		return err_raise_sys(err, rc, "open the ports of the policy");
	box->spec.ports = *ports;
	return 0;
}

/* Who was killed gives back what it had, for which it needs a processor: with little of one the sandbox would be long in ending. */
static void let_end(const struct box *box)
{
	const struct cgroup_limits was = box_group_limits(&box->done);
	struct cgroup_limits now = was;

	now.cpu_millis = 0;
	(void)!cgroup_set_limits(&box->cgroup, &was, &now);
}

void box_kill(const struct box *box)
{
	if (cgroup_kill(&box->cgroup, NULL) == 0)
		let_end(box);
	/* the death of PID 1 takes its pid namespace along, cgroup or not; frozen tasks die too */
	if (box->init_pid != 0 && !box->init_gone)
		(void)kill(box->init_pid, SIGKILL);
}

int box_wait_empty(const struct box *box, int timeout_ms)
{
	int rc = cgroup_wait_empty(&box->cgroup, timeout_ms);

	return rc == -ENOENT ? 0 : rc; /* no cgroup: the end of PID 1 was the end of all */
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/capture.c - the job `capture`: a layer from a sandbox that goes on running.
 *
 * Invariants
 *  (1) the layer holds the upper of every tree at one instant, that at which all processes of the sandbox stood still;
 *  (2) what was frozen here is thawed on every way out; what was frozen before stays frozen;
 *  (3) a failure leaves nothing but garbage in tmp/.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"
#include "store/copier.h"
#include "store/disk.h"
#include "store/instant.h"
#include "store/layer.h"
#include "store/mapped.h"
#include "store/pool.h"
#include "store/previous.h"
#include "store/seal.h"
#include "store/verbs.h"
#include "sys/btrfs.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/urgency.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>

#define FREEZE_MS 5000
#define APART     ".apart"

struct capture {
	struct job *job;
	const char *sandbox, *layer, *how;
	const json_t *trees;
	int home, live, tmp,
		dir, /* live directory; where its trees are (its disk, or itself); pool's tmp; tmp/<layer> */
		apart; /* tmp/<layer>.apart: where a snapshot is made as <layer>, and nothing else */
	char apart_name[ID_LEN + sizeof(APART)];
	struct btrfs_snapshot snapshot;
	struct cgroup box; /* empty: nothing runs */
	bool frozen;
	bool held; /* somebody says when, and is told when it is done: cayd, or... */
	struct instant
		instant; /* ...with a listener whoever stops it: then it is not ours to freeze */
	sigset_t blocked;
	uint64_t since_ns, frozen_us, captured_ns;
	struct tree_names mapped;
	struct copier *copiers[LAYER_TREES];
	char previous[ID_LEN + 1]; /* the layer that unchanged files are linked from; empty: none */
};

static bool stopped_by_others(const struct capture *c)
{
	return c->instant.listener >= 0;
}

static int wait_for_stop(struct capture *c, struct err *err)
{
	const char *bytes;
	ssize_t n;

	urgency_set(true);
	n = stopped_by_others(c) ? instant_await(&c->instant) : job_input(c->job, &bytes);
	c->since_ns = clock_now_ns();
	c->captured_ns = clock_wall_ns();
	return n < 0 ? err_raise_sys(
			       err, (int)n, "wait until sandbox '%s' stands still", c->sandbox)
		     : 0;
}

static int freeze(struct capture *c, struct err *err)
{
	uint64_t now = 0;
	sigset_t all;
	int rc;

	c->captured_ns = clock_wall_ns();
	rc = c->held ? wait_for_stop(c, err) : 0;
	if (rc < 0 || stopped_by_others(c) || c->box.box[0] == '\0')
		return rc;
	{
		cleanup_free char *path = str_dupf("%s/cgroup.freeze", c->box.box);

		rc = file_read_u64_at(AT_FDCWD, path, &now);
	}
	if (rc < 0)
		return err_raise_sys(err, rc, "read the freezer of sandbox '%s'", c->sandbox);
	if (now == 1) /* paused: it is not ours to thaw */
		return 0;
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &c->blocked);
	c->frozen = true;
	c->since_ns = clock_now_ns();
	rc = cgroup_freeze(&c->box, true, FREEZE_MS);
	if (rc == -ETIMEDOUT)
		return err_raise(err, ERR_BUSY, "sandbox '%s': " INSTANT_RESTLESS, c->sandbox);
	if (rc < 0)
		return err_raise_sys(err, rc, "freeze sandbox '%s'", c->sandbox);
	c->captured_ns = clock_wall_ns();
	return 0;
}

static int thaw(struct capture *c, struct err *err)
{
	int rc = 0;

	if (c->since_ns != 0)
		c->frozen_us = (clock_now_ns() - c->since_ns) / 1000;
	if (c->frozen) {
		rc = cgroup_freeze(&c->box, false, FREEZE_MS);
		c->frozen = false;
		(void)sigprocmask(SIG_SETMASK, &c->blocked, NULL);
	}
	if (rc < 0)
		return err_raise_sys(err, rc, "thaw sandbox '%s'", c->sandbox);
	if (c->held && !stopped_by_others(c) && c->since_ns != 0)
		rc = job_send(c->job, json_pack("{s:b}", "captured", 1));
	urgency_set(false);
	return rc < 0 ? err_raise_sys(err, rc, "say that the files are captured") : 0;
}

/*
 * @take: what is done while everything stands still. @undo: for nothing, because they went on before all else of the moment was there; NULL = it may be done over and over.
 */
static int at_the_instant(struct capture *c, int (*take)(struct capture *c, struct err *err),
	int (*undo)(struct capture *c), struct err *err)
{
	int rc, kept = 1;

	if (c->held && job_send(c->job, json_pack("{s:b}", "ready", 1)) < 0)
		return err_raise(err, ERR_UNAVAILABLE, "nobody waits for the files");
	do {
		rc = freeze(c, err);
		if (rc == 0 && fault("store.capture.frozen") < 0)
			rc = err_raise_sys(err, -EIO, "capture sandbox '%s'", c->sandbox);
		if (rc == 0)
			rc = take(c, err);
		if (rc == 0 && stopped_by_others(c))
			kept = instant_done(&c->instant);
		if (rc == 0)
			rc = thaw(c, err);
		if (rc == 0 && kept == 0 && undo != NULL)
			kept = undo(c);
	} while (rc == 0 && kept == 0);
	return rc == 0 && kept < 0
		       ? err_raise_sys(err, kept, "say that the files of sandbox '%s' are captured",
				 c->sandbox)
		       : rc;
}

static int open_dir(struct capture *c, struct err *err)
{
	c->dir = openat(c->tmp, c->layer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return c->dir < 0 ? err_raise_sys(err, -errno, "open the new layer") : 0;
}

static int make_apart(struct capture *c)
{
	(void)snprintf(c->apart_name, sizeof(c->apart_name), "%s" APART, c->layer);
	if (mkdirat(c->tmp, c->apart_name, 0700) < 0)
		return -errno;
	c->apart = openat(c->tmp, c->apart_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return c->apart < 0 ? -errno : 0;
}

static int take_snapshot(struct capture *c, struct err *err)
{
	int rc = btrfs_snapshot_begin(&c->snapshot, c->live, c->apart, c->layer);

	return rc < 0 ? err_raise_sys(err, rc, "snapshot sandbox '%s'", c->sandbox) : 0;
}

static int remove_snapshot(struct capture *c)
{
	int rc = btrfs_snapshot_end(&c->snapshot);

	if (rc == 0)
		rc = tree_remove(c->apart, c->layer);
	if (rc == 0 && syncfs(c->live) < 0)
		rc = -errno;
	return rc;
}

/* The processes run already, while the kernel writes out what it has captured. */
static int await_snapshot(struct capture *c)
{
	int rc = fault("store.capture.going_on");

	if (rc == 0)
		rc = btrfs_snapshot_end(&c->snapshot);
	if (rc == 0 && renameat(c->apart, c->layer, c->tmp, c->layer) < 0)
		rc = -errno;
	if (rc == 0 && unlinkat(c->tmp, c->apart_name, AT_REMOVEDIR) < 0)
		rc = -errno;
	return rc;
}

static int by_snapshot(struct capture *c, struct err *err)
{
	int rc;

	/* Dirty data goes out while the sandbox runs: the snapshot writes only the rest. A commit for the sake of nothing would only wait for the disk. */
	if (!btrfs_is_settled(c->live) && syncfs(c->live) < 0)
		return err_raise_sys(
			err, -errno, "write out the changes of sandbox '%s'", c->sandbox);
	rc = make_apart(c);
	if (rc < 0)
		return err_raise_sys(err, rc, "make room for the new layer");
	rc = at_the_instant(c, take_snapshot, remove_snapshot, err);
	if (rc < 0)
		return rc;
	rc = await_snapshot(c);
	if (rc < 0)
		return err_raise_sys(err, rc, "snapshot sandbox '%s'", c->sandbox);
	rc = open_dir(c, err);
	if (rc < 0)
		return rc;
	rc = layer_arrange(c->dir);
	return rc < 0 ? err_raise_sys(err, rc, "arrange the layer") : 0;
}

/* A descriptor of tree @n of what the last capture made, when it may be linked from, else -1. */
static int previous_tree(struct capture *c, unsigned int n)
{
	char path[64];

	if (c->previous[0] == '\0')
		return -1;
	(void)snprintf(path, sizeof(path), "layers/%s/%u", c->previous, n);
	return store_dir(&c->job->store, path);
}

static void use_previous(struct capture *c, unsigned int n, int *previous)
{
	char path[32];
	int fd;
	cleanup_fclose FILE *index = NULL;

	*previous = previous_tree(c, n);
	(void)snprintf(path, sizeof(path), "captured.%u", n);
	fd = *previous < 0 ? -1 : openat(c->home, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	index = fd < 0 ? NULL : fdopen(fd, "r");
	if (index != NULL)
		copier_previous(
			c->copiers[n], *previous, pool_can_clone(c->job->store.pool), index);
}

/* What was linked from a layer that was found damaged meanwhile is no help for the next capture. */
static bool may_note(struct capture *c)
{
	return previous_lock(c->home) == 0 &&
	       (c->previous[0] == '\0' || previous_is(c->home, c->previous));
}

/* Only a help for the next capture: a failure costs time, not truth. */
static void save_seen(struct capture *c)
{
	bool noting = may_note(c);
	char path[32];

	previous_drop(c->home);
	if (!noting)
		return;
	for (unsigned int n = 0; n < json_array_size(c->trees); n++) {
		cleanup_fclose FILE *index = NULL;
		int fd;

		(void)snprintf(path, sizeof(path), "captured.%u", n);
		fd = openat(
			c->home, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
		index = fd < 0 ? NULL : fdopen(fd, "w");
		if (index == NULL || copier_save(c->copiers[n], index) < 0)
			return;
	}
	previous_note(c->home, c->layer);
}

struct tree_fds {
	int from[LAYER_TREES], to[LAYER_TREES], previous[LAYER_TREES];
};

static void tree_fds_fini(struct tree_fds *f)
{
	for (size_t i = 0; i < LAYER_TREES; i++) {
		fd_close(&f->from[i]);
		fd_close(&f->to[i]);
		fd_close(&f->previous[i]);
	}
}

static int copy_begin(struct capture *c, unsigned int n, const json_t *tree, struct tree_fds *f)
{
	const char *target = json_string_value(json_object_get(tree, "target"));
	char upper[32], name[32];

	(void)snprintf(upper, sizeof(upper), "%u/upper", n);
	(void)snprintf(name, sizeof(name), "%u", n);
	f->from[n] = openat(c->live, upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (f->from[n] < 0 || mkdirat(c->dir, name, 0700) < 0)
		return -errno;
	f->to[n] = openat(c->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (f->to[n] < 0)
		return -errno;
	c->copiers[n] = copier_new(f->from[n], f->to[n], str_eq(c->how, "reflink"),
		target == NULL || str_eq(target, "/") ? "" : target);
	use_previous(c, n, &f->previous[n]);
	return 0;
}

static int copy_all(struct capture *c, bool second, struct err *err)
{
	int rc = 0;

	for (size_t n = 0; rc == 0 && n < json_array_size(c->trees); n++)
		rc = copier_pass(c->copiers[n], second ? &c->mapped : NULL, err);
	return rc;
}

/* On a tmpfs a store through a shared mapping moves no time stamp when the page was read before, and whoever stored may have ended since: any file may be another one. */
static bool hides_stores(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC;
}

static int find_mapped(struct capture *c, struct err *err)
{
	int rc = c->box.box[0] == '\0' ? 0 : mapped_files(c->box.box, &c->mapped);

	return rc < 0 ? err_raise_sys(err, rc, "list the mapped files of sandbox '%s'", c->sandbox)
		      : 0;
}

static int copy_again(struct capture *c, struct err *err)
{
	int rc = find_mapped(c, err);

	return rc == 0 ? copy_all(c, true, err) : rc;
}

static int by_copy(struct capture *c, struct err *err)
{
	cleanup(tree_fds_fini) struct tree_fds f;
	bool hides = hides_stores(c->live);
	const json_t *tree;
	size_t n;
	int rc = 0;

	memset(&f, 0xFF, sizeof(f));
	if (hides || previous_layer(&c->job->store, c->home, c->previous) < 0)
		c->previous[0] = '\0';
	if (mkdirat(c->tmp, c->layer, 0700) < 0)
		return err_raise_sys(err, -errno, "make the new layer");
	rc = open_dir(c, err);
	json_array_foreach (c->trees, n, tree) {
		if (rc < 0)
			return rc;
		rc = copy_begin(c, (unsigned int)n, tree, &f);
		if (rc < 0)
			return err_raise_sys(
				err, rc, "open tree %zu of sandbox '%s'", n, c->sandbox);
	}
	if (hides)
		tree_names_add(&c->mapped, MAPPED_ALL);
	/* Twice: stores through a mapping that is gone when we look again left no trace either. Those that come between are the copiers' to find. */
	rc = find_mapped(c, err);
	/* where all is copied at the instant, what was copied before would only have to be removed then */
	if (rc == 0 && !hides && c->box.box[0] != '\0')
		rc = copy_all(c, false, err);
	if (rc == 0)
		rc = at_the_instant(c, copy_again, NULL, err);
	if (rc == 0 && file_create_at(c->dir, "ARRANGED", 0600, "", 0) < 0)
		rc = err_raise_sys(err, -errno, "finish the layer");
	return rc;
}

static int finish(struct capture *c, json_t **ok, struct err *err)
{
	json_t *manifest = NULL;
	int rc = fault("store.capture.filled");

	if (rc < 0)
		return err_raise_sys(err, rc, "capture sandbox '%s'", c->sandbox);
	manifest = layer_manifest_new(c->dir, c->job->request, c->how, c->captured_ns, err);
	rc = manifest == NULL ? -EIO
			      : layer_commit(&c->job->store, c->tmp, c->layer, manifest, err);
	if (rc == 0) {
		*ok = layer_reply(manifest, c->frozen_us);
		if (c->copiers[0] != NULL)
			save_seen(c);
	}
	json_decref(manifest);
	return rc;
}

static int choose_how(struct capture *c, struct err *err)
{
	const char *best = disk_exists(c->home) ? "copy" : pool_capture_way(&c->job->store);
	const char *asked = json_string_value(json_object_get(c->job->request, "how"));

	c->how = asked == NULL || str_eq(asked, "auto") ? best : asked;
	if (!str_eq(c->how, "snapshot") && !str_eq(c->how, "reflink") && !str_eq(c->how, "copy"))
		return err_raise(err, ERR_INVALID, "a capture cannot be made by '%s'", c->how);
	if (str_eq(c->how, "snapshot") && !btrfs_subvolume_is(c->live))
		return err_raise(err, ERR_UNSUPPORTED, "sandbox '%s' does not lie in a subvolume",
			c->sandbox);
	return 0;
}

static int listen_for_keeper(struct capture *c, struct err *err)
{
	const char *run = job_text(c->job->request, "run", err);
	const char *id = run != NULL ? job_id(c->job->request, "template", err) : NULL;
	int rc = id != NULL ? instant_open(&c->instant, run, id) : -EINVAL;

	if (rc == 0)
		job_temporary(c->instant.path);

	return rc < 0 && err->code == ERR_NONE
		       ? err_raise_sys(err, rc, "wait for whoever stops sandbox '%s'", c->sandbox)
		       : rc;
}

static int prepare(struct capture *c, struct err *err)
{
	const json_t *request = c->job->request;
	const char *freezer = json_string_value(json_object_get(request, "freeze"));
	char path[64];

	c->sandbox = job_id(request, "sandbox", err);
	c->layer = c->sandbox == NULL ? NULL : job_id(request, "layer", err);
	if (c->layer == NULL)
		return -EINVAL;
	c->held = job_flag(request, "held", false);
	c->trees = json_object_get(request, "trees");
	if (!json_is_array(c->trees) || json_array_size(c->trees) == 0 ||
		json_array_size(c->trees) > LAYER_TREES)
		return err_raise(err, ERR_INVALID, "member 'trees' holds no or too many trees");
	if (freezer != NULL) {
		if (!str_path_clean(freezer) || !str_ends(freezer, "/cgroup.freeze") ||
			str_copy(c->box.box, sizeof(c->box.box), freezer) < 0)
			return err_raise(
				err, ERR_INVALID, "'%s' is no cgroup.freeze file", freezer);
		c->box.box[strlen(c->box.box) - strlen("/cgroup.freeze")] = '\0';
	}
	if (json_object_get(request, "template") != NULL && listen_for_keeper(c, err) < 0)
		return -EINVAL;
	if (layer_exists(&c->job->store, c->layer))
		return err_raise(err, ERR_EXISTS, "layer '%s' exists", c->layer);
	if (seal_ensure_live(c->job, c->sandbox, err) < 0)
		return -EIO;
	(void)snprintf(path, sizeof(path), "live/%s", c->sandbox);
	c->home = store_dir(&c->job->store, path);
	c->live = c->home < 0 ? c->home : disk_open(c->home, c->sandbox);
	c->tmp = store_dir(&c->job->store, "tmp");
	if (c->live < 0 || c->tmp < 0)
		return err_raise_sys(err, c->live < 0 ? c->live : c->tmp,
			"open the live directory of sandbox '%s'", c->sandbox);
	return choose_how(c, err);
}

static void remove_begun(struct capture *c)
{
	(void)!btrfs_snapshot_end(&c->snapshot);
	(void)!tree_remove(c->tmp, c->layer);
	if (c->apart_name[0] != '\0')
		(void)!tree_remove(c->tmp, c->apart_name);
}

static void capture_fini(struct capture *c)
{
	for (size_t n = 0; n < LAYER_TREES; n++)
		copier_free(c->copiers[n]);
	tree_names_free(&c->mapped);
	instant_close(&c->instant);
	job_temporary(NULL);
	fd_close(&c->home);
	fd_close(&c->live);
	fd_close(&c->tmp);
	fd_close(&c->dir);
	fd_close(&c->apart);
}

int store_capture(struct job *job, json_t **ok, struct err *err)
{
	cleanup(capture_fini) struct capture c = { .job = job,
		.home = -1,
		.live = -1,
		.tmp = -1,
		.dir = -1,
		.apart = -1,
		.instant = INSTANT_NONE };
	struct err late;
	int rc = prepare(&c, err);

	if (rc == 0 && fault("store.capture.begun") < 0)
		rc = err_raise_sys(err, -EIO, "capture sandbox '%s'", c.sandbox);
	if (rc < 0)
		return rc;
	rc = str_eq(c.how, "snapshot") ? by_snapshot(&c, err) : by_copy(&c, err);
	if (rc < 0) {
		(void)!thaw(&c, &late);
		/* a keeper lets go: nobody stands still while what was begun is removed */
		instant_close(&c.instant);
	} else {
		rc = finish(&c, ok, err);
	}
	if (rc < 0)
		remove_begun(&c);
	return rc;
}

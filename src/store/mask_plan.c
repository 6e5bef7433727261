/* SPDX-License-Identifier: Apache-2.0 */
/* store/mask_plan.c - see the header. */
#include "store/mask_plan.h"
#include "base/str.h"
#include "sys/file.h"
#include "sys/mountinfo.h"
#include "sys/raw.h"

#define SCAN_MAX 1000000
#define COPY_MAX (1U << 20)

/* A directory up to this size is copied whole where it would be an overlay of its own (plan_apart()). */
#define SMALL_ENTRIES 128
#define SMALL_BYTES   (1U << 20)

static struct mask_step *plan_add(struct mask *m, enum mask_action action, const char *path)
{
	if (m->n == m->cap) {
		m->cap = m->cap == 0 ? 256 : 2 * m->cap;
		m->steps = reallocarray(m->steps, m->cap, sizeof(*m->steps));
		if (m->steps == NULL)
			abort();
	}
	m->steps[m->n] = (struct mask_step){ action, str_dup(path), BUF_INIT(COPY_MAX) };
	return &m->steps[m->n++];
}

static void step_free(struct mask_step *step)
{
	free(step->path);
	buf_free(&step->text);
}

/* Is what lies below it not the host's any more? */
static bool ends_host(const struct mask_step *step)
{
	return step->action == MASK_EMPTY || step->action == MASK_HIDE;
}

/* What lies below @path need not be hidden by itself any more. */
static void plan_drop_below(struct mask *m, const char *path)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->n; i++) {
		if (str_path_under(m->steps[i].path, path) && m->steps[i].action != MASK_DIR)
			step_free(&m->steps[i]);
		else
			m->steps[kept++] = m->steps[i];
	}
	m->n = kept;
}

bool mask_host_stat(const struct mask *m, const char *path, struct stat *st)
{
	cleanup_fd int fd = raw_openat2(m->host, path, O_PATH | O_NOFOLLOW, 0, MASK_ON_HOST);

	return fd >= 0 && fstat(fd, st) == 0;
}

/* Is @path below something that is empty or hidden already? */
static bool planned(const struct mask *m, const char *path)
{
	for (size_t i = 0; i < m->n; i++) {
		if (ends_host(&m->steps[i]) && str_path_under(path, m->steps[i].path))
			return true;
	}
	return false;
}

/* What is not there may come later, while sandboxes run. */
static bool may_come(const struct mask *m, const char *path)
{
	cleanup_free char *parent = str_dup(path);
	char *slash = strrchr(parent, '/');
	struct stat st;

	slash[slash == parent ? 1 : 0] = '\0';
	return mask_host_stat(m, parent, &st) && S_ISDIR(st.st_mode);
}

static void plan_path(struct mask *m, enum mask_action action, const char *path)
{
	struct stat st = { 0 };

	if (!mask_host_stat(m, path, &st) && (action == MASK_DIR || !may_come(m, path)))
		return;
	if (action == MASK_EMPTY && !S_ISDIR(st.st_mode))
		action = MASK_HIDE;
	if (action == MASK_DIR ? !S_ISDIR(st.st_mode) : planned(m, path))
		return;
	if (action != MASK_DIR)
		plan_drop_below(m, path);
	(void)plan_add(m, action, path);
}

static bool is_top(const char *name)
{
#define HOST_TOP(s) \
	if (str_eq(name, s)) \
		return true;
#define HOST_EMPTY(s)
#define HOST_HIDE(s)
#define HOST_LIB(s)
#define HOST_FILES(s)
#define HOST_DIR(s)
#define HOST_SCAN(s)
#define HOST_SHOW(s)
#define HOST_MADE(s)
#include "host-image.def"
#undef HOST_TOP
	return false;
}

static bool is_lib(const char *name)
{
#define HOST_TOP(s)
#undef HOST_LIB
#define HOST_LIB(s) \
	if (str_eq(name, s)) \
		return true;
#include "host-image.def"
#undef HOST_LIB
#define HOST_LIB(s)
	return false;
}

static bool is_shown(const char *path)
{
#undef HOST_SHOW
#undef HOST_MADE
#define HOST_SHOW(s) \
	if (str_path_under(path, s)) \
		return true;
#define HOST_MADE(s) HOST_SHOW(s)
#include "host-image.def"
#undef HOST_SHOW
#define HOST_SHOW(s)
#undef HOST_MADE
#define HOST_MADE(s)
	return false;
}

/* Give each entry of @dir that @keep does not know to plan_path(). */
static int plan_entries(
	struct mask *m, const char *dir, bool (*keep)(const char *), enum mask_action action)
{
	cleanup_fd int fd = raw_openat2(m->host, dir, O_RDONLY | O_DIRECTORY, 0, MASK_ON_HOST);
	cleanup_names struct tree_names names = { 0 };
	int rc = fd < 0 ? 0 : tree_names(fd, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_free char *path =
			str_dupf("%s/%s", str_eq(dir, "/") ? "" : dir, names.names[i]);

		if (!keep(names.names[i]))
			plan_path(m, action, path);
	}
	return rc;
}

/* What an ordinary user of the host could read stays. */
static bool others_may(const struct stat *st)
{
	if (S_ISLNK(st->st_mode))
		return true;
	if (S_ISDIR(st->st_mode))
		return (st->st_mode & S_IXOTH) != 0;
	return S_ISREG(st->st_mode) && (st->st_mode & S_IROTH) != 0;
}

enum scan { SCAN_PRIVATE, SCAN_FILES, SCAN_EMPTIED };

/* May an ordinary user of the host list it and open what is in it? */
static bool others_list(const struct stat *st)
{
	return (st->st_mode & (S_IROTH | S_IXOTH)) == (S_IROTH | S_IXOTH);
}

/* Plan directory @path. Return: how to look at what is in it; negative: not at all. */
static int scan_directory(struct mask *m, const char *path, const struct stat *st, enum scan how)
{
	if (how == SCAN_EMPTIED) {
		(void)plan_add(m, MASK_DIR, path);
		return SCAN_EMPTIED;
	}
	if (planned(m, path))
		return -1;
	if (how == SCAN_PRIVATE ? others_may(st) : others_list(st))
		return (int)how;
	(void)plan_add(m, MASK_EMPTY, path);
	return how == SCAN_FILES ? SCAN_EMPTIED : -1;
}

static int plan_scan(struct mask *m, int fd, const char *dir, enum scan how, int depth)
{
	cleanup_names struct tree_names names = { 0 };
	int rc = depth > TREE_DEPTH_MAX ? -ELOOP : tree_names(fd, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_free char *path = str_dupf("%s/%s", dir, names.names[i]);
		cleanup_fd int child = -1;
		struct stat st;
		int below;

		if (++m->scanned > SCAN_MAX)
			return -E2BIG;
		if (is_shown(path) || fstatat(fd, names.names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISDIR(st.st_mode)) {
			bool hide = how == SCAN_FILES || (how == SCAN_PRIVATE && !others_may(&st));

			if (hide && !planned(m, path))
				(void)plan_add(m, MASK_HIDE, path);
			continue;
		}
		below = scan_directory(m, path, &st, how);
		if (below < 0)
			continue;
		child = openat(fd, names.names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (child >= 0)
			rc = plan_scan(m, child, path, (enum scan)below, depth + 1);
	}
	return rc;
}

static int plan_tree(struct mask *m, const char *dir, enum scan how)
{
	cleanup_fd int fd = raw_openat2(m->host, dir, O_RDONLY | O_DIRECTORY, 0, MASK_ON_HOST);

	return fd < 0 || planned(m, dir) ? 0 : plan_scan(m, fd, dir, how, 0);
}

static int plan_copy(struct mask *m, const char *path)
{
	struct mask_step *step = plan_add(m, MASK_COPY, path);
	int rc = file_read_at(m->host, path + 1, &step->text);

	if (rc == -EMSGSIZE)
		step->action = MASK_HIDE;
	return rc == -EMSGSIZE ? 0 : rc;
}

/* Inside, root is in the place of the file's owner; the kernel would ask there for what others may. */
static bool others_execute(const struct stat *st)
{
	return (st->st_mode & 0111) == 0 || (st->st_mode & S_IXOTH) != 0;
}

/* Copies of what of @path others may not read, or not execute; @all: of everything. What we may not read ourselves (rootless) stays: nobody inside reads it either. */
static int plan_show(struct mask *m, const char *path, bool all)
{
	cleanup_fd int fd = raw_openat2(m->host, path, O_RDONLY | O_NONBLOCK, 0, MASK_ON_HOST);
	cleanup_names struct tree_names names = { 0 };
	struct stat st;
	int rc = 0;

	if (fd < 0 || (!all && planned(m, path)))
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode))
		return all || !others_may(&st) || !others_execute(&st) ? plan_copy(m, path) : 0;
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (all || !others_list(&st))
		(void)plan_add(m, all ? MASK_DIR : MASK_EMPTY, path);
	rc = tree_names(fd, &names);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_free char *child = str_dupf("%s/%s", path, names.names[i]);

		rc = plan_show(m, child, all || !others_list(&st));
	}
	return rc;
}

static int plan_rules(struct mask *m)
{
	int rc = 0;

#undef HOST_EMPTY
#define HOST_EMPTY(s) plan_path(m, MASK_EMPTY, s);
#undef HOST_HIDE
#define HOST_HIDE(s) plan_path(m, MASK_HIDE, s);
#undef HOST_DIR
#define HOST_DIR(s) plan_path(m, MASK_DIR, s);
#include "host-image.def"
#undef HOST_EMPTY
#define HOST_EMPTY(s)
#undef HOST_HIDE
#define HOST_HIDE(s)
#undef HOST_DIR
#define HOST_DIR(s)
	if (rc == 0)
		rc = plan_entries(m, "/", is_top, MASK_HIDE);
	if (rc == 0)
		rc = plan_entries(m, "/var/lib", is_lib, MASK_EMPTY);
#undef HOST_FILES
#define HOST_FILES(s) rc = rc < 0 ? rc : plan_tree(m, s, SCAN_FILES);
#undef HOST_SCAN
#define HOST_SCAN(s) rc = rc < 0 ? rc : plan_tree(m, s, SCAN_PRIVATE);
#undef HOST_SHOW
#define HOST_SHOW(s) rc = rc < 0 ? rc : plan_show(m, s, false);
#include "host-image.def"
	return rc;
}

static bool is_made(const char *path)
{
#undef HOST_MADE
#define HOST_MADE(s) \
	if (str_eq(path, s)) \
		return true;
#undef HOST_FILES
#define HOST_FILES(s)
#undef HOST_SCAN
#define HOST_SCAN(s)
#undef HOST_SHOW
#define HOST_SHOW(s)
#include "host-image.def"
#undef HOST_MADE
#define HOST_MADE(s)
	return false;
}

/* Is anything said of @path or of what lies below it? */
static bool has_step(const struct mask *m, const char *path)
{
	for (size_t i = 0; i < m->n; i++) {
		if (str_path_under(m->steps[i].path, path))
			return true;
	}
	return false;
}

/* Where the machine has something mounted, and all directories above. */
struct mounted_places {
	struct tree_names points, above;
};

static void mounted_places_fini(struct mounted_places *p)
{
	tree_names_free(&p->points);
	tree_names_free(&p->above);
}

static int add_place(void *ctx, const struct mountinfo *mount)
{
	struct mounted_places *p = ctx;

	tree_names_add(&p->points, mount->point);
	for (const char *slash = mount->point + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
		cleanup_free char *above = strndup(mount->point, (size_t)(slash - mount->point));

		if (above == NULL)
			abort();
		tree_names_add(&p->above, above);
	}
	return 0;
}

static bool is_named(const struct tree_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++) {
		if (str_eq(names->names[i], name))
			return true;
	}
	return false;
}

/* What nobody inside could read is not copied, as it is hidden elsewhere. */
static void plan_take(struct mask *m, const char *path, const struct stat *st)
{
	if ((S_ISREG(st->st_mode) || S_ISLNK(st->st_mode)) && others_may(st))
		(void)plan_add(m, MASK_TAKE, path);
}

struct small {
	unsigned int entries;
	uint64_t bytes;
};

/* All of directory @path, as long as @sum is small. Return: 0; -EFBIG: it is not; other -errno. */
static int plan_take_tree(struct mask *m, int at, const char *path, struct small *sum, int depth)
{
	cleanup_fd int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_names struct tree_names names = { 0 };
	int rc = fd < 0 ? -errno : depth > SMALL_ENTRIES ? -EFBIG : tree_names(fd, &names);

	(void)plan_add(m, depth == 0 ? MASK_EMPTY : MASK_DIR, path);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_free char *child = str_dupf("%s/%s", path, names.names[i]);
		struct stat st;

		if (fstatat(fd, names.names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		sum->bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
		if (++sum->entries > SMALL_ENTRIES || sum->bytes > SMALL_BYTES)
			return -EFBIG;
		if (!S_ISDIR(st.st_mode))
			plan_take(m, child, &st);
		else if (others_list(&st))
			rc = plan_take_tree(m, AT_FDCWD, child, sum, depth + 1);
	}
	return rc;
}

/* Nothing of it is planned unless all is. */
static void plan_take_small(struct mask *m, const char *path)
{
	struct small sum = { 0 };
	size_t before = m->n;

	if (plan_take_tree(m, AT_FDCWD, path, &sum, 0) == 0)
		return;
	while (m->n > before)
		step_free(&m->steps[--m->n]);
}

/* Each entry of @dir, but for directories that become overlays of their own. */
static int plan_take_entries(struct mask *m, const char *dir, const struct mounted_places *mounted)
{
	cleanup_fd int fd = raw_openat2(m->host, dir, O_RDONLY | O_DIRECTORY, 0, MASK_ON_HOST);
	cleanup_names struct tree_names names = { 0 };
	int rc = fd < 0 ? 0 : tree_names(fd, &names);

	if (fd < 0) /* nor could anybody inside look into it */
		return 0;
	(void)plan_add(m, MASK_APART, dir);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup_free char *path = str_dupf("%s/%s", dir, names.names[i]);
		struct stat st;

		if (is_made(path) || has_step(m, path) ||
			fstatat(fd, names.names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISDIR(st.st_mode))
			plan_take(m, path, &st);
		else if (!is_named(&mounted->points, path) && !is_named(&mounted->above, path))
			plan_take_small(m, path);
	}
	return rc;
}

/*
 * Rootless the kernel lays no overlay over a directory with mounts below it. Such a one is put together: its larger directories are overlays of their own
 * (rootfs_parts.c), the rest, files and links and small directories, is copied here.
 */
static int plan_apart(struct mask *m)
{
	cleanup(mounted_places_fini) struct mounted_places mounted = { 0 };
	int rc = m->store->rootless ? mountinfo_each("/proc/self/mountinfo", add_place, &mounted)
				    : 0;

	tree_names_sort(&mounted.above);
	for (size_t i = 0; rc == 0 && i < mounted.above.n; i++) {
		if (!planned(m, mounted.above.names[i]))
			rc = plan_take_entries(m, mounted.above.names[i], &mounted);
	}
	return rc;
}

int mask_plan(struct mask *m, const json_t *request, struct err *err)
{
	const json_t *hide = json_object_get(request, "hide"), *e;
	const char *run = json_string_value(json_object_get(request, "run"));
	size_t i;
	int rc;

	rc = plan_rules(m);
	if (rc == -E2BIG)
		return err_raise(err, ERR_LIMIT,
			"the host's /etc, /opt, /usr/local, /var/cache and /var/lib hold more than %d entries",
			SCAN_MAX);
	if (rc < 0)
		return err_raise_sys(err, rc, "look at the host's root");
	plan_path(m, MASK_EMPTY, m->store->path);
	if (run != NULL && str_path_clean(run))
		plan_path(m, MASK_EMPTY, run);
	json_array_foreach (hide, i, e) {
		if (!json_is_string(e) || !str_path_clean(json_string_value(e)))
			return err_raise(err, ERR_INVALID,
				"'hide' holds something that is no clean absolute path");
		plan_path(m, MASK_EMPTY, json_string_value(e));
	}
	rc = plan_apart(m);
	return rc < 0 ? err_raise_sys(err, rc, "look at what is mounted on the host") : 0;
}

void mask_plan_free(struct mask *m)
{
	for (size_t i = 0; i < m->n; i++)
		step_free(&m->steps[i]);
	free(m->steps);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/mask.c - the job `mask`: the overlay layer that lies between a sandbox and this machine's own root.
 *
 * Plan, then build: the plan is the sorted list of what is shown empty, hidden or made up, found by looking at the host now with the rules of
 * defs/host-image.def. Its hash names the layer, so a host that changed gets another layer, and running sandboxes keep theirs.
 */
#include "base/id.h"
#include "base/str.h"
#include "store/copier.h"
#include "store/digest.h"
#include "store/tree.h"
#include "store/verbs.h"
#include "sys/file.h"
#include "sys/mountinfo.h"
#include "sys/raw.h"

#include <grp.h>
#include <pwd.h>
#include <sys/sysmacros.h>

/* Part of the hash: bump it when the way of building changes. */
#define MASK_FORMAT   "4"
#define SCAN_MAX      1000000
#define MADE_TEXT_MAX (4U << 20)
#define COPY_MAX      (1U << 20)
#define OVERFLOW_ID   65534
#define ON_HOST       (RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* A directory up to this size is copied whole where it would be an overlay of its own (plan_apart()). */
#define SMALL_ENTRIES 128
#define SMALL_BYTES   (1U << 20)

/* TAKE: a copy of a file or link that is not read before the layer is built. APART: a directory that rootfs_parts.c takes apart. */
enum mask_action { MASK_EMPTY, MASK_HIDE, MASK_DIR, MASK_COPY, MASK_TAKE, MASK_APART };

struct mask_step {
	enum mask_action action;
	char *path;
	struct buf text; /* of a copy */
};

struct mask {
	const struct store *store;
	int host; /* "/" */
	int out;  /* the layer under construction */
	struct mask_step *steps;
	size_t n, cap;
	uint64_t scanned;
	struct tree_names made; /* directories of the layer, in the order of making */
};

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

static bool host_stat(const struct mask *m, const char *path, struct stat *st)
{
	cleanup_fd int fd = raw_openat2(m->host, path, O_PATH | O_NOFOLLOW, 0, ON_HOST);

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
	return host_stat(m, parent, &st) && S_ISDIR(st.st_mode);
}

static void plan_path(struct mask *m, enum mask_action action, const char *path)
{
	struct stat st = { 0 };

	if (!host_stat(m, path, &st) && (action == MASK_DIR || !may_come(m, path)))
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
	cleanup_fd int fd = raw_openat2(m->host, dir, O_RDONLY | O_DIRECTORY, 0, ON_HOST);
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
	cleanup_fd int fd = raw_openat2(m->host, dir, O_RDONLY | O_DIRECTORY, 0, ON_HOST);

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
	cleanup_fd int fd = raw_openat2(m->host, path, O_RDONLY | O_NONBLOCK, 0, ON_HOST);
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
	cleanup_fd int fd = raw_openat2(m->host, dir, O_RDONLY | O_DIRECTORY, 0, ON_HOST);
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

static int plan(struct mask *m, const json_t *request, struct err *err)
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

/* Every account without a password that anything accepts. The real file has the hashes. */
static void made_shadow(struct buf *out, const char *accounts, bool groups)
{
	for (const char *line = accounts; *line != '\0';) {
		size_t n = strcspn(line, ":\n");

		if (n > 0 && line[n] == ':') {
			buf_add(out, line, n);
			buf_str(out, groups ? ":*::\n" : ":*:19000:0:99999:7:::\n");
		}
		line += strcspn(line, "\n");
		line += *line == '\n' ? 1 : 0;
	}
}

struct made_file {
	const char *path;
	mode_t mode;
	const char *like; /* owner, when it is on the host */
	struct buf text;
};

enum {
	MADE_SHADOW,
	MADE_GSHADOW,
	MADE_HOSTS,
	MADE_HOSTNAME,
	MADE_RESOLV,
	MADE_MACHINE_ID,
	MADE_COUNT
};

#define MADE(file_path, file_mode) \
	{ \
		.path = (file_path), .mode = (file_mode), .like = (file_path), \
		.text = BUF_INIT(MADE_TEXT_MAX) \
	}

/* The same for every sandbox of the instance, and nothing like the host's. */
static int made_machine_id(const struct store *store, struct buf *out)
{
	unsigned char key[32], digest[DIGEST_SIZE];
	char text[DIGEST_TEXT_SIZE];
	int rc = store_key(store, key);

	if (rc < 0)
		return rc;
	digest_hmac(key, "machine-id", 10, digest);
	digest_text(digest, text);
	buf_add(out, text, 32);
	buf_char(out, '\n');
	return 0;
}

static int make_texts(const struct mask *m, struct made_file made[MADE_COUNT])
{
	cleanup_buf struct buf passwd = BUF_INIT(MADE_TEXT_MAX), group = BUF_INIT(MADE_TEXT_MAX);
	int rc = file_read_at(m->host, "etc/passwd", &passwd);

	if (rc == 0)
		rc = file_read_at(m->host, "etc/group", &group);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	made_shadow(&made[MADE_SHADOW].text, buf_cstr(&passwd), false);
	made_shadow(&made[MADE_GSHADOW].text, buf_cstr(&group), true);
	buf_str(&made[MADE_HOSTS].text,
		"127.0.0.1\tlocalhost cay\n::1\tlocalhost ip6-localhost ip6-loopback cay\n");
	buf_str(&made[MADE_HOSTNAME].text, "cay\n");
	buf_str(&made[MADE_RESOLV].text, "nameserver 10.0.0.1\n");
	return made_machine_id(m->store, &made[MADE_MACHINE_ID].text);
}

static void plan_hash(
	const struct mask *m, const struct made_file made[MADE_COUNT], char text[DIGEST_TEXT_SIZE])
{
	cleanup_buf struct buf all = BUF_INIT(1U << 30);
	unsigned char digest[DIGEST_SIZE];

	buf_str(&all, MASK_FORMAT "\n");
	for (size_t i = 0; i < m->n; i++) {
		struct stat st = { 0 };

		(void)host_stat(m, m->steps[i].path, &st);
		buf_fmt(&all, "%d %o %u %u ", (int)m->steps[i].action, st.st_mode, st.st_uid,
			st.st_gid);
		buf_add(&all, m->steps[i].path, strlen(m->steps[i].path) + 1);
		buf_add(&all, buf_cstr(&m->steps[i].text), m->steps[i].text.n);
		if (m->steps[i].action == MASK_TAKE)
			buf_fmt(&all, "%ju %ju %jd %ld ", (uintmax_t)st.st_ino,
				(uintmax_t)st.st_size, (intmax_t)st.st_mtim.tv_sec,
				st.st_mtim.tv_nsec);
	}
	for (size_t i = 0; i < MADE_COUNT; i++)
		buf_add(&all, made[i].text.p, made[i].text.n);
	digest_bytes(buf_cstr(&all), all.n, digest);
	digest_text(digest, text);
	text[32] = '\0';
}

/* Ids that a rootless instance cannot express stay ours; they are shown to it as the overflow id. Else nobody could use the empty /root. */
static int take_owner(const struct mask *m, int dirfd, const char *name, const struct stat *like)
{
	if (m->store->rootless && like->st_uid == OVERFLOW_ID)
		return 0;
	if (fchownat(dirfd, name, like->st_uid, like->st_gid, AT_SYMLINK_NOFOLLOW) == 0 ||
		m->store->rootless)
		return 0;
	return -errno;
}

static int like_host(struct mask *m, int parent, const char *name, const char *path)
{
	/* without root we may not look into every directory, and need not: its attributes are not ours to set */
	int how = m->store->rootless ? O_PATH : O_RDONLY;
	cleanup_fd int host = raw_openat2(m->host, path, how | O_DIRECTORY, 0, ON_HOST);
	cleanup(tree_xattrs_free) struct tree_xattrs xattrs = { 0 };
	struct stat st;
	int rc;

	if (host < 0)
		return host;
	if (fstat(host, &st) < 0)
		return -errno;
	rc = take_owner(m, parent, name, &st);
	if (rc == 0 && fchmodat(parent, name, st.st_mode & 07777, 0) < 0)
		rc = -errno;
	if (rc == 0 && !m->store->rootless)
		rc = tree_xattrs_read(host, ".", store_overlay_xattr(m->store), &xattrs);
	return rc < 0 ? rc : tree_xattrs_write(parent, name, &xattrs);
}

/* The directory @path in the layer, with all parents like the host's; @len bytes of it count. Descriptor or -errno. */
static int layer_dir(struct mask *m, const char *path, size_t len)
{
	cleanup_fd int at = openat(m->out, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t done = 0; done < len;) {
		size_t start = done + 1, end = start + strcspn(path + start, "/");
		cleanup_free char *prefix = strndup(path, end),
				  *name = strndup(path + start, end - start);
		int next, rc = 0;

		if (prefix == NULL || name == NULL)
			abort();
		if (mkdirat(at, name, 0755) == 0) {
			rc = like_host(m, at, name, prefix);
			tree_names_add(&m->made, prefix);
		} else if (errno != EEXIST) {
			rc = -errno;
		}
		next = rc < 0 ? rc
			      : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return rc < 0 ? rc : -errno;
		fd_close(&at);
		at = next;
		done = end;
	}
	return TAKE_FD(at);
}

static int layer_parent(struct mask *m, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');

	*name = slash + 1;
	return layer_dir(m, path, (size_t)(slash - path));
}

static int build_copy(struct mask *m, const struct mask_step *step)
{
	const char *name;
	cleanup_fd int fd = layer_parent(m, step->path, &name);
	struct timespec times[2];
	struct stat st;
	int rc = fd;

	if (rc >= 0 && !host_stat(m, step->path, &st))
		return 0; /* removed meanwhile */
	if (rc >= 0)
		rc = file_create_at(fd, name, 0600, buf_cstr(&step->text), step->text.n);
	if (rc == 0)
		rc = take_owner(m, fd, name, &st);
	if (rc < 0)
		return rc;
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (fchmodat(fd, name, st.st_mode & 07777, 0) < 0 ||
		utimensat(fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

static int take_link(int host, int dir, const char *name)
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(host, "", to, sizeof(to) - 1);

	if (n < 0)
		return -errno;
	to[n] = '\0';
	return symlinkat(to, dir, name) < 0 ? -errno : 0;
}

/* Not what gives a program its owner's rights: the owner is another one here. */
static int take_file(const char *path, const struct stat *st, int dir, const char *name)
{
	cleanup_fd int in = raw_openat2(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0, ON_HOST);
	cleanup_fd int out =
		in < 0 ? in : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int rc;

	if (in == -EACCES || in == -EPERM || in == -ENOENT)
		return 0; /* not ours to read, or removed meanwhile */
	if (out < 0)
		return in < 0 ? in : -errno;
	rc = copier_data(in, out, true);
	return rc == 0 && fchmod(out, st->st_mode & 0777) < 0 ? -errno : rc;
}

static int build_take(struct mask *m, const struct mask_step *step)
{
	cleanup_fd int host = raw_openat2(m->host, step->path, O_PATH | O_NOFOLLOW, 0, ON_HOST);
	cleanup_fd int dir = -1;
	struct timespec times[2];
	const char *name;
	struct stat st;
	int rc;

	if (host < 0 || fstat(host, &st) < 0)
		return 0; /* removed meanwhile */
	dir = layer_parent(m, step->path, &name);
	if (dir < 0)
		return dir;
	rc = S_ISLNK(st.st_mode) ? take_link(host, dir, name)
				 : take_file(step->path, &st, dir, name);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (rc == 0 && utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
		rc = -errno;
	return rc;
}

static int build_step(struct mask *m, const struct mask_step *step)
{
	const char *name;
	cleanup_fd int fd = -1;
	char xattr[64];

	if (step->action == MASK_COPY)
		return build_copy(m, step);
	if (step->action == MASK_TAKE)
		return build_take(m, step);
	if (step->action == MASK_HIDE) {
		fd = layer_parent(m, step->path, &name);
		if (fd < 0)
			return fd;
		return mknodat(fd, name, S_IFCHR, makedev(0, 0)) < 0 ? -errno : 0;
	}
	fd = layer_dir(m, step->path, strlen(step->path));
	if (fd < 0 || step->action == MASK_DIR)
		return fd < 0 ? fd : 0;
	(void)snprintf(xattr, sizeof(xattr), "%s%s", store_overlay_xattr(m->store),
		step->action == MASK_APART ? "apart" : "opaque");
	return tree_xattr_set(fd, ".", xattr, "y", 1);
}

static int build_file(struct mask *m, const struct made_file *made)
{
	const char *name;
	cleanup_fd int fd = layer_parent(m, made->path, &name);
	struct stat st = { 0 };
	int rc = fd;

	if (rc >= 0)
		rc = file_create_at(fd, name, made->mode, buf_cstr(&made->text), made->text.n);
	if (rc == 0 && host_stat(m, made->like, &st) && S_ISREG(st.st_mode))
		rc = take_owner(m, fd, name, &st);
	return rc;
}

static int build_mtab(struct mask *m)
{
	const char *name;
	cleanup_fd int fd = layer_parent(m, "/etc/mtab", &name);

	if (fd < 0)
		return fd;
	return symlinkat("../proc/self/mounts", fd, name) < 0 ? -errno : 0;
}

static void keep_times(const struct mask *m)
{
	for (size_t i = m->made.n; i-- > 0;) {
		const char *path = m->made.names[i];
		struct stat st;

		if (host_stat(m, path, &st)) {
			const struct timespec times[2] = { st.st_atim, st.st_mtim };

			(void)utimensat(m->out, path + 1, times, AT_SYMLINK_NOFOLLOW);
		}
	}
}

static int build(struct mask *m, const struct made_file made[MADE_COUNT], struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < m->n; i++) {
		rc = build_step(m, &m->steps[i]);
		if (rc < 0)
			return err_raise_sys(err, rc, "mask '%s'", m->steps[i].path);
	}
	for (size_t i = 0; rc == 0 && i < MADE_COUNT; i++) {
		rc = build_file(m, &made[i]);
		if (rc < 0)
			return err_raise_sys(err, rc, "make '%s' of the mask layer", made[i].path);
	}
	rc = build_mtab(m);
	if (rc < 0)
		return err_raise_sys(err, rc, "make '/etc/mtab' of the mask layer");
	keep_times(m);
	return 0;
}

static int build_layer(
	struct mask *m, const struct made_file made[MADE_COUNT], const char *hash, struct err *err)
{
	cleanup_fd int tmp = store_dir(m->store, "tmp"), masks = store_dir(m->store, "mask");
	struct id id = id_new();
	int rc;

	if (tmp < 0 || masks < 0 || mkdirat(tmp, id.s, 0755) < 0)
		return err_raise_sys(err, tmp < 0 ? tmp : -errno, "make a mask layer");
	m->out = openat(tmp, id.s, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = m->out < 0 ? err_raise_sys(err, -errno, "open the mask layer") : build(m, made, err);
	if (rc == 0 && renameat2(tmp, id.s, masks, hash, RENAME_NOREPLACE) < 0 && errno != EEXIST)
		rc = err_raise_sys(err, -errno, "keep the mask layer");
	(void)!tree_remove(tmp, id.s);
	return rc;
}

static void mask_fini(struct mask *m)
{
	for (size_t i = 0; i < m->n; i++)
		step_free(&m->steps[i]);
	free(m->steps);
	tree_names_free(&m->made);
	fd_close(&m->host);
	fd_close(&m->out);
}

int store_mask(struct job *job, json_t **ok, struct err *err)
{
	struct made_file made[MADE_COUNT] = {
		[MADE_SHADOW] = MADE("/etc/shadow", 0640),
		[MADE_GSHADOW] = MADE("/etc/gshadow", 0640),
		[MADE_HOSTS] = MADE("/etc/hosts", 0644),
		[MADE_HOSTNAME] = MADE("/etc/hostname", 0644),
		[MADE_RESOLV] = MADE("/etc/resolv.conf", 0644),
		[MADE_MACHINE_ID] = MADE("/etc/machine-id", 0444),
	};
	cleanup(mask_fini) struct mask m = { .store = &job->store, .host = -1, .out = -1 };
	char hash[DIGEST_TEXT_SIZE], path[80];
	int rc;

	m.host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	rc = m.host < 0 ? err_raise_sys(err, -errno, "open /") : plan(&m, job->request, err);
	if (rc == 0) {
		rc = make_texts(&m, made);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "make up the accounts of the mask layer");
	}
	if (rc == 0) {
		plan_hash(&m, made, hash);
		(void)snprintf(path, sizeof(path), "mask/%s", hash);
		if (faccessat(job->store.pool, path, F_OK, 0) < 0)
			rc = build_layer(&m, made, hash, err);
	}
	if (rc == 0)
		*ok = json_pack(
			"{s:o}", "dir", json_sprintf("%s/pool/mask/%s", job->store.path, hash));
	for (size_t i = 0; i < MADE_COUNT; i++)
		buf_free(&made[i].text);
	return rc;
}

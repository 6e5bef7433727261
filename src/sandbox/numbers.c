/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/numbers.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/dump_wire.h"
#include "store/copier.h"
#include "store/layer.h"
#include "store/origin.h"
#include "store/tree.h"
#include "sys/btrfs.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>

#define OVERLAY       "trusted.overlay."
#define DATABASES_MAX 16
#define SKIP_MOST     512 /* some 10 us each */
#define BENEATH       (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV)

/* --- the list --- */

/* Take a number and the blank behind it off the front of @text. */
static bool take_number(const char **text, json_int_t *ret)
{
	const char *blank = strchr(*text, ' ');
	cleanup_free char *digits =
		blank != NULL ? str_dupf("%.*s", (int)(blank - *text), *text) : NULL;
	uint64_t number;

	if (blank == NULL || str_to_u64(digits, 1, INT64_MAX, &number) < 0)
		return false;
	*ret = (json_int_t)number;
	*text = blank + 1;
	return true;
}

static json_t *entry(const char *text)
{
	json_int_t inode, device;
	json_t *path;

	if (!take_number(&text, &inode) || !take_number(&text, &device) || !str_path_clean(text))
		return NULL;
	path = json_string(text); /* not all are UTF-8 */
	return path != NULL ? json_pack("[I, o, I]", inode, path, device) : NULL;
}

json_t *numbers_listed(int fd)
{
	cleanup_free char *text = NULL;
	json_t *list, *one;
	struct stat st;
	size_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > DUMP_NUMBERS_MAX ||
		lseek(fd, 0, SEEK_SET) < 0)
		return NULL;
	n = (size_t)st.st_size;
	text = xalloc(n + 1); /* zeroed */
	if (file_read_all(fd, text, n) < 0)
		return NULL;
	list = json_array();
	for (const char *at = text; at < text + n; at += strlen(at) + 1) {
		one = entry(at);
		if (one != NULL)
			(void)json_array_append_new(list, one);
	}
	if (json_array_size(list) > 0)
		return list;
	json_decref(list);
	return NULL;
}

/* --- where a path lies --- */

struct spot {
	unsigned int tree;
	const char *layer; /* the topmost, on the host; NULL = there is none */
	const char *rest;  /* below the tree */
};

static struct spot spot_of(const struct spec *spec, const char *path)
{
	struct spot s = { 0, spec->lower.n > 0 ? spec->lower.dirs[0] : NULL, path + 1 };
	size_t longest = 0;

	for (size_t i = 0; i < spec->n_mounts; i++) {
		const struct spec_mount *m = &spec->mounts[i];
		size_t n = strlen(m->target);

		if (n <= longest || !str_path_under(path, m->target) || path[n] != '/')
			continue;
		longest = n;
		s.layer = m->mode == MOUNT_COW && m->lower.n > 0 ? m->lower.dirs[0] : NULL;
		s.tree = m->tree;
		s.rest = path + n + 1;
	}
	return s;
}

/* --- copying --- */

static int open_dir(int dir, const char *path)
{
	return raw_openat2(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, BENEATH);
}

/* As the layer has it, but for what the overlay notes there: this one only leads to what is below. */
static int make_dir(int from, const char *name, int to)
{
	cleanup(tree_xattrs_free) struct tree_xattrs attributes = { 0 };
	cleanup_fd int theirs = open_dir(from, name);
	struct stat st;
	int rc;

	if (theirs < 0 || fstat(theirs, &st) < 0)
		return -errno;
	if (mkdirat(to, name, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	rc = tree_xattrs_read(theirs, ".", OVERLAY, &attributes);
	if (rc == 0 && fchownat(to, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		rc = -errno;
	if (rc == 0 && fchmodat(to, name, st.st_mode & 07777, 0) < 0)
		rc = -errno;
	if (rc == 0)
		rc = tree_xattrs_write(to, name, &attributes);
	if (rc == 0 && utimensat(to, name, (struct timespec[]){ st.st_atim, st.st_mtim },
			       AT_SYMLINK_NOFOLLOW) < 0)
		rc = -errno;
	if (rc < 0)
		(void)unlinkat(to, name, AT_REMOVEDIR);
	return rc;
}

static int descend(int *dir, const char *name)
{
	int next = open_dir(*dir, name);

	(void)close(*dir);
	*dir = next;
	return next < 0 ? -errno : 0;
}

/* One by one, and none through a link: at a resume the upper is what programs have written. Return: the last in @to, or -errno. */
static int make_parents(int from, const char *path, int to)
{
	cleanup_free char *each = str_dup(path);
	cleanup_fd int theirs = open_dir(from, "."), ours = open_dir(to, ".");
	int rc = theirs < 0 || ours < 0 ? -errno : 0;

	for (char *name = each, *slash; rc == 0 && (slash = strchr(name, '/')) != NULL;
		name = slash + 1) {
		*slash = '\0';
		rc = make_dir(theirs, name, ours);
		if (rc == 0)
			rc = descend(&theirs, name);
		if (rc == 0)
			rc = descend(&ours, name);
	}
	return rc < 0 ? rc : TAKE_FD(ours);
}

/* Is it there as a copy of another, whose number the program knows? */
static bool is_renumbered(int dir, const char *name, uint64_t number, struct stat *ret)
{
	struct origin o;

	return fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(ret->st_mode) &&
	       ret->st_nlink == 1 && ret->st_ino != number &&
	       origin_get(OVERLAY, dir, name, &o) > 0;
}

int numbers_copy_up(int from, const char *path, int to, uint64_t number)
{
	const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
	cleanup_free char *parent =
		name == path ? str_dup(".") : str_dupf("%.*s", (int)(name - path - 1), path);
	cleanup_fd int theirs = open_dir(from, parent), ours = -1;
	struct stat st;
	int rc;

	if (theirs < 0 || !is_renumbered(theirs, name, number, &st))
		return 0;
	ours = make_parents(from, path, to);
	if (ours < 0)
		return ours;
	rc = copier_entry(theirs, name, ours, name, &st, true);
	if (rc == -EEXIST)
		return 0;
	if (rc < 0)
		(void)unlinkat(ours, name, 0);
	return rc < 0 ? rc : 1;
}

bool numbers_keep(int live, const struct spec *spec, const json_t *listed)
{
	bool in_root = false;
	const json_t *one;
	size_t i;

	if (!btrfs_is(live))
		return false;
	json_array_foreach (listed, i, one) {
		const char *path = json_string_value(json_array_get(one, 1));
		uint64_t number = (uint64_t)json_integer_value(json_array_get(one, 0));
		struct spot s = { 0 };
		cleanup_free char *upper = NULL;
		cleanup_fd int from = -1, to = -1;
		int rc = 0;

		if (path != NULL && str_path_clean(path))
			s = spot_of(spec, path);
		if (s.layer == NULL || s.rest[0] == '\0')
			continue;
		upper = str_dupf("%u/upper", s.tree);
		from = open(s.layer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		to = openat(live, upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (from >= 0 && to >= 0)
			rc = numbers_copy_up(from, s.rest, to, number);
		if (rc < 0)
			log_warn("keeper", "'%s' gets another inode number: %s", path,
				strerrordesc_np(-rc));
		in_root = in_root || (rc > 0 && s.tree == 0);
	}
	return in_root;
}

/* --- which numbers are free --- */

/* That of what was made last in the layer of tree @dir; 0 = it is none. */
static uint64_t last_of_layer(const char *dir)
{
	const char *slash = strrchr(dir, '/');
	cleanup_free char *path =
		str_dupf("%.*s/" LAYER_MANIFEST, slash != NULL ? (int)(slash - dir) : 0, dir);
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static uint64_t last_of(const struct spec_layers *layers, uint64_t last)
{
	for (size_t i = 0; i < layers->n; i++) {
		uint64_t this = last_of_layer(layers->dirs[i]);

		last = this > last ? this : last;
	}
	return last;
}

/* That of an inode which is made for it, and gone at once; 0 = none can be made. */
static uint64_t next_number(int live)
{
	cleanup_fd int fd = openat(live, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? st.st_ino : 0;
}

void numbers_skip(int live, const struct spec *spec)
{
	uint64_t last = last_of(&spec->lower, 0), now;

	for (size_t i = 0; i < spec->n_mounts; i++)
		last = last_of(&spec->mounts[i].lower, last);
	now = last == 0 || !btrfs_subvolume_is(live) ? 0 : next_number(live);
	/* half of the way is of no use */
	if (now == 0 || now + SKIP_MOST < last)
		return;
	while (now != 0 && now < last)
		now = next_number(live);
}

/* --- databases --- */

/* By the first bytes of its format (sqlite.org/fileformat.html, 1.3.1). */
static bool is_database(int root, const char *path)
{
	static const char magic[16] = "SQLite format 3";
	cleanup_fd int fd =
		raw_openat2(root, path + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0,
			RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	char begin[sizeof(magic)];
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       pread(fd, begin, sizeof(begin), 0) == (ssize_t)sizeof(begin) &&
	       memcmp(begin, magic, sizeof(magic)) == 0;
}

static bool has_text(const json_t *list, const json_t *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
		if (json_equal(one, text))
			return true;
	}
	return false;
}

json_t *numbers_databases(int root, const json_t *listed)
{
	json_t *found = json_array();
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)listed, i, one) {
		json_t *path = json_array_get(one, 1);

		if (path != NULL && json_array_size(found) < DATABASES_MAX &&
			!has_text(found, path) && str_path_clean(json_string_value(path)) &&
			is_database(root, json_string_value(path)))
			(void)json_array_append(found, path);
	}
	if (json_array_size(found) > 0)
		return found;
	json_decref(found);
	return NULL;
}

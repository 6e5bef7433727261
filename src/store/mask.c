/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/mask.c - the job `mask`: the overlay layer that lies between a sandbox and this machine's own root.
 *
 * Plan, then build: the plan (mask_plan.c) is the list of what is shown empty, hidden, copied or made up. Its hash names the layer, so a host that changed
 * gets another layer, and running sandboxes keep theirs. Others are removed when nobody can have one mounted (`alone`): an
 * overlay whose lower layer loses its whiteouts shows what they hid.
 */
#include "base/id.h"
#include "base/str.h"
#include "store/copier.h"
#include "store/digest.h"
#include "store/mask_plan.h"
#include "store/verbs.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <grp.h>
#include <pwd.h>
#include <sys/sysmacros.h>

/* Part of the hash: bump it when the way of building changes. */
#define MASK_FORMAT   "4"
#define MADE_TEXT_MAX (4U << 20)
#define OVERFLOW_ID   65534

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

		(void)mask_host_stat(m, m->steps[i].path, &st);
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
	cleanup_fd int host = raw_openat2(m->host, path, how | O_DIRECTORY, 0, MASK_ON_HOST);
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

	if (rc >= 0 && !mask_host_stat(m, step->path, &st))
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
	cleanup_fd int in = raw_openat2(AT_FDCWD, path, O_RDONLY | O_NONBLOCK, 0, MASK_ON_HOST);
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
	cleanup_fd int host =
		raw_openat2(m->host, step->path, O_PATH | O_NOFOLLOW, 0, MASK_ON_HOST);
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
	if (rc == 0 && mask_host_stat(m, made->like, &st) && S_ISREG(st.st_mode))
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

		if (mask_host_stat(m, path, &st)) {
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
	mask_plan_free(m);
	tree_names_free(&m->made);
	fd_close(&m->host);
	fd_close(&m->out);
}

/* Renamed away before anything of it goes: one that is half there would show what it hides to whoever is given it next. What cannot go now the next start sees again. */
static void drop_others(const struct store *store, const char *hash)
{
	cleanup(tree_names_free) struct tree_names names = { 0 };
	cleanup_fd int masks = store_dir(store, "mask");

	if (masks < 0 || tree_names(masks, &names) < 0)
		return;
	for (size_t i = 0; i < names.n; i++) {
		if (!str_eq(names.names[i], hash))
			(void)!store_discard(store, "mask", names.names[i]);
	}
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
	rc = m.host < 0 ? err_raise_sys(err, -errno, "open /") : mask_plan(&m, job->request, err);
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
	if (rc == 0 && job_flag(job->request, "alone", false))
		drop_others(&job->store, hash);
	if (rc == 0)
		*ok = json_pack(
			"{s:o}", "dir", json_sprintf("%s/pool/mask/%s", job->store.path, hash));
	for (size_t i = 0; i < MADE_COUNT; i++)
		buf_free(&made[i].text);
	return rc;
}

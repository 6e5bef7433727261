/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cayd/place.h"
#include "api/secret_store.h"
#include "base/clock.h"
#include "base/directories.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/subids.h"
#include "store/catalogue.h"
#include "store/vault.h"
#include "sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <openssl/sha.h>
#include <poll.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>

#define LOCK_NS \
	(2 * NS_PER_S) /* a server that ends lets go of the lock of RUN and of this one after the other */

/* @value: stolen. */
static int set_path(char *out, size_t size, char *value, const char *what, struct err *err)
{
	cleanup_free char *path = value;

	if (!str_path_clean(path) || str_copy(out, size, path) < 0)
		return err_raise(
			err, ERR_INVALID, "%s must be an absolute path, not '%s'", what, path);
	return 0;
}

static int find_directories(struct place *p, struct err *err)
{
	const char *of;
	char *state = directories_state(&of);
	int rc;

	if (state == NULL)
		return err_hint(err,
			err_raise(err, ERR_HOST,
				"user %u has no home directory for the server's state", geteuid()),
			"name a directory: CAY_STATE=DIR");
	rc = set_path(p->state, sizeof(p->state), state, of, err);
	if (rc == 0) {
		char *run = directories_run(&of);

		rc = set_path(p->run, sizeof(p->run), run, of, err);
	}
	return rc;
}

static void make_tag(struct place *p)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];

	(void)SHA256((const unsigned char *)p->state, strlen(p->state), digest);
	str_hex(p->tag, digest, 4);
}

/* First id that the file of ranges at @path lends to the user, or 0. */
static uint32_t find_subids(const char *path, const char *user, uid_t uid)
{
	cleanup_buf struct buf text = BUF_INIT(SUBIDS_FILE);

	return file_read_at(AT_FDCWD, path, &text) < 0
		       ? 0
		       : subids_find(buf_cstr(&text), user, uid, NULL);
}

static bool have_mappers(void)
{
	const char *without = getenv("CAY_WITHOUT");

	if (without != NULL && strstr(without, "newuidmap") != NULL)
		return false;
	/* they gain privileges, which nobody does below this: a user's service whose calls systemd filters is there */
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	return (access("/usr/bin/newuidmap", X_OK) == 0 &&
		       access("/usr/bin/newgidmap", X_OK) == 0) ||
	       (access("/bin/newuidmap", X_OK) == 0 && access("/bin/newgidmap", X_OK) == 0);
}

/*
 * Whose a state of before is: its catalogue's owner, whom root has named by making it in a directory of its own. An account `cay` that comes or goes, or is another
 * on the machine that a state was taken to, changes nothing of that: files that we do not see, and keepers that run, have the old one.
 */
static bool find_owner(struct place *p)
{
	cleanup_fd int dir = open(p->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat above, st;

	if (dir < 0 || fstat(dir, &above) < 0 || above.st_uid != 0 || (above.st_mode & 022) != 0 ||
		fstatat(dir, "cay.db", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		st.st_uid == 0 || st.st_gid == 0)
		return false;
	p->uid = st.st_uid;
	p->gid = st.st_gid;
	return true;
}

static void find_identity(struct place *p)
{
	struct passwd *pw = p->rootless ? getpwuid(geteuid()) : getpwnam("cay");
	struct group *gr = p->rootless ? NULL : getgrnam("cay");

	p->admit_gid = gr != NULL ? gr->gr_gid : (gid_t)-1;
	if (!p->rootless && find_owner(p))
		return;
	if (!p->rootless) {
		p->uid = pw != NULL && pw->pw_uid != 0 ? pw->pw_uid : CAYD_UID;
		p->gid = pw != NULL && pw->pw_uid != 0 ? pw->pw_gid : CAYD_UID;
		return;
	}
	p->uid = geteuid();
	p->gid = getegid();
	if (!have_mappers())
		return;
	p->subuid = find_subids("/etc/subuid", pw != NULL ? pw->pw_name : "", p->uid);
	p->subgid = find_subids("/etc/subgid", pw != NULL ? pw->pw_name : "", p->uid);
	if (p->subgid == 0)
		p->subuid = 0;
}

static int make_parents(const char *path)
{
	char part[PLACE_SIZE];

	(void)!str_copy(part, sizeof(part), path);
	for (char *s = strchr(part + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
		*s = '/';
	}
	return 0;
}

/** struct wish - whose a directory of ours is to be, and how. */
struct wish {
	uid_t uid;
	gid_t gid;
	mode_t mode;
};

/* Made, or owned by root or by who we become; never a symbolic link. Return: a descriptor, or negative with @err set. */
static int open_directory(
	const struct place *p, const char *path, mode_t mode, struct stat *st, struct err *err)
{
	cleanup_fd int at = -1;
	int fd;

	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return err_raise_sys(err, -errno, "make directory '%s'", path);
	at = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0 || fstat(at, st) < 0)
		return err_raise_sys(err, -errno, "directory '%s'", path);
	if (S_ISLNK(st->st_mode))
		return err_hint(err, err_raise(err, ERR_HOST, "'%s' is a symbolic link", path),
			"name the directory that it leads to, or mount that one here (mount --bind)");
	if (!S_ISDIR(st->st_mode))
		return err_raise(err, ERR_HOST, "'%s' is not a directory", path);
	if (st->st_uid != 0 && st->st_uid != p->uid && st->st_uid != geteuid())
		return err_hint(err,
			err_raise(err, ERR_HOST, "'%s' belongs to user %u, not to the server", path,
				st->st_uid),
			"give it to user %u (chown), or name another directory", geteuid());
	fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_raise_sys(err, -errno, "directory '%s'", path) : fd;
}

static bool is_as_wished(const struct place *p, const struct stat *st, struct wish wish)
{
	return (st->st_mode & 07777) == wish.mode &&
	       (p->rootless || (st->st_uid == wish.uid && st->st_gid == wish.gid));
}

static int take_directory(
	const struct place *p, int fd, const char *path, struct wish wish, struct err *err)
{
	if ((!p->rootless && fchown(fd, wish.uid, wish.gid) < 0) || fchmod(fd, wish.mode) < 0)
		return err_raise_sys(err, -errno, "own directory '%s'", path);
	return 0;
}

/* One in a place of ours. */
static int own_directory(const struct place *p, const char *path, struct wish wish, struct err *err)
{
	struct stat st;
	cleanup_fd int fd = open_directory(p, path, wish.mode, &st, err);

	return fd < 0 ? fd : take_directory(p, fd, path, wish, err);
}

/* Has an earlier server of ours left its mark? What anybody may have put into a directory of all is none. */
static bool has_mark(const struct place *p, int fd)
{
	static const char *const marks[] = { "cayd.lock", "cay.db" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		if (fstatat(fd, marks[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
			(st.st_uid == 0 || st.st_uid == p->uid || st.st_uid == geteuid()))
			return true;
	}
	return false;
}

/* What mkfs makes, and the other of our two places where one is in the other. */
static bool is_nobodys(const struct place *p, const char *path, const char *name)
{
	cleanup_free char *whole = str_dupf("%s/%s", str_eq(path, "/") ? "" : path, name);

	return str_eq(name, ".") || str_eq(name, "..") || str_eq(name, "lost+found") ||
	       str_path_under(p->state, whole) || str_path_under(p->run, whole);
}

/* Return: 1 or 0, or -errno. */
static int is_empty(const struct place *p, int fd, const char *path)
{
	DIR *dir = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 0));
	const struct dirent *entry;

	if (dir == NULL)
		return -errno;
	while ((entry = readdir(dir)) != NULL && is_nobodys(p, path, entry->d_name))
		;
	(void)closedir(dir);
	return entry == NULL;
}

/* A place that the user has named, perhaps by mistake: owner and mode of a directory that others use stay as they are. */
static int own_place(const struct place *p, const char *path, struct wish wish, struct err *err)
{
	struct stat st;
	cleanup_fd int fd = open_directory(p, path, wish.mode, &st, err);
	int rc;

	if (fd < 0 || is_as_wished(p, &st, wish))
		return fd < 0 ? fd : 0;
	rc = has_mark(p, fd) ? 1 : is_empty(p, fd, path);
	if (rc < 0)
		return err_raise_sys(err, rc, "read directory '%s'", path);
	if (rc == 0)
		return err_hint(err,
			err_raise(err, ERR_HOST,
				"'%s' holds other files: the server would change its owner and mode",
				path),
			"name a directory of its own, which need not be there: CAY_STATE=DIR, CAY_RUN=DIR");
	return take_directory(p, fd, path, wish, err);
}

int place_find(struct place *p, struct err *err)
{
	const char *socket_path = getenv("CAY_SOCKET");
	int rc;

	*p = (struct place){ .rootless = geteuid() != 0 };
	rc = find_directories(p, err);
	if (rc < 0)
		return rc;
	make_tag(p);
	find_identity(p);
	(void)snprintf(p->socket, sizeof(p->socket), "%s/cayd.sock", p->run);
	if (socket_path != NULL && *socket_path != '\0') {
		rc = set_path(
			p->socket, sizeof(p->socket), str_dup(socket_path), "CAY_SOCKET", err);
		if (rc < 0)
			return rc;
	}
	rc = make_parents(p->run);
	if (rc < 0)
		return err_raise_sys(err, rc, "make directories above '%s'", p->run);
	return own_place(
		p, p->run, (struct wish){ p->uid, p->gid, p->rootless ? 0700 : 0755 }, err);
}

static void remove_beside(const char *catalogue)
{
	static const char *const parts[] = { "-journal", "-wal", "-shm" };
	char path[PLACE_SIZE + 32];

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", catalogue, parts[i]);
		(void)unlink(path);
	}
}

/* Whole or not at all: who is killed meanwhile leaves what the next one throws away, and no half catalogue with a journal of root's beside it. */
static int make_new_catalogue(const struct place *p, const char *path, struct err *err)
{
	cleanup_fd int state = open(p->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char made[PLACE_SIZE + 16];
	struct catalogue *c;
	int rc;

	(void)snprintf(made, sizeof(made), "%s/new.db", p->state);
	(void)unlink(made);
	remove_beside(made);
	rc = catalogue_open(made, true, &c, err);
	if (rc < 0)
		return rc;
	catalogue_close(c); /* with which its log is in it */
	remove_beside(made);
	remove_beside(path); /* of one that is gone: it would be taken for this one's */
	rc = fault("cayd.catalogue.made");
	if (rc == 0 && (state < 0 || rename(made, path) < 0 || fsync(state) < 0))
		rc = -errno;
	return rc < 0 ? err_raise_sys(err, rc, "make '%s'", path) : 0;
}

/* The catalogue, and a reserve for it (src/api/reserve.c), are made while directories can still be written: afterwards cayd may write these files, but make none. */
static int make_catalogue(const struct place *p, struct err *err)
{
	static const char *const names[] = { "cay.db", "cay.db-wal", "cay.db-shm", "reserve" };
	char path[PLACE_SIZE + 16];
	int rc;

	(void)snprintf(path, sizeof(path), "%s/cay.db", p->state);
	if (p->rootless)
		return 0;
	if (access(path, F_OK) < 0) {
		rc = make_new_catalogue(p, path, err);
		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		cleanup_fd int fd = -1;

		(void)snprintf(path, sizeof(path), "%s/%s", p->state, names[i]);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 || fchown(fd, p->uid, p->gid) < 0 || fchmod(fd, 0600) < 0)
			return err_raise_sys(err, -errno, "make '%s'", path);
	}
	return 0;
}

/* The key of the secrets: cayd reads it, nobody else; made once, whole or not at all. */
static int make_secret_key(const struct place *p, struct err *err)
{
	unsigned char key[VAULT_KEY_SIZE];
	char path[PLACE_SIZE + 32], self[32];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/" SECRET_KEY_FILE, p->state);
	if (access(path, F_OK) == 0)
		return 0;
	fd = open(p->state, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0400);
	if (fd < 0 || getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key) ||
		write(fd, key, sizeof(key)) != (ssize_t)sizeof(key) || fsync(fd) < 0 ||
		fchown(fd, p->uid, p->gid) < 0)
		return err_raise_sys(err, -errno, "make '%s'", path);
	explicit_bzero(key, sizeof(key));
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
		return err_raise_sys(err, -errno, "make '%s'", path);
	return 0;
}

static int lock_failed(const struct place *p, int fd, const char *path, struct err *err)
{
	char run[PLACE_SIZE];
	ssize_t n;

	if (errno != EWOULDBLOCK)
		return err_raise_sys(err, -errno, "lock '%s'", path);
	n = pread(fd, run, sizeof(run) - 1, 0);
	run[n > 0 ? n : 0] = '\0';
	(void)err_raise(err, ERR_BUSY, "another cayd serves '%s', from '%s'", p->state, run);
	return err_hint(err, -EBUSY,
		"a state directory has one server: reach it with CAY_RUN=%s, or end it there first",
		run);
}

int place_lock(const struct place *p, struct err *err)
{
	uint64_t deadline = clock_now_ns() + LOCK_NS;
	char path[PLACE_SIZE + 16];
	cleanup_fd int fd = -1;
	int rc = make_parents(p->state);

	if (rc < 0)
		return err_raise_sys(err, rc, "make directories above '%s'", p->state);
	rc = own_place(p, p->state, (struct wish){ .mode = p->rootless ? 0700 : 0755 }, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%s/cayd.lock", p->state);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_raise_sys(err, -errno, "open '%s'", path);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK || clock_now_ns() > deadline)
			return lock_failed(p, fd, path, err);
		(void)poll(NULL, 0, 5);
	}
	/* for whoever finds it taken; where there is no room for it he is told without it */
	if (ftruncate(fd, 0) == 0)
		(void)!pwrite(fd, p->run, strlen(p->run), 0);
	return TAKE_FD(fd);
}

/* Is there a file, or a directory with something in it? */
static bool holds_something(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry = NULL;

	if (dir == NULL)
		return errno == ENOTDIR;
	while ((entry = readdir(dir)) != NULL && entry->d_name[0] == '.')
		;
	(void)closedir(dir);
	return entry != NULL;
}

/* What the storage has and no catalogue knows is removed when a server starts: over a lost one none is made anew. */
static int look_for_catalogue(const struct place *p, struct err *err)
{
	static const char *const names[] = { "pool.btrfs", "pool/live", "pool/layers" };
	char path[PLACE_SIZE + 16];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/cay.db", p->state);
	if (stat(path, &st) == 0 && st.st_size > 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", p->state, names[i]);
		if (holds_something(path))
			return err_hint(err,
				err_raise(err, ERR_CORRUPT,
					"the catalogue '%s/cay.db' is gone or empty, and without it all in '%s' would be removed",
					p->state, path),
				"put the catalogue back (cay.db and cay.db-wal), or move the storage away to begin anew");
	}
	return 0;
}

int place_make(const struct place *p, struct err *err)
{
	char path[PLACE_SIZE + 16];
	int rc = look_for_catalogue(p, err);

	(void)snprintf(path, sizeof(path), "%s/events", p->state);
	if (rc == 0)
		rc = own_directory(p, path, (struct wish){ p->uid, p->gid, 0700 }, err);
	(void)snprintf(path, sizeof(path), "%s/exec", p->state);
	if (rc == 0)
		rc = own_directory(p, path, (struct wish){ p->uid, p->gid, 0700 }, err);
	(void)snprintf(path, sizeof(path), "%s/trust", p->state);
	if (rc == 0)
		rc = own_directory(p, path, (struct wish){ p->uid, p->gid, 0711 }, err);
	(void)snprintf(path, sizeof(path), "%s/keepers", p->run);
	if (rc == 0)
		rc = own_directory(
			p, path, (struct wish){ .mode = p->rootless ? 0700 : 0755 }, err);
	if (rc == 0)
		rc = make_secret_key(p, err);
	return rc == 0 ? make_catalogue(p, err) : rc;
}

int place_program(const char *name, char *path, size_t size)
{
	char own[PATH_MAX];
	int rc = file_own_dir(own, sizeof(own));

	if (rc < 0)
		return rc;
	if (snprintf(path, size, "%s/%s", own, name) < (int)size && access(path, X_OK) == 0)
		return 0;
	if (snprintf(path, size, "%s/" CAY_PROGRAM_DIR "/%s", own, name) >= (int)size)
		return -ENAMETOOLONG;
	return access(path, X_OK) < 0 ? -errno : 0;
}

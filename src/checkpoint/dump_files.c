/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_files.c - descriptors, and the descriptions behind them. A description is looked at once, through a copy of the descriptor that
 * pidfd_getfd() gives; whether two descriptors share one is asked of the kernel (kcmp).
 */
#include "base/str.h"
#include "checkpoint/alive.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <dirent.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#define CONTENT_MAX  (256 << 20) /* of a file without a name */
#define INFO_MAX     (64U << 20) /* of fdinfo: that of an epoll set has a line for each watch */
#define MQUEUE_MAGIC 0x19800202  /* of ipc/mqueue.c */

struct dump_known *dump_remember(
	struct dump *d, uint64_t device, uint64_t inode, int32_t pid, int32_t fd, uint32_t index)
{
	struct dump_known *all = realloc(d->known, (d->n_known + 1) * sizeof(*all));

	if (all == NULL)
		abort();
	d->known = all;
	all[d->n_known] = (struct dump_known){
		.device = device, .inode = inode, .pid = pid, .fd = fd, .index = index
	};
	return &all[d->n_known++];
}

/* Between those of its file, where find_known() has looked for it. */
static void place(struct dump *d, size_t at, const struct dump_known *known)
{
	uint32_t *all = realloc(d->ordered, (d->n_ordered + 1) * sizeof(*all));

	if (all == NULL)
		abort();
	d->ordered = all;
	memmove(all + at + 1, all + at, (d->n_ordered - at) * sizeof(*all));
	all[at] = (uint32_t)(known - d->known);
	d->n_ordered++;
}

uint32_t dump_file_by_path(
	struct dump *d, const char *path, size_t n, bool writable, bool directory)
{
	struct image_description out = { .kind = DESCRIPTION_FILE, .peer = IMAGE_NONE };
	uint32_t count = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(out));

	out.flags = directory ? O_PATH | O_DIRECTORY : writable ? O_RDWR : O_RDONLY;
	for (size_t i = 0; i < d->n_known; i++) {
		struct dump_known *k = &d->known[i];
		const struct image_description *other;

		if (k->fd != -2)
			continue;
		BUG_ON(k->index >= count);
		other = image_row(&d->image, TABLE_DESCRIPTIONS, k->index, sizeof(out));
		if (other->kind == out.kind && other->flags == out.flags &&
			other->path.length == n &&
			memcmp(d->image.tables[TABLE_BYTES].p + other->path.offset, path, n) == 0)
			return k->index;
	}
	out.path = image_add_bytes(&d->image, path, n);
	count = IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &out);
	(void)dump_remember(d, 0, 0, 0, -2, count);
	return count;
}

size_t dump_known_from(const struct dump *d, uint64_t device, uint64_t inode)
{
	size_t low = 0, high = d->n_ordered;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct dump_known *k = &d->known[d->ordered[middle]];

		if (k->device < device || (k->device == device && k->inode < inode))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const struct dump_known *dump_known_next(const struct dump *d, const struct subject *s, size_t *at)
{
	const struct dump_known *k = *at < d->n_ordered ? &d->known[d->ordered[(*at)++]] : NULL;

	return k != NULL && k->device == s->st.st_dev && k->inode == s->st.st_ino ? k : NULL;
}

/* --- kinds --- */

int subject_refuse(const struct subject *s, struct err *err, const char *why)
{
	if (s->carrier >= 0)
		return dump_refuse_at(s->p, s->carrier, err,
			"descriptor %d is a socket with a descriptor waiting in it that is %s (%s)",
			s->carrier, why, s->target);
	return dump_refuse_at(s->p, s->fd, err, "descriptor %d is %s (%s)", s->fd, why, s->target);
}

int subject_busy(const struct dump *d, const struct subject *s, struct err *err, const char *why)
{
	int rc = subject_refuse(s, err, why);

	if (d->examination == NULL)
		err->code = ERR_BUSY;
	return rc;
}

/* What belongs to the image keeps its links when it is removed (overlayfs), so only a look at the name tells. */
bool dump_is_called(const struct dump_process *p, const char *path, const struct stat *st)
{
	cleanup_fd int root = openat(p->tracee.proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int there = root < 0 ? -1
					: raw_openat2(root, path, O_PATH | O_NOFOLLOW, 0,
						  RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS);
	struct stat now;

	return there >= 0 && fstat(there, &now) == 0 && now.st_dev == st->st_dev &&
	       now.st_ino == st->st_ino;
}

bool subject_is_deleted(const struct subject *s)
{
	return dump_is_gone(s->target, s->target_n) && !dump_is_called(s->p, s->target, &s->st);
}

/* The pages may be large and many, or few: they go the way of shared memory. An examination keeps nobody waiting for them. */
static int add_content(struct dump *d, struct subject *s)
{
	uint64_t n = d->examination != NULL ? 0 : (uint64_t)s->st.st_size;
	int rc = n == 0 ? 0
			: shared_memories_read(&d->shared, s->st.st_dev, s->st.st_ino, s->copy, n);

	if (rc == 0 && n > 0)
		dump_content(
			d, shared_memories_find(&d->shared, s->st.st_dev, s->st.st_ino), &s->out);
	return rc;
}

int subject_read_by_own(struct dump *d, struct subject *s, int flags, subject_read *what)
{
	int theirs = s->copy, rc;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", theirs);
	s->copy = open(path, O_RDONLY | O_CLOEXEC | flags);
	rc = s->copy < 0 ? -errno : what(d, s);
	fd_close(&s->copy);
	s->copy = theirs;
	return rc;
}

/* 1 + the description that was seen first of the same file without a name, which has the content; 0 = it is this one. */
static uint64_t first_of_nameless(struct dump *d, const struct subject *s)
{
	size_t at = dump_known_from(d, s->st.st_dev, s->st.st_ino);
	const struct dump_known *k;

	while ((k = dump_known_next(d, s, &at)) != NULL) {
		const struct image_description *o = dump_description(d, k->index);

		if (o->kind == DESCRIPTION_MEMORY)
			return k->index + 1;
		if (o->kind == DESCRIPTION_UNLINKED)
			return o->a != 0 ? o->a : k->index + 1;
	}
	return 0;
}

/* A file without a name, near to where it was. a: see first_of_nameless() */
static int add_unlinked(struct dump *d, struct subject *s, struct err *err)
{
	bool own;
	int rc;

	s->out.kind = DESCRIPTION_UNLINKED;
	s->out.path = image_add_bytes(&d->image, s->target, s->target_n - strlen(DUMP_GONE));
	s->out.a = first_of_nameless(d, s);
	if ((s->out.flags & O_ACCMODE) != O_RDONLY && s->st.st_nlink > 0)
		return subject_refuse(s, err, "a deleted file that has another name");
	if (s->out.a != 0)
		return 0;
	own = (s->out.flags & O_ACCMODE) == O_WRONLY || (s->out.flags & O_DIRECT) != 0;
	rc = s->st.st_size > CONTENT_MAX ? -EFBIG
	     : own                       ? subject_read_by_own(d, s, 0, add_content)
					 : add_content(d, s);
	return rc < 0 ? subject_refuse(s, err,
				rc == -EFBIG ? "a deleted file that is too large"
					     : "a deleted file that cannot be read")
		      : 0;
}

static int add_by_name(struct dump *d, struct subject *s, struct err *err)
{
	int rc = dump_proc(d, s, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		s->out.kind = DESCRIPTION_FILE;
	s->out.path = image_add_bytes(&d->image, s->target, s->target_n);
	return 0;
}

/* By which numbers the program knows the file that it writes to. Only overlays give numbers of other files (sandbox/numbers.h), and device numbers that are free again. */
static void note_number(struct dump *d, const struct subject *s)
{
	struct statfs fs;
	char numbers[48];

	if ((s->out.flags & O_ACCMODE) == O_RDONLY || fstatfs(s->copy, &fs) < 0 ||
		fs.f_type != OVERLAYFS_SUPER_MAGIC)
		return;
	(void)snprintf(numbers, sizeof(numbers), "%lu %lu ", (unsigned long)s->st.st_ino,
		(unsigned long)s->st.st_dev);
	buf_str(&d->numbers, numbers);
	buf_add(&d->numbers, s->target, s->target_n);
	buf_char(&d->numbers, '\0');
}

/* Of mq_open(3): its name looks like that of a file in the root directory. Others are not asked: their file system may be far away. */
static bool is_queue(const struct subject *s)
{
	struct statfs fs;

	return s->target[0] == '/' && strchr(s->target + 1, '/') == NULL &&
	       fstatfs(s->copy, &fs) == 0 && fs.f_type == MQUEUE_MAGIC;
}

/* Of memfd_create(2): a file in the root directory may be called so, too, but that is none of a memory file system. */
static bool is_memory_file(const struct subject *s)
{
	return str_starts(s->target, "/memfd:") && dump_is_gone(s->target, s->target_n) &&
	       fcntl(s->copy, F_GET_SEALS) >= 0;
}

static int add_regular(struct dump *d, struct subject *s, struct err *err)
{
	if (is_memory_file(s)) {
		char *end = strrchr(s->target, ' ');

		/* opened once more through /proc, as what is given away to be read only */
		if (first_of_nameless(d, s) != 0)
			return add_unlinked(d, s, err);
		s->out.kind = DESCRIPTION_MEMORY;
		s->out.a = (uint64_t)fcntl(s->copy, F_GET_SEALS);
		s->out.path =
			image_add_bytes(&d->image, s->target + 7, (size_t)(end - s->target) - 7);
		return add_content(d, s) < 0
			       ? subject_refuse(s, err, "a memory file that cannot be read")
			       : 0;
	}
	if (is_queue(s))
		return subject_refuse(s, err, "a POSIX message queue");
	if (s->target[0] != '/')
		return subject_refuse(s, err, "of a kind that cannot be carried over yet");
	if (subject_is_deleted(s))
		return add_unlinked(d, s, err);
	note_number(d, s);
	return add_by_name(d, s, err);
}

/* A place (O_PATH): of whatever kind the file is, nobody has opened it. */
static int add_place(struct dump *d, struct subject *s, struct err *err)
{
	bool removed = s->target[0] == '/' && subject_is_deleted(s);

	if (s->target[0] != '/' || (removed && !S_ISDIR(s->st.st_mode)))
		return subject_refuse(s, err, "a place (O_PATH) that has no name");
	if (removed) {
		dump_removed_open(d, s);
		return 0;
	}
	if (S_ISLNK(s->st.st_mode))
		s->out.flags |= O_NOFOLLOW;
	return add_by_name(d, s, err);
}

static int add_character(struct dump *d, struct subject *s, struct err *err)
{
	static const unsigned int minors[] = { 3, 5, 7, 8, 9 }; /* null zero full random urandom */
	bool known = false;
	int rc = dump_terminal(d, s, err);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	for (size_t i = 0; i < ARRAY_SIZE(minors); i++)
		known |= s->st.st_rdev == makedev(1, minors[i]);
	if (!known)
		return subject_refuse(s, err, "a device that cannot be carried over yet");
	s->out.kind = DESCRIPTION_FILE;
	s->out.path = image_add_bytes(&d->image, s->target, s->target_n);
	return 0;
}

/*
 * Is it a semaphore? Kernels before 6.4 do not say: who reads a semaphore takes one of its @count, of others all. While all stand still nobody else reads it, and each read and
 * write here finds what it wants at once; who waits for an edge may be told of one that was none, as epoll(7) allows.
 */
static int try_eventfd(int fd, uint64_t count, bool *ret)
{
	const uint64_t more = count < 2 ? 2 : 0;
	uint64_t taken = 0, left;

	if (more > 0 && write(fd, &more, sizeof(more)) != sizeof(more))
		return -EIO;
	if (read(fd, &taken, sizeof(taken)) != sizeof(taken))
		return -EIO;
	*ret = taken == 1;
	left = count + more - taken;
	if (left > count)
		return read(fd, &taken, sizeof(taken)) == sizeof(taken) ? 0 : -EIO;
	left = count - left;
	return left == 0 || write(fd, &left, sizeof(left)) == sizeof(left) ? 0 : -EIO;
}

static int add_eventfd(struct dump *d, struct subject *s, struct err *err)
{
	const char *text = buf_cstr(&s->info);
	bool semaphore = proc_number(text, "eventfd-semaphore", 10, 0) != 0;

	s->out.kind = DESCRIPTION_EVENTFD;
	s->out.a = proc_number(text, "eventfd-count", 16, 0);
	if ((proc_value(text, "eventfd-semaphore") == NULL ||
		    feature_withheld(FEATURE_EVENTFD_SEMAPHORE)) &&
		d->examination == NULL && try_eventfd(s->copy, s->out.a, &semaphore) < 0)
		return subject_refuse(s, err, "an eventfd that cannot be read");
	s->out.b = semaphore;
	return 0;
}

static int add_anonymous(struct dump *d, struct subject *s, struct err *err)
{
	const char *text = buf_cstr(&s->info);

	if (str_eq(s->target, "anon_inode:[eventfd]"))
		return add_eventfd(d, s, err);
	if (str_eq(s->target, "anon_inode:[eventpoll]")) {
		s->out.kind = DESCRIPTION_EPOLL;
		return 0;
	}
	if (str_eq(s->target, "anon_inode:[signalfd]")) {
		s->out.kind = DESCRIPTION_SIGNALFD;
		s->out.a = proc_number(text, "sigmask", 16, 0);
		return 0;
	}
	if (str_eq(s->target, "anon_inode:inotify"))
		return dump_inotify(d, s, err);
	if (str_eq(s->target, "anon_inode:[pidfd]"))
		return dump_pidfd(d, s, err);
	if (str_eq(s->target, "anon_inode:seccomp notify"))
		return subject_refuse(s, err, "a listener of a system call filter");
	if (str_eq(s->target, "anon_inode:[timerfd]") && dump_timerfd(d, s) == 0)
		return 0;
	return subject_refuse(s, err, "of a kind that cannot be carried over yet");
}

/* Of a directory nobody is told by a signal but who watches it so, and what for, the kernel shows nowhere. */
static int add_directory(struct dump *d, struct subject *s, struct err *err)
{
	struct f_owner_ex owner = { 0 };
	int rc;

	if (fcntl(s->copy, F_GETOWN_EX, &owner) == 0 && owner.pid > 0)
		return subject_refuse(s, err, "a directory that is watched by F_NOTIFY (fcntl(2))");
	if (subject_is_deleted(s)) {
		dump_removed_open(d, s);
		return 0;
	}
	rc = add_by_name(d, s, err);
	if (rc == 0 && s->out.kind == DESCRIPTION_FILE && dump_reading(d, s) < 0)
		rc = subject_refuse(s, err, "a directory that cannot be read on");
	return rc;
}

static int add_by_kind(struct dump *d, struct subject *s, struct err *err)
{
	if ((s->flags & O_PATH) != 0)
		return add_place(d, s, err);
	if (str_starts(s->target, "anon_inode:"))
		return add_anonymous(d, s, err);
	switch (s->st.st_mode & S_IFMT) {
	case S_IFREG:
		return add_regular(d, s, err);
	case S_IFDIR:
		return add_directory(d, s, err);
	case S_IFCHR:
		return add_character(d, s, err);
	case S_IFIFO:
		return dump_pipe(d, s, err);
	case S_IFSOCK:
		return dump_socket(d, s, err);
	default:
		return subject_refuse(s, err, "of a kind that cannot be carried over yet");
	}
}

/* --- descriptors --- */

/* What kcmp(2) says of two descriptors, besides an error: 0 = one description. */
enum { BEFORE = 1, BEHIND };

static int compare(const struct dump_known *k, const struct subject *s)
{
	if (k->device != s->st.st_dev)
		return k->device < s->st.st_dev ? BEFORE : BEHIND;
	if (k->inode != s->st.st_ino)
		return k->inode < s->st.st_ino ? BEFORE : BEHIND;
	return raw_kcmp(k->pid, s->host, KCMP_FILE, (unsigned long)k->fd, (unsigned long)s->fd);
}

/* Where there is no order: processes that run may have closed what they are known by. */
static const struct dump_known *find_by_all(
	const struct dump *d, const struct subject *s, size_t *ret_at)
{
	const struct dump_known *k;
	size_t at = dump_known_from(d, s->st.st_dev, s->st.st_ino);

	*ret_at = at;
	while ((k = dump_known_next(d, s, &at)) != NULL) {
		if (compare(k, s) == 0)
			return k;
	}
	return NULL;
}

/* All epoll sets have one inode, and relatives open one file each for itself: so they stand in the order that the kernel tells. @ret_at: where @s comes when it is none of them. */
static const struct dump_known *find_known(
	const struct dump *d, const struct subject *s, size_t *ret_at)
{
	size_t low = 0, high = d->n_ordered;

	while (low < high) {
		size_t middle = (low + high) / 2;
		const struct dump_known *k = &d->known[d->ordered[middle]];
		int order = compare(k, s);

		if (order == 0)
			return k;
		if (order != BEFORE && order != BEHIND)
			return find_by_all(d, s, ret_at);
		if (order == BEFORE)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_at = low;
	return NULL;
}

/*
 * POSIX locks are shown to who looks at their process alone. Whether anybody has one, a question of ours tells; of what is no file the kernel itself knows the answer, and of a
 * file its file system may have to ask a server, or a process that stands still.
 */
static bool may_be_locked(const struct subject *s)
{
	struct flock any = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return S_ISREG(s->st.st_mode) || S_ISDIR(s->st.st_mode) || S_ISLNK(s->st.st_mode) ||
	       fcntl(s->copy, F_GETLK, &any) < 0 || any.l_type != F_UNLCK;
}

/* Of a description that is known, what /proc tells of a further descriptor is where it leads and whether its process has locked it. The first is asked of files alone. */
static bool tells_nothing_new(const struct image_description *known, bool may_be_locked)
{
	return !may_be_locked && (known->flags & (O_PATH | O_ASYNC)) == 0 &&
	       !image_opened_by_each(known);
}

/* Ours of it, for dump_files_end(). */
static int keep_socket(struct dump *d, const struct subject *s, uint32_t index)
{
	struct dump_socket *all = realloc(d->sockets, (d->n_sockets + 1) * sizeof(*all));
	int rc;

	if (all == NULL)
		abort();
	d->sockets = all;
	all[d->n_sockets] = (struct dump_socket){ .p = s->p,
		.fd = s->carrier >= 0 ? s->carrier : s->fd,
		.copy = dump_copy(d, s->copy),
		.passed = s->carrier >= 0,
		.index = index };
	rc = all[d->n_sockets++].copy;
	return rc < 0 ? rc : 0;
}

/* @s is another descriptor of description @index. */
static int look_again(struct dump *d, struct subject *s, uint32_t index, struct err *err)
{
	const struct image_description *known = dump_description(d, index);
	int rc = 0;

	dump_owner_again(d, s, index);
	if (known->kind == DESCRIPTION_PROC)
		rc = dump_proc_again(d, s, known, err);
	else if (known->kind == DESCRIPTION_PIDFD)
		rc = dump_pidfd_again(d, s, known, err);
	return rc < 0 ? rc : dump_locks(d, s, false, err);
}

/* @at: of find_known(). */
static int add_new(struct dump *d, struct subject *s, size_t at, uint32_t *index, struct err *err)
{
	struct dump_known *known;
	int rc;

	s->out = (struct image_description){ .peer = IMAGE_NONE,
		.mode = s->st.st_mode,
		.uid = s->st.st_uid,
		.gid = s->st.st_gid,
		.flags = s->flags };
	s->out.position = proc_number(buf_cstr(&s->info), "pos", 10, 0);
	s->out.first_lock = image_count(&d->image, TABLE_LOCKS, sizeof(struct image_lock));
	rc = dump_locks(d, s, true, err);
	if (rc == 0)
		rc = add_by_kind(d, s, err);
	if (rc < 0)
		return rc;
	dump_owner(d, s);
	*index = IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &s->out);
	known = dump_remember(d, s->st.st_dev, s->st.st_ino, s->host, s->fd, *index);
	place(d, at, known);
	if (s->out.kind == DESCRIPTION_UNLINKED && S_ISREG(s->st.st_mode))
		dump_mapped_identity(s->copy, &known->mapped_device, &known->mapped_inode);
	/* nothing is read from those that run */
	if (d->examination != NULL)
		return 0;
	if (s->rests)
		return dump_timerfd_rests(d, s, *index);
	return s->waits ? keep_socket(d, s, *index) : 0;
}

/** struct view - what /proc tells of one descriptor of ours, whatever it is of: link and fdinfo, looked up once. */
struct view {
	int number, link, info;
};

static int open_view(struct view *v, int number)
{
	char path[48];

	fd_close(&v->link);
	fd_close(&v->info);
	v->number = -1;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
	v->link = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", number);
	v->info = v->link < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	if (v->info < 0)
		return -errno;
	v->number = number;
	return 0;
}

/* Copies come one after the other and mostly have one number: a name in /proc that is looked up takes longer than all else that is asked. */
static int view(int number, struct view *ret)
{
	static struct view v = { .number = -1, .link = -1, .info = -1 };
	int rc = v.number == number ? 0 : open_view(&v, number);

	*ret = v;
	return rc;
}

/* What /proc tells of it; @proc: directory of its owner, where only that shows all (locks of the process). */
static int look_at(struct subject *s, int proc, bool by_owner)
{
	struct view ours;
	char path[32];
	ssize_t n;
	int rc = view(s->copy, &ours);

	if (rc < 0)
		return rc;
	s->waits = s->rests = false;
	n = readlinkat(ours.link, "", s->target, sizeof(s->target) - 1);
	if (n < 0)
		return -errno;
	s->target[n] = '\0';
	s->target_n = (size_t)n;
	(void)snprintf(path, sizeof(path), "fdinfo/%d", s->fd);
	buf_reset(&s->info);
	rc = by_owner ? file_read_at(proc, path, &s->info) : file_read_again(ours.info, &s->info);
	s->flags = (uint32_t)proc_number(buf_cstr(&s->info), "flags", 8, 0) & ~(uint32_t)O_CLOEXEC;
	return rc;
}

/* @proc: as above. Return: 0, a negative error; without one in @err it could not be looked at. */
static int find_or_add(
	struct dump *d, struct subject *s, int proc, uint32_t *index, struct err *err)
{
	const struct dump_known *known;
	bool by_owner;
	size_t at = 0;
	int rc;

	if (fstat(s->copy, &s->st) < 0)
		return -errno;
	known = find_known(d, s, &at);
	if (known != NULL)
		*index = known->index;
	by_owner = may_be_locked(s);
	if (known != NULL && tells_nothing_new(dump_description(d, known->index), by_owner))
		return 0;
	rc = look_at(s, proc, by_owner);
	if (rc < 0)
		return rc;
	return known != NULL ? look_again(d, s, *index, err) : add_new(d, s, at, index, err);
}

/* What a description was opened with shows in each of its descriptors where it came from TIOCGPTPEER (whatever proc_pid_fdinfo(5) says), so only the process knows. Of one that runs nobody does. */
static int read_close_on_exec(const struct subject *s, uint32_t *ret)
{
	long told = s->p->told == NULL ? 0 : dump_told(s->p, TOLD_FDS)[s->p->fd_at].result;

	*ret = told == FD_CLOEXEC;
	return told < 0 ? (int)told : 0;
}

static int dump_one(struct dump *d, struct subject *s, int pidfd, struct err *err)
{
	struct image_fd out = { .fd = s->fd };
	size_t known = d->n_known;
	int rc;

	alive();
	s->copy = raw_pidfd_getfd(pidfd, s->fd);
	rc = s->copy < 0 ? s->copy : read_close_on_exec(s, &out.close_on_exec);
	if (rc == 0)
		rc = find_or_add(d, s, s->p->tracee.proc, &out.description, err);
	if (rc < 0 && err->code == ERR_NONE)
		rc = err_raise_sys(err, rc, "look at descriptor %d of process %d (%s)", s->fd,
			s->p->tracee.inner, s->p->name);
	/* the process that is seen first with an epoll set puts it together again */
	if (rc == 0 && d->n_known > known && s->out.kind == DESCRIPTION_EPOLL)
		rc = dump_watches(d, s, err);
	if (rc == 0)
		(void)IMAGE_ADD(&d->image, TABLE_FDS, &out);
	if (s->fd > d->highest_fd)
		d->highest_fd = s->fd;
	(void)close(s->copy);
	s->copy = -1;
	return rc;
}

/* What only a process that has it can put together again. */
static bool needs_owner(const struct image_description *out)
{
	return out->kind == DESCRIPTION_EPOLL || out->kind == DESCRIPTION_INOTIFY ||
	       image_opened_by_each(out);
}

int dump_passed(
	struct dump *d, const struct dump_socket *carrier, int fd, uint32_t *index, struct err *err)
{
	struct subject s = { .p = carrier->p,
		.host = getpid(),
		.carrier = carrier->fd,
		.fd = fd,
		.copy = fd,
		.info = BUF_INIT(INFO_MAX) };
	cleanup_fd int proc = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t known = d->n_known;
	int rc = proc < 0 ? -errno : find_or_add(d, &s, proc, index, err);

	if (rc == 0 && needs_owner(dump_description(d, *index)) &&
		(d->n_known > known || image_opened_by_each(dump_description(d, *index))))
		rc = subject_refuse(&s, err, "of a kind that cannot be carried over so");
	/* one that was not known is known by this descriptor from now on */
	if (rc < 0 || d->n_known == known)
		(void)close(fd);
	else
		(void)dump_copy_keep(d, fd);
	buf_free(&s.info);
	return rc < 0 && err->code == ERR_NONE ? subject_refuse(&s, err, "not to be read") : rc;
}

/* Where @link of /proc/PID leads. Return: length of @path, 0 when it leads nowhere that has had a name. @ret_removed: whether that is all, then @st is what it was; a directory may be called as if it were. */
static size_t read_directory(const struct dump_process *p, const char *link, char path[PATH_MAX],
	struct stat *st, bool *ret_removed)
{
	ssize_t n = readlinkat(p->tracee.proc, link, path, PATH_MAX - 1);

	if (n <= 0 || path[0] != '/')
		return 0;
	path[n] = '\0';
	*ret_removed = false;
	/* the others are not asked while all stands still: their file system may be far away */
	if (!dump_is_gone(path, (size_t)n))
		return (size_t)n;
	if (fstatat(p->tracee.proc, link, st, 0) < 0)
		return 0;
	*ret_removed = !dump_is_called(p, path, st);
	return (size_t)n;
}

static int dump_directories(struct dump *d, struct dump_process *p, struct err *err)
{
	bool removed = false;
	char path[PATH_MAX];
	const char *rest;
	struct stat st;
	size_t n = read_directory(p, "cwd", path, &st, &removed);

	if (n == 0)
		return dump_refuse(p, err, "its working directory cannot be found");
	if (dump_proc_owner(path, &rest) != 0)
		return dump_refuse(p, err, "its working directory is that of a process in /proc");
	p->out.cwd = removed ? dump_removed_place(d, path, &st)
			     : dump_file_by_path(d, path, n, false, true);
	n = read_directory(p, "root", path, &st, &removed);
	if (n == 0 || removed)
		return dump_refuse(p, err, "its root directory was removed");
	p->out.root = n == 1 ? IMAGE_NONE : dump_file_by_path(d, path, n, false, true);
	return 0;
}

int dump_list_fds(struct dump_process *p)
{
	int list = openat(p->tracee.proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list < 0 ? NULL : fdopendir(list);
	const struct dirent *e;
	uint64_t fd;

	if (dir == NULL)
		return -errno;
	p->n_fds = 0;
	while ((e = readdir(dir)) != NULL) {
		int *more;

		if (str_to_u64(e->d_name, 0, INT32_MAX, &fd) < 0)
			continue;
		more = realloc(p->fds, (p->n_fds + 1) * sizeof(*more));
		if (more == NULL)
			abort();
		p->fds = more;
		p->fds[p->n_fds++] = (int)fd;
	}
	(void)closedir(dir);
	return 0;
}

int dump_files(struct dump *d, struct dump_process *p, struct err *err)
{
	struct subject s = { .p = p,
		.host = p->tracee.host,
		.carrier = -1,
		.copy = -1,
		.info = BUF_INIT(INFO_MAX) };
	cleanup_fd int pidfd = raw_pidfd_open(p->tracee.host);
	int rc = pidfd < 0 ? pidfd : d->examination != NULL ? dump_list_fds(p) : 0;

	if (rc < 0)
		return err_raise_sys(
			err, rc, "list the descriptors of process %d", p->tracee.inner);
	p->out.first_fd = image_count(&d->image, TABLE_FDS, sizeof(struct image_fd));
	p->out.first_watch = image_count(&d->image, TABLE_WATCHES, sizeof(struct image_watch));
	for (p->fd_at = 0; rc == 0 && p->fd_at < p->n_fds; p->fd_at++) {
		s.fd = p->fds[p->fd_at];
		rc = dump_one(d, &s, pidfd, err);
		if (rc < 0 && dump_note(d, err))
			rc = 0;
	}
	buf_free(&s.info);
	dump_locks_end(d, p);
	p->out.n_fds = image_count(&d->image, TABLE_FDS, sizeof(struct image_fd)) - p->out.first_fd;
	return rc == 0 ? dump_directories(d, p, err) : rc;
}

/* --- ends that belong together --- */

struct image_description *dump_description(struct dump *d, uint32_t i)
{
	return image_row(&d->image, TABLE_DESCRIPTIONS, i, sizeof(struct image_description));
}

int dump_files_end(struct dump *d, struct err *err)
{
	int rc = dump_queues(d, err);

	if (rc < 0)
		return rc;
	dump_pipes_end(d);
	rc = dump_watches_end(d, err);
	return rc == 0 ? dump_sockets_end(d, err) : rc;
}

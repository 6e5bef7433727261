/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_inotify.c - inotify: the kernel tells number, mask and inode of each watch, not the name that was given. Names are looked for at the end,
 * for all processes at once: in their working directories first, then where programs watch, as far as that can be done while all stand still.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define ENTRIES_MAX 20000U /* below one place */
#define HANDLE_MAX  128
#define HANDLE_FID  0x200 /* AT_HANDLE_FID: to be compared only */
#define QUEUE_MAX   (8U << 20)

/** struct search - a walk over the sandbox's files for the watches that have no name yet. */
struct search {
	struct dump *d;
	size_t missing;
	unsigned int entries; /* looked at below one place */
	struct buf queue;     /* directories still to be listed, each with its NUL */
	char path[PATH_MAX];
};

static int add_watch(struct dump *d, struct subject *s, const char *line)
{
	struct image_notification out = { 0 };
	struct dump_watch *all = realloc(d->watches, (d->n_watches + 1) * sizeof(*all));
	unsigned int wd, device, mask;
	unsigned long inode;
	char handle[2 * HANDLE_MAX + 1] = "";

	if (all == NULL)
		abort();
	d->watches = all;
	if (sscanf(line, "inotify wd:%x ino:%lx sdev:%x mask:%x", &wd, &inode, &device, &mask) != 4)
		return -EINVAL;
	(void)sscanf(line, "inotify %*s %*s %*s %*s %*s %*s %*s f_handle:%256[0-9a-f]", handle);
	out.wd = (int32_t)wd;
	out.mask = mask;
	all[d->n_watches++] = (struct dump_watch){ .p = s->p,
		.fd = s->fd,
		.inode = inode,
		.device = makedev(device >> 20, device & 0xfffff),
		.row = IMAGE_ADD(&d->image, TABLE_NOTIFICATIONS, &out) };
	memcpy(all[d->n_watches - 1].handle, handle, sizeof(handle));
	s->out.b++;
	return 0;
}

int dump_inotify(struct dump *d, struct subject *s, struct err *err)
{
	int waiting = 0, rc = 0;

	s->out.kind = DESCRIPTION_INOTIFY;
	s->out.a = image_count(&d->image, TABLE_NOTIFICATIONS, sizeof(struct image_notification));
	if (ioctl(s->copy, FIONREAD, &waiting) < 0 || waiting > 0)
		return subject_busy(d, s, err,
			"an inotify queue with events that nobody has read yet, which cannot be made again");
	for (const char *line = strstr(buf_cstr(&s->info), "inotify wd:"); rc == 0 && line != NULL;
		line = strstr(line + 1, "inotify wd:"))
		rc = add_watch(d, s, line);
	return rc < 0 ? subject_refuse(s, err, "an inotify queue that cannot be read") : 0;
}

/* --- names --- */

/* The handle of a file as fdinfo writes it. */
static void read_handle(int dir, const char *name, char text[2 * HANDLE_MAX + 1])
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + HANDLE_MAX];
	} u = { .h = { .handle_bytes = HANDLE_MAX } };
	int mount;

	text[0] = '\0';
	if (name_to_handle_at(
		    dir, name, &u.h, &mount, HANDLE_FID | (name[0] == 0 ? AT_EMPTY_PATH : 0)) < 0)
		return;
	for (unsigned int i = 0; i < u.h.handle_bytes; i++)
		(void)snprintf(text + 2 * (size_t)i, 3, "%02x", u.h.f_handle[i]);
}

/* A number alone says little: in an overlay, files of two layers may share it. */
static bool is_same(const struct dump_watch *w, const struct stat *st, int dir, const char *name)
{
	char handle[2 * HANDLE_MAX + 1];

	if (w->inode != st->st_ino)
		return false;
	if (w->handle[0] == '\0')
		return w->device == st->st_dev;
	read_handle(dir, name, handle);
	return str_eq(w->handle, handle);
}

/* Nothing else waits in the queue: what we undo in it may be read away. */
static void forget_probe(int queue, int wd)
{
	char event[sizeof(struct inotify_event) + NAME_MAX + 1];
	int waiting = 0;

	if (inotify_rm_watch(queue, wd) == 0 && ioctl(queue, FIONREAD, &waiting) == 0 &&
		waiting > 0)
		(void)!read(queue, event, sizeof(event));
}

/*
 * Where file systems have no handles of their own (an overlay above another one) the kernel makes them up of numbers, which a file and a directory may share. The queue
 * itself knows: what it watches already cannot be added. That is asked while nobody runs, and of what has the number alone.
 */
static bool is_watched(
	const struct search *s, const struct dump_watch *w, int dir, const char *name)
{
	cleanup_fd int there =
		openat(dir, name[0] != '\0' ? name : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	cleanup_fd int process = s->d->examination != NULL ? -1 : raw_pidfd_open(w->p->tracee.host);
	cleanup_fd int queue = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, w->fd, 0);
	char path[32];
	int wd;

	if (there < 0 || queue < 0)
		return true;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", there);
	wd = inotify_add_watch(queue, path, IN_MASK_CREATE | IN_ATTRIB);
	if (wd < 0)
		return true;
	forget_probe(queue, wd);
	return false;
}

static void compare(struct search *s, const struct stat *st, int dir, const char *name)
{
	for (size_t i = 0; i < s->d->n_watches; i++) {
		struct dump_watch *w = &s->d->watches[i];
		struct image_notification *row;

		if (w->found || !is_same(w, st, dir, name) || !is_watched(s, w, dir, name))
			continue;
		row = image_row(&s->d->image, TABLE_NOTIFICATIONS, w->row, sizeof(*row));
		row->path = image_add_bytes(&s->d->image, s->path, strlen(s->path));
		w->found = true;
		s->missing--;
	}
}

static void look_at(struct search *s, int dir, const char *name)
{
	size_t n = strlen(s->path);
	struct stat st;

	if (str_eq(name, ".") || str_eq(name, "..") || n + strlen(name) + 2 > sizeof(s->path) ||
		fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	s->entries++;
	(void)snprintf(s->path + n, sizeof(s->path) - n, "%s%s", n > 1 ? "/" : "", name);
	compare(s, &st, dir, name);
	if (S_ISDIR(st.st_mode) && !str_eq(s->path, "/proc") && !str_eq(s->path, "/sys"))
		buf_add(&s->queue, s->path, strlen(s->path) + 1);
	s->path[n] = '\0';
}

/* The entries of directory s->path; its directories join the queue. */
static void list(struct search *s, int root)
{
	const char *below = s->path + strspn(s->path, "/");
	int fd = openat(root, below[0] != '\0' ? below : ".",
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (dir == NULL)
		return;
	while (s->missing > 0 && s->entries < ENTRIES_MAX && (e = readdir(dir)) != NULL)
		look_at(s, fd, e->d_name);
	(void)closedir(dir);
}

/* @path inside, and what is below, the nearest first: what is watched seldom lies deep. */
static void search_below(struct search *s, const struct dump_process *p, const char *path)
{
	cleanup_fd int root = openat(p->tracee.proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *below = path + strspn(path, "/");
	struct stat st;

	if (s->missing == 0 || root < 0 || str_copy(s->path, sizeof(s->path), path) < 0 ||
		fstatat(root, below, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
		return;
	compare(s, &st, root, below);
	s->entries = 0;
	buf_reset(&s->queue);
	buf_add(&s->queue, path, strlen(path) + 1);
	for (size_t at = 0; s->missing > 0 && s->entries < ENTRIES_MAX && at < s->queue.n;) {
		size_t n = strlen(s->queue.p + at) + 1;

		memcpy(s->path, s->queue.p + at, n);
		at += n;
		list(s, root);
	}
}

static void search_cwd(struct search *s, const struct dump_process *p)
{
	char path[PATH_MAX];
	ssize_t n = readlinkat(p->tracee.proc, "cwd", path, sizeof(path) - 1);

	if (n <= 1 || s->missing == 0)
		return;
	path[n] = '\0';
	search_below(s, p, path);
}

int dump_inotify_end(struct dump *d, struct err *err)
{
	static const char *const places[] = { "/tmp", "/etc", "/run", "/home", "/root", "/srv",
		"/opt", "/var", "/dev", "/" };
	struct search s = { .d = d, .missing = d->n_watches, .queue = BUF_INIT(QUEUE_MAX) };

	if (s.missing == 0)
		return 0;
	for (size_t i = 0; i < d->n; i++) {
		if (!d->processes[i].tracee.zombie)
			search_cwd(&s, &d->processes[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		search_below(&s, d->watches[0].p, places[i]);
	buf_free(&s.queue);
	for (size_t i = 0; i < d->n_watches; i++) {
		const struct dump_watch *w = &d->watches[i];

		if (!w->found)
			return dump_refuse(w->p, err,
				"descriptor %d is an inotify queue that watches something whose name was not found (inode %lu)",
				w->fd, (unsigned long)w->inode);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_inotify.c - inotify: the kernel tells number, mask and inode of each watch, not the name that was given. Names are looked for at the end,
 * for all processes at once: in their working directories first, then where programs watch, as far as that can be done while all stand still. Before that, while they run,
 * they are looked for however deep they lie; what was found so is only looked at again.
 */
#include "base/clock.h"
#include "base/str.h"
#include "checkpoint/alive.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#define ENTRIES_MAX 20000U /* below one place, while all stand still */
#define HANDLE_FID  0x200  /* AT_HANDLE_FID of Linux 6.5: to be compared only */
#define QUEUE_MAX   (64U << 20)
#define FORESEE_NS  (10 * NS_PER_S) /* of a search while they run */
#define FRONTS_MAX  32
#define UNSURE_MAX  40000U /* entries further on, where all were found but may be others */
#define TOLD_OF_US  (IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE)

static const char *const places[] = { "/tmp", "/etc", "/run", "/home", "/root", "/srv", "/opt",
	"/var", "/dev", "/" };

/** struct search - a walk over the sandbox's files for the watches that have no name yet. */
struct search {
	const struct dump *d;
	struct dump_watch **watches; /* by rising inode */
	size_t n, missing;
	size_t unsure;     /* of what was found: only by its number, and no directory */
	unsigned int more; /* entries that are looked at for the sake of these */
	bool near;         /* below a working directory: what has the number is it */
	unsigned int entries, entries_max; /* looked at below one place, and how many at the most */
	uint64_t deadline_ns;              /* no more is listed then; 0 = no matter */
	struct buf queue;                  /* directories still to be listed, each with its NUL */
	struct buf *paths; /* gets all that may be it, each with its NUL; NULL = it has to be */
	char path[PATH_MAX];
};

/* Is @handle so many bytes of @inode, and a generation of 0? */
static bool is_number(const char *handle, uint64_t inode, size_t width)
{
	char text[2 * (sizeof(uint64_t) + sizeof(uint32_t)) + 1];

	for (size_t i = 0; i < width + sizeof(uint32_t); i++)
		(void)snprintf(text + 2 * i, 3, "%02x",
			i < width ? (unsigned int)(inode >> (8 * i)) & 0xff : 0U);
	return str_eq(handle, text);
}

/* Is its handle no more than its number? The kernel makes up such ones (FILEID_INO64_GEN; before Linux 6.5 FILEID_INO32_GEN), or none at all: is_watched(). */
static bool is_made_up(const struct dump_watch *w)
{
	return w->handle[0] == '\0' || is_number(w->handle, w->inode, sizeof(uint64_t)) ||
	       is_number(w->handle, w->inode, sizeof(uint32_t));
}

/* Of a line of fdinfo; gives the mask. */
static int parse_watch(const char *line, struct dump_watch *w, struct image_notification *out)
{
	unsigned int wd, device, mask;
	unsigned long inode;

	if (sscanf(line, "inotify wd:%x ino:%lx sdev:%x mask:%x", &wd, &inode, &device, &mask) != 4)
		return -EINVAL;
	w->handle[0] = '\0';
	(void)sscanf(line, "inotify %*s %*s %*s %*s %*s %*s %*s f_handle:%256[0-9a-f]", w->handle);
	w->inode = inode;
	/* who has none of its own gives none to name_to_handle_at(2) there */
	if (is_made_up(w) && (feature_withheld(FEATURE_FILE_IDS) ||
				     is_number(w->handle, w->inode, sizeof(uint32_t))))
		w->handle[0] = '\0';
	w->device = makedev(device >> 20, device & 0xfffff);
	out->wd = (int32_t)wd;
	out->mask = mask;
	return 0;
}

static struct dump_watch *append(struct dump_watch **all, size_t *n)
{
	struct dump_watch *more = realloc(*all, (*n + 1) * sizeof(*more));

	if (more == NULL)
		abort();
	*all = more;
	more[*n] = (struct dump_watch){ 0 };
	return &more[(*n)++];
}

static void forget(struct dump_watch *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(all[i].path);
	free(all);
}

static int add_watch(struct dump *d, struct subject *s, const char *line)
{
	struct image_notification out = { 0 };
	struct dump_watch *w = append(&d->watches, &d->n_watches);

	if (parse_watch(line, w, &out) < 0)
		return -EINVAL;
	w->p = s->p;
	w->fd = s->fd;
	w->row = IMAGE_ADD(&d->image, TABLE_NOTIFICATIONS, &out);
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

/* The handle of a file as fdinfo writes it. Kernels before 6.5 give only such as could be opened, and know no @HANDLE_FID. */
static void read_handle(int dir, const char *name, char text[2 * DUMP_HANDLE_MAX + 1])
{
	const int flags = name[0] == '\0' ? AT_EMPTY_PATH : 0;
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + DUMP_HANDLE_MAX];
	} u = { .h = { .handle_bytes = DUMP_HANDLE_MAX } };
	int mount;

	text[0] = '\0';
	if ((feature_withheld(FEATURE_FILE_IDS) ||
		    name_to_handle_at(dir, name, &u.h, &mount, flags | HANDLE_FID) < 0) &&
		name_to_handle_at(dir, name, &u.h, &mount, flags) < 0)
		return;
	for (unsigned int i = 0; i < u.h.handle_bytes; i++)
		(void)snprintf(text + 2 * (size_t)i, 3, "%02x", u.h.f_handle[i]);
}

/* A number alone says little: in an overlay, files of two layers may share it (and have their layer's device, not the overlay's: is_watched() tells which it is). */
static bool is_same(const struct dump_watch *w, const struct stat *st, int dir, const char *name)
{
	char handle[2 * DUMP_HANDLE_MAX + 1];

	if (w->inode != st->st_ino)
		return false;
	if (w->handle[0] == '\0')
		return w->device == st->st_dev || !S_ISDIR(st->st_mode);
	read_handle(dir, name, handle);
	return str_eq(w->handle, handle);
}

/*
 * Directories of an overlay are numbered as they are met, files as where they lie: each of its directories may have a file of that number. While all run nobody can tell
 * (is_watched()), and mostly directories are watched: then the search goes on for a while behind a file.
 */
static bool is_sure(const struct search *s, const struct dump_watch *w, const struct stat *st)
{
	return s->paths == NULL || s->near || S_ISDIR(st->st_mode) || !is_made_up(w);
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
	cleanup_fd int process =
		w->p == NULL || s->d->examination != NULL ? -1 : raw_pidfd_open(w->p->tracee.host);
	cleanup_fd int queue = process < 0 ? -1 : raw_pidfd_getfd(process, w->fd);
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

static int by_inode(const void *a, const void *b)
{
	uint64_t x = (*(struct dump_watch *const *)a)->inode,
		 y = (*(struct dump_watch *const *)b)->inode;

	return x < y ? -1 : x > y;
}

/* The first of them with that inode, or a later one. */
static size_t first_of(struct dump_watch *const *watches, size_t n, uint64_t inode)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (watches[middle]->inode < inode)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* s->path, which is @name in @dir. */
static void compare(struct search *s, const struct stat *st, int dir, const char *name)
{
	for (size_t i = first_of(s->watches, s->n, st->st_ino);
		i < s->n && s->watches[i]->inode == st->st_ino; i++) {
		struct dump_watch *w = s->watches[i];

		if (w->path != NULL && s->paths == NULL)
			continue;
		if (!is_same(w, st, dir, name) || !is_watched(s, w, dir, name))
			continue;
		if (s->paths != NULL)
			buf_add(s->paths, s->path, strlen(s->path) + 1);
		if (w->unsure && is_sure(s, w, st)) {
			w->unsure = false;
			s->unsure--;
		}
		if (w->path != NULL)
			continue;
		w->path = str_dup(s->path);
		w->unsure = !is_sure(s, w, st);
		s->unsure += w->unsure;
		s->missing--;
	}
}

static bool has_all(const struct search *s)
{
	return s->missing == 0 && (s->unsure == 0 || s->more == 0);
}

static bool is_over(const struct search *s)
{
	return has_all(s) || s->entries >= s->entries_max ||
	       (s->deadline_ns != 0 && clock_now_ns() >= s->deadline_ns);
}

static void look_at(struct search *s, int dir, const char *name)
{
	size_t n = strlen(s->path);
	struct stat st;

	if (str_eq(name, ".") || str_eq(name, "..") || n + strlen(name) + 2 > sizeof(s->path) ||
		fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	s->entries++;
	s->more -= s->missing == 0 && s->more > 0;
	alive();
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
	while (!is_over(s) && (e = readdir(dir)) != NULL)
		look_at(s, fd, e->d_name);
	(void)closedir(dir);
}

/* @path inside, and what is below, the nearest first: what is watched seldom lies deep. @proc: the directory in /proc of who sees it. */
static void search_below(struct search *s, int proc, const char *path)
{
	cleanup_fd int root = openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *below = path + strspn(path, "/");
	struct stat st;

	if (has_all(s) || root < 0 || str_copy(s->path, sizeof(s->path), path) < 0 ||
		fstatat(root, below, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
		return;
	compare(s, &st, root, below);
	s->entries = 0;
	buf_reset(&s->queue);
	buf_add(&s->queue, path, strlen(path) + 1);
	for (size_t at = 0; !is_over(s) && at < s->queue.n;) {
		size_t n = strlen(s->queue.p + at) + 1;

		memcpy(s->path, s->queue.p + at, n);
		at += n;
		list(s, root);
	}
}

static bool read_cwd(int proc, char path[PATH_MAX])
{
	ssize_t n = readlinkat(proc, "cwd", path, PATH_MAX - 1);

	if (n <= 1)
		return false;
	path[n] = '\0';
	return true;
}

static void search_begin(
	struct search *s, const struct dump *d, struct dump_watch *watches, size_t n)
{
	*s = (struct search){ .d = d,
		.watches = calloc(n + 1, sizeof(struct dump_watch *)),
		.n = n,
		.entries_max = ENTRIES_MAX,
		.more = UNSURE_MAX,
		.queue = BUF_INIT(QUEUE_MAX) };
	if (s->watches == NULL)
		abort();
	for (size_t i = 0; i < n; i++) {
		s->watches[i] = &watches[i];
		s->missing += watches[i].path == NULL;
	}
	qsort(s->watches, n, sizeof(struct dump_watch *), by_inode);
}

static void search_end(struct search *s)
{
	free(s->watches);
	buf_free(&s->queue);
}

/* @proc: of one who sees what is watched. */
static void search_places(struct search *s, int proc)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		search_below(s, proc, places[i]);
}

/** struct front - how far the walk below one place has come. */
struct front {
	struct buf queue;
	size_t at;
};

static void add_front(struct search *s, int proc, const char *path, struct front *f)
{
	s->entries_max = 0; /* itself alone */
	search_below(s, proc, path);
	s->entries_max = UINT_MAX;
	f->queue = (struct buf)BUF_INIT(QUEUE_MAX);
	buf_add(&f->queue, path, strlen(path) + 1);
}

/* The next directory of one place. */
static bool list_next(struct search *s, int root, struct front *f)
{
	size_t n;

	if (f->at >= f->queue.n || is_over(s))
		return false;
	n = strlen(f->queue.p + f->at) + 1;
	memcpy(s->path, f->queue.p + f->at, n);
	f->at += n;
	buf_reset(&s->queue);
	list(s, root);
	buf_add(&f->queue, s->queue.p, s->queue.n);
	return true;
}

/* However deep: below the working directory, those above it (packages of several projects lie there), and all other places, by turns, so that nobody waits for a large one. */
static void search_deep(struct search *s, int proc)
{
	cleanup_fd int root = openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct front fronts[FRONTS_MAX] = { 0 };
	char path[PATH_MAX];
	size_t n = 0;

	s->deadline_ns = clock_now_ns() + FORESEE_NS;
	if (root < 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		add_front(s, proc, places[i], &fronts[n++]);
	for (bool more = read_cwd(proc, path); more && path[0] != '\0' && n < FRONTS_MAX;
		*strrchr(path, '/') = '\0')
		add_front(s, proc, path, &fronts[n++]);
	for (bool more = true; more;) {
		more = false;
		for (size_t i = 0; i < n; i++)
			more |= list_next(s, root, &fronts[i]);
	}
	for (size_t i = 0; i < n; i++)
		buf_free(&fronts[i].queue);
}

/* --- ahead of the stop --- */

/** struct watches - a list of them. */
struct watches {
	struct dump_watch *list;
	size_t n;
};

/* The watches of descriptor @name; false when one of them would be told that we look. */
static bool foresee_queue(struct watches *to, int fds, int infos, const char *name)
{
	cleanup_buf struct buf info = BUF_INIT(16U << 20);
	char link[32];
	ssize_t n = readlinkat(fds, name, link, sizeof(link) - 1);

	if (n <= 0)
		return true;
	link[n] = '\0';
	if (!str_eq(link, "anon_inode:inotify") || file_read_at(infos, name, &info) < 0)
		return true;
	for (const char *line = strstr(buf_cstr(&info), "inotify wd:"); line != NULL;
		line = strstr(line + 1, "inotify wd:")) {
		struct image_notification out = { 0 };
		struct dump_watch *w = append(&to->list, &to->n);

		if (parse_watch(line, w, &out) < 0)
			to->n--;
		else if ((out.mask & TOLD_OF_US) != 0)
			return false;
	}
	return true;
}

static bool foresee_queues(struct watches *to, int proc)
{
	int fd = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int infos = openat(proc, "fdinfo", O_PATH | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	bool quiet = true;

	if (dir == NULL)
		return true;
	while (quiet && (e = readdir(dir)) != NULL)
		quiet = foresee_queue(to, fd, infos, e->d_name);
	(void)closedir(dir);
	return quiet;
}

static int open_proc(int32_t pid)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d", pid);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void foresee(struct dump *d, const struct watches *watches, int32_t who)
{
	cleanup_fd int proc = open_proc(who);
	char path[PATH_MAX];
	struct search s;

	search_begin(&s, d, watches->list, watches->n);
	s.paths = &d->foreseen;
	s.near = true;
	for (uint32_t i = 0; i < d->order->n_pids; i++) {
		cleanup_fd int other = open_proc(d->order->pids[i]);

		if (other >= 0 && read_cwd(other, path))
			search_below(&s, other, path);
	}
	s.near = false;
	search_deep(&s, proc);
	search_end(&s);
}

void dump_inotify_foresee(struct dump *d)
{
	struct watches watches = { 0 };
	bool quiet = true;
	int32_t who = 0;

	for (uint32_t i = 0; quiet && i < d->order->n_pids; i++) {
		cleanup_fd int proc = open_proc(d->order->pids[i]);
		size_t before = watches.n;

		quiet = proc < 0 || foresee_queues(&watches, proc);
		if (who == 0 && watches.n > before)
			who = d->order->pids[i];
	}
	if (quiet && watches.n > 0)
		foresee(d, &watches, who);
	forget(watches.list, watches.n);
}

/* What was foreseen, if it is still there. */
static void recall(struct search *s, int proc)
{
	cleanup_fd int root = openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct buf *all = &s->d->foreseen;

	for (size_t at = 0; at < all->n && root >= 0 && s->missing > 0;
		at += strlen(all->p + at) + 1) {
		const char *below = all->p + at + strspn(all->p + at, "/");
		struct stat st;

		if (str_copy(s->path, sizeof(s->path), all->p + at) < 0 ||
			fstatat(root, below, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		compare(s, &st, root, below);
	}
}

void dump_inotify_fini(struct dump *d)
{
	forget(d->watches, d->n_watches);
	buf_free(&d->foreseen);
}

int dump_inotify_end(struct dump *d, struct err *err)
{
	char path[PATH_MAX];
	struct search s;

	if (d->n_watches == 0)
		return 0;
	search_begin(&s, d, d->watches, d->n_watches);
	recall(&s, d->watches[0].p->tracee.proc);
	for (size_t i = 0; i < d->n && s.missing > 0; i++) {
		const struct tracee *t = &d->processes[i].tracee;

		if (!t->zombie && read_cwd(t->proc, path))
			search_below(&s, t->proc, path);
	}
	search_places(&s, d->watches[0].p->tracee.proc);
	if (d->examination != NULL)
		search_deep(&s, d->watches[0].p->tracee.proc);
	search_end(&s);
	for (size_t i = 0; i < d->n_watches; i++) {
		const struct dump_watch *w = &d->watches[i];
		struct image_notification *row;

		if (w->path == NULL)
			return dump_refuse(w->p, err,
				"descriptor %d is an inotify queue that watches something whose name was not found (inode %lu)",
				w->fd, (unsigned long)w->inode);
		row = image_row(&d->image, TABLE_NOTIFICATIONS, w->row, sizeof(*row));
		row->path = image_add_bytes(&d->image, w->path, strlen(w->path));
	}
	return 0;
}

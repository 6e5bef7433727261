/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/files.c - file descriptions by kind (in the opener), and which descriptor of a process is which of them. */
#include "prog/cay-template/fork.h"

#include <linux/eventpoll.h>
#include <linux/fcntl.h>
#include <linux/prctl.h>

#define SEEK_SET      0
#define AT_CWD        (-100)
#define O_SETTABLE    (04000 | 02000 | 040000 | 01000000) /* NONBLOCK APPEND DIRECT NOATIME */
#define O_ONCE        (0100 | 0200 | 01000 | 020000)      /* CREAT EXCL TRUNC, ASYNC: owners.c */
#define O_NO_TERMINAL 0400
#define O_NOWAIT      04000
#define O_ACCESS      3
#define O_READ_WRITE  2
#define O_NAMELESS    020200000 /* TMPFILE */
#define O_NO_FOLLOW   0400000
#define O_OF_NAMES    (O_NO_FOLLOW | O_NAMELESS) /* say how a name is looked up */
#define O_NEW         0300                       /* CREAT, EXCL */
#define MADE_MAX      1000U                      /* names that are tried */
#define PATH_SIZE     4096U
#define SET_TICKS     0x40085400 /* TFD_IOC_SET_TICKS */
#define ADD_SEALS     1033       /* F_ADD_SEALS */
#define SEAL_SEAL     1
#define SEAL_WRITE    8
#define SEAL_FUTURE   16 /* F_SEAL_FUTURE_WRITE */
#define S_KIND        0170000
#define S_REGULAR     0100000
#define S_DIRECTORY   0040000
#define NOT_NEXT      0xffffffffU

typedef const struct image_description description;

static void write_all(int fd, const char *bytes, uint64_t n, const char *step)
{
	while (n > 0) {
		long rc = fork_must(CALL3(__NR_write, fd, bytes, n), step);

		bytes += rc;
		n -= (uint64_t)rc;
	}
}

static void write_at(int fd, const char *bytes, uint64_t n, uint64_t at, const char *step)
{
	while (n > 0) {
		long rc = fork_must(CALL4(__NR_pwrite64, fd, bytes, n, at), step);

		bytes += rc;
		at += (uint64_t)rc;
		n -= (uint64_t)rc;
	}
}

/* b, c: its content in the stash, of which there is what data names, or all; or all is in data. Where there is nothing is a hole. */
static void fill(int fd, description *d, const char *step)
{
	const struct image_run all = { .length = d->c }, *runs = &all;
	uint64_t n = 1;

	if (d->c == 0) {
		write_all(fd, image_bytes(d->data), d->data.length, step);
		return;
	}
	if (d->data.length > 0) {
		runs = (const struct image_run *)(const void *)image_bytes(d->data);
		n = d->data.length / sizeof(*runs);
	}
	for (uint64_t i = 0; i < n; i++)
		write_at(fd, (const char *)d->b + runs[i].at, runs[i].length, runs[i].at, step);
	(void)fork_must(CALL2(__NR_ftruncate, fd, d->c), step);
}

static void set_flags(int fd, description *d)
{
	if ((d->flags & O_SETTABLE) != 0)
		(void)fork_must(CALL3(__NR_fcntl, fd, F_SETFL, d->flags & O_SETTABLE),
			"set the flags of a description");
}

BARE_NORETURN void fork_fail_by_name(description *d, long why)
{
	static char name[sizeof(((struct template_message *)0)->step)];
	const uint64_t n = d->path.length < sizeof(name) ? d->path.length : sizeof(name) - 1;

	memcpy(name, image_bytes(d->path) + (d->path.length - n), n);
	fork_fail(name, why);
}

/* Which of the names that come next @name is. */
static uint32_t rank_of(description *d, const char *name)
{
	const char *at = image_bytes(d->place), *end = at + d->place.length;
	uint32_t rank = 0;

	for (; at < end; rank++) {
		uint64_t n = 0;

		while (at[n] != '\0')
			n++;
		if (memcmp(at, name, n + 1) == 0)
			return rank;
		at += n + 1;
	}
	return NOT_NEXT;
}

/* Before the first of the names that come next; to the end where there are none. */
static void read_directory_again(int fd, description *d)
{
	static uint64_t entries[4096];
	uint64_t here = 0, found = d->position;
	uint32_t best = NOT_NEXT;
	long n = 0;

	while (best != 0 && (n = fork_must(CALL3(__NR_getdents64, fd, entries, sizeof(entries)),
				     "read a directory")) > 0) {
		for (const char *at = (const char *)entries, *end = at + n; at < end;) {
			const struct entry *e = (const struct entry *)(const void *)at;
			uint32_t rank = rank_of(d, e->name);

			if (rank < best) {
				best = rank;
				found = here;
			}
			here = e->next;
			at += e->length;
		}
	}
	if (d->place.length > 0)
		(void)fork_must(CALL3(__NR_lseek, fd, found, SEEK_SET), "seek in a directory");
}

static int open_file(description *d)
{
	uint32_t flags = (d->flags & ~(uint32_t)O_ONCE) | BARE_CLOEXEC | O_NO_TERMINAL;
	int fd = (int)fork_must(
		CALL4(__NR_openat, AT_CWD, image_bytes(d->path), flags, 0), image_bytes(d->path));
	uint32_t kind = d->mode & S_KIND;

	same_file_check(fd, d);
	if (kind == S_DIRECTORY && d->b != 0)
		read_directory_again(fd, d);
	else if (d->position != 0 && (kind == S_REGULAR || kind == S_DIRECTORY))
		(void)fork_must(CALL3(__NR_lseek, fd, d->position, SEEK_SET), "seek in a file");
	return fd;
}

/*
 * Whose it is, and who may open it again through /proc. An id that the sandbox has not got, or what is not ours to give (the keeper's pipes), stays as it is. What stands for
 * memory alone was nobody's.
 */
static void give(int fd, description *d)
{
	if ((d->mode & S_KIND) == 0)
		return;
	(void)CALL3(__NR_fchown, fd, d->uid, d->gid);
	(void)CALL2(__NR_fchmod, fd, d->mode & 0777);
}

/* Where a file cannot be made without a name (an overlay before Linux 6.3): with one for an instant. @path: a directory, its name so long; what is behind it is written over. */
static long make_and_remove(char path[PATH_SIZE], uint64_t length, uint32_t mode)
{
	static const char name[] = "/.removed-";
	long fd = -EEXIST;

	if (length + sizeof(name) + 10 > PATH_SIZE)
		return -ENAMETOOLONG;
	memcpy(path + length, name, sizeof(name));
	for (uint32_t i = 0; fd == -EEXIST && i < MADE_MAX; i++) {
		int digits = number_text(path + length + sizeof(name) - 1, i);

		path[length + sizeof(name) - 1 + (uint64_t)digits] = '\0';
		fd = CALL4(__NR_openat, AT_CWD, path, O_READ_WRITE | O_NEW | BARE_CLOEXEC, mode);
	}
	if (fd >= 0)
		(void)CALL1(__NR_unlink, path);
	path[length] = '\0';
	return fd;
}

/* @path: a directory, its name so long. */
static long make_nameless(char path[PATH_SIZE], uint64_t length, uint32_t mode)
{
	long fd = -EOPNOTSUPP;

	if (fork.order.nameless != 0)
		fd = CALL4(
			__NR_openat, AT_CWD, path, O_READ_WRITE | O_NAMELESS | BARE_CLOEXEC, mode);
	return fd == -EOPNOTSUPP ? make_and_remove(path, length, mode) : fd;
}

/*
 * A file without a name, in the directory where it had one, or in the nearest above that is still there and takes it; else, as a memory file that is somebody's program, in
 * memory. What it let others become (set-user-ID) it lets nobody.
 */
static int make_unlinked(description *d)
{
	static const char memory[] = "/memfd:";
	const char *former = image_bytes(d->path);
	bool nowhere = memcmp(former, memory, sizeof(memory) - 1) == 0;
	uint64_t n = d->path.length < PATH_SIZE ? d->path.length : PATH_SIZE - 1;
	char path[PATH_SIZE];
	long fd = -1;

	memcpy(path, former, n);
	while (fd < 0 && n > 1 && !nowhere) {
		while (n > 1 && path[n - 1] != '/')
			n--;
		n -= n > 1;
		path[n] = '\0';
		fd = make_nameless(path, n, d->mode & 0777);
	}
	if (fd < 0)
		fd = CALL2(__NR_memfd_create, nowhere ? former + sizeof(memory) - 1 : "removed", 1);
	(void)fork_must(fd, "make a file without a name");
	give((int)fd, d);
	return (int)fd;
}

/* As @d says, what our descriptor @fd has open. */
static int open_again(int fd, description *d)
{
	static const char prefix[] = "/proc/self/fd/";
	/* of a directory O_DIRECTORY stays, which is a part of O_TMPFILE */
	const uint32_t of_names = (d->mode & S_KIND) == S_DIRECTORY ? O_NO_FOLLOW : O_OF_NAMES;
	char path[sizeof(prefix) + 12] = { 0 };

	memcpy(path, prefix, sizeof(prefix));
	number_text(path + sizeof(prefix) - 1, (uint32_t)fd);
	return (int)fork_must(CALL4(__NR_openat, AT_CWD, path,
				      (d->flags & ~(O_ONCE | of_names)) | BARE_CLOEXEC, 0),
		"open a file without a name");
}

/* a: see dump_directories.c */
static int open_removed_directory(description *d)
{
	int made = d->a == 0 ? removed_directory(d) : opener_kept((uint32_t)d->a - 1),
	    fd = open_again(made, d);

	if (d->a == 0)
		(void)CALL1(__NR_close, made);
	return fd;
}

/* A file that has no name any more: a new one with the same content, or one that is there. a: see dump_files.c; b, c: see fill() */
static int open_unlinked(description *d)
{
	int made = d->a == 0 ? make_unlinked(d) : opener_kept((uint32_t)d->a - 1), fd;

	if (d->a == 0)
		fill(made, d, "fill a file without a name");
	fd = open_again(made, d);
	/* nobody may have a program open to be written to */
	if (d->a == 0)
		(void)CALL1(__NR_close, made);
	if (d->position != 0)
		(void)fork_must(CALL3(__NR_lseek, fd, d->position, SEEK_SET), "seek in a file");
	return fd;
}

/* Seals that come when all is mapped: what was mapped before them may write. */
static uint64_t late_seals(description *d)
{
	return (d->a & SEAL_FUTURE) != 0 && (d->a & SEAL_WRITE) == 0
		       ? d->a & (SEAL_FUTURE | SEAL_SEAL)
		       : 0;
}

static void seal(int fd, uint64_t seals)
{
	(void)fork_must(CALL3(__NR_fcntl, fd, ADD_SEALS, seals), "seal a memory file");
}

/* a: seals, b, c: see fill() */
static int make_memory(description *d)
{
	int made = (int)fork_must(
		    CALL2(__NR_memfd_create, image_bytes(d->path), 1 | 2), "make a memory file"),
	    fd = made;

	fill(made, d, "fill a memory file");
	/* before the seals: one that nobody may execute (F_SEAL_EXEC) is sealed against all else when somebody may */
	give(made, d);
	seal(made, d->a & ~late_seals(d));
	if ((d->flags & O_ACCESS) != O_READ_WRITE) {
		fd = open_again(made, d);
		(void)CALL1(__NR_close, made);
	}
	(void)fork_must(CALL3(__NR_lseek, fd, d->position, SEEK_SET), "seek in a memory file");
	return fd;
}

/*
 * As large as it was. Whose user has too much in pipes already (pipe(7), pipe-user-pages-soft; rootless those of all his sandboxes count) keeps what the kernel gave him, as a program
 * that makes one itself does: if what waits has room, else it would be waited for.
 */
static void size_pipe(int fd, description *d, const char *step)
{
	long rc = CALL3(__NR_fcntl, fd, F_SETPIPE_SZ, d->a);

	if (rc == -EPERM && CALL2(__NR_fcntl, fd, F_GETPIPE_SZ) >= (long)d->data.length)
		return;
	(void)fork_must(rc, step);
}

/* The keeper's end, or one more of its pipe. a, b: see dump_files.c */
static int open_slot(description *d)
{
	int slot = fork.slots[d->a];
	long flags = fork_must(CALL2(__NR_fcntl, slot, F_GETFL), "look at the keeper's end");

	if (d->b != 0 || ((uint64_t)flags & O_ACCESS) != (d->flags & O_ACCESS))
		return open_again(slot, d);
	return (int)fork_must(CALL3(__NR_fcntl, slot, 1030, 0), "take the keeper's end");
}

/* a: capacity, c: 1 + the description that has made it, 0 = it is this one, with the other end */
static void make_pipe(description *d, int ret[2])
{
	if (d->c != 0) {
		ret[0] = open_again(opener_kept((uint32_t)d->c - 1), d);
		return;
	}
	(void)fork_must(CALL2(__NR_pipe2, ret, BARE_CLOEXEC), "make a pipe");
	if (d->a != 0)
		size_pipe(ret[1], d, "size a pipe");
	write_all(ret[1], image_bytes(d->data), d->data.length, "fill a pipe");
	give(ret[1], d);
	if (d->kind == DESCRIPTION_PIPE_WRITE) {
		int other = ret[0];

		ret[0] = ret[1];
		ret[1] = other;
	}
	if ((d->flags & O_ACCESS) == O_READ_WRITE) {
		int both = open_again(ret[0], d);

		(void)CALL1(__NR_close, ret[0]);
		(void)CALL1(__NR_close, ret[1]);
		ret[0] = both;
		ret[1] = -1;
	}
}

/*
 * a: capacity, c: its readers have seen the last writer go. An end of ours for both lets every end be opened at once and takes what waits. Only a reader that
 * waits for its first writer must come alone: it would see ours go.
 */
static int open_fifo(description *d)
{
	const char *path = image_bytes(d->path);
	bool alone = (d->flags & O_ACCESS) == 0 && d->data.length == 0 && d->c == 0;
	int both = -1, fd;

	if (!alone)
		both = (int)fork_must(
			CALL4(__NR_openat, AT_CWD, path, 2 | O_NOWAIT | BARE_CLOEXEC, 0), path);
	fd = (int)fork_must(CALL4(__NR_openat, AT_CWD, path,
				    (d->flags & O_ACCESS) | O_NOWAIT | BARE_CLOEXEC, 0),
		path);
	size_pipe(fd, d, "size a named pipe");
	write_all(both, image_bytes(d->data), d->data.length, "fill a named pipe");
	(void)fork_must(CALL3(__NR_fcntl, fd, F_SETFL, d->flags & O_SETTABLE),
		"set the flags of a named pipe");
	if (both >= 0)
		(void)CALL1(__NR_close, both);
	return fd;
}

/* a: clock, b: flags of the setting, c: how often it has gone off unread, data: struct itimerspec. A kernel that cannot be told how often lets it go off once, at once. */
static int make_timerfd(description *d)
{
	int fd = (int)fork_must(CALL2(__NR_timerfd_create, d->a, BARE_CLOEXEC), "make a timerfd");
	int64_t set[4];

	memcpy(set, image_bytes(d->data), sizeof(set));
	(void)fork_must(CALL4(__NR_timerfd_settime, fd, d->b, set, 0), "set a timerfd");
	if (d->c == 0 || CALL3(__NR_ioctl, fd, SET_TICKS, &d->c) == 0)
		return fd;
	set[2] = 0, set[3] = 1;
	(void)fork_must(CALL4(__NR_timerfd_settime, fd, 0, set, 0), "set a timerfd");
	return fd;
}

/* Of a process that is gone. One that is there is opened by whoever has it: here nobody is born yet. */
static int open_ended_process(void)
{
	int fd = -1;
	struct bare_clone args = {
		.flags = 0x1000 /* CLONE_PIDFD */, .pidfd = (uint64_t)&fd, .exit_signal = 17
	};
	long pid = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone a process that ends");

	if (pid == 0)
		bare_exit(0);
	(void)CALL4(__NR_wait4, pid, 0, 0x40000000, 0);
	return fd;
}

/* @to gets the path of the same file about process @pid, or its only thread. */
static void path_about(description *d, uint32_t pid, char to[PATH_SIZE])
{
	static const char proc[] = "/proc/", task[] = "/task/";
	const char *rest = image_bytes(d->path) + sizeof(proc) - 1;
	uint64_t n = sizeof(proc) - 1;

	memcpy(to, proc, n);
	n += (uint64_t)number_text(to + n, pid);
	while (*rest >= '0' && *rest <= '9')
		rest++;
	if (memcmp(rest, task, sizeof(task) - 1) == 0) {
		memcpy(to + n, task, sizeof(task) - 1);
		n += sizeof(task) - 1;
		n += (uint64_t)number_text(to + n, pid);
		rest += sizeof(task) - 1;
		while (*rest >= '0' && *rest <= '9')
			rest++;
	}
	while (n < PATH_SIZE - 1 && *rest != '\0')
		to[n++] = *rest++;
	to[n] = '\0';
}

/* What /proc shows of a process that is there for the moment. */
static int open_of_ended(description *d)
{
	struct bare_clone args = { .exit_signal = 17 };
	long pid = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone a process that ends"),
	     fd;
	char path[PATH_SIZE];

	while (pid == 0)
		(void)CALL0(__NR_pause);
	path_about(d, (uint32_t)pid, path);
	fd = CALL4(__NR_openat, AT_CWD, path, (d->flags & ~(uint32_t)O_ONCE) | BARE_CLOEXEC, 0);
	(void)CALL2(__NR_kill, pid, 9);
	(void)CALL4(__NR_wait4, pid, 0, 0x40000000, 0);
	return (int)fork_must(fd, image_bytes(d->path));
}

/* Both ends where there are two; ret[1] stays -1 for others. */
static void make(description *d, description *peer, int ret[2])
{
	switch ((enum image_description_kind)d->kind) {
	case DESCRIPTION_FILE:
		ret[0] = open_file(d);
		break;
	case DESCRIPTION_SLOT:
		ret[0] = open_slot(d);
		give(ret[0], d);
		break;
	case DESCRIPTION_PIPE_READ:
	case DESCRIPTION_PIPE_WRITE:
		make_pipe(d, ret);
		break;
	case DESCRIPTION_EVENTFD:
		ret[0] = (int)fork_must(
			CALL2(__NR_eventfd2, 0, d->b | BARE_CLOEXEC | 04000), "make an eventfd");
		if (d->a != 0)
			(void)fork_must(
				CALL3(__NR_write, ret[0], &d->a, sizeof(d->a)), "set an eventfd");
		(void)CALL3(__NR_fcntl, ret[0], F_SETFL, d->flags & O_SETTABLE);
		break;
	case DESCRIPTION_EPOLL:
		ret[0] = (int)fork_must(
			CALL1(__NR_epoll_create1, BARE_CLOEXEC), "make an epoll set");
		break;
	case DESCRIPTION_TIMERFD:
		ret[0] = make_timerfd(d);
		break;
	case DESCRIPTION_SIGNALFD:
		ret[0] = (int)fork_must(
			CALL4(__NR_signalfd4, -1, &d->a, 8, BARE_CLOEXEC), "make a signalfd");
		break;
	case DESCRIPTION_CONNECTION:
		sockets_connect(d, peer, ret);
		break;
	case DESCRIPTION_MEMORY:
		ret[0] = make_memory(d);
		break;
	case DESCRIPTION_UNLINKED:
		ret[0] = (d->mode & S_KIND) == S_DIRECTORY ? open_removed_directory(d)
							   : open_unlinked(d);
		break;
	case DESCRIPTION_FIFO:
		ret[0] = open_fifo(d);
		break;
	case DESCRIPTION_LISTEN:
	case DESCRIPTION_SOCKET:
		ret[0] = sockets_make(d);
		break;
	case DESCRIPTION_INOTIFY:
		ret[0] = watches_make(d);
		break;
	case DESCRIPTION_PENDING: /* with its listener */
		break;
	case DESCRIPTION_PIDFD:
	case DESCRIPTION_PROC: /* stands for what each opens */
		ret[0] = d->kind == DESCRIPTION_PROC && d->b != 0 ? open_of_ended(d)
								  : open_ended_process();
		break;
	case DESCRIPTION_MASTER:
		ret[0] = terminals_master(d);
		break;
	case DESCRIPTION_TERMINAL:
		ret[0] = terminals_open(d);
		break;
	}
}

static description *description_at(uint32_t i)
{
	return IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);
}

/* Those who wait to be accepted, in their order. */
static void open_pending(description *listener)
{
	const uint32_t *clients = (const uint32_t *)image_bytes(listener->data);

	for (uint64_t i = 0; i < listener->data.length / sizeof(*clients); i++) {
		description *d = description_at(clients[i]);
		int fd = sockets_pend(d, listener);

		set_flags(fd, d);
		opener_have(fd, clients[i]);
	}
}

static void open_one(uint32_t i)
{
	description *d = description_at(i);
	description *peer = d->peer == IMAGE_NONE ? NULL : description_at(d->peer);
	int fds[2] = { -1, -1 };

	if (peer != NULL && d->peer < i)
		return; /* made with the other end */
	make(d, peer, fds);
	set_flags(fds[0], d);
	locks_take(fds[0], d);
	opener_have(fds[0], i);
	if (peer != NULL) {
		set_flags(fds[1], peer);
		locks_take(fds[1], peer);
		opener_have(fds[1], d->peer);
	} else if (fds[1] >= 0) {
		sockets_leave(fds[1], d);
	}
	if (d->kind == DESCRIPTION_LISTEN)
		open_pending(d);
}

enum turn {
	TURN_DIRECTORIES,
	TURN_WRITERS,
	TURN_MOST,
	TURN_LISTENERS,
	TURN_WATCHES,
	TURNS,
	TURN_NEVER
};

/*
 * Files to be written come before others: the overlay copies one up when it is opened so, and who has opened it before to read maps what lies below, and would never see what is
 * written. Before them come directories: of one in which something was copied up when it is opened the overlay makes a list of its own.
 * What listens comes after connections, which take its name for a moment; what watches sees nothing of all this.
 */
static enum turn turn_of(description *d)
{
	switch (d->kind) {
	case DESCRIPTION_FILE:
		return (d->mode & S_KIND) == S_DIRECTORY ? TURN_DIRECTORIES
		       : (d->flags & O_ACCESS) != 0      ? TURN_WRITERS
							 : TURN_MOST;
	case DESCRIPTION_INOTIFY:
		return TURN_WATCHES;
	case DESCRIPTION_LISTEN:
		return TURN_LISTENERS;
	case DESCRIPTION_PENDING: /* with its listener */
		return TURN_NEVER;
	default:
		return TURN_MOST;
	}
}

void files_open(void)
{
	terminals_make();
	for (enum turn turn = TURN_DIRECTORIES; turn < TURNS; turn++) {
		if (turn == TURN_WATCHES)
			sockets_finish();
		for (uint32_t i = 0; i < plan->n_descriptions; i++) {
			if (turn_of(description_at(i)) == turn)
				open_one(i);
		}
	}
	terminals_end();
}

/* A description that cannot write cannot seal. */
static void seal_late(int fd, description *d)
{
	description writer = { .flags = O_READ_WRITE };
	bool may = (d->flags & O_ACCESS) == O_READ_WRITE;
	int own = may ? fd : open_again(fd, &writer);

	seal(own, late_seals(d));
	if (!may)
		(void)CALL1(__NR_close, own);
}

void files_seal(void)
{
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		description *d = description_at(i);

		if (d->kind == DESCRIPTION_MEMORY && late_seals(d) != 0)
			seal_late(opener_kept(i), d);
	}
}

static void add_watch(const struct image_watch *w)
{
	struct epoll_event event = { .events = w->events, .data = w->data };

	(void)fork_must(CALL4(__NR_epoll_ctl, w->epoll, EPOLL_CTL_ADD, w->target, &event),
		"add to an epoll set");
}

/* By a number that is another's, or nobody's: what is watched has it for the moment. */
static void add_watch_by_other(const struct image_watch *w)
{
	long kept = CALL3(
		     __NR_fcntl, w->target, 1030 /* F_DUPFD_CLOEXEC */, plan->first_description),
	     flags = CALL2(__NR_fcntl, w->target, F_GETFD);

	(void)fork_must(
		CALL3(__NR_dup3, plan->first_description + w->description, w->target, BARE_CLOEXEC),
		"place what is watched");
	add_watch(w);
	if (kept < 0) {
		(void)CALL1(__NR_close, w->target);
		return;
	}
	(void)fork_must(CALL3(__NR_dup3, kept, w->target, flags == 1 ? BARE_CLOEXEC : 0),
		"put a descriptor back");
	(void)CALL1(__NR_close, kept);
}

/* Above every descriptor of the program. */
static long open_own(description *d)
{
	long fd = d->kind == DESCRIPTION_PROC
			  ? open_file(d)
			  : fork_must(CALL2(__NR_pidfd_open, d->a, d->b), "open a process"),
	     above = fork_must(
		     CALL3(__NR_fcntl, fd, 1030, plan->first_description), "move a descriptor");

	(void)CALL1(__NR_close, fd);
	return above;
}

static const struct image_fd *fd_at(const struct image_process *p, uint32_t i)
{
	return IMAGE_ROW(struct image_fd, TABLE_FDS, p->first_fd + i);
}

/* The descriptor of @p before its @n th that has the same description; -1 = none. */
static long placed_before(const struct image_process *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (fd_at(p, i)->description == fd_at(p, n)->description)
			return fd_at(p, i)->fd;
	return -1;
}

static void place(const struct image_process *p, uint32_t n)
{
	const struct image_fd *f = fd_at(p, n);
	description *d = description_at(f->description);
	bool own = image_opened_by_each(d);
	long before = own ? placed_before(p, n) : -1;
	long fd = before >= 0 ? before
		  : own       ? open_own(d)
			      : plan->first_description + f->description;

	(void)fork_must(CALL3(__NR_dup3, fd, f->fd, f->close_on_exec != 0 ? BARE_CLOEXEC : 0),
		"place a descriptor");
	if (own && before < 0)
		(void)CALL1(__NR_close, fd);
	if (!own)
		owners_arm(p, f, d);
}

static bool is_late(const struct image_process *p, uint32_t n)
{
	return image_opened_late(description_at(fd_at(p, n)->description));
}

/* Is what number @fd leads to opened late? */
static bool leads_to_late(const struct image_process *p, int32_t fd)
{
	for (uint32_t i = 0; i < p->n_fds; i++)
		if (fd_at(p, i)->fd == fd)
			return is_late(p, i);
	return false;
}

static bool has_late(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_fds; i++)
		if (is_late(p, i))
			return true;
	return false;
}

/* @late: for what is opened late, else for all the rest. */
static void watch(const struct image_process *p, bool late)
{
	bool any = has_late(p);

	for (uint32_t i = 0; i < p->n_watches; i++) {
		const struct image_watch *w =
			IMAGE_ROW(struct image_watch, TABLE_WATCHES, p->first_watch + i);

		if ((any && leads_to_late(p, w->target)) != late)
			continue;
		if (w->description == IMAGE_NONE)
			add_watch(w);
		else
			add_watch_by_other(w);
	}
}

void files_become(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_fds; i++)
		if (!is_late(p, i))
			place(p, i);
	watch(p, false);
}

/* What its owner alone may read is the user's only while he may look at the process. No program runs yet. */
static void place_late(const struct image_process *p, uint32_t n)
{
	long dumpable = CALL5(__NR_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);

	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	place(p, n);
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, dumpable == 1, 0, 0, 0);
}

void files_end(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_fds; i++)
		if (is_late(p, i))
			place_late(p, i);
	if (has_late(p))
		watch(p, true);
}

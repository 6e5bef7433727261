/* SPDX-License-Identifier: Apache-2.0 */
#include "store/textdiff.h"
#include "base/str.h"
#include "store/tree.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define DIFF          "/usr/bin/diff"
#define TEXT_SIZE_MAX (4LL << 20)
#define WAITING_MAX   (32ULL << 20) /* bytes of what waits */
#define SNIFF         8192
/* Two files of 4 MiB, whatever is in them, take it a fourth of that. */
#define DIFF_MEMORY (512ULL << 20)

static bool regular(const struct found *f)
{
	return f->kind == FOUND_FILE && S_ISREG(f->st.st_mode);
}

/* Only what is no text: a NUL byte near the start, as git sees it. */
static bool is_binary(int fd)
{
	char head[SNIFF];
	ssize_t n = pread(fd, head, sizeof(head), 0);

	return n < 0 || memchr(head, '\0', (size_t)n) != NULL;
}

/* A newline in a name must not forge lines. */
static void hide_controls(char *s)
{
	for (; *s != '\0'; s++) {
		if ((unsigned char)*s < ' ')
			*s = '?';
	}
}

/* Names are labels only. */
static char *label(const char *side, const char *target, const char *path, bool there)
{
	char *s = there ? str_dupf("%s%s/%s", side, str_eq(target, "/") ? "" : target, path)
			: str_dup("/dev/null");

	hide_controls(s);
	return s;
}

static void execute(const char *const *argv) attr_noreturn;

static void execute(const char *const *argv)
{
	const char *env[] = { "LC_ALL=C", NULL };
	const struct rlimit memory = { .rlim_cur = DIFF_MEMORY, .rlim_max = DIFF_MEMORY };

	(void)setrlimit(RLIMIT_AS, &memory);
	(void)execve(DIFF, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	_exit(127);
}

static void child(int before, int after, const char *old, const char *new, int out) attr_noreturn;

static void child(int before, int after, const char *old, const char *new, int out)
{
	const char *argv[] = { DIFF, "-u", "--text", "--label", old, "--label", new, "/dev/fd/3",
		"/dev/fd/4", NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* out of the way first: the descriptors may already stand where another one goes */
	before = fcntl(before, F_DUPFD_CLOEXEC, 10);
	after = fcntl(after, F_DUPFD_CLOEXEC, 10);
	out = fcntl(out, F_DUPFD_CLOEXEC, 10);
	(void)dup2(null, 0);
	(void)dup2(out, 1);
	(void)dup2(null, 2);
	(void)dup2(before, 3);
	(void)dup2(after, 4);
	execute(argv);
}

/* What @pid, negative when there is none, writes into the pipe @from until it ends. */
static int collect(struct buf *out, pid_t pid, int from)
{
	int status;

	for (;;) {
		char chunk[65536];
		ssize_t n = pid < 0 ? 0 : read(from, chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		buf_add(out, chunk, (size_t)n);
	}
	(void)close(from);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) <= 1 ? 0 : -EIO;
}

static int run(struct buf *out, int before, int after, const char *old, const char *new)
{
	int pipe_fds[2];
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		child(before, after, old, new, pipe_fds[1]);
	(void)close(pipe_fds[1]);
	return collect(out, pid, pipe_fds[0]);
}

static bool is_link(const struct found *f)
{
	return f->kind == FOUND_FILE && S_ISLNK(f->st.st_mode);
}

static int add_link(struct buf *out, const char *label, const char *verb, const struct found *f)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(f->dir, f->name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	hide_controls(target);
	buf_fmt(out, "Symbolic link %s %s to %s\n", label, verb, target);
	return 0;
}

/* What is neither file nor directory, on one side. */
static int add_special(struct buf *out, const char *label, const char *verb, const struct found *f)
{
	if (f->kind != FOUND_FILE || regular(f))
		return 0;
	if (is_link(f))
		return add_link(out, label, verb, f);
	buf_fmt(out, "%s %s a %s\n", label, verb, tree_type_name(f->st.st_mode));
	return 0;
}

/* Modes, as far as they say more than that there is a file. */
static void add_mode(struct buf *out, const char *label, const struct change *c)
{
	const struct found *b = c->before, *a = c->after;
	mode_t was = b->st.st_mode & 07777, is = a->st.st_mode & 07777;

	if (a->kind == FOUND_NONE || is_link(a))
		return;
	if (b->kind != FOUND_NONE && !is_link(b) && was != is)
		buf_fmt(out, "Mode of %s: %04o, was %04o\n", label, is, was);
	else if (c->kind == CHANGE_METADATA)
		buf_fmt(out, "Owner or attributes of %s changed\n", label);
	else if (b->kind == FOUND_NONE && regular(a) && (is & 07111) != 0)
		buf_fmt(out, "Mode of %s: %04o\n", label, is);
}

/* The `diff` program says nothing about those that come or go. */
static void add_empty(struct buf *out, const char *old, const char *new, const struct change *c)
{
	const struct found *b = c->before, *a = c->after;

	if (regular(a) && a->st.st_size == 0 && !regular(b))
		buf_fmt(out, "Empty file %s\n", new);
	else if (regular(b) && b->st.st_size == 0 && !regular(a))
		buf_fmt(out, "Empty file %s is gone\n", old);
}

static int copy_bytes(int from, int to, off_t size)
{
	char chunk[65536];

	for (off_t at = 0; at < size;) {
		size_t want =
			size - at < (off_t)sizeof(chunk) ? (size_t)(size - at) : sizeof(chunk);
		ssize_t n = pread(from, chunk, want, at);
		int rc;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		rc = file_write_all(to, chunk, (size_t)n);
		if (rc < 0)
			return rc;
		at += n;
	}
	return 0;
}

/* As many bytes of @f as it had when it was looked at, in memory: a file of a sandbox that runs may be of any size by the time at which `diff`, which reads all of one, comes to it. */
static int copy_content(const struct found *f)
{
	cleanup_fd int from = diff_open(f), to = -1;
	int rc;

	if (from < 0)
		return from;
	to = memfd_create("text", MFD_CLOEXEC);
	rc = to < 0 ? -errno : copy_bytes(from, to, f->st.st_size);
	return rc < 0 ? rc : TAKE_FD(to);
}

static bool too_large(const struct found *f)
{
	return regular(f) && f->st.st_size > TEXT_SIZE_MAX;
}

/* Takes both sides where there is text to compare; else says why not. */
static int take_content(struct buf *notes, struct textdiff_change *w, const struct change *change)
{
	const struct found *b = change->before, *a = change->after;
	bool large = too_large(b) || too_large(a);
	cleanup_fd int before = -1, after = -1;

	if (!change->content || (!regular(a) && !regular(b)))
		return 0;
	before = regular(b) && !large ? copy_content(b) : -1;
	after = regular(a) && !large ? copy_content(a) : -1;
	if (!large && ((regular(b) && before < 0) || (regular(a) && after < 0)))
		return before < 0 && regular(b) ? before : after;
	if (large || (before >= 0 && is_binary(before)) || (after >= 0 && is_binary(after))) {
		buf_fmt(notes, "Binary files %s and %s differ\n", w->old, w->new);
		return 0;
	}
	w->bytes = (regular(b) ? (uint64_t)b->st.st_size : 0) +
		   (regular(a) ? (uint64_t)a->st.st_size : 0);
	w->before = TAKE_FD(before);
	w->after = TAKE_FD(after);
	return 0;
}

static void close_change(struct textdiff_change *w)
{
	free(w->notes);
	free(w->old);
	free(w->new);
	fd_close(&w->before);
	fd_close(&w->after);
}

void textdiff_free(struct textdiff *t)
{
	for (size_t i = 0; i < t->n; i++)
		close_change(&t->waiting[i]);
	t->n = 0;
	t->bytes = 0;
}

/* One at a time. */
static int each(struct textdiff *t, struct buf *out)
{
	int rc = 0;

	for (size_t i = 0; (rc == 0 || rc == -EIO) && i < t->n; i++) {
		struct textdiff_change *w = &t->waiting[i];
		cleanup_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

		buf_str(out, w->notes);
		if (w->before >= 0 || w->after >= 0)
			rc = run(out, w->before >= 0 ? w->before : null,
				w->after >= 0 ? w->after : null, w->old, w->new);
		if (rc == -EIO)
			buf_fmt(out, "Files %s and %s differ, `diff` does not say how\n", w->old,
				w->new);
	}
	return rc == -EIO ? 0 : rc;
}

static int link_to(int dir, size_t i, int fd)
{
	char name[16], to[32];

	if (fd < 0)
		return 0;
	(void)snprintf(name, sizeof(name), "%04zu", i);
	(void)snprintf(to, sizeof(to), "/proc/self/fd/%d", fd);
	return symlinkat(to, dir, name) < 0 ? -errno : 0;
}

/* Two directories of links to the descriptors: what `diff -r` compares. What one has not is new or gone. */
static int make_sides(const struct textdiff *t, int dir, int *a, int *b)
{
	int rc;

	if (mkdirat(dir, "a", 0700) < 0 || mkdirat(dir, "b", 0700) < 0)
		return -errno;
	*a = openat(dir, "a", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	*b = openat(dir, "b", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = *a < 0 || *b < 0 ? -errno : 0;
	for (size_t i = 0; rc == 0 && i < t->n; i++) {
		rc = link_to(*a, i, t->waiting[i].before);
		if (rc == 0)
			rc = link_to(*b, i, t->waiting[i].after);
	}
	return rc;
}

static void keep_open(int fd)
{
	if (fd >= 0)
		(void)fcntl(fd, F_SETFD, 0);
}

static int run_all(const struct textdiff *t, struct buf *said, int a, int b)
{
	char old[32], new[32];
	const char *argv[] = { DIFF, "-r", "-u", "-N", "--text", old, new, NULL };
	int pipe_fds[2];
	pid_t pid;

	(void)snprintf(old, sizeof(old), "/proc/self/fd/%d", a);
	(void)snprintf(new, sizeof(new), "/proc/self/fd/%d", b);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		/* 0 to 2 and the socket are open in every job: none of ours stands there */
		(void)dup2(null, 0);
		(void)dup2(pipe_fds[1], 1);
		(void)dup2(null, 2);
		for (size_t i = 0; i < t->n; i++) {
			keep_open(t->waiting[i].before);
			keep_open(t->waiting[i].after);
		}
		keep_open(a);
		keep_open(b);
		execute(argv);
	}
	(void)close(pipe_fds[1]);
	return collect(said, pid, pipe_fds[0]);
}

/* What `diff` said, from @p on, and of which change; bytes may be anything. */
struct said {
	const char *p, *end;
	size_t which; /* SIZE_MAX: no more */
	const char *hunks;
	size_t n;
};

static const char *behind_line(const struct said *s, const char *p)
{
	const char *end = memchr(p, '\n', (size_t)(s->end - p));

	return end == NULL ? s->end : end + 1;
}

/* It is at "diff -r … NNNN", two lines with the names that diff saw, and hunks, none of whose lines begins with a "d". */
static void take_one(struct said *s)
{
	const char *p = behind_line(s, s->p);

	s->which = SIZE_MAX;
	if (p - s->p > 5 && p[-1] == '\n')
		(void)sscanf(p - 5, "%4zu", &s->which);
	for (int i = 0; i < 2 && p < s->end && *p != '@'; i++)
		p = behind_line(s, p);
	s->hunks = p;
	while (p < s->end && *p != 'd')
		p = behind_line(s, p);
	s->n = (size_t)(p - s->hunks);
	s->p = p;
}

static void put_together(const struct textdiff *t, struct buf *out, const struct buf *text)
{
	const char *p = buf_cstr(text);
	struct said s = { .p = p, .end = p + text->n };

	take_one(&s);
	for (size_t i = 0; i < t->n; i++) {
		const struct textdiff_change *w = &t->waiting[i];

		buf_str(out, w->notes);
		if (s.which != i)
			continue;
		buf_fmt(out, "--- %s\n+++ %s\n", w->old, w->new);
		buf_add(out, s.hunks, s.n);
		take_one(&s);
	}
}

/* All with one `diff`. */
static int together(struct textdiff *t, struct buf *out, int scratch)
{
	cleanup_buf struct buf said = BUF_INIT(out->max);
	cleanup_fd int dir = -1, a = -1, b = -1;
	char name[32];
	int rc;

	(void)snprintf(name, sizeof(name), "text-%d", getpid());
	if (scratch < 0 || mkdirat(scratch, name, 0700) < 0)
		return -EROFS;
	dir = openat(scratch, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = dir < 0 ? -errno : make_sides(t, dir, &a, &b);
	if (rc == 0)
		rc = run_all(t, &said, a, b);
	(void)!tree_remove(scratch, name);
	if (rc == 0)
		put_together(t, out, &said);
	out->failed |= buf_failed(&said);
	return rc;
}

int textdiff_flush(struct textdiff *t, struct buf *out, int scratch)
{
	size_t texts = 0;
	int rc = -EROFS;

	for (size_t i = 0; i < t->n; i++)
		texts += t->waiting[i].before >= 0 || t->waiting[i].after >= 0;
	if (texts > 1)
		rc = together(t, out, scratch);
	if (rc < 0)
		rc = each(t, out);
	textdiff_free(t);
	if (rc == 0 && buf_failed(out)) {
		/* the text is full: what is there stays, and nothing comes behind it */
		out->failed = false;
		out->max = out->n;
		return 1;
	}
	return rc;
}

int textdiff_add(struct textdiff *t, struct buf *out, int scratch, const char *target,
	const struct change *change)
{
	const struct found *b = change->before, *a = change->after;
	struct textdiff_change w = { .before = -1, .after = -1 };
	cleanup_buf struct buf notes = BUF_INIT(1U << 23);
	int rc;

	w.old = label("a", target, change->path, b->kind != FOUND_NONE);
	w.new = label("b", target, change->path, a->kind != FOUND_NONE);
	rc = add_special(&notes, w.old, "was", b);
	if (rc == 0)
		rc = add_special(&notes, w.new, "is", a);
	if (rc == 0) {
		add_mode(&notes, w.new, change);
		add_empty(&notes, w.old, w.new, change);
		rc = take_content(&notes, &w, change);
	}
	if (rc < 0 || (notes.n == 0 && w.before < 0 && w.after < 0)) {
		close_change(&w);
		return rc;
	}
	w.notes = str_dup(buf_cstr(&notes));
	t->waiting[t->n++] = w;
	t->bytes += w.bytes;
	return t->n == TEXTDIFF_BATCH || t->bytes >= WAITING_MAX ? textdiff_flush(t, out, scratch)
								 : 0;
}

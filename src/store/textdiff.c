/* SPDX-License-Identifier: Apache-2.0 */
#include "store/textdiff.h"
#include "base/str.h"
#include "store/tree.h"

#include <sys/wait.h>

#define DIFF          "/usr/bin/diff"
#define TEXT_SIZE_MAX (4LL << 20)
#define SNIFF         8192

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

static int open_side(const struct found *f)
{
	int fd = regular(f) ? diff_open(f) : open("/dev/null", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
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

static void child(int before, int after, const char *old, const char *new, int out) attr_noreturn;

static void child(int before, int after, const char *old, const char *new, int out)
{
	const char *argv[] = { DIFF, "-u", "--text", "--label", old, "--label", new, "/dev/fd/3",
		"/dev/fd/4", NULL };
	const char *env[] = { "LC_ALL=C", NULL };
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
	(void)execve(DIFF, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	_exit(127);
}

static int run(struct buf *out, int before, int after, const char *old, const char *new)
{
	int pipe_fds[2], status;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		child(before, after, old, new, pipe_fds[1]);
	(void)close(pipe_fds[1]);
	for (;;) {
		char chunk[65536];
		ssize_t n = pid < 0 ? 0 : read(pipe_fds[0], chunk, sizeof(chunk));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		buf_add(out, chunk, (size_t)n);
	}
	(void)close(pipe_fds[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) <= 1 ? 0 : -EIO;
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

static int add_content(
	struct buf *out, const char *old, const char *new, const struct change *change)
{
	const struct found *b = change->before, *a = change->after;
	cleanup_fd int before = -1, after = -1;
	int rc;

	if (!change->content || (!regular(a) && !regular(b)))
		return 0;
	before = open_side(b);
	after = open_side(a);
	if (before < 0 || after < 0)
		return before < 0 ? before : after;
	if (b->st.st_size > TEXT_SIZE_MAX || a->st.st_size > TEXT_SIZE_MAX || is_binary(before) ||
		is_binary(after)) {
		buf_fmt(out, "Binary files %s and %s differ\n", old, new);
		return 0;
	}
	rc = run(out, before, after, old, new);
	return rc == -EIO ? 0 : rc;
}

int textdiff_add(struct buf *out, const char *target, const struct change *change)
{
	const struct found *b = change->before, *a = change->after;
	cleanup_free char *old = label("a", target, change->path, b->kind != FOUND_NONE);
	cleanup_free char *new = label("b", target, change->path, a->kind != FOUND_NONE);
	int rc = add_special(out, old, "was", b);

	if (rc == 0)
		rc = add_special(out, new, "is", a);
	if (rc < 0)
		return rc;
	add_mode(out, new, change);
	add_empty(out, old, new, change);
	rc = add_content(out, old, new, change);
	if (rc == 0 && buf_failed(out)) {
		/* the text is full: what is there stays, and nothing comes behind it */
		out->failed = false;
		out->max = out->n;
		return 1;
	}
	return rc;
}

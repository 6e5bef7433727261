/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/exec.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* --- reading the request --- */

static const char *string_or(const json_t *o, const char *key, const char *otherwise)
{
	const json_t *v = json_object_get(o, key);

	return json_is_string(v) ? json_string_value(v) : otherwise;
}

static uint64_t number_or(const json_t *o, const char *key, uint64_t otherwise)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
								: otherwise;
}

/* Appends the strings of a list, each with its NUL. A string with a NUL inside is refused. */
static int add_strings(
	const json_t *list, const char *what, struct buf *text, uint32_t *count, struct err *err)
{
	size_t i;
	json_t *v;

	*count = 0;
	if (list != NULL && !json_is_array(list))
		return err_raise(err, ERR_INVALID, "exec: '%s' is not a list", what);
	json_array_foreach (list, i, v) {
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			return err_raise(err, ERR_INVALID,
				"exec: '%s' holds something that is no text without NUL", what);
		buf_add(text, json_string_value(v), json_string_length(v) + 1);
		++*count;
	}
	return 0;
}

/* Behind room for @launch. */
static int make_text(
	const json_t *request, struct launch_request *launch, struct buf *text, struct err *err)
{
	const char *cwd = string_or(request, "cwd", ""), *user = string_or(request, "user", "");
	int rc;

	buf_add(text, launch, sizeof(*launch));
	buf_add(text, cwd, strlen(cwd) + 1);
	buf_add(text, user, strlen(user) + 1);
	rc = add_strings(json_object_get(request, "argv"), "argv", text, &launch->argc, err);
	if (rc == 0 && launch->argc == 0)
		rc = err_raise(err, ERR_INVALID, "exec: 'argv' is empty");
	if (rc == 0)
		rc = add_strings(json_object_get(request, "env"), "env", text, &launch->envc, err);
	if (rc == 0 && buf_failed(text))
		rc = err_raise(err, ERR_TOO_LARGE,
			"exec: arguments and environment exceed %u bytes", LAUNCH_TEXT_MAX);
	launch->text_size = (uint32_t)(text->n - sizeof(*launch));
	return rc;
}

/* --- descriptors --- */

int exec_pipe(const struct box *box, int ends[2])
{
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	if ((!box->rootfs.rootless && fchown(ends[0], box->rootfs.base, box->rootfs.base) < 0) ||
		fchmod(ends[0], 0666) < 0)
		return -errno;
	return 0;
}

static int make_pipe(const struct box *box, int *read_end, int *write_end)
{
	int ends[2] = { -1, -1 }, rc = exec_pipe(box, ends);

	*read_end = ends[0];
	*write_end = ends[1];
	return rc;
}

/* Of a new pipe: it has no other flags. */
static int set_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* Where there is no /dev/null, a pipe that has ended. */
static int open_no_input(const struct box *box, int *ret)
{
	cleanup_fd int writer = -1;

	*ret = box_null(box);
	return *ret < 0 ? make_pipe(box, ret, &writer) : 0;
}

static int make_pipes(struct exec *e, const struct box *box, bool with_stdin, int stdio[3])
{
	int rc;

	rc = with_stdin ? make_pipe(box, &stdio[0], &e->in) : open_no_input(box, &stdio[0]);
	if (rc == 0)
		rc = make_pipe(box, &e->out, &stdio[1]);
	if (rc == 0)
		rc = make_pipe(box, &e->err, &stdio[2]);
	if (rc == 0 && e->in >= 0)
		rc = set_nonblocking(e->in);
	if (rc == 0)
		rc = set_nonblocking(e->out);
	if (rc == 0)
		rc = set_nonblocking(e->err);
	return rc;
}

static int make_terminal(struct exec *e, const struct box *box, const json_t *tty, int stdio[3])
{
	struct winsize size = { .ws_row = (unsigned short)number_or(tty, "rows", 24),
		.ws_col = (unsigned short)number_or(tty, "cols", 80) };

	e->out = box_terminal(box, &stdio[0]);
	if (e->out < 0)
		return e->out;
	e->tty = true;
	if (ioctl(e->out, TIOCSWINSZ, &size) < 0)
		return -errno;
	stdio[1] = fcntl(stdio[0], F_DUPFD_CLOEXEC, 3);
	stdio[2] = fcntl(stdio[0], F_DUPFD_CLOEXEC, 3);
	return stdio[1] < 0 || stdio[2] < 0 ? -errno : 0;
}

struct exec *exec_blank(size_t ring_max)
{
	struct exec *e = xnew(struct exec);

	e->in = e->out = e->err = -1;
	e->spill = (struct spill)SPILL_INIT;
	e->input = (struct buf)BUF_INIT(EXEC_STDIN_MAX);
	list_init(&e->node);
	ring_init(&e->ring, ring_max < EXEC_RING_MAX ? ring_max : EXEC_RING_MAX);
	return e;
}

struct exec *exec_new(
	const struct box *box, const json_t *request, int ret_stdio[3], struct err *err)
{
	const json_t *tty = json_object_get(request, "tty");
	uint64_t timeout_ms = number_or(request, "timeout_ms", 0),
		 spill = number_or(request, "spill_bytes", 0),
		 ring = number_or(request, "ring_bytes", EXEC_RING_DEFAULT);
	struct exec *e = exec_blank((size_t)ring);
	int rc;

	e->channel = (uint16_t)number_or(request, "channel", 0);
	ret_stdio[0] = ret_stdio[1] = ret_stdio[2] = -1;
	if (e->channel == 0 || str_copy(e->id, sizeof(e->id), string_or(request, "exec", "")) < 0 ||
		!id_valid(e->id)) {
		(void)err_raise(err, ERR_INVALID, "exec: id or channel is malformed");
		exec_free(e);
		return NULL;
	}
	rc = json_is_object(tty)
		     ? make_terminal(e, box, tty, ret_stdio)
		     : make_pipes(
			       e, box, json_is_true(json_object_get(request, "stdin")), ret_stdio);
	if (rc < 0) {
		for (int i = 0; i < 3; i++)
			fd_close(&ret_stdio[i]);
		(void)err_raise_sys(err, rc, "make descriptors for the program");
		exec_free(e);
		return NULL;
	}
	rc = spill > 0 ? spill_open(&e->spill, box, e->id, spill) : 0;
	if (rc < 0) {
		for (int i = 0; i < 3; i++)
			fd_close(&ret_stdio[i]);
		(void)err_raise_sys(err, rc, "make the file for the program's output");
		exec_free(e);
		return NULL;
	}
	e->last = json_is_true(json_object_get(request, "last"));
	e->tell_changed = json_is_true(json_object_get(request, "tell_changed"));
	if (timeout_ms != 0)
		e->deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
	return e;
}

void exec_count(const struct box *box, struct exec_counters *ret)
{
	struct cgroup_usage usage;

	cgroup_refusals(&box->cgroup, &usage);
	ret->oom_kills = usage.oom_kills;
	ret->pids_refused = usage.pids_refused;
}

int exec_launch(struct exec *e, const struct box *box, int sock, const json_t *request,
	const struct exec_counters *before, const int stdio[3], struct err *err)
{
	cleanup_buf struct buf message = BUF_INIT(sizeof(struct launch_request) + LAUNCH_TEXT_MAX);
	struct launch_request launch = { .tty = e->tty,
		.held = json_is_true(json_object_get(request, "held")) };
	int rc = make_text(request, &launch, &message, err);

	if (rc == 0) {
		memcpy(message.p, &launch, sizeof(launch));
		if (before != NULL)
			e->before = *before;
		else
			exec_count(box, &e->before);
		e->started_wall_ns = clock_wall_ns();
		rc = waiter_launch(sock, &message, stdio);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "reach the process that waits for a program");
	}
	return rc;
}

void exec_started(struct exec *e, pid_t pid)
{
	BUG_ON(e->state != EXEC_STARTING);
	e->state = EXEC_RUNNING;
	e->pid = pid;
}

/* --- data --- */

bool exec_read(struct exec *e, struct box *box, int *fd, enum ring_stream stream, uint64_t keep)
{
	static char bytes[16384]; /* on the stack they would be cleared each time */
	bool changed = false;

	for (int round = 0; *fd >= 0 && round < 4; round++) {
		size_t space = ring_space(&e->ring, keep);
		ssize_t n;

		if (space == 0)
			break;
		n = read(*fd, bytes, space < sizeof(bytes) ? space : sizeof(bytes));
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) { /* end of the pipe; a terminal says EIO */
			fd_close(fd);
			return true;
		}
		spill_add(&e->spill, box, e->ring.end, stream, bytes, (size_t)n);
		ring_add(&e->ring, stream, bytes, (size_t)n);
		changed = true;
		if ((size_t)n < sizeof(bytes))
			break;
	}
	return changed;
}

void exec_drain(struct exec *e, struct box *box)
{
	/* bounded: a descendant may write without end */
	for (int round = 0; round < 256; round++) {
		bool more = exec_read(e, box, &e->out, RING_STDOUT, e->ring.end);

		more |= exec_read(e, box, &e->err, RING_STDERR, e->ring.end);
		if (!more)
			return;
	}
}

int exec_save(struct exec *e, const struct box *box)
{
	int rc = 0;

	if (e->ring.end == 0)
		return 0;
	if (!spill_is_open(&e->spill))
		rc = spill_open(&e->spill, box, e->id, UINT64_MAX);
	if (rc == -EEXIST) /* saved when it was suspended */
		rc = spill_resume(&e->spill, box, e->id, UINT64_MAX);
	return rc < 0 ? rc : spill_add_ring(&e->spill, &e->ring);
}

/* Its end was sent, or nobody reads it any more. */
static bool input_is_over(const struct exec *e)
{
	return e->input_closed || (e->in < 0 && !e->tty);
}

int exec_feed(struct exec *e, const void *bytes, size_t n)
{
	e->touched = true;
	if (input_is_over(e)) {
		e->input_taken += n; /* nobody reads: as with a pipe whose reader ignores it */
		e->input_dropped += n;
		return 0;
	}
	if (n > e->input.max - e->input.n)
		return -ENOBUFS;
	buf_add(&e->input, bytes, n);
	exec_write(e);
	return 0;
}

void exec_feed_end(struct exec *e)
{
	static const char end_of_file = 4; /* ^D */

	e->touched = true;
	if (e->tty)
		(void)!exec_feed(e, &end_of_file, 1);
	else
		e->input_closed = true;
	exec_write(e);
}

void exec_write(struct exec *e)
{
	int *fd = e->tty ? &e->out : &e->in;

	while (*fd >= 0 && e->input.n > 0) {
		ssize_t n = write(*fd, e->input.p, e->input.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) { /* the reader is gone */
			e->input_taken += e->input.n;
			e->input_dropped += e->input.n;
			buf_reset(&e->input);
			if (!e->tty)
				fd_close(fd);
			return;
		}
		e->input_taken += (size_t)n;
		buf_consume(&e->input, (size_t)n);
	}
	if (e->input_closed && e->input.n == 0 && !e->tty)
		fd_close(&e->in);
}

/* What a terminal sends to a whole process group. */
static bool from_keyboard(int sig)
{
	return sig == SIGINT || sig == SIGQUIT || sig == SIGHUP || sig == SIGTSTP ||
	       sig == SIGSTOP || sig == SIGCONT;
}

#define MEMBERS_MAX 400 /* of a leaf, that are looked at */

/*
 * The process group that has the terminal, or 0. The kernel keeps its number when all its processes have ended, and somebody outside may have that by now: it has to have a process
 * in the leaf; where these are too many, or there is no leaf, its first process has to be of the program's session. TIOCGPGRP answers in our pid namespace: the master belongs to us.
 */
static pid_t foreground(const struct exec *e, const struct box *box)
{
	int32_t pids[MEMBERS_MAX];
	pid_t group = 0;
	int n;

	if (!e->tty || ioctl(e->out, TIOCGPGRP, &group) < 0 || group <= 1)
		return 0;
	n = cgroup_leaf_pids(&box->cgroup, e->leaf, pids, ARRAY_SIZE(pids));
	if (n < 0)
		return getsid(group) == getsid(e->pid) ? group : 0;
	for (int i = 0; i < n; i++) {
		if (getpgid(pids[i]) == group)
			return group;
	}
	return 0;
}

int exec_signal(struct exec *e, const struct box *box, int sig)
{
	pid_t group;

	if (e->state != EXEC_RUNNING)
		return -ESRCH;
	group = foreground(e, box);
	/* the terminal itself knows it without a number, but sends SIGINT, SIGQUIT and SIGTSTP alone */
	if (group != 0 && ioctl(e->out, TIOCSIG, sig) == 0)
		return 0;
	if (group != 0)
		return kill(-group, sig) < 0 ? -errno : 0;
	/* as a terminal does: a shell that waits for its child would not end by itself */
	if (from_keyboard(sig) && kill(-e->pid, sig) == 0)
		return 0;
	return kill(e->pid, sig) < 0 ? -errno : 0;
}

void exec_kill(struct exec *e, const struct box *box)
{
	e->touched = true;
	if (!ablated("tree_kill") && cgroup_kill(&box->cgroup, e->leaf) == 0)
		return;
	if (e->state == EXEC_RUNNING && kill(-e->pid, SIGKILL) < 0)
		(void)kill(e->pid, SIGKILL);
}

/* --- the end --- */

/* What the kernel's counters say happened while the program ran. */
struct findings {
	uint64_t oom_kills, forks_refused;
	const char *disk_full; /* what of it is used up, or NULL */
};

static bool has_failed(int wait_status)
{
	return !WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0;
}

static void find(const struct exec *e, const struct box *box, int wait_status, struct findings *f)
{
	struct cgroup_usage usage;

	*f = (struct findings){ 0 };
	if (!has_failed(wait_status))
		return; /* nothing to explain */
	cgroup_refusals(&box->cgroup, &usage);
	f->oom_kills = box->cgroup.controllers ? cgroup_leaf_oom_kills(&box->cgroup, e->leaf)
					       : usage.oom_kills - e->before.oom_kills;
	f->forks_refused = usage.pids_refused - e->before.pids_refused +
			   cgroup_leaf_refused(&box->cgroup, e->leaf);
	f->disk_full = box_disk_full(box);
}

static const char *status_name(const struct exec *e, int wait_status, const struct findings *f)
{
	if (e->lost != NULL)
		return "lost";
	if (e->timed_out)
		return "timeout";
	if (e->killed && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL)
		return "killed";
	if (e->uncounted_bytes != 0 && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL)
		return "limit";
	if (f->oom_kills != 0)
		return "oom";
	if (f->forks_refused != 0)
		return "limit";
	if (f->disk_full != NULL)
		return "disk_full";
	return WIFEXITED(wait_status) ? "exited" : "signaled";
}

static void set_counter(json_t *o, const char *key, uint64_t value)
{
	if (value != UINT64_MAX)
		(void)json_object_set_new(o, key, json_integer((json_int_t)value));
}

void exec_ended(struct exec *e, const struct box *box, int wait_status, uint64_t cpu_us)
{
	uint64_t leaf_cpu = cgroup_leaf_cpu_us(&box->cgroup, e->leaf);
	char started[CLOCK_TEXT_SIZE], ended[CLOCK_TEXT_SIZE];
	json_t *evidence = json_object();
	struct findings f;

	BUG_ON(e->state != EXEC_RUNNING);
	e->state = EXEC_ENDED;
	e->wait_status = wait_status;
	find(e, box, wait_status, &f);
	clock_text(e->started_wall_ns, started);
	clock_text(clock_wall_ns(), ended);
	set_counter(evidence, "wait_status", (uint64_t)(unsigned int)wait_status);
	if (e->lost != NULL)
		(void)json_object_set_new(evidence, "reason", json_string(e->lost));
	if (e->uncounted_bytes != 0)
		set_counter(evidence, "uncounted_bytes", e->uncounted_bytes);
	if (f.oom_kills != 0)
		set_counter(evidence, "oom_kills", f.oom_kills);
	if (f.forks_refused != 0)
		set_counter(evidence, "forks_refused", f.forks_refused);
	if (f.disk_full != NULL) {
		(void)json_object_set_new(evidence, "full", json_string(f.disk_full));
		set_counter(evidence, "disk_bytes", box_disk_bytes(box));
	}
	e->status = json_pack("{s:s, s:o, s:s, s:s, s:I}", "status",
		status_name(e, wait_status, &f), "evidence", evidence, "started", started, "ended",
		ended, "output_bytes", (json_int_t)e->ring.end);
	BUG_ON(e->status == NULL);
	if (e->lost == NULL && WIFEXITED(wait_status))
		(void)json_object_set_new(
			e->status, "code", json_integer(WEXITSTATUS(wait_status)));
	else if (e->lost == NULL)
		(void)json_object_set_new(e->status, "signal", json_integer(WTERMSIG(wait_status)));
	if (spill_is_open(&e->spill))
		set_counter(e->status, "kept_bytes", e->spill.file.size);
	set_counter(e->status, "cpu_us", leaf_cpu != UINT64_MAX ? leaf_cpu : cpu_us);
}

json_t *exec_describe(const struct exec *e)
{
	static const char *const names[] = { "starting", "running", "ended" };
	json_t *o = json_pack("{s:s, s:i, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "exec",
		e->id, "channel", e->channel, "state", names[e->state], "pid", e->pid, "from",
		(json_int_t)e->ring.start, "end", (json_int_t)e->ring.end, "shown",
		(json_int_t)e->shown, "input_bytes", (json_int_t)(e->input_taken + e->input.n),
		"input_taken", (json_int_t)e->input_taken, "input_dropped",
		(json_int_t)e->input_dropped, "input_over", (int)input_is_over(e));

	BUG_ON(o == NULL);
	if (e->status != NULL)
		(void)json_object_set(o, "status", e->status);
	return o;
}

void exec_free(struct exec *e)
{
	if (e == NULL)
		return;
	list_remove(&e->node);
	fd_close(&e->in);
	fd_close(&e->out);
	fd_close(&e->err);
	ring_fini(&e->ring);
	spill_close(&e->spill);
	buf_free(&e->input);
	json_decref(e->status);
	free(e);
}

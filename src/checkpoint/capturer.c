/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/capturer.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/alive.h"
#include "checkpoint/seizer.h"
#include "sys/fdpass.h"
#include "sys/raw.h"

#include <grp.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

void template_path(const char *run, const char *id, char *path, size_t size)
{
	(void)snprintf(path, size, "%s/keepers/%s.tpl", run, id);
}

int template_connect(const char *path, struct err *err)
{
	int fd = fdpass_connect(path);

	/* it has ended; that its socket is not found is not that what was asked for is not */
	if (fd < 0)
		return err_raise(
			err, ERR_UNAVAILABLE, "connect to the template: %s", strerrordesc_np(-fd));
	return fd;
}

/* --- the dumper, up to exec --- */

#define URGENT (-19)

/* A process exec'ed in U1 may trace everything of the sandbox, and nothing else; U2 is its child. */
int capture_enter_u1(const struct capture_place *place)
{
	cleanup_fd int u1 = place->enter_u1 ? ioctl(place->u2, NS_GET_PARENT) : -1;

	if (!place->enter_u1)
		return 0;
	if (u1 < 0 || setns(u1, CLONE_NEWUSER) < 0)
		return -errno;
	if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return -errno;
	return 0;
}

/* Our own, high enough to be out of the way of those that the dumper expects. */
static int move_up(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 10);
}

static int compare_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

void capture_close_others(int *keep, size_t n)
{
	unsigned int first = STDERR_FILENO + 1;

	qsort(keep, n, sizeof(*keep), compare_fds);
	for (size_t i = 0; i < n; i++) {
		if (keep[i] < (int)first)
			continue;
		if (keep[i] > (int)first)
			(void)!raw_close_range(first, (unsigned int)keep[i] - 1, 0);
		first = (unsigned int)keep[i] + 1;
	}
	(void)!raw_close_range(first, ~0U, 0);
}

static attr_noreturn void dumper_child(const struct capture_place *place, const int pair[2],
	int program, int template, bool suspend)
{
	static char name[] = "cay-keeper", mode[] = "dump";
	char *const argv[] = { name, mode, NULL };
	char *envp[FAULT_VARIABLES + 1];
	int keeper = pair[1], filters = -1;
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	/* others wait for it while nothing of theirs runs; without the right to it stays as it is */
	(void)setpriority(PRIO_PROCESS, 0, URGENT);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	(void)close(pair[0]);
	if (suspend) {
		int needed[] = { keeper, place->u2, program, template };

		capture_close_others(needed, ARRAY_SIZE(needed));
		filters = seizer_stop(keeper, place->u2);
		if (filters < 0)
			_exit(119);
	}
	if (capture_enter_u1(place) < 0)
		_exit(120);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	fault_environment(envp);
	program = move_up(program);
	keeper = move_up(keeper);
	template = move_up(template);
	filters = suspend ? move_up(filters) : -1;
	if (program < 0 || keeper < 0 ||
		template <0 || dup2(keeper, DUMP_KEEPER_FD) < 0 ||
			  dup2(template, DUMP_TEMPLATE_FD) < 0 ||
			  raw_close_range(DUMP_FILTERS_FD, ~0U, CLOSE_RANGE_CLOEXEC) < 0 ||
			  (suspend && dup2(filters, DUMP_FILTERS_FD) < 0))
		_exit(121);
	(void)syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
	_exit(122);
}

static int start_dumper(
	struct capture *c, const struct capture_place *place, bool suspend, struct err *err)
{
	cleanup_fd int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	/* no signal, so that nobody but us waits for it */
	struct clone_args args = { .exit_signal = 0 };
	int pair[2];

	if (program < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_raise_sys(err, -errno, "prepare the dumper");
	c->pid = raw_clone3(&args);
	if (c->pid == 0)
		dumper_child(place, pair, program, c->template, suspend);
	(void)close(pair[1]);
	if (c->pid < 0) {
		int rc = c->pid;

		c->pid = 0;
		(void)close(pair[0]);
		return err_raise_sys(err, rc, "start the dumper");
	}
	c->dumper = pair[0];
	return 0;
}

/* /dev/null where nothing is filled. */
static int open_template(const struct capture_place *place, struct err *err)
{
	int fd;

	if (place->template_path != NULL)
		return template_connect(place->template_path, err);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_raise_sys(err, -errno, "open /dev/null") : fd;
}

int capture_begin(struct capture *c, const struct capture_place *place, struct err *err)
{
	*c = (struct capture)CAPTURE_INIT;
	c->template = open_template(place, err);
	if (c->template <0)
		return c->template;
	if (start_dumper(c, place, false, err) < 0) {
		fd_close(&c->template); /* it serves nobody else meanwhile */
		return -EIO;
	}
	return 0;
}

/* Nothing of the first dumper is needed any more: it has only looked at what runs. */
int capture_suspend(struct capture *c, const struct capture_place *place, struct err *err)
{
	(void)kill(c->pid, SIGKILL);
	(void)waitpid(c->pid, NULL, __WALL);
	c->pid = 0;
	fd_close(&c->dumper);
	c->suspended = true;
	if (start_dumper(c, place, true, err) < 0) {
		fd_close(&c->template);
		return -EIO;
	}
	return 0;
}

/* --- messages --- */

/* A step of a dumper, however large the process and loaded the machine, takes less than this; and all of them together. What goes beyond it hangs. */
#define SILENCE_NS (60 * NS_PER_S)
#define ALL_NS     (600 * NS_PER_S)
#define LET_GO_NS  (30 * NS_PER_S)
#define HURRY_NS   (3 * NS_PER_S)
#define NEVER      "live.dump.hang.never" /* there is no such point */

/* @fd: receives a descriptor that comes along, else -1; NULL = none is wanted. Return: bytes as of recv(2), -ETIMEDOUT when for @silence_ns, or since long, no step was done. */
static ssize_t receive_with(
	const struct capture *c, void *bytes, size_t size, uint64_t silence_ns, int *fd)
{
	uint64_t now = clock_now_ns(), end = now + ALL_NS, deadline = now + silence_ns;
	struct pollfd p = { .fd = c->dumper, .events = POLLIN };
	size_t n_fds = 0;
	ssize_t n;

	for (;; now = clock_now_ns()) {
		uint64_t until = deadline < end ? deadline : end;

		if (now >= until)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)((until - now) / NS_PER_MS) + 1) <= 0)
			continue;
		n = fdpass_recv(c->dumper, bytes, size, fd, fd != NULL ? 1 : 0, &n_fds);
		if (fd != NULL && n_fds == 0)
			*fd = -1;
		if (n <= 0 || !alive_is((size_t)n))
			return n;
		deadline = clock_now_ns() + silence_ns;
	}
}

static ssize_t receive(const struct capture *c, void *bytes, size_t size, uint64_t silence_ns)
{
	return receive_with(c, bytes, size, silence_ns, NULL);
}

/* What it was about to say when it was told to stop says nothing of that: who is killed then takes with it what it still holds. */
static bool has_let_go(const struct capture *c)
{
	struct dump_report r = { 0 };

	do {
		if (receive(c, &r, sizeof(r), LET_GO_NS) != (ssize_t)sizeof(r))
			return false;
	} while (r.let_go == 0);
	return r.n_stuck == 0;
}

/*
 * The dumper is torn out of what hangs and lets all go as they were; who cannot be let go ends with it, as it must (EXITKILL). A dumper that does not even take a signal keeps what
 * it has stopped until it does.
 */
int capture_give_up(struct capture *c, struct err *err)
{
	(void)kill(c->pid, SIGTERM);
	(void)kill(c->pid, SIGCONT);
	if (has_let_go(c))
		c->changing = false;
	c->released = true;
	return err_raise(err, ERR_TIMEOUT, "%s",
		c->changing
			? "the capture of the processes got no further, and not all of them could be let go"
			: "the capture of the processes got no further and was given up; they go on as they were");
}

/* @hang: a test has it hang meanwhile at a point that is called so. Return: 0, -ETIMEDOUT when something hangs, or an error. */
static int receive_report_with(
	struct capture *c, struct dump_report *r, const char *hang, int *fd, struct err *err)
{
	ssize_t n = receive_with(c, r, sizeof(*r), fault_at(hang) ? HURRY_NS : SILENCE_NS, fd);

	if (n == -ETIMEDOUT)
		return -ETIMEDOUT;
	if (n != (ssize_t)sizeof(*r))
		return err_raise(err, ERR_INTERNAL, "the dumper ended without a word");
	if (r->err.code == ERR_NONE)
		return 0;
	/* who is still held ends with it, once something of theirs was changed */
	c->changing = c->changing && (r->let_go == 0 || r->n_stuck > 0);
	*err = r->err;
	return -EIO;
}

static int receive_report(
	struct capture *c, struct dump_report *r, const char *hang, struct err *err)
{
	int rc = receive_report_with(c, r, hang, NULL, err);

	return rc == -ETIMEDOUT ? capture_give_up(c, err) : rc;
}

/* The template copies only what the keeper itself has named, and from the dumper what that has kept. Nobody waits for it: what the dumper asks of it comes behind. */
static int allow(const struct capture *c, const int32_t *pids, size_t n)
{
	static struct template_allow allow;

	if (n + 1 > TEMPLATE_PIDS_MAX)
		return -E2BIG;
	allow = (struct template_allow){ .kind = TEMPLATE_ALLOW, .n = (uint32_t)n + 1 };
	memcpy(allow.pids, pids, n * sizeof(*pids));
	allow.pids[n] = c->pid;
	return fdpass_send(c->template, &allow, sizeof(allow), NULL, 0);
}

int capture_prepare(struct capture *c, struct dump_order *order, struct err *err)
{
	struct dump_report report;
	int rc;

	order->kind = DUMP_PREPARE;
	rc = allow(c, order->pids, order->n_pids);
	if (rc == 0)
		rc = fdpass_send(c->dumper, order, sizeof(*order), NULL, 0);
	if (rc < 0)
		return err_raise_sys(err, rc, "prepare the capture");
	rc = receive_report(c, &report, "live.dump.hang.prepare", err);
	/* they run, and until they are stopped a number may come to be anybody's */
	if (rc == 0 && allow(c, order->pids, 0) < 0)
		rc = err_raise(err, ERR_UNAVAILABLE, "the template has ended");
	c->filtered = rc == 0 && report.n_filtered > 0;
	c->closed = rc == 0 ? report.closed : 0;
	memcpy(c->closed_name, report.closed_name, sizeof(c->closed_name));
	return rc;
}

int capture_stop(struct capture *c, struct dump_order *order, const int *masters, size_t n_masters,
	struct err *err)
{
	struct dump_report report;
	int rc = allow(c, order->pids, order->n_pids);

	order->suspended = c->suspended;
	/* with its end all that it has stopped ends */
	c->changing = c->suspended;
	if (rc == 0)
		rc = fdpass_send(c->dumper, order, sizeof(*order), masters, n_masters);
	if (rc < 0)
		return err_raise_sys(err, rc, "order the capture");
	return receive_report(c, &report, "live.dump.hang.stop", err);
}

int capture_look(struct capture *c, struct dump_report *ret, int *ret_numbers, struct err *err)
{
	const uint32_t go = DUMP_GO;
	int rc;

	*ret_numbers = -1;
	c->changing = true;
	rc = fdpass_send(c->dumper, &go, sizeof(go), NULL, 0);
	if (rc < 0)
		return err_raise_sys(err, rc, "go on with the capture");
	rc = receive_report_with(c, ret, "live.dump.hang.", ret_numbers, err);
	if (rc < 0)
		fd_close(ret_numbers);
	/* it holds all, and serves one connection at a time: others may want its memory now */
	if (rc == 0 && ret->n_twins == 0)
		fd_close(&c->template);
	return rc;
}

/* A dumper that does no more than @order, and answers with @size bytes at @out within @silence_ns. */
static int ask_dumper(const struct capture_place *place, const struct dump_order *order,
	const int *masters, size_t n_masters, void *out, size_t size, uint64_t silence_ns,
	struct err *err)
{
	struct capture c;
	int rc = capture_begin(&c, place, err);

	if (rc < 0)
		return rc;
	rc = fdpass_send(c.dumper, order, sizeof(*order), masters, n_masters);
	if (rc == 0 && receive(&c, out, size, silence_ns) != (ssize_t)size)
		rc = -EPIPE;
	if (rc < 0)
		rc = err_raise_sys(err, rc, "look at the processes");
	c.released = true; /* nothing stays stopped */
	return capture_end(&c) < 0 ? -EIO : rc;
}

int capture_examine(const struct capture_place *place, struct dump_order *order, const int *masters,
	size_t n_masters, struct dump_examination *out, struct err *err)
{
	order->kind = DUMP_EXAMINE;
	return ask_dumper(place, order, masters, n_masters, out, sizeof(*out), SILENCE_NS, err);
}

int capture_settle(const struct capture_place *place, struct dump_order *order, struct err *err)
{
	struct dump_report report;

	order->kind = DUMP_SETTLE;
	/* the server waits for it: without a dumper that hangs they are paused all the same */
	return ask_dumper(
		place, order, NULL, 0, &report, sizeof(report), DUMP_SETTLE_NS + HURRY_NS, err);
}

bool capture_died(const struct capture *c)
{
	char byte;

	return c->pid != 0 && recv(c->dumper, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

int capture_twins(const struct capture *c, const int32_t *pids, size_t n)
{
	return allow(c, pids, n);
}

int capture_release(struct capture *c, struct dump_report *ret, struct err *err)
{
	const uint32_t release = DUMP_RELEASE;
	int rc = fdpass_send(c->dumper, &release, sizeof(release), NULL, 0);

	if (rc < 0)
		return err_raise_sys(err, rc, "let the processes go on");
	rc = receive_report(c, ret, NEVER, err);
	c->released = true;
	c->changing &= rc < 0;
	return rc;
}

int capture_filled(struct capture *c, struct dump_report *ret, struct err *err)
{
	int rc = receive_report(c, ret, NEVER, err);

	c->filled = rc == 0;
	return rc;
}

void capture_end_twins(const struct capture *c)
{
	const uint32_t end = DUMP_END;
	struct dump_report r;

	if (c->filled && fdpass_send(c->dumper, &end, sizeof(end), NULL, 0) == 0)
		(void)receive(c, &r, sizeof(r), LET_GO_NS);
}

/* Who does not end when it is killed hangs in the kernel: it is not waited for for ever. */
static void wait_end(const struct capture *c)
{
	cleanup_fd int pidfd = raw_pidfd_open(c->pid);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (pidfd >= 0 && !c->filled)
		(void)poll(&p, 1, (int)(LET_GO_NS / NS_PER_MS));
	(void)waitpid(c->pid, NULL, __WALL | (pidfd < 0 || c->filled ? 0 : WNOHANG));
}

void capture_forget(struct capture *c)
{
	c->released = true;
	(void)!capture_end(c);
}

int capture_end(struct capture *c)
{
	struct dump_report report;
	struct err err;
	int rc;

	if (c->pid == 0)
		return 0;
	/* killed before, it would take with it what it has stopped; later only its twins */
	if (!c->released)
		(void)!capture_release(c, &report, &err);
	if (!c->filled)
		(void)kill(c->pid, SIGKILL);
	fd_close(&c->dumper);
	fd_close(&c->template);
	wait_end(c);
	rc = c->changing ? -EPIPE : 0;
	*c = (struct capture)CAPTURE_INIT;
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/starter.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sys/confine.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum order_kind { ORDER_BUILDER = 1, ORDER_JOIN, ORDER_LAUNCH };

struct order {
	uint32_t kind;
	uint32_t has_leaf;
	union {
		struct builder_options builder;
		struct launch_request launch;
	};
};

struct starter_self {
	int sock;
	int u2;
	bool confined; /* in the Landlock domain */
};

/* Every clone of the sandbox: into its cgroup leaf, with the keeper as its parent. */
static int clone_for_keeper(uint64_t flags, int leaf)
{
	struct clone_args args = { .flags = flags | CLONE_PARENT };

	if (leaf >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (unsigned int)leaf;
	}
	return raw_clone3(&args);
}

/* The namespaces of every sandbox, but for the user and cgroup ones. */
static uint64_t sandbox_namespaces(void)
{
	uint64_t flags = CLONE_NEWNS;

	if (!ablated("netns_lo_only"))
		flags |= CLONE_NEWNET;
	if (!ablated("pidns"))
		flags |= CLONE_NEWPID;
	if (!ablated("ipcns"))
		flags |= CLONE_NEWIPC;
	if (!ablated("utsns"))
		flags |= CLONE_NEWUTS;
	return flags;
}

static int do_builder(
	const struct starter_self *self, struct order *order, const int *fds, size_t n_fds)
{
	int pid;

	if (n_fds != 2 + order->has_leaf)
		return -EINVAL;
	order->builder.sock = fds[0];
	order->builder.init_fd = fds[1];
	pid = clone_for_keeper(
		sandbox_namespaces() | (order->builder.new_userns ? CLONE_NEWUSER : 0),
		order->has_leaf != 0 ? fds[2] : -1);
	if (pid == 0) {
		(void)close(self->sock);
		builder_main(&order->builder);
	}
	return pid;
}

static int do_join(struct starter_self *self, const int *fds, size_t n_fds)
{
	int flags = (int)sandbox_namespaces();

	if (n_fds != 2)
		return -EINVAL;
	if (!ablated("cgroupns"))
		flags |= CLONE_NEWCGROUP;
	if (setns(fds[0], flags) < 0)
		return -errno;
	self->u2 = fcntl(fds[1], F_DUPFD_CLOEXEC, 10);
	return self->u2 < 0 ? -errno : 0;
}

/* The error pipe goes above everything, so that one close_range on each side of it clears the rest. */
static int make_error_pipe(int pipe_fd[2])
{
	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

static void child_of_launch(const struct starter_self *self, const struct launch_request *request,
	char *text, const int *fds, int report)
{
	struct err err = { 0 };

	launch_child(request, text, self->u2, fds, report, &err);
	if (err.code == ERR_NONE)
		(void)err_raise(&err, ERR_INTERNAL, "start the program");
	(void)!file_write_all(report, &err, sizeof(err));
	_exit(127);
}

/* Wait until the child has executed its program (the pipe closes) or says why it could not. */
static void wait_for_exec(int report, struct err *err)
{
	size_t got = 0;

	while (got < sizeof(*err)) {
		ssize_t n = read(report, (char *)err + got, sizeof(*err) - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	if (got != sizeof(*err))
		*err = (struct err){ 0 };
}

static char *map_text(int fd, uint32_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void do_launch(struct starter_self *self, const struct order *order, const int *fds,
	size_t n_fds, struct launch_reply *reply)
{
	const struct launch_request *request = &order->launch;
	int report[2], rc;
	char *text;

	if (n_fds != 4 + order->has_leaf || (text = map_text(fds[3], request->text_size)) == NULL) {
		(void)err_raise(
			&reply->err, ERR_INTERNAL, "the order to start a program is malformed");
		return;
	}
	/* once, before the first program: afterwards no mount can be changed from here */
	if (!self->confined && request->profile != PROFILE_DEBUG && !ablated("landlock")) {
		rc = confine_landlock();
		if (rc < 0) {
			(void)err_raise_sys(&reply->err, rc, "enter the Landlock domain");
			return;
		}
		self->confined = true;
	}
	rc = make_error_pipe(report);
	if (rc == 0)
		rc = clone_for_keeper(0, order->has_leaf != 0 ? fds[4] : -1);
	if (rc == 0)
		child_of_launch(self, request, text, fds, report[1]);
	(void)munmap(text, request->text_size);
	if (rc < 0) {
		(void)err_raise(&reply->err,
			rc == -EAGAIN || rc == -ENOMEM ? ERR_LIMIT : ERR_INTERNAL,
			"start a process: %s", strerrordesc_np(-rc));
		return;
	}
	(void)close(report[1]);
	wait_for_exec(report[0], &reply->err);
	(void)close(report[0]);
	reply->pid = rc;
}

static void starter_loop(struct starter_self *self) attr_noreturn;

static void starter_loop(struct starter_self *self)
{
	for (;;) {
		struct order order;
		int fds[8];
		size_t n_fds = 0;
		ssize_t n = fdpass_recv(
			self->sock, &order, sizeof(order), fds, ARRAY_SIZE(fds), &n_fds);
		struct launch_reply reply = { 0 };
		int rc = -EINVAL;

		if (n <= 0)
			_exit(0); /* the keeper is gone */
		if (n == sizeof(order) && order.kind == ORDER_BUILDER)
			rc = do_builder(self, &order, fds, n_fds);
		else if (n == sizeof(order) && order.kind == ORDER_JOIN)
			rc = do_join(self, fds, n_fds);
		else if (n == sizeof(order) && order.kind == ORDER_LAUNCH)
			do_launch(self, &order, fds, n_fds, &reply);
		for (size_t i = 0; i < n_fds; i++)
			(void)close(fds[i]);
		if (order.kind == ORDER_LAUNCH)
			rc = fdpass_send(self->sock, &reply, sizeof(reply), NULL, 0);
		else
			rc = fdpass_send(self->sock, &rc, sizeof(rc), NULL, 0);
		if (rc < 0)
			_exit(1);
	}
}

static int answer_of(const struct starter *s)
{
	int answer;
	size_t none;
	ssize_t n = fdpass_recv(s->sock, &answer, sizeof(answer), NULL, 0, &none);

	if (n != sizeof(answer))
		return n < 0 ? (int)n : -EPIPE;
	return answer;
}

/*
 * What is ignored stays ignored across clone and execve, and whoever started cayd may have ignored anything: programs must not inherit that. By the
 * raw call, because libc refuses the two signals that it keeps to itself; all zero is SIG_DFL.
 */
static void default_signals(void)
{
	const uint64_t as_by_default[4] = {
		0
	}; /* the kernel's struct sigaction, at most so large */

	for (int number = 1; number < NSIG; number++)
		(void)syscall(SYS_rt_sigaction, number, as_by_default, NULL, sizeof(uint64_t));
}

int starter_new(struct starter *s, const struct cgroup *cg)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	int pair[2], pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = raw_clone3(&args);
	if (pid == 0) {
		struct starter_self self = { .sock = 3, .u2 = -1 };

		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || dup2(pair[1], 3) < 0)
			_exit(1);
		(void)!raw_close_range(4, ~0U, 0);
		(void)fcntl(3, F_SETFD, FD_CLOEXEC);
		(void)prctl(PR_SET_NAME, "cay-starter", 0, 0, 0);
		default_signals();
		pid = cgroup_v1_join(cg);
		if (fdpass_send(3, &pid, sizeof(pid), NULL, 0) < 0 || pid < 0)
			_exit(1);
		starter_loop(&self);
	}
	(void)close(pair[1]);
	if (pid < 0) {
		(void)close(pair[0]);
		return pid;
	}
	s->pid = pid;
	s->sock = pair[0];
	return answer_of(s);
}

static int ask(struct starter *s, const struct order *order, const int *fds, size_t n_fds)
{
	int rc = fdpass_send(s->sock, order, sizeof(*order), fds, n_fds);

	return rc < 0 ? rc : answer_of(s);
}

int starter_clone_builder(struct starter *s, const struct builder_options *options, int leaf)
{
	struct order order = { .kind = ORDER_BUILDER, .has_leaf = leaf >= 0, .builder = *options };
	int fds[3] = { options->sock, options->init_fd, leaf };

	return ask(s, &order, fds, 2 + order.has_leaf);
}

int starter_join(struct starter *s, int pidfd, int u2)
{
	struct order order = { .kind = ORDER_JOIN };
	int fds[2] = { pidfd, u2 };

	return ask(s, &order, fds, 2);
}

int starter_launch_send(struct starter *s, const struct launch_request *request, const char *text,
	const int stdio[3], int leaf)
{
	struct order order = { .kind = ORDER_LAUNCH, .has_leaf = leaf >= 0, .launch = *request };
	cleanup_fd int memory = memfd_create("launch", MFD_CLOEXEC);
	int fds[5] = { stdio[0], stdio[1], stdio[2], memory, leaf };
	int rc;

	if (memory < 0)
		return -errno;
	rc = file_write_all(memory, text, request->text_size);
	return rc < 0 ? rc : fdpass_send(s->sock, &order, sizeof(order), fds, 4 + order.has_leaf);
}

int starter_launch_reply(struct starter *s, struct launch_reply *reply)
{
	size_t none;
	ssize_t n = fdpass_recv(s->sock, reply, sizeof(*reply), NULL, 0, &none);

	if (n == sizeof(*reply))
		return 0;
	return n < 0 ? (int)n : -EPIPE;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/starter.h"
#include "base/ablate.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/str.h"
#include "sandbox/filters.h"
#include "sys/confine.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define INLINE_MAX 65536U /* a longer message goes by memory file */

/* oom_score_adj of whatever runs inside: the payload dies before any process of the host when memory runs out */
#define SCORE_INSIDE "500"

enum order_kind {
	ORDER_BUILDER = 1,
	ORDER_JOIN,
	ORDER_ROOT,
	ORDER_AHEAD,
	ORDER_FINISH,
	ORDER_WAITER
};

/* On the wire only as long as its kind needs. */
struct order {
	uint32_t kind;
	uint32_t has_more; /* a leaf (builder, waiter), a placer's socket (join) */
	uint32_t places;   /* join: it is to be the placer itself */
	union {
		struct builder_options builder;
		struct cgroup_limits shown; /* join */
		struct placement place;     /* root, ahead, finish */
		struct launch_place launch; /* waiter */
	};
};

#define NO_PLACER \
	{ \
		.parts = -1, .synth = -1, .sys = -1 \
	}

struct starter_self {
	int sock;
	struct placer placer; /* of the placer alone */
	bool confined;  /* has the limits, the domain and the filter that all programs share */
	bool in_domain; /* has it from its parent */
	int listener; /* of that filter, for the keeper, who gets it with the answer to the first order of a waiter; -1: there is none, or the keeper has it */
	int score;    /* its own oom_score_adj; -1: it stays what it is */
	char own_score[8];
};

static int set_score(const struct starter_self *self, const char *score)
{
	return self->score < 0 || pwrite(self->score, score, strlen(score), 0) > 0 ? 0 : -errno;
}

/*
 * What is cloned between the two dies before us when memory runs out: without us no program could be started any more. Set by ourselves, because a clone, in the domain of the programs, reaches no
 * /proc but the sandbox's, which is read-only. So we have it meanwhile, too: who finds no memory left for a clone may take us for that.
 */
static int begin_inside(const struct starter_self *self)
{
	return ablated("oom_score") ? 0 : set_score(self, SCORE_INSIDE);
}

static void end_inside(const struct starter_self *self)
{
	(void)!set_score(self, self->own_score); /* else we have that of the others */
}

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

/*
 * As the effective id @owner, which a user namespace made meanwhile belongs to: instances of inotify, waiting signals and other things that each user
 * may have so many of are counted for it too. As root they would all count for the machine's own. Capabilities stay. Context: root.
 */
static int clone_owned(uint64_t flags, int leaf, uid_t owner)
{
	int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), pid;

	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
		syscall(SYS_setresuid, -1, owner, -1) < 0)
		return -errno;
	pid = clone_for_keeper(flags, leaf);
	if (pid == 0)
		return 0;
	if (syscall(SYS_setresuid, -1, 0, -1) < 0 || prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0)
		_exit(1);
	/* both were reset by the change of ids */
	(void)prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	return pid;
}

static int clone_builder(const struct builder_options *o, int leaf)
{
	uint64_t flags = sandbox_namespaces();

	if (!o->new_userns)
		return clone_for_keeper(flags, leaf);
	return clone_owned(flags | CLONE_NEWUSER, leaf, ablated("own_quotas") ? 0 : o->owner);
}

static int do_builder(
	const struct starter_self *self, struct order *order, const int *fds, size_t n_fds)
{
	int pid;

	if (n_fds != 2 + order->has_more)
		return -EINVAL;
	order->builder.sock = fds[0];
	order->builder.init_fd = fds[1];
	pid = begin_inside(self);
	if (pid < 0)
		return pid;
	pid = clone_builder(&order->builder, order->has_more != 0 ? fds[2] : -1);
	if (pid == 0) {
		(void)close(self->sock);
		builder_main(&order->builder);
	}
	end_inside(self);
	return pid;
}

static void starter_loop(struct starter_self *self) attr_noreturn;

/* Of the host's pid namespace, and not in the domain of the programs. */
static int clone_placer(
	struct starter_self *self, const struct cgroup_limits *shown, const int fds[2])
{
	int rc = placer_open(&self->placer, shown), pid;

	if (rc < 0)
		return rc;
	pid = clone_for_keeper(0, -1);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		(void)prctl(PR_SET_NAME, "cay-placer", 0, 0, 0);
		if (dup3(fds[1], self->sock, O_CLOEXEC) < 0)
			_exit(1);
		for (size_t i = 0; i < 2; i++)
			(void)close(fds[i]);
		starter_loop(self);
	}
	placer_close(&self->placer);
	return pid;
}

static int become_placer(struct starter_self *self, const struct cgroup_limits *shown)
{
	(void)prctl(PR_SET_NAME, "cay-placer", 0, 0, 0);
	return placer_open(&self->placer, shown);
}

/* Return: pid of the placer (0: none was wanted, or it is ourselves), or -errno. */
static int do_join(
	struct starter_self *self, const struct order *order, const int *fds, size_t n_fds)
{
	int flags = (int)sandbox_namespaces(), placer = 0;

	if (n_fds != 1 + order->has_more)
		return -EINVAL;
	if (setns(fds[0], flags & ~CLONE_NEWPID) < 0)
		return -errno;
	if (order->places != 0)
		return become_placer(self, &order->shown);
	if (order->has_more != 0)
		placer = clone_placer(self, &order->shown, fds);
	if (placer < 0)
		return placer;
	if ((flags & CLONE_NEWPID) != 0 && setns(fds[0], CLONE_NEWPID) < 0)
		return -errno;
	return placer;
}

/* No program may run yet: it would see mounts change, and could be in the way. Return: as of the placer's function. */
static int do_place(struct starter_self *self, const struct order *order, const int *fds,
	size_t n_fds, struct err *err)
{
	if (n_fds != order->place.n_targets || self->placer.parts < 0 ||
		(order->kind == ORDER_ROOT && n_fds == 0) ||
		(order->kind == ORDER_AHEAD && n_fds > 0))
		return err_raise(err, ERR_INTERNAL, "the order to place mounts is malformed");
	if (order->kind == ORDER_ROOT)
		return placer_root(&self->placer, &order->place, fds, err);
	if (order->kind == ORDER_AHEAD)
		return placer_ahead(&self->placer, &order->place, err);
	return placer_finish(&self->placer, &order->place, fds, err);
}

/* Once, before the first program: afterwards no mount can be changed from here. */
static int confine(struct starter_self *self, const struct launch_place *place, struct err *err)
{
	const struct filter *told;
	int rc;

	if (self->confined)
		return 0;
	rc = launch_limits(place->files);
	if (rc < 0)
		return err_raise_sys(err, rc, "set resource limits");
	if (!self->in_domain && place->profile != PROFILE_DEBUG && !ablated("landlock"))
		rc = confine_landlock();
	if (rc < 0)
		return err_raise_sys(err, rc, "enter the Landlock domain");
	told = filter_told((enum spec_profile)place->profile, place->learns != 0);
	rc = self->listener =
		confine_told(told->code, told->n, place->tells != 0, filter_told_error());
	if (rc < 0 && rc != -ENOTCONN)
		return err_raise_sys(err, rc, "have refused system calls told");
	self->confined = true;
	return 0;
}

/* What a waiter is told. */
struct launch_message {
	struct launch_request request;
	char text[INLINE_MAX];
};

/* Return: the text of @message, or of the memory file @fds[3]; NULL when the message is malformed. */
static char *launch_text(struct launch_message *m, ssize_t n, const int *fds, size_t n_fds)
{
	void *p;

	if (n == (ssize_t)(sizeof(m->request) + m->request.text_size) && n_fds == 3)
		return m->text;
	if (n != sizeof(m->request) || n_fds != 4)
		return NULL;
	p = mmap(NULL, m->request.text_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[3], 0);
	return p == MAP_FAILED ? NULL : p;
}

static void waiter_wait(const struct launch_place *place, int sock, struct err *err)
{
	static struct launch_message message; /* too large for a stack frame */
	int fds[4];
	size_t n_fds = 0;
	ssize_t n = fdpass_recv(sock, &message, sizeof(message), fds, ARRAY_SIZE(fds), &n_fds);
	char *text;

	if (n <= 0)
		_exit(0); /* nobody wants it any more */
	(void)fault("waiter.asked");
	text = (size_t)n < sizeof(message.request) ? NULL : launch_text(&message, n, fds, n_fds);
	if (text != NULL)
		launch_become(place, &message.request, text, fds, sock, err);
	else
		(void)err_raise(err, ERR_INTERNAL, "the order to start a program is malformed");
}

static void waiter_main(
	const struct launch_place *place, const struct waiter_fds *own) attr_noreturn;

static void waiter_main(const struct launch_place *place, const struct waiter_fds *own)
{
	struct err err = { 0 };
	int sock = fcntl(own->sock, F_DUPFD_CLOEXEC, 10);

	(void)prctl(PR_SET_NAME, "cay-waiter", 0, 0, 0);
	if (!ablated("cgroupns") && setns(own->cgroups, CLONE_NEWCGROUP) < 0)
		(void)err_raise_sys(&err, -errno, "join the sandbox's cgroup namespace");
	else if (sock >= 0 && launch_prepare(place, own->u2, sock, &err) == 0)
		waiter_wait(place, sock, &err);
	if (err.code == ERR_NONE)
		(void)err_raise(&err, ERR_INTERNAL, "start the program");
	(void)!file_write_all(sock, &err, sizeof(err));
	_exit(127);
}

static void do_waiter(struct starter_self *self, const struct order *order, const int *fds,
	size_t n_fds, struct waiter_reply *reply)
{
	const struct waiter_fds own = { fds[0], fds[1], fds[2],
		order->has_more != 0 ? fds[3] : -1 };
	int rc;

	if (n_fds != 3 + order->has_more) {
		(void)err_raise(
			&reply->err, ERR_INTERNAL, "the order to make a process is malformed");
		return;
	}
	if (confine(self, &order->launch, &reply->err) < 0)
		return;
	rc = begin_inside(self);
	if (rc == 0)
		rc = clone_for_keeper(0, own.leaf);
	if (rc == 0) {
		fd_close(&self->listener);
		waiter_main(&order->launch, &own);
	}
	end_inside(self);
	if (rc < 0)
		(void)err_raise(&reply->err,
			rc == -EAGAIN || rc == -ENOMEM ? ERR_LIMIT : ERR_INTERNAL,
			"start a process: %s", strerrordesc_np(-rc));
	else
		reply->pid = rc;
}

/* Least size of an order of each kind. */
static size_t order_size(uint32_t kind)
{
	switch (kind) {
	case ORDER_BUILDER:
		return offsetof(struct order, builder) + sizeof(struct builder_options);
	case ORDER_JOIN:
		return offsetof(struct order, shown) + sizeof(struct cgroup_limits);
	case ORDER_ROOT:
	case ORDER_AHEAD:
	case ORDER_FINISH:
		return offsetof(struct order, place.targets);
	case ORDER_WAITER:
		return offsetof(struct order, launch) + sizeof(struct launch_place);
	default:
		return SIZE_MAX;
	}
}

/* Act and answer: an int for builder and join, a struct err for placing, a struct waiter_reply for waiters. Return: 0 or -errno when nobody listens. */
static int obey(struct starter_self *self, struct order *order, const int *fds, size_t n_fds)
{
	struct waiter_reply reply = { 0 };
	cleanup_fd int file = -1;
	int rc;

	switch (order->kind) {
	case ORDER_BUILDER:
		rc = do_builder(self, order, fds, n_fds);
		return fdpass_send(self->sock, &rc, sizeof(rc), NULL, 0);
	case ORDER_JOIN:
		rc = do_join(self, order, fds, n_fds);
		return fdpass_send(self->sock, &rc, sizeof(rc), NULL, 0);
	case ORDER_ROOT:
	case ORDER_AHEAD:
	case ORDER_FINISH:
		(void)!do_place(self, order, fds, n_fds, &reply.err);
		return fdpass_send(self->sock, &reply.err, sizeof(reply.err), NULL, 0);
	default:
		do_waiter(self, order, fds, n_fds, &reply);
		file = self->listener;
		self->listener = -1;
		return fdpass_send(self->sock, &reply, sizeof(reply), &file, file >= 0);
	}
}

static void starter_loop(struct starter_self *self)
{
	static struct order order; /* too large for a stack frame */

	for (;;) {
		int fds[FDPASS_MAX];
		size_t n_fds = 0;
		ssize_t n = fdpass_recv(
			self->sock, &order, sizeof(order), fds, ARRAY_SIZE(fds), &n_fds);
		int rc;

		if (n <= 0)
			_exit(0); /* the keeper is gone */
		if ((size_t)n < sizeof(order.kind) || (size_t)n < order_size(order.kind))
			_exit(1);
		rc = obey(self, &order, fds, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			(void)close(fds[i]);
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

static char *arguments;
static size_t arguments_size;

void starter_hide_arguments(int argc, char **argv)
{
	arguments = argv[0];
	arguments_size = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
}

/* All but the name, which the first of them is. */
static void blank_arguments(void)
{
	size_t name = arguments != NULL ? strlen(arguments) : 0;

	if (arguments_size > name)
		memset(arguments + name, 0, arguments_size - name);
}

#ifdef CAY_ABLATION
/* What a forgotten descriptor of the host would be to a program whose working directory nobody looks at. */
static void leave_open(void)
{
	if (ablated("cwd_check"))
		(void)!fcntl(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), F_DUPFD_CLOEXEC, 20);
}
#else
static void leave_open(void)
{
}
#endif

int starter_main(void)
{
	struct starter_self self = {
		.sock = STARTER_SOCK_FD,
		.placer = NO_PLACER,
		.in_domain = true,
		.listener = -1,
		.score = -1 /* its parent has set what all have that came from the template */
	};

	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)prctl(PR_SET_NAME, "cay-starter", 0, 0, 0);
	(void)fcntl(self.sock, F_SETFD, FD_CLOEXEC);
	default_signals();
	starter_loop(&self);
}

/* It is inherited: without this programs could read the keeper's. One for all of them, because each counts against what the user may have. */
static int leave_keyring(void)
{
	if (ablated("keyring_join") ||
		syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0 || errno == ENOSYS)
		return 0;
	return -errno;
}

static int open_score(struct starter_self *self)
{
	ssize_t n;

	self->score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	if (self->score < 0)
		return -errno;
	n = pread(self->score, self->own_score, sizeof(self->own_score) - 1, 0);
	return n > 0 ? 0 : -EIO;
}

int starter_new(struct starter *s, const struct cgroup *cg)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	int pair[2], pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = raw_clone3(&args);
	if (pid == 0) {
		struct starter_self self = {
			.sock = 3, .placer = NO_PLACER, .listener = -1, .score = -1
		};

		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || dup2(pair[1], 3) < 0)
			_exit(1);
		(void)!raw_close_range(4, ~0U, 0);
		(void)!raw_close_range(STDIN_FILENO, STDOUT_FILENO, 0);
		(void)fcntl(3, F_SETFD, FD_CLOEXEC);
		(void)prctl(PR_SET_NAME, "cay-starter", 0, 0, 0);
		blank_arguments();
		default_signals();
		leave_open();
		pid = open_score(&self);
		if (pid == 0)
			pid = leave_keyring();
		if (pid == 0 && !ablated("cgroup_join"))
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
	*s = (struct starter){ .pid = pid, .sock = pair[0], .placer_sock = -1 };
	return answer_of(s);
}

static int ask(struct starter *s, const struct order *order, const int *fds, size_t n_fds)
{
	int rc = fdpass_send(s->sock, order, order_size(order->kind), fds, n_fds);

	return rc < 0 ? rc : answer_of(s);
}

/* Most of it is room for texts, which is not touched where there are none. */
static struct order *order_of(enum order_kind kind)
{
	static struct order order;

	memset(&order, 0, order_size(kind));
	order.kind = kind;
	return &order;
}

int starter_clone_builder(struct starter *s, const struct builder_options *options, int leaf)
{
	struct order *order = order_of(ORDER_BUILDER);
	int fds[3] = { options->sock, options->init_fd, leaf };

	order->has_more = leaf >= 0;
	order->builder = *options;
	return ask(s, order, fds, 2 + order->has_more);
}

int starter_join(struct starter *s, int pidfd, const struct cgroup_limits *shown)
{
	struct order *order = order_of(ORDER_JOIN);
	int fds[2] = { pidfd }, pair[2], rc;

	if (shown == NULL)
		return ask(s, order, fds, 1);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	order->has_more = 1;
	order->shown = *shown;
	fds[1] = pair[1];
	rc = ask(s, order, fds, 2);
	(void)close(pair[1]);
	s->placer_sock = pair[0];
	s->placer_pid = rc > 0 ? rc : 0;
	return rc < 0 ? rc : 0;
}

int starter_become_placer(struct starter *s, int pidfd, const struct cgroup_limits *shown)
{
	struct order *order = order_of(ORDER_JOIN);
	int rc;

	order->places = 1;
	order->shown = *shown;
	rc = ask(s, order, &pidfd, 1);
	if (rc == 0)
		*s = (struct starter){ .sock = -1, .placer_pid = s->pid, .placer_sock = s->sock };
	return rc;
}

/* How much of the texts is used. */
static size_t targets_size(const struct placement *p)
{
	const char *end = p->targets;

	for (uint32_t i = 0; i < p->n_targets; i++)
		end += strlen(end) + 1;
	return (size_t)(end - p->targets);
}

int starter_place(struct starter *s, enum starter_place what, const struct placement *order,
	const int *mounts, struct err *err)
{
	static const enum order_kind kinds[] = { [STARTER_PLACE_ROOT] = ORDER_ROOT,
		[STARTER_PLACE_AHEAD] = ORDER_AHEAD,
		[STARTER_PLACE_FINISH] = ORDER_FINISH };
	struct order *message = order_of(kinds[what]);
	size_t size = offsetof(struct placement, targets) + targets_size(order), none;
	struct err answer;
	ssize_t n;
	int rc;

	memcpy(&message->place, order, size);
	rc = fdpass_send(s->placer_sock, message, offsetof(struct order, place) + size, mounts,
		order->n_targets);
	if (rc < 0)
		return err_raise_sys(err, rc, "send the mounts to the placer");
	n = fdpass_recv(s->placer_sock, &answer, sizeof(answer), NULL, 0, &none);
	if (n != sizeof(answer))
		return err_raise(err, ERR_INTERNAL, "the placer ended without a word (%zd)", n);
	if (answer.code == ERR_NONE)
		return 0;
	*err = answer;
	return -EIO;
}

void starter_placed(struct starter *s)
{
	fd_close(&s->placer_sock);
}

int starter_order_waiter(
	struct starter *s, const struct launch_place *place, const struct waiter_fds *own)
{
	int fds[4] = { own->sock, own->u2, own->cgroups, own->leaf };
	struct {
		uint32_t kind, has_more, places;
		struct launch_place launch;
	} order = { ORDER_WAITER, own->leaf >= 0, 0, *place };

	_Static_assert(offsetof(struct order, launch) == sizeof(order) - sizeof(order.launch),
		"the head of an order");
	return fdpass_send(s->sock, &order, sizeof(order), fds, 3 + order.has_more);
}

int starter_waiter_reply(struct starter *s, struct waiter_reply *reply, int *listener)
{
	size_t n_fds = 0;
	int fd = -1;
	ssize_t n = fdpass_recv(s->sock, reply, sizeof(*reply), &fd, 1, &n_fds);

	if (n_fds == 1) {
		fd_close(listener);
		*listener = fd;
	}
	if (n == sizeof(*reply))
		return 0;
	return n < 0 ? (int)n : -EPIPE;
}

int waiter_launch(int sock, const struct buf *message, const int stdio[3])
{
	const size_t head = sizeof(struct launch_request);
	cleanup_fd int memory = -1;
	int fds[4] = { stdio[0], stdio[1], stdio[2] }, rc;

	if (message->n <= head + INLINE_MAX)
		return fdpass_send(sock, message->p, message->n, fds, 3);
	memory = memfd_create("launch", MFD_CLOEXEC);
	if (memory < 0)
		return -errno;
	fds[3] = memory;
	rc = file_write_all(memory, message->p + head, message->n - head);
	return rc < 0 ? rc : fdpass_send(sock, message->p, head, fds, 4);
}

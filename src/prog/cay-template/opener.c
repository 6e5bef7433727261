/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/opener.c - file descriptions are made once for the whole tree, by a process that has no right outside the sandbox, and handed to T', from
 * which every process inherits them: so descriptions that were shared are shared again, whoever held them.
 */
#include "checkpoint/image_check.h"
#include "prog/cay-template/lazy.h"

#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/securebits.h>

#define SIGCHLD  17
#define NOSIGNAL 0x4000

/* Descriptions in one message: no more than the kernel finds numbers for below those where they go. */
#define TOGETHER PLAN_FIRST_DESCRIPTION

struct passed {
	uint64_t length; /* struct cmsghdr with descriptors */
	int32_t level, type;
	int32_t fds[TOGETHER];
};

/* What the opener says: the number of the first of some descriptions with their descriptors, or which id is to be chosen. */
struct said {
	uint32_t index;
	int32_t id;
};

#define NEXT_ID 0xffff0000U /* + enum image_sysv_kind */
#define HELPED  0xfffffffeU /* the helper is wanted */
#define ALL_SET 0xffffffffU /* no description follows, and nothing more is done to them */

void opener_confine(void)
{
	lazy_close();
	(void)fork_must(CALL5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0), "become undumpable");
	(void)fork_must(
		CALL2(__NR_setns, fork.u2, CLONE_NEWUSER), "join the payload's user namespace");
	(void)fork_must(CALL5(__NR_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0),
		"keep capabilities");
	/* host ids may not touch a file of the payload */
	if (fork.order.single_id == 0)
		(void)fork_must(CALL2(__NR_setgroups, 0, 0), "drop groups");
	(void)fork_must(CALL3(__NR_setresgid, 0, 0, 0), "become the payload's group");
	(void)fork_must(CALL3(__NR_setresuid, 0, 0, 0), "become the payload's root");
}

static uint64_t length_of(uint32_t n_fds)
{
	return offsetof(struct passed, fds) + n_fds * sizeof(int32_t);
}

static void pass(int socket, const void *bytes, uint64_t n, struct passed *control, uint32_t n_fds)
{
	struct bare_iovec iov = { (uint64_t)bytes, n };
	struct bare_message m = { .iov = &iov, .n_iov = 1, .control = control };

	control->length = length_of(n_fds);
	control->level = control->type = 1;
	m.control_length = (control->length + 7) & ~7UL;
	(void)fork_must(CALL3(__NR_sendmsg, socket, &m, NOSIGNAL), "hand over a descriptor");
}

void fork_pass(int socket, const void *bytes, uint64_t n, int fd)
{
	struct passed control = { .fds = { fd } };

	pass(socket, bytes, n, &control, 1);
}

/* T' has its own descriptors there and behind. */
static uint32_t behind_descriptions(void)
{
	return plan->first_description + plan->n_descriptions;
}

int opener_kept(uint32_t index)
{
	return (int)(behind_descriptions() + PLAN_FILES_ROOM + index);
}

void opener_have(int fd, uint32_t index)
{
	long kept = CALL3(__NR_fcntl, fd, 1030 /* F_DUPFD_CLOEXEC */, opener_kept(index));

	if (kept != opener_kept(index))
		fork_fail("keep a description", kept < 0 ? kept : -EEXIST);
	(void)CALL1(__NR_close, fd);
}

static void hand_over_all(int socket)
{
	for (uint32_t i = 0, n; i < plan->n_descriptions; i += n) {
		struct said said = { .index = i };
		struct passed control;

		for (n = 0; n < TOGETHER && i + n < plan->n_descriptions; n++)
			control.fds[n] = opener_kept(i + n);
		pass(socket, &said, sizeof(said), &control, n);
	}
}

void opener_next_id(int socket, enum image_sysv_kind kind, int32_t id)
{
	struct said said = { .index = NEXT_ID + (uint32_t)kind, .id = id };
	long rc = CALL6(__NR_sendto, socket, &said, sizeof(said), 0, 0, 0);

	if (rc == sizeof(said))
		rc = CALL6(__NR_recvfrom, socket, &said, sizeof(said), 0, 0, 0);
	(void)fork_must(
		rc == sizeof(said) ? said.id : -EPIPE, "choose the id of a System V object");
}

/* A number below all limits, into one of three files: nothing else comes of what the opener says here. */
static void choose_id(int socket, const struct said *asked)
{
	uint32_t kind = asked->index - NEXT_ID;
	struct said answer = { .index = asked->index, .id = -EINVAL };

	if (kind < SYSV_KINDS && asked->id >= 0 && fork.next_ids[kind] >= 0) {
		long rc = write_number(fork.next_ids[kind], (uint32_t)asked->id);

		answer.id = rc < 0 ? (int32_t)rc : 0;
	}
	(void)fork_must(
		CALL6(__NR_sendto, socket, &answer, sizeof(answer), 0, 0, 0), "answer the opener");
}

/* Return: how many descriptors, 0 with a question, or -errno. */
static long take(int socket, struct said *said, struct passed *control)
{
	struct bare_iovec iov = { (uint64_t)said, sizeof(*said) };
	struct bare_message m = {
		.iov = &iov, .n_iov = 1, .control = control, .control_length = sizeof(*control)
	};
	long n = CALL3(__NR_recvmsg, socket, &m, 0x40000000 /* CMSG_CLOEXEC */);

	if (n <= 0)
		return n < 0 ? n : -EPIPE;
	if (n != sizeof(*said) ||
		(said->index < NEXT_ID &&
			(control->length < length_of(1) || control->length > length_of(TOGETHER))))
		return -EPROTO;
	if (said->index >= NEXT_ID)
		return 0;
	return (long)((control->length - length_of(0)) / sizeof(int32_t));
}

/* Wait until T' has started it. */
static void want_helper(int socket)
{
	struct said said = { .index = HELPED };
	long rc = CALL6(__NR_sendto, socket, &said, sizeof(said), NOSIGNAL, 0, 0);

	if (rc == sizeof(said))
		rc = CALL6(__NR_recvfrom, socket, &said, sizeof(said), 0, 0, 0);
	(void)fork_must(rc == sizeof(said) ? 0 : -EPIPE, "have the helper started");
}

static void start_helper(int socket)
{
	const struct said said = { .index = HELPED };

	helper_start();
	(void)fork_must(
		CALL6(__NR_sendto, socket, &said, sizeof(said), 0, 0, 0), "answer the opener");
}

static void say_all_set(int socket)
{
	const struct said said = { .index = ALL_SET };

	(void)fork_must(CALL6(__NR_sendto, socket, &said, sizeof(said), NOSIGNAL, 0, 0),
		"hand over all descriptions");
}

#define THE_IMAGE "the image: "

/* Nobody has read it before, and who does so later relies on this. */
static void check_image(void)
{
	const char *wrong = image_check(image, image_size, plan);
	char step[64] = THE_IMAGE;

	if (wrong == NULL)
		return;
	for (size_t n = sizeof(THE_IMAGE) - 1; *wrong != '\0' && n < sizeof(step) - 1; n++)
		step[n] = *wrong++;
	fork_fail(step, -EINVAL);
}

static BARE_NORETURN void opener_main(int socket)
{
	life_begin(life_opener(), plan->opener_pid, &fork_shared()->bell);
	helper_leave_number();
	opener_confine();
	check_image();
	if (opener_has_deeds())
		want_helper(socket);
	(void)CALL1(__NR_umask, 0);
	bare_fault("live.opener.begun");
	sysv_make(socket);
	nodes_make();
	files_open();
	hand_over_all(socket);
	say_all_set(socket);
	/* not earlier: a change of ids forgets it */
	(void)CALL5(__NR_prctl, PR_SET_PDEATHSIG, 9, 0, 0, 0);
	fork_await(STAGE_READY);
	sysv_finish();
	files_seal();
	owners_set();
	life_end(0);
	bare_exit(0);
}

int fork_move_up(int fd, uint32_t above)
{
	long rc = CALL3(__NR_fcntl, fd, 1030 /* F_DUPFD_CLOEXEC */, above);

	(void)fork_must(rc, "move a descriptor");
	(void)CALL1(__NR_close, fd);
	return (int)rc;
}

static void make_room(void)
{
	uint32_t above = behind_descriptions();
	uint64_t limit[2] = { plan_files(plan->first_description, plan->n_descriptions), 0 },
		 now[2];

	(void)fork_must(
		CALL4(__NR_prlimit64, 0, 7 /* NOFILE */, 0, now), "read the limit of files");
	if (now[0] < limit[0]) {
		limit[1] = now[1] > limit[0] ? now[1] : limit[0];
		(void)fork_must(CALL4(__NR_prlimit64, 0, 7, limit, 0), "raise the limit of files");
	}
	fork.socket = fork_move_up(fork.socket, above);
	fork.u2 = fork_move_up(fork.u2, above);
	fork.cgroups = fork_move_up(fork.cgroups, above);
	fork.filter = fork_move_up(fork.filter, above);
	fork.last_pid = fork_move_up(fork.last_pid, above);
	for (int i = 0; i < SYSV_KINDS; i++)
		fork.next_ids[i] =
			fork.next_ids[i] < 0 ? -1 : fork_move_up(fork.next_ids[i], above);
	for (uint32_t i = 0; i < fork.order.n_leaves; i++)
		fork.leaves[i] = fork_move_up(fork.leaves[i], above);
	for (uint32_t i = 0; i < fork.order.n_slots; i++)
		fork.slots[i] = fork_move_up(fork.slots[i], above);
	/* what is left below were only needed to get here */
	(void)CALL3(__NR_close_range, 0, above - 1, 0);
}

static void place(int fd, uint32_t index)
{
	if (index >= plan->n_descriptions)
		fork_fail("take a description over", -ERANGE);
	if (fd == (int)(plan->first_description + index))
		return;
	(void)fork_must(CALL3(__NR_dup3, fd, plan->first_description + index, BARE_CLOEXEC),
		"place a description");
	(void)CALL1(__NR_close, fd);
}

static void take_all(int socket)
{
	uint32_t n = 0;

	for (;;) {
		struct said said = { 0 };
		struct passed control = { 0 };
		long n_fds = take(socket, &said, &control);

		if (n_fds == -EPIPE && fork_shared()->failed != 0)
			bare_exit(125);
		(void)fork_must(n_fds, "take a description over");
		if (said.index == ALL_SET)
			break;
		if (said.index == HELPED) {
			start_helper(socket);
		} else if (said.index >= NEXT_ID) {
			choose_id(socket, &said);
		} else {
			for (uint32_t i = 0; i < n_fds; i++, n++)
				place(control.fds[i], said.index + i);
		}
	}
	if (n != plan->n_descriptions)
		fork_fail("take all descriptions over", -EPROTO);
}

long opener_run(void)
{
	int32_t chosen = plan->opener_pid;
	struct bare_clone args = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)&chosen, .set_tid_size = 1
	};
	int pair[2];
	long pid;

	make_room();
	(void)fork_must(CALL4(__NR_socketpair, 1, 5 | BARE_CLOEXEC, 0, pair), "make a socket pair");
	pair[0] = fork_move_up(pair[0], behind_descriptions());
	pair[1] = fork_move_up(pair[1], behind_descriptions());
	pid = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone the opener");
	if (pid == 0) {
		(void)CALL1(__NR_close, pair[0]);
		opener_main(pair[1]);
	}
	(void)CALL1(__NR_close, pair[1]);
	take_all(pair[0]);
	(void)CALL1(__NR_close, pair[0]);
	return pid;
}

void opener_end(long pid)
{
	(void)CALL4(__NR_wait4, pid, 0, 0x40000000, 0);
	if (fork_shared()->failed != 0)
		bare_exit(125);
	if (life_is_lost(life_opener()))
		fork_fail_of(
			plan->opener_pid, "it was killed before it had made everything", -ESRCH);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/asker.c - the process that asks in advance.
 *
 * The thread waits in the kernel for an answer to the notification of its call. It is seized, told to stop, and answered by what has the kernel make the call again; so it stops right behind
 * it. All that it does until its call is over it does for us, with all signals blocked: nothing of its program runs between the answer and the filter. What it was asked therefore
 * still holds when the filter is there.
 *
 * Before its registers are changed whoever asks may end at any time, and the thread makes its call as if nothing had been. Afterwards it ends with us (EXITKILL), as in a capture.
 */
#include "checkpoint/asker.h"
#include "base/fault.h"
#include "checkpoint/tracee_parts.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TIMERS 3

/* --- what can be asked --- */

static bool refuses(const struct filter_program *chain, uint32_t n, int nr)
{
	for (uint32_t i = 0; i < n; i++) {
		if (filter_refuses(&chain[i], nr))
			return true;
	}
	return false;
}

uint32_t asked_lasts(const struct filter_program *chain, uint32_t n)
{
	return refuses(chain, n, SYS_setitimer) && refuses(chain, n, SYS_alarm) ? ASKED_NO_TIMERS
										: 0;
}

uint32_t asked_refused(const struct filter_program *chain, uint32_t n)
{
	for (unsigned int i = 0; i < TIMERS; i++) {
		const struct seccomp_data call = {
			.nr = SYS_getitimer, .arch = AUDIT_ARCH_X86_64, .args = { i }
		};

		if (!filter_chain_allows(chain, n, &call))
			return ASKED_NO_TIMERS;
	}
	return 0;
}

/* --- asking --- */

/* Right behind its call, which is to be made again. */
static bool is_at_call(const struct tracee *t, const struct seccomp_data *call)
{
	const struct user_regs_struct *r = &t->threads[0].registers;

	return !t->zombie && t->n_threads == 1 && !t->stopped &&
	       (long long)r->rax == -RESTART_NO_INTR && r->orig_rax == (uint64_t)call->nr &&
	       r->rdi == call->args[0] && r->rsi == call->args[1] && r->rdx == call->args[2];
}

static int ask(struct tracee *t, struct asker_answer *ret)
{
	static const unsigned char nothing[TRACEE_ANSWER_MAX];
	struct tracee_question timers[TIMERS];
	struct tracee_asked asked = { .t = t, .questions = timers, .n = TIMERS };
	bool none = true;
	int rc;

	for (unsigned int i = 0; i < TIMERS; i++)
		timers[i] = (struct tracee_question){
			.nr = SYS_getitimer, .arguments = { i }, .into = 2
		};
	rc = tracee_ask(&asked, 1);
	for (unsigned int i = 0; i < TIMERS; i++)
		none = none && timers[i].result == 0 &&
		       memcmp(timers[i].answer, nothing, sizeof(nothing)) == 0;
	tracee_scratch_end(&t, 1);
	ret->quiet = rc == 0 && none ? ASKED_NO_TIMERS : 0;
	return rc;
}

/* Its call is made here, so that nothing comes in between. What fails before leaves it to the thread, which makes it when it is let go. */
static void ask_and_call(struct tracee *t, const struct seccomp_data *call, int keeper)
{
	struct user_regs_struct *r = &t->threads[0].registers;
	struct asker_answer answer = { 0 };
	uint64_t a[6];
	long rc;

	memcpy(a, call->args, sizeof(a));
	if (ask(t, &answer) < 0 || !tracee_may_call(t, 0, call->nr, a) ||
		send(keeper, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
		return;
	rc = tracee_call(t, 0, call->nr, a);
	if (rc == -ESRCH)
		return;
	r->rax = (unsigned long long)rc;
	r->orig_rax = ~0ULL; /* it is over */
}

/* Return: whether it was seized and has been answered. Until then nothing has happened to it, and its number may be another's. */
static bool seize(const struct asker_order *o)
{
	struct seccomp_notif_resp again = { .id = o->notice->id, .error = -RESTART_NO_INTR };
	pid_t tid = (pid_t)o->notice->pid;

	return tracee_trace(PTRACE_SEIZE, tid, 0, NULL) == 0 &&
	       ioctl(o->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &o->notice->id) == 0 &&
	       tracee_trace(PTRACE_INTERRUPT, tid, 0, NULL) == 0 &&
	       ioctl(o->listener, SECCOMP_IOCTL_NOTIF_SEND, &again) == 0;
}

static void serve(const struct asker_order *o, int keeper)
{
	pid_t tid = (pid_t)o->notice->pid;
	struct tracee t;
	int rc;

	if (fault("keeper.ask.begun") < 0 || !seize(o))
		return;
	tracee_take_over();
	tracee_hurry(true);
	rc = tracee_stop(&t, tid);
	tracee_hurry(false);
	(void)fault("keeper.ask.stopped");
	/* without options who is seized goes on when we end */
	if (rc < 0 || !is_at_call(&t, &o->notice->data) ||
		tracee_trace(PTRACE_SETOPTIONS, tid, 0, (void *)(uintptr_t)TRACEE_OPTIONS) < 0)
		return;
	t.threads[0].own = o->chain;
	t.threads[0].n_own = o->n_chain;
	ask_and_call(&t, &o->notice->data, keeper);
	tracee_release(&t);
}

static attr_noreturn void asker_child(const struct asker_order *o, int keeper)
{
	int needed[] = { keeper, o->place.u2, o->listener };
	sigset_t none;

	capture_close_others(needed, ARRAY_SIZE(needed));
	if (capture_enter_u1(&o->place) < 0)
		_exit(120);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	serve(o, keeper);
	_exit(0);
}

pid_t asker_start(const struct asker_order *o, int *ret_sock)
{
	/* no signal, so that nobody but the caller waits for it */
	struct clone_args args = { .exit_signal = 0 };
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = raw_clone3(&args);
	if (pid == 0)
		asker_child(o, pair[1]);
	(void)close(pair[1]);
	if (pid < 0)
		(void)close(pair[0]);
	else
		*ret_sock = pair[0];
	return pid;
}

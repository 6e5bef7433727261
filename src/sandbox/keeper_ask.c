/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_ask.c - who is about to install a filter that refuses it to be asked what a capture asks, and to change that, is asked before (checkpoint/asker.h). A process of ours
 * does it, so that a thread that does not get on keeps only that waiting. There are a few of them at most; whoever comes while all are busy, or cannot be asked, is not, and a
 * capture refuses it by name as long as it lives.
 *
 * The call that installs the filter comes twice. Between the two its thread runs only for us: what has been asked when it comes again holds.
 */
#include "checkpoint/asker.h"
#include "sandbox/keeper.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define AWAIT_NS (500 * NS_PER_MS)

static struct keeper_asker *find_free(struct keeper *k)
{
	struct keeper_asker *found = NULL;

	for (size_t i = 0; i < KEEPER_ASKERS; i++) {
		struct keeper_asker *a = &k->askers[i];

		/* of one that has ended in vain it is remembered whom not to ask again: as long as there is room */
		if (a->pid == 0 && (found == NULL || found->tid != 0))
			found = a;
	}
	return found;
}

/* Somebody may be tracing in the debug profile, or about to; and of several threads the others would go on. */
static bool can_be_asked(const struct keeper *k, const struct learned_thread *who)
{
	return k->state == KEEPER_RUNNING && k->box.spec.profile != PROFILE_DEBUG && !who->traced &&
	       who->tid == who->process && who->threads == 1;
}

bool keeper_ask(struct keeper *k, int listener, const struct seccomp_notif *notice,
	const struct learned_install *install, const struct filter_program *chain, uint32_t n)
{
	struct keeper_asker *a = find_free(k);
	struct asker_order order = { .notice = notice,
		.listener = listener,
		.chain = chain,
		.n_chain = n,
		.place = { .enter_u1 = !k->config.rootless } };
	cleanup_fd int u2 = -1;
	uint32_t wanted = asked_refused(chain, n + 1) & ~asked_refused(chain, n);
	pid_t pid;

	if (a == NULL || wanted == 0 || !can_be_asked(k, &install->who) ||
		(asked_lasts(chain, n + 1) & wanted) == 0)
		return false;
	order.place.u2 = u2 = box_payload_userns(&k->box);
	*a = (struct keeper_asker){ .sock = -1, .listener = listener, .notice = *notice };
	pid = u2 < 0 ? u2 : asker_start(&order, &a->sock);
	if (pid < 0)
		return false;
	a->pid = pid;
	a->tid = install->who.tid;
	return true;
}

static bool is_same_call(const struct seccomp_data *a, const struct seccomp_data *b)
{
	return a->nr == b->nr && a->args[0] == b->args[0] && a->args[1] == b->args[1] &&
	       a->args[2] == b->args[2];
}

bool keeper_asked(struct keeper *k, const struct seccomp_notif *notice, uint32_t *ret)
{
	for (size_t i = 0; i < KEEPER_ASKERS; i++) {
		struct keeper_asker *a = &k->askers[i];

		if (a->tid == 0 || a->tid != (int32_t)notice->pid)
			continue;
		if (a->pid != 0)
			keeper_read_asker(k, a);
		*ret = a->answered && is_same_call(&a->notice.data, &notice->data) ? a->answer.quiet
										   : 0;
		a->tid = 0;
		return true;
	}
	return false;
}

/* Who could not even be seized waits still. Who was let go without an answer comes again, and is known by @tid. */
static void end_asker(struct keeper *k, struct keeper_asker *a)
{
	fd_close(&a->sock);
	(void)waitpid(a->pid, NULL, __WALL);
	a->pid = 0;
	a->answered = false; /* of whom was killed: its number may come again */
	if (a->tid == 0 || ioctl(a->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &a->notice.id) < 0)
		return;
	a->tid = 0;
	keeper_learn_unasked(k, a->listener, &a->notice);
}

void keeper_read_asker(struct keeper *k, struct keeper_asker *a)
{
	struct asker_answer answer;
	ssize_t n = recv(a->sock, &answer, sizeof(answer), MSG_DONTWAIT);

	if (n == (ssize_t)sizeof(answer)) {
		a->answered = true;
		a->answer = answer;
	} else if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
		end_asker(k, a);
	}
}

static bool is_anybody_asked(const struct keeper *k)
{
	for (size_t i = 0; i < KEEPER_ASKERS; i++) {
		if (k->askers[i].pid != 0)
			return true;
	}
	return false;
}

/* Whoever is asked needs the keeper to let its call go on. */
int keeper_await_askers(struct keeper *k)
{
	uint64_t deadline = clock_now_ns() + AWAIT_NS, now;

	while (is_anybody_asked(k)) {
		struct pollfd p[LISTENERS + KEEPER_ASKERS];

		now = clock_now_ns();
		if (now >= deadline)
			return -ETIMEDOUT;
		for (size_t i = 0; i < LISTENERS; i++)
			p[i] = (struct pollfd){ .fd = k->told.listeners[i], .events = POLLIN };
		for (size_t i = 0; i < KEEPER_ASKERS; i++)
			p[LISTENERS + i] =
				(struct pollfd){ .fd = k->askers[i].pid != 0 ? k->askers[i].sock
									     : -1,
					.events = POLLIN };
		if (poll(p, ARRAY_SIZE(p), (int)((deadline - now) / NS_PER_MS) + 1) <= 0)
			continue;
		for (size_t i = 0; i < LISTENERS; i++)
			keeper_read_told(k, &k->told.listeners[i]);
		for (size_t i = 0; i < KEEPER_ASKERS; i++) {
			if (k->askers[i].pid != 0)
				keeper_read_asker(k, &k->askers[i]);
		}
	}
	return 0;
}

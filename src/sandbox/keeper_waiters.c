/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_waiters.c - the processes that become programs: one is kept ready, so that a start has only to say what it becomes.
 *
 *   ordered (no pid) --starter answers--> spare --exec--> launching --its socket closes--> it is the exec's program
 *       \----------------exec: what it becomes waits in its socket----/  \--it says why not, or is killed--> gone (until it is reaped)
 *
 * What is held has done all but execute while it is launching, and waits for keeper_execute().
 *
 * (1) They stand in the order in which the starter was asked, which is that of its answers.
 * (2) A payload may kill or stop a spare: then the next exec finds none and orders its own, or lets it go on.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "sandbox/keeper.h"
#include "sys/raw.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define TRIES_MAX 3 /* per program */

static void waiter_free(struct keeper *k, struct waiter *w)
{
	if (w->leaf[0] != '\0')
		(void)!cgroup_leaf_remove(&k->box.cgroup, w->leaf);
	list_remove(&w->node);
	fd_close(&w->sock);
	json_decref(w->asked);
	free(w);
}

/* A leaf that no exec has, carried over ones neither. */
static int new_leaf(struct keeper *k, char name[EXEC_LEAF_SIZE])
{
	int leaf;

	do
		(void)snprintf(name, EXEC_LEAF_SIZE, "x-%u", ++k->last_leaf);
	while ((leaf = cgroup_leaf_unused(&k->box.cgroup, name)) == -EEXIST);
	if (leaf < 0)
		name[0] = '\0';
	return leaf;
}

static struct waiter *waiter_order(struct keeper *k, struct err *err)
{
	struct waiter *w = xnew(struct waiter);
	cleanup_fd int leaf = -1, its = -1;
	int pair[2], rc = 0;

	w->sock = -1;
	list_init(&w->node);
	if (k->box.cgroup.box[0] != '\0') {
		leaf = new_leaf(k, w->leaf);
		if (leaf < 0)
			rc = err_raise_sys(err, leaf, "make the exec's control group");
		else
			w->cgroup = cgroup_leaf_id(leaf);
	}
	if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		rc = err_raise_sys(err, -errno, "make a socket pair");
	if (rc == 0) {
		w->sock = pair[0];
		its = pair[1];
		rc = box_order_waiter(&k->box, its, leaf);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "reach the starter");
	}
	if (rc < 0) {
		waiter_free(k, w);
		return NULL;
	}
	list_append(&k->waiters, &w->node);
	return w;
}

static struct waiter *find_spare(const struct keeper *k)
{
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->exec == NULL && !w->gone)
			return w;
	}
	return NULL;
}

bool keeper_is_spare(const struct keeper *k, const char *name)
{
	list_for_each (&k->waiters, pos, next) {
		const struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->exec == NULL && str_eq(w->leaf, name))
			return true;
	}
	return false;
}

bool keeper_launching(const struct keeper *k)
{
	list_for_each (&k->waiters, pos, next) {
		if (list_entry(pos, struct waiter, node)->exec != NULL)
			return true;
	}
	return false;
}

bool keeper_is_quiet(struct keeper *k, const struct conn *c)
{
	k->quiet = k->quiet && keeper_launching(k);
	return k->quiet && c->primary;
}

void keeper_want_spare(struct keeper *k)
{
	struct err ignored; /* whoever needs one asks again, and is told */

	if (k->box.starter.sock >= 0 && find_spare(k) == NULL)
		(void)waiter_order(k, &ignored);
}

/* A payload may have stopped it. It may again: as it could every program of its own. Never to the program itself: whoever blocks signals for a moment (libc, when it makes a thread) has its other threads woken. */
static void let_go_on(const struct waiter *w)
{
	if (w->pid > 0)
		(void)kill(w->pid, SIGCONT);
}

/* It becomes nothing; it is reaped later, unless it has been. */
static void waiter_over(struct keeper *k, struct waiter *w)
{
	struct death death;

	w->exec = NULL;
	w->gone = true;
	fd_close(&w->sock);
	if (w->pid == 0 || keeper_take_early(k, w->pid, &death))
		waiter_free(k, w);
}

static struct waiter *spare_or_new(struct keeper *k, struct err *err)
{
	struct waiter *w = find_spare(k);

	if (w != NULL && w->pid != 0)
		keeper_read_waiter(k, w); /* has it been killed? */
	w = find_spare(k);
	return w != NULL ? w : waiter_order(k, err);
}

/* Nobody holds the other end. Without a pid none could be made, and the starter's answer, which is on its way, says why. With one it was killed a moment ago: nothing has run. */
static struct waiter *launch_one(struct keeper *k, struct exec *e, const json_t *request,
	const int stdio[3], struct err *err)
{
	for (unsigned int tries = TRIES_MAX; tries > 0; tries--) {
		struct waiter *w = spare_or_new(k, err);
		int rc;

		if (w == NULL)
			return NULL;
		let_go_on(w);
		(void)fault("keeper.launch.found");
		rc = exec_launch(e, &k->box, w->sock, request,
			w->first && list_empty(&k->execs) ? &w->before : NULL, stdio, err);
		if (rc == 0 || (rc == -EPIPE && w->pid == 0))
			return w;
		if (rc != -EPIPE)
			return NULL;
		waiter_over(k, w);
	}
	return NULL;
}

struct waiter *keeper_launch(
	struct keeper *k, struct exec *e, const json_t *request, int stdio[3], struct err *err)
{
	struct waiter *w = launch_one(k, e, request, stdio, err);

	for (int i = 0; i < 3; i++)
		fd_close(&stdio[i]);
	if (w == NULL)
		return NULL;
	memcpy(e->leaf, w->leaf, sizeof(e->leaf));
	w->leaf[0] = '\0'; /* the exec's from now on */
	e->cgroup = w->cgroup;
	w->exec = e;
	return w;
}

void keeper_execute(struct keeper *k, uint16_t channel)
{
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->exec == NULL || w->exec->channel != channel)
			continue;
		/* another one may have to become it */
		(void)json_object_del(w->asked, "held");
		if (w->sock >= 0)
			(void)send(w->sock, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

void keeper_kill_waiter(const struct keeper *k, const struct exec *e)
{
	list_for_each (&k->waiters, pos, next) {
		const struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->exec == e && w->pid > 0)
			(void)kill(w->pid, SIGKILL);
	}
}

static void forget_exec(struct waiter *w)
{
	memcpy(w->leaf, w->exec->leaf, sizeof(w->leaf)); /* nothing was ever in it but the waiter */
	exec_free(w->exec);
}

static void launch_failed(struct keeper *k, struct waiter *w, const struct err *err)
{
	keeper_exec_failed(
		k, &(struct start_request){ .conn = w->conn, .id = w->request }, w->exec->id, err);
	forget_exec(w);
	waiter_over(k, w);
}

static json_t *describe_launch(const json_t *request)
{
	json_t *o = json_object();
	static const char *const keys[] = { "argv", "cwd", "user" };

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		json_t *v = json_object_get(request, keys[i]);

		if (v != NULL)
			(void)json_object_set(o, keys[i], v);
	}
	return o;
}

static void launched(struct keeper *k, struct waiter *w)
{
	struct exec *e = w->exec;
	json_t *started = describe_launch(w->asked);

	exec_started(e, w->pid);
	meter_wake(&k->memory, clock_now_ns());
	(void)json_object_set_new(started, "pid", json_integer(w->pid));
	keeper_event(k, "exec.started", e->id, started);
	keeper_reply(w->conn, w->request, json_pack("{s:i}", "pid", w->pid));
	waiter_free(k, w);
	k->want_spare |= !e->last;
	keeper_exec_began(k, e);
}

/* The starter is gone: so is everything that it was asked for. Another one would be in another domain, whose programs could reach none of those that run: it is the end of the sandbox. */
static void starter_gone(struct keeper *k)
{
	struct err err = { 0 };

	fd_close(&k->box.starter.sock);
	(void)err_raise(&err, ERR_STATE, "the sandbox is dying: its starter is gone");
	if ((k->state == KEEPER_RUNNING || k->state == KEEPER_PAUSED) && !k->box.init_gone)
		keeper_lose(k, ERR_STATE, "the process that starts its programs was killed");
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->pid == 0 && w->exec != NULL)
			launch_failed(k, w, &err);
		else if (w->pid == 0)
			waiter_free(k, w);
	}
}

/* The oldest that has no pid yet. */
static struct waiter *find_ordered(const struct keeper *k)
{
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->pid == 0)
			return w;
	}
	return NULL;
}

/* For the first program nobody waits yet: what would be read at its start can be read now, because nothing of ours counts. */
static void look_ahead(const struct keeper *k, struct waiter *w)
{
	if (w->exec != NULL || !list_empty(&k->execs))
		return;
	exec_count(&k->box, &w->before);
	w->first = true;
}

void keeper_read_starter(struct keeper *k)
{
	struct waiter *w = find_ordered(k);
	struct waiter_reply reply;

	if (starter_waiter_reply(&k->box.starter, &reply, &k->told.listeners[LISTENER_STARTED]) <
			0 ||
		w == NULL) {
		starter_gone(k);
		return;
	}
	w->pid = reply.pid;
	if (reply.err.code == ERR_NONE) {
		look_ahead(k, w);
		return;
	}
	if (w->exec != NULL)
		launch_failed(k, w, &reply.err);
	else
		waiter_free(k, w);
}

static bool may_try_again(const struct keeper *k, const struct waiter *w)
{
	return !w->executes && w->tries < TRIES_MAX && !w->exec->touched &&
	       !spill_is_open(&w->exec->spill) && keeper_takes_programs(k) && !keeper_suspending(k);
}

/*
 * A spare dies with all else of a sandbox that somebody kills (kill -1), and may be at it still when the next program is asked of it: nothing of that has run,
 * so another becomes it. Bounded, since somebody may kill each.
 */
static void try_again(struct keeper *k, struct waiter *w)
{
	struct start_request again = { .conn = w->conn, .id = w->request, .tries = w->tries + 1 };
	json_t *asked = TAKE_PTR(w->asked);

	w->again = false;
	forget_exec(w);
	waiter_over(k, w);
	keeper_start_exec(k, &again, asked);
	json_decref(asked);
}

static struct waiter *find_again(const struct keeper *k)
{
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->again)
			return w;
	}
	return NULL;
}

void keeper_try_again(struct keeper *k)
{
	struct waiter *w;

	while ((w = find_again(k)) != NULL)
		try_again(k, w);
}

/* It has something to say, or its socket has been closed. */
void keeper_read_waiter(struct keeper *k, struct waiter *w)
{
	struct err err;
	ssize_t n;

	while ((n = recv(w->sock, &err, sizeof(err), MSG_DONTWAIT)) == 1)
		w->executes = true;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == sizeof(err) && w->exec != NULL) {
		launch_failed(k, w, &err);
	} else if (w->exec != NULL && may_try_again(k, w)) {
		w->again = true; /* not here: others of the list may go with that */
	} else if (w->exec != NULL) {
		launched(k, w);
	} else {
		waiter_over(k, w);
	}
}

bool keeper_waiter_ended(struct keeper *k, pid_t pid)
{
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->pid != pid || w->exec != NULL)
			continue;
		waiter_free(k, w);
		return true;
	}
	return false;
}

/* In a sandbox that goes on from an instant it is the child of whoever made the processes, who has its number until we have heard of its end. */
static void end_spare(pid_t pid)
{
	cleanup_fd int process = raw_pidfd_open(pid);
	struct pollfd ended = { .fd = process, .events = POLLIN };

	if (kill(pid, SIGKILL) < 0 || waitpid(pid, NULL, 0) == pid || process < 0)
		return;
	while (poll(&ended, 1, -1) < 0 && errno == EINTR)
		;
}

void keeper_drop_spare(struct keeper *k)
{
	struct waiter *w;

	while (find_ordered(k) != NULL && k->box.starter.sock >= 0)
		keeper_read_starter(k);
	w = find_spare(k);
	if (w == NULL)
		return;
	end_spare(w->pid);
	waiter_free(k, w);
}

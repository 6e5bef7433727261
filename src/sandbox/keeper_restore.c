/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_restore.c - the keeper of a sandbox that begins with the processes of a template (docs/design/0006), be it a fork, a rewind or a resume: `start` is told of the
 * template, and has them made and run; or, for a resume, they are made by `restore`, when the template has its memory, and held until `go`. Afterwards their parent, a clone of the template, tells of their ends. keeper_live.c is the other
 * side: how they came into the template.
 */
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/forker.h"
#include "sandbox/carry.h"
#include "sandbox/filters.h"
#include "sandbox/keeper.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int open_leaves(
	const struct box *box, const struct carried *c, int leaves[TEMPLATE_LEAVES_MAX], size_t *n)
{
	*n = 0;
	for (size_t i = 0; i < c->n_leaves; i++) {
		leaves[i] = cgroup_leaf_new(&box->cgroup, c->leaves[i]);
		if (leaves[i] < 0)
			return leaves[i];
		++*n;
	}
	return 0;
}

/* From now on the other one starts programs. */
static void change_starter(struct keeper *k, int sock)
{
	struct starter *s = &k->box.starter;

	fd_close(&s->sock);
	if (s->pid > 0)
		(void)waitpid(s->pid, NULL, 0);
	s->pid = 0;
	s->sock = sock;
}

static void hear(void *ctx, int *listener)
{
	keeper_read_told(ctx, listener);
}

/* Those who brought them back need no more room; a program would take it. */
static void complete(void *ctx)
{
	struct keeper *k = ctx;

	(void)fault("live.restore.complete");
	box_lend_pids(&k->box, 0);
}

/* What they ask for is no longer what they had. */
static void going(void *ctx)
{
	struct keeper *k = ctx;

	k->restoring = false;
}

/* Return: the socket to their parent, or an error. */
static int fork_into(struct keeper *k, const char *path, const struct carried *c, int starter,
	bool hold, bool wipe, struct forked *ret, struct err *err)
{
	const bool learns = filter_learns(k->config.rootless);
	const struct filter *filter = filter_for(k->box.spec.profile),
			    *told = filter_told(k->box.spec.profile, learns);
	int leaves[TEMPLATE_LEAVES_MAX], tasks[CGROUP_V1_COUNT], rc;
	cleanup_fd int group = cgroup_keeper_open(&k->box.cgroup);
	/* only a resume is held, and may have something to load behind it */
	cleanup_fd int loader =
		hold ? cgroup_loader_open(&k->box.cgroup, k->box.spec.limits.cpu_millis) : -1;
	cleanup_fd int init = raw_pidfd_open(k->box.init_pid);
	cleanup_fd int pids = box_namespace(&k->box, "pid");
	cleanup_fd int cgroups = box_namespace(&k->box, "cgroup");
	cleanup_fd int u2 = box_payload_userns(&k->box);
	cleanup_fd int u1 =
		k->config.rootless ? open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC) : -1;
	struct fork_place place = { .template_path = path,
		.init_pidfd = init,
		.pids = pids,
		.cgroups = cgroups,
		.u1 = u1,
		.u2 = u2,
		.timens = k->box.timens,
		.starter = starter,
		.keeper_cgroup = group,
		.loader_cgroup = loader,
		.tasks = tasks,
		.leaves = leaves,
		.slots = c->slots,
		.n_slots = c->n_slots,
		.filter = filter->code,
		.n_filter = filter->n,
		.told = told->code,
		.n_told = told->n,
		.told_error = filter_told_error(),
		.listen = filter_tells(),
		.learns = learns,
		.listening = { hear, complete, going, k },
		.landlock = k->box.spec.profile != PROFILE_DEBUG,
		.single_id = k->config.single_id,
		.hold = hold,
		.wipe = wipe };
	int n_tasks = cgroup_v1_tasks(&k->box.cgroup, tasks);

	place.n_tasks = n_tasks > 0 ? (size_t)n_tasks : 0;
	rc = open_leaves(&k->box, c, leaves, &place.n_leaves);
	if (rc == 0 && n_tasks < 0)
		rc = n_tasks;
	k->restoring = true;
	rc = rc < 0 ? err_raise_sys(err, rc, "open the control groups")
		    : forker_fork(&place, ret, err);
	k->restoring = false;
	if (rc >= 0) {
		fd_close(&k->told.listeners[LISTENER_FORKED]);
		k->told.listeners[LISTENER_FORKED] = ret->listener;
		k->fork_pid = ret->pid;
		k->fork_parent = hold ? TAKE_FD(ret->parent) : -1;
		fd_close(&ret->parent);
	}
	for (size_t i = 0; i < place.n_leaves; i++)
		(void)close(leaves[i]);
	for (size_t i = 0; i < place.n_tasks; i++)
		(void)close(tasks[i]);
	return rc;
}

static pid_t host_pid(const struct forked *forked, int32_t inside)
{
	for (size_t i = 0; i < forked->n_roots; i++) {
		if (forked->roots[i].inside == inside)
			return forked->roots[i].host;
	}
	return 0;
}

/* The programs of the image are this keeper's execs from now on. */
static json_t *adopt(struct keeper *k, struct carried *c, const struct forked *forked)
{
	json_t *list = json_array();
	size_t i = 0;

	list_for_each (&c->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		exec_started(e, host_pid(forked, c->inside[i++]));
		list_remove(&e->node);
		list_append(&k->execs, &e->node);
		(void)json_array_append_new(list, exec_describe(e));
	}
	return list;
}

/* Only behind it a program runs: the filters of those that were held are put back here. */
static int go(struct keeper *k, struct err *err)
{
	cleanup_fd int parent = TAKE_FD(k->fork_parent);
	int rc;

	k->restoring = true;
	rc = forker_go(k->fork_sock, parent, &(struct fork_listening){ hear, complete, going, k },
		&k->told.listeners[LISTENER_FORKED], &k->loading, err);
	k->restoring = false;
	return rc;
}

int keeper_read_state(
	const struct keeper *k, const char *template, struct buf *state, struct err *err)
{
	char path[PATH_MAX];
	int rc;

	keeper_state_path(k, template, path);
	*state = (struct buf)BUF_INIT(CARRY_MAX);
	rc = file_read_at(AT_FDCWD, path, state);
	return rc < 0 ? err_raise_sys(err, rc, "read the state of the programs") : 0;
}

int keeper_expect(struct keeper *k, const json_t *request, uint64_t *ret_back_ns, struct err *err)
{
	const char *template;
	json_t *clocks;

	if (json_object_get(request, "template") == NULL)
		return 0;
	template = keeper_template_of(request, err);
	if (template == NULL)
		return -EINVAL;
	k->box.awaits_processes = true;
	if (keeper_read_state(k, template, &k->expected, err) < 0)
		return -EINVAL;
	clocks = carry_clocks(&k->expected);
	k->box.numbers = carry_numbers(&k->expected);
	*ret_back_ns =
		box_set_clocks(&k->box, clocks, json_is_true(json_object_get(request, "stood")));
	first_of_state(&k->expected, &k->first);
	json_decref(clocks);
	return 0;
}

/* @hold: they wait for `go`. Else some may have run when it fails. @wipe: as of struct fork_place. */
static int restore(
	struct keeper *k, const char *template, bool hold, bool wipe, json_t **ret, struct err *err)
{
	struct forked forked;
	struct carried carried = { 0 };
	char path[PATH_MAX];
	int rc, pair[2];

	(void)fault("live.restore.begun");
	rc = carry_load(&k->box, &k->expected, &carried, err);
	buf_free(&k->expected);
	template_path(k->config.run, template, path, sizeof(path));
	if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		rc = err_raise_sys(err, -errno, "make a socket pair");
	if (rc == 0) {
		/* those who bring it back are in it for a while */
		box_lend_pids(&k->box, TEMPLATE_PIDS_MAX);
		rc = fork_into(k, path, &carried, pair[1], hold, wipe, &forked, err);
		fd_close(&k->box.timens); /* who is in it keeps it */
		box_lend_pids(&k->box, 0);
		k->fork_sock = rc;
		(void)close(pair[1]);
		change_starter(k, pair[0]);
	}
	(void)fault("live.restore.running");
	if (rc >= 0)
		*ret = adopt(k, &carried, &forked);
	carried_fini(&carried);
	return rc < 0 ? rc : 0;
}

int keeper_restore(struct keeper *k, const json_t *request, json_t **ret, struct err *err)
{
	const char *template = keeper_template_of(request, err);

	return template != NULL ? restore(k, template, false,
					  json_is_true(json_object_get(request, "wipe")), ret, err)
				: -EINVAL;
}

void keeper_verb_restore(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct err err = { 0 };
	const char *template = keeper_template_of(request, &err);
	json_t *execs = NULL;

	if (template != NULL &&
		(k->state != KEEPER_RUNNING || !list_empty(&k->execs) || k->expected.n == 0))
		(void)err_raise(&err, ERR_STATE,
			"sandbox '%s' is not fresh: nothing can be restored into it", k->id);
	if (err.code == ERR_NONE && restore(k, template, true, false, &execs, &err) == 0) {
		keeper_hold_attended(k, json_object_get(request, "attended"));
		keeper_reply(
			c, id, json_pack("{s:i,s:o}", "fork_pid", k->fork_pid, "execs", execs));
	} else {
		keeper_reply_error(c, id, &err);
	}
}

void keeper_verb_go(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	struct err err = { 0 };

	if (k->fork_parent < 0)
		(void)err_raise(&err, ERR_STATE, "nothing waits in sandbox '%s'", k->id);
	if (err.code == ERR_NONE && go(k, &err) == 0)
		keeper_reply(c, id, NULL);
	else
		keeper_reply_error(c, id, &err);
}

/* The rest of its memory cannot be loaded. @m: written by whom the payload may have taken over. */
static void lose_memory(struct keeper *k, struct template_message *m)
{
	const char *why;

	if (m->status == -EBADMSG) {
		keeper_lose(k, ERR_CORRUPT,
			"its memory on disk is damaged, and was resumed before all of it had been read");
		return;
	}
	m->step[sizeof(m->step) - 1] = '\0';
	str_utf8_tidy(m->step);
	why = strerrordesc_np(m->status < 0 && m->status > INT32_MIN ? -m->status : ESRCH);
	(void)snprintf(k->lost_memory, sizeof(k->lost_memory),
		"the rest of its memory was not loaded: %s: %s",
		m->step[0] != '\0' ? m->step : "load the memory",
		why != NULL ? why : "unknown error");
	keeper_lose(k, ERR_STATE, k->lost_memory);
}

void keeper_read_fork(struct keeper *k)
{
	struct template_message m;

	if (forker_hear(k->fork_sock, &m) <= 0) {
		fd_close(&k->fork_sock);
		k->loading = false;
		keeper_lose(k, ERR_STATE,
			"the parent of the processes that came from a snapshot was killed");
		return;
	}
	if (m.kind == TEMPLATE_TOUCHED) {
		first_add(&k->touched, m.pid, m.held.pages);
		return;
	}
	if (m.kind != TEMPLATE_ENDED) {
		/* it keeps what it has until it is killed with all others: whoever waits for a page must not go on without */
		if (m.kind == TEMPLATE_LOST)
			lose_memory(k, &m);
		k->loading = false;
		first_join(&k->touched, &k->first);
		k->first = k->touched;
		keeper_capture_waiting(k);
		return;
	}
	keeper_child_ended(
		k, &(struct death){ .pid = m.pid, .wait_status = m.status, .cpu_us = m.cpu_us });
	forker_reap(k->fork_sock, m.pid);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/keeper_execs.c - the keeper's programs: starting, reaping, deadlines, forgetting, and the end of all. */
#include "base/clock.h"
#include "base/str.h"
#include "sandbox/keeper.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#define FINISHED_MAX    256         /* execs */
#define FINISHED_BYTES  (16U << 20) /* of their rings */
#define KILL_TIMEOUT_MS 10000
#define KILL_AGAIN_NS   (NS_PER_S / 10)

struct exec *keeper_find_exec(const struct keeper *k, uint16_t channel)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->channel == channel)
			return e;
	}
	return NULL;
}

uint64_t keeper_needed_from(const struct keeper *k, const struct exec *e)
{
	uint64_t keep = UINT64_MAX;

	if (spill_follows(&e->spill, e->ring.end))
		return e->ring.end; /* whoever is behind reads it from there */
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		list_for_each (&c->attachments, at, at_next) {
			struct attachment *a = list_entry(at, struct attachment, node);

			if (a->channel == e->channel && attachment_needs(a, e) < keep)
				keep = attachment_needs(a, e);
		}
	}
	list_for_each (&k->held, pos, next) {
		struct attachment *a = list_entry(pos, struct attachment, node);

		if (a->channel == e->channel && attachment_needs(a, e) < keep)
			keep = attachment_needs(a, e);
	}
	return keep != UINT64_MAX ? keep : e->ring.end;
}

static void tell_spill(struct keeper *k, struct exec *e)
{
	e->spill_told = true;
	keeper_event(k, "limit.hit", e->id,
		json_pack("{s:s, s:{s:s, s:I}}", "limit", "output", "detail", "reason",
			e->spill.stopped == -EFBIG
				? "as much of the output as was asked for is kept"
				: strerrordesc_np(-e->spill.stopped),
			"kept_bytes", (json_int_t)e->spill.file.size));
}

bool keeper_read_output(struct keeper *k, struct exec *e, enum ring_stream stream, uint64_t keep)
{
	bool changed =
		exec_read(e, &k->box, stream == RING_STDOUT ? &e->out : &e->err, stream, keep);

	if (e->spill.stopped != 0 && !e->spill_told)
		tell_spill(k, e);
	return changed;
}

void keeper_save_output(struct keeper *k)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		e->spill.stopped = exec_save(e, &k->box);
		if (e->spill.stopped < 0)
			tell_spill(k, e);
	}
}

/* The limit that the final status of @e speaks of, or NULL: none that was not told yet. */
static const char *limit_hit(const struct exec *e)
{
	const json_t *status = e->status;
	const char *kind = json_string_value(json_object_get(status, "status"));

	if (str_eq(kind, "oom"))
		return "memory";
	if (str_eq(kind, "limit"))
		return e->uncounted_bytes == 0 ? "pids" : NULL;
	return str_eq(kind, "disk_full") ? json_string_value(json_object_get(
						   json_object_get(status, "evidence"), "full"))
					 : NULL;
}

static void report_end(struct keeper *k, struct exec *e)
{
	const char *limit = limit_hit(e);

	if (limit != NULL)
		keeper_event(k, "limit.hit", e->id,
			json_pack("{s:s, s:O}", "limit", limit, "evidence",
				json_object_get(e->status, "evidence")));
	keeper_told_close(k, e->id, UINT64_MAX); /* what it tried is told before its end */
	if (e->tell_changed && !box_changed(&k->box))
		keeper_event(k, "exec.unchanged", e->id, NULL);
	keeper_event(k, "exec.ended", e->id, json_incref(e->status));
}

/* Somebody is still to be told its status. */
static bool is_attached(const struct keeper *k, const struct exec *e)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		list_for_each (&c->attachments, at, at_next) {
			if (list_entry(at, struct attachment, node)->channel == e->channel)
				return true;
		}
	}
	return false;
}

/* What was counted in it is told of the sandbox still. */
static void remove_leaf(struct keeper *k, const struct exec *e)
{
	uint64_t refused = cgroup_leaf_refused(&k->box.cgroup, e->leaf);

	if (cgroup_leaf_remove(&k->box.cgroup, e->leaf) < 0)
		return;
	k->forks_refused += refused;
	keeper_unconfined(k, e->leaf);
}

/* In the order in which they ended: the newest one stays, whatever its size. */
static void forget_old_execs(struct keeper *k)
{
	size_t n = 0, bytes = 0;

	for (struct list *pos = k->execs.prev, *before = pos->prev; pos != &k->execs;
		pos = before, before = pos->prev) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->state != EXEC_ENDED)
			continue;
		n++;
		bytes += e->ring.cap;
		/* a clients' attachment keeps its exec; so does a descendant that is still in its group */
		if (n > 1 && (n > FINISHED_MAX || bytes > FINISHED_BYTES) &&
			keeper_needed_from(k, e) == e->ring.end && !is_attached(k, e) &&
			!cgroup_leaf_populated(&k->box.cgroup, e->leaf)) {
			remove_leaf(k, e);
			k->output_forgotten += e->ring.end;
			keeper_release(k, e->channel); /* another one may have that now */
			exec_free(e);
		}
	}
}

static void end_exec(struct keeper *k, struct exec *e, const struct death *d)
{
	/* who was killed is so with the whole tree: its other members die a moment after the first */
	if (e->killed || e->timed_out || e->uncounted_bytes != 0)
		(void)!cgroup_leaf_wait_empty(&k->box.cgroup, e->leaf, KILL_TIMEOUT_MS);
	/* what an attached client has not got yet stays; only without one may the oldest output give way */
	(void)keeper_read_output(k, e, RING_STDOUT, keeper_needed_from(k, e));
	(void)keeper_read_output(k, e, RING_STDERR, keeper_needed_from(k, e));
	if (keeper_needed_from(k, e) == e->ring.end)
		exec_drain(e, &k->box);
	exec_ended(e, &k->box, d->wait_status, d->cpu_us);
	meter_wake(&k->memory, clock_now_ns());
	report_end(k, e);
	e->leaf_left = k->leaves_left = true;
	list_remove(&e->node);
	list_append(&k->execs, &e->node);
}

void keeper_remove_leaves(struct keeper *k)
{
	if (!k->leaves_left)
		return;
	k->leaves_left = false;
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		/* refused while a descendant is in it: then the leaf goes with the exec */
		if (e->leaf_left)
			remove_leaf(k, e);
		e->leaf_left = false;
	}
}

static void init_ended(struct keeper *k, int wait_status)
{
	k->box.init_gone = true;
	if (k->suspended)
		return;
	if (k->state == KEEPER_RUNNING || k->state == KEEPER_PAUSED)
		keeper_event(k, "sandbox.died", NULL,
			k->lost == NULL
				? json_pack("{s:i}", "wait_status", wait_status)
				: json_pack("{s:i,s:s,s:s}", "wait_status", wait_status, "reason",
					  k->lost, "code", err_code_name(k->lost_code)));
}

void keeper_lose(struct keeper *k, enum err_code code, const char *reason)
{
	if (k->lost != NULL || k->suspended || k->state == KEEPER_STOPPING)
		return;
	k->lost = reason;
	k->lost_code = code;
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->state == EXEC_RUNNING)
			e->lost = reason;
	}
	box_kill(&k->box);
}

/* PID 1, the starter or the placer has ended. What waits to be started is worth nothing without it: whoever would be given it gets another one. */
static void part_ended(struct keeper *k)
{
	if (k->state == KEEPER_READY)
		keeper_stop(k);
}

void keeper_child_ended(struct keeper *k, const struct death *d)
{
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (e->state == EXEC_RUNNING && e->pid == d->pid) {
			if (!k->suspended)
				end_exec(k, e, d);
			return;
		}
	}
	if (keeper_waiter_ended(k, d->pid))
		return;
	if (d->pid == k->box.init_pid) {
		init_ended(k, d->wait_status);
		part_ended(k);
	} else if (d->pid == k->box.starter.pid) {
		k->box.starter.pid = 0;
		part_ended(k);
	} else if (d->pid == k->box.starter.placer_pid) {
		k->box.starter.placer_pid = 0;
		part_ended(k);
	} else if (d->pid == k->gateway.pid) {
		keeper_gateway_ended(k, d->wait_status);
	} else { /* a program whose start has not been noticed yet */
		k->early[k->n_early++ % KEEPER_EARLY_MAX] = *d;
	}
}

void keeper_reap_children(struct keeper *k)
{
	struct rusage usage;
	struct death d;

	while ((d.pid = wait4(-1, &d.wait_status, WNOHANG, &usage)) > 0) {
		d.cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
			   (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
		keeper_child_ended(k, &d);
	}
	forget_old_execs(k);
}

void keeper_read_signals(struct keeper *k)
{
	struct signalfd_siginfo info;

	while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGTERM)
			keeper_stop(k);
	}
	/* its tracees die with it: before their ends are taken for their own */
	if (capture_died(&k->capture))
		keeper_capture_end(k);
	keeper_reap_children(k);
}

int keeper_kill_all(struct keeper *k)
{
	uint64_t deadline = clock_now_ns() + KILL_TIMEOUT_MS * NS_PER_MS;

	list_for_each (&k->execs, pos, next)
		list_entry(pos, struct exec, node)->killed = true;
	if (k->box.init_pid == 0)
		return 0;
	/* their parent would wait for our leave to reap them; without it they are reaped by the next one up */
	fd_close(&k->fork_sock);
	box_kill(&k->box);
	/* only now: what was stopped for a capture must not run again; the dead are held by their tracer until it ends */
	keeper_capture_end(k);
	keeper_ahead_end(k);
	/* PID 1 cannot end before we have reaped the children that we have in its pid namespace */
	while (!k->box.init_gone) {
		struct pollfd p = { .fd = k->signal_fd, .events = POLLIN };
		uint64_t now = clock_now_ns();

		if (now >= deadline)
			return -ETIMEDOUT;
		(void)poll(&p, 1, (int)((deadline - now) / NS_PER_MS) + 1);
		keeper_read_signals(k);
	}
	return box_wait_empty(&k->box, KILL_TIMEOUT_MS);
}

bool keeper_take_early(struct keeper *k, pid_t pid, struct death *ret)
{
	for (size_t i = 0; i < KEEPER_EARLY_MAX; i++) {
		if (k->early[i].pid == pid) {
			*ret = k->early[i];
			k->early[i].pid = 0;
			return true;
		}
	}
	return false;
}

void keeper_exec_began(struct keeper *k, struct exec *e)
{
	struct death death;

	if (keeper_take_early(k, e->pid, &death))
		end_exec(k, e, &death);
}

/* What is being suspended has as much time left as when it was stopped. */
bool keeper_deadline_counts(const struct keeper *k, const struct exec *e)
{
	return e->deadline_ns != 0 && !keeper_suspending(k);
}

void keeper_check_deadlines(struct keeper *k)
{
	uint64_t now = clock_now_ns();

	if (k->capture_deadline_ns != 0 && now >= k->capture_deadline_ns)
		keeper_capture_end(k);
	if (k->loan.due_ns != 0 && now >= k->loan.due_ns)
		keeper_take_back(k);
	while (!list_empty(&k->held)) {
		struct attachment *a = list_entry(k->held.next, struct attachment, node);

		if (a->expires_ns > now)
			break;
		list_remove(&a->node);
		free(a);
	}
	list_for_each (&k->execs, pos, next) {
		struct exec *e = list_entry(pos, struct exec, node);

		if (!keeper_deadline_counts(k, e) || now < e->deadline_ns)
			continue;
		/* whoever is to become it may not be there yet */
		e->deadline_ns = e->state == EXEC_STARTING ? now + KILL_AGAIN_NS : 0;
		if (e->state != EXEC_ENDED)
			e->timed_out = true;
		exec_kill(e, &k->box);
		if (e->state == EXEC_STARTING)
			keeper_kill_waiter(k, e);
	}
}

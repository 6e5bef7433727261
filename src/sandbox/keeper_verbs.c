/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_verbs.c - what the keeper does when it is asked. One function a verb; the table at the end is the protocol's list
 * (docs/design/0001: add a verb there and here).
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/keeper.h"

#include <signal.h>
#include <sys/ioctl.h>

#define FREEZE_TIMEOUT_MS 2000

typedef void verb_fn(struct keeper *k, struct conn *c, json_int_t id, const json_t *request);

static void refuse_state(const struct keeper *k, struct conn *c, json_int_t id, const char *verb)
{
	struct err err;

	(void)err_raise(&err, ERR_STATE, "sandbox '%s' is %s: it cannot %s", k->id,
		k->box.init_gone ? "dead (its init is gone)" : keeper_state_name(k->state), verb);
	keeper_reply_error(c, id, &err);
}

static void verb_prepare(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	json_int_t slot = json_integer_value(json_object_get(request, "slot"));
	const json_t *expected = json_object_get(request, "expect");
	cleanup(spec_fini) struct spec expect = { 0 };
	struct box_ahead ahead = { .expect = expected != NULL ? &expect : NULL,
		.foresee = json_is_true(json_object_get(request, "foresee")),
		.point = json_string_value(json_object_get(request, "point")) };
	struct err err = { 0 };
	int rc = 0;

	if (k->state != KEEPER_NEW) {
		refuse_state(k, c, id, "be prepared");
		return;
	}
	if (slot < 0 || slot > UINT32_MAX)
		rc = err_raise(&err, ERR_INVALID, "prepare: 'slot' is malformed");
	if (rc == 0 && expected != NULL)
		rc = spec_parse(expected, &expect, &err);
	if (rc == 0)
		rc = box_prepare(&k->box, &k->config, k->id, (uint32_t)slot, &ahead, &err);
	if (rc == 0)
		rc = keeper_listen(k, &err);
	if (rc == 0) {
		keeper_move(k, KEEPER_READY);
		/* what comes from a template brings a starter of its own */
		if (expected != NULL && ahead.point == NULL)
			keeper_want_spare(k);
		keeper_reply(c, id, json_pack("{s:i}", "init_pid", k->box.init_pid));
		return;
	}
	keeper_reply_error(c, id, &err);
	keeper_move(k, KEEPER_STOPPING);
}

static void verb_start(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct spec spec = { 0 };
	struct err err = { 0 };
	json_t *execs = NULL;
	uint64_t back_ns = 0;
	int rc;

	if (k->state != KEEPER_READY || k->box.init_gone) {
		refuse_state(k, c, id, "start");
		return;
	}
	if (spec_parse(json_object_get(request, "spec"), &spec, &err) == 0 &&
		!str_eq(spec.id, k->id))
		(void)err_raise(
			&err, ERR_INVALID, "start: the specification is for sandbox '%s'", spec.id);
	if (json_object_get(request, "template") != NULL)
		keeper_take_claim(k, c);
	if (err.code == ERR_NONE)
		(void)!keeper_expect(k, request, &back_ns, &err);
	if (err.code == ERR_NONE)
		box_judge(&k->box, &spec);
	if (err.code == ERR_NONE && foresight_any(&k->box.foresight))
		log_debug("keeper", "the beginning of sandbox '%s' was foreseen%s", k->id,
			k->box.foresight.wrong ? " wrongly" : "");
	if (err.code == ERR_NONE && (k->box.awaits_processes || !box_suits(&k->box, &spec)))
		keeper_drop_spare(k);
	rc = err.code == ERR_NONE ? box_start(&k->box, &spec, &err) : -EINVAL;
	if (rc == 0) {
		keeper_move(k, KEEPER_RUNNING);
		k->provisional = k->quiet = json_is_true(json_object_get(request, "provisional"));
		meter_start(&k->memory, clock_now_ns());
		keeper_event(k, "sandbox.started", NULL,
			json_pack("{s:i}", "init_pid", k->box.init_pid));
		if (json_is_true(json_object_get(request, "restore"))) {
			box_started(&k->box);
			rc = keeper_restore(k, request, &execs, &err);
			keeper_hold_attended(k, json_object_get(request, "attended"));
		}
	}
	if (rc == 0) {
		keeper_reply(c, id,
			json_pack("{s:i,s:i,s:I,s:b,s:O*,s:o*}", "init_pid", k->box.init_pid,
				"fork_pid", k->fork_pid, "clocks_back_ns", (json_int_t)back_ns,
				"devices_changed", (int)k->box.devices_changed, "databases",
				k->box.databases, "execs", execs));
		return;
	}
	spec_fini(&spec);
	keeper_reply_error(c, id, &err);
	keeper_move(k, KEEPER_STOPPING);
}

bool keeper_takes_programs(const struct keeper *k)
{
	return k->state == KEEPER_RUNNING && k->lost == NULL && !k->box.init_gone &&
	       k->box.starter.sock >= 0;
}

void keeper_start_exec(struct keeper *k, const struct start_request *by, const json_t *request)
{
	struct err err = { 0 };
	struct waiter *w;
	int stdio[3];
	struct exec *e = exec_new(&k->box, request, stdio, &err);

	if (e != NULL && keeper_find_exec(k, e->channel) != NULL) {
		(void)err_raise(&err, ERR_EXISTS, "exec: channel %u is in use", e->channel);
	} else if (e != NULL && (w = keeper_launch(k, e, request, stdio, &err)) != NULL) {
		w->conn = by->conn;
		w->request = by->id;
		w->tries = by->tries;
		w->asked = json_incref((json_t *)(uintptr_t)request);
		list_append(&k->execs, &e->node);
		if (json_is_true(json_object_get(request, "hold")))
			keeper_hold(k, e->channel, 0);
		return;
	}
	for (int i = 0; i < 3; i++)
		fd_close(&stdio[i]);
	exec_free(e);
	keeper_exec_failed(k, by, json_string_value(json_object_get(request, "exec")), &err);
}

static void verb_exec(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct err err = { 0 };

	if (!keeper_takes_programs(k)) {
		refuse_state(k, c, id, "run a program");
		return;
	}
	/* it would work on files of which only what is stopped knows, and nobody would know of it */
	if (keeper_suspending(k)) {
		(void)err_raise(&err, ERR_BUSY, "sandbox '%s' is just being suspended", k->id);
		keeper_reply_error(c, id, &err);
		return;
	}
	keeper_start_exec(k, &(struct start_request){ .conn = c, .id = id }, request);
	if (k->provisional)
		(void)fault("keeper.exec.held");
}

/* No answer: that of the `exec` says what became of it. */
static void verb_execute(struct keeper *k, attr_unused struct conn *c, attr_unused json_int_t id,
	const json_t *request)
{
	json_int_t channel = json_integer_value(json_object_get(request, "channel"));

	(void)fault("keeper.execute.before");
	k->provisional = false;
	if (channel > 0 && channel <= UINT16_MAX)
		keeper_execute(k, (uint16_t)channel);
}

static struct exec *want_exec(
	struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	json_int_t channel = json_integer_value(json_object_get(request, "channel"));
	struct exec *e = channel > 0 && channel <= UINT16_MAX
				 ? keeper_find_exec(k, (uint16_t)channel)
				 : NULL;
	struct err err;

	if (e == NULL) {
		(void)err_raise(&err, ERR_NOT_FOUND, "sandbox '%s' has no exec on channel %lld",
			k->id, channel);
		keeper_reply_error(c, id, &err);
	}
	return e;
}

static struct attachment *find_attachment(struct conn *c, uint16_t channel)
{
	list_for_each (&c->attachments, pos, next) {
		struct attachment *a = list_entry(pos, struct attachment, node);

		if (a->channel == channel)
			return a;
	}
	return NULL;
}

static void verb_attach(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct exec *e = want_exec(k, c, id, request);
	const json_t *window = json_object_get(request, "window");
	json_int_t from = json_integer_value(json_object_get(request, "from"));
	struct attachment *a;

	if (e == NULL)
		return;
	a = find_attachment(c, e->channel);
	if (a == NULL) {
		a = xnew(struct attachment);
		list_append(&c->attachments, &a->node);
	}
	a->channel = e->channel;
	a->next = from > 0 ? (uint64_t)from : 0;
	if (a->next > e->ring.end)
		a->next = e->ring.end;
	a->credit = a->window =
		json_is_integer(window) ? (uint64_t)json_integer_value(window) : UINT64_MAX;
	a->hold = json_is_true(json_object_get(request, "hold"));
	c->forgets |= json_is_true(json_object_get(request, "forgets"));
	if (a->window != 0) /* else it is not the one that is waited for */
		keeper_release(k, a->channel);
	a->input_told = e->input_taken;
	keeper_reply(c, id, exec_describe(e));
}

static void verb_detach(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct exec *e = want_exec(k, c, id, request);
	struct attachment *a = e != NULL ? find_attachment(c, e->channel) : NULL;

	if (e == NULL)
		return;
	if (a != NULL) {
		list_remove(&a->node);
		free(a);
	}
	keeper_reply(c, id, NULL);
}

static void verb_signal(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct exec *e = want_exec(k, c, id, request);
	json_int_t sig = json_integer_value(json_object_get(request, "signal"));
	struct err err;
	int rc;

	if (e == NULL)
		return;
	rc = sig < 1 || sig > SIGRTMAX ? -EINVAL : exec_signal(e, &k->box, (int)sig);
	if (rc == 0) {
		keeper_disturbed(k);
		keeper_reply(c, id, NULL);
		return;
	}
	(void)err_raise(&err, rc == -EINVAL ? ERR_INVALID : ERR_STATE,
		"signal %lld to exec '%s': %s", sig, e->id,
		rc == -ESRCH ? "it does not run" : strerrordesc_np(-rc));
	keeper_reply_error(c, id, &err);
}

static void verb_kill(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct exec *e = want_exec(k, c, id, request);

	if (e == NULL)
		return;
	e->killed = e->state == EXEC_RUNNING;
	keeper_disturbed(k);
	exec_kill(e, &k->box);
	keeper_reply(c, id, NULL);
}

static void freeze(struct keeper *k, struct conn *c, json_int_t id, bool on)
{
	enum keeper_state from = on ? KEEPER_RUNNING : KEEPER_PAUSED;
	struct err err;
	int rc;

	if (k->state != from) {
		refuse_state(k, c, id, on ? "be paused" : "be resumed");
		return;
	}
	/* a capture of what is paused would meet who is being asked */
	if (on)
		(void)!keeper_await_askers(k);
	rc = on ? keeper_freeze(k) : cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS);
	if (rc == 0) {
		keeper_move(k, on ? KEEPER_PAUSED : KEEPER_RUNNING);
		keeper_reply(c, id, NULL);
		return;
	}
	if (on)
		(void)!cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS);
	if (rc == -ENOENT)
		(void)keeper_no_group(&err);
	else if (on)
		(void)keeper_cannot_freeze(rc, &err);
	else
		(void)err_raise_sys(&err, rc, "thaw its processes");
	keeper_reply_error(c, id, &err);
}

static void verb_freeze(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	freeze(k, c, id, true);
}

static void verb_thaw(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	/* also ends a freeze that a capture left behind when it was killed */
	if (k->state == KEEPER_RUNNING &&
		cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS) == 0)
		keeper_reply(c, id, NULL);
	else
		freeze(k, c, id, false);
}

static json_t *counter_or_null(uint64_t value)
{
	return value == UINT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static uint64_t all_output(const struct keeper *k)
{
	uint64_t bytes = k->output_forgotten;

	list_for_each (&k->execs, pos, next)
		bytes += list_entry(pos, struct exec, node)->ring.end;
	return bytes;
}

struct process_count {
	const struct keeper *k;
	uint64_t n;
};

/* Processes of the payload: neither init nor what waits to become a program. */
static int count_leaf(void *ctx, const char *name, attr_unused const int32_t *pids, size_t n)
{
	struct process_count *count = ctx;

	if (!str_eq(name, "init") && !keeper_is_spare(count->k, name))
		count->n += n;
	return 0;
}

static uint64_t count_processes(const struct keeper *k)
{
	struct process_count count = { k, 0 };

	return cgroup_each_leaf(&k->box.cgroup, count_leaf, &count) == 0 ? count.n : UINT64_MAX;
}

/* Where the kernel counts them in the group of who wanted them. */
static uint64_t refused_in_leaves(const struct keeper *k)
{
	uint64_t n = k->forks_refused;

	list_for_each (&k->execs, pos, next)
		n += cgroup_leaf_refused(&k->box.cgroup, list_entry(pos, struct exec, node)->leaf);
	return n;
}

/* What the sandbox has consumed until now; new reference. Takes a reading of the memory. */
static json_t *keeper_usage(struct keeper *k)
{
	uint64_t now = clock_now_ns();
	struct cgroup_usage u;
	json_t *o;

	cgroup_usage(&k->box.cgroup, &u);
	u.pids_refused += refused_in_leaves(k);
	meter_add(&k->memory, now, u.memory_bytes);
	o = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "cpu_us",
		counter_or_null(u.cpu_us), "memory_bytes", counter_or_null(u.memory_bytes),
		"memory_peak_bytes", counter_or_null(u.memory_peak_bytes), "pids",
		counter_or_null(u.pids), "oom_kills", counter_or_null(u.oom_kills), "forks_refused",
		counter_or_null(u.pids_refused), "disk_bytes",
		counter_or_null(box_disk_bytes(&k->box)), "output_bytes", (json_int_t)all_output(k),
		"running_ms", (json_int_t)((now - k->memory.begun_ns) / NS_PER_MS),
		"memory_samples", (json_int_t)k->memory.samples, "memory_gap_ms",
		(json_int_t)(k->memory.longest_ns / NS_PER_MS));
	BUG_ON(o == NULL);
	(void)json_object_set_new(o, "processes", counter_or_null(count_processes(k)));
	(void)json_object_set_new(o, "memory_gb_seconds",
		k->memory.samples > 0 ? json_real(k->memory.byte_seconds / 1e9) : json_null());
	return o;
}

static void verb_usage(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	keeper_reply(c, id, keeper_usage(k));
}

static void verb_status(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	bool brief = json_is_true(json_object_get(request, "brief"));
	const json_t *above = json_object_get(request, "above");
	json_int_t from = json_integer_value(above);

	/* servers of before want all at once */
	keeper_reply(c, id,
		json_is_integer(above) && from >= 0 && from <= UINT16_MAX
			? keeper_status_piece(k, brief, (uint16_t)from)
			: keeper_status(k, brief));
}

static json_t *paths(const struct keeper *k)
{
	return json_pack("{s:s, s:i, s:i, s:I}", "box", k->box.cgroup.box, "init_pid",
		k->box.init_pid, "keeper_pid", getpid(), "uid_base",
		(json_int_t)k->box.rootfs.base);
}

static void verb_where(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	keeper_reply(c, id, paths(k));
}

static void verb_changed(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	keeper_reply(c, id, json_pack("{s:b}", "changed", (int)box_changed(&k->box)));
}

static void verb_adopt(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	keeper_conns_drain(k, c);
	list_for_each (&k->conns, pos, next)
		list_entry(pos, struct conn, node)->primary = false;
	c->primary = true;
	/* a capture that was killed together with the last server may have left it frozen */
	if (k->state == KEEPER_RUNNING)
		(void)!cgroup_freeze(&k->box.cgroup, false, FREEZE_TIMEOUT_MS);
	k->events_sent = 0;
	keeper_reply(c, id, NULL);
	/* what waited goes out behind the reply, together with this: the server waits for it, and acknowledges nothing that it was not sent */
	keeper_event_always(k, "keeper.adopted", NULL, NULL);
}

static void verb_ack(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	json_int_t n = json_integer_value(json_object_get(request, "n"));

	while (json_array_size(k->events) > 0 &&
		json_integer_value(json_object_get(json_array_get(k->events, 0), "n")) <= n) {
		(void)json_array_remove(k->events, 0);
		if (k->events_sent > 0)
			k->events_sent--;
	}
	if (id != 0)
		keeper_reply(c, id, NULL);
}

/* The connection becomes the gateway's: nothing more is read from it here. */
static void verb_gateway(
	struct keeper *k, struct conn *c, json_int_t id, attr_unused const json_t *request)
{
	struct err err;

	if (k->state != KEEPER_RUNNING && k->state != KEEPER_PAUSED) {
		refuse_state(k, c, id, "have a gateway");
		return;
	}
	if (k->box.network.tcp >= 0)
		keeper_gateway_wanted(k);
	if (!keeper_gateway_running(k)) {
		(void)err_raise(&err, k->box.network.tcp < 0 ? ERR_UNSUPPORTED : ERR_UNAVAILABLE,
			"sandbox '%s' has no gateway", k->id);
		keeper_reply_error(c, id, &err);
		return;
	}
	c->handover = true;
	keeper_reply(c, id, NULL);
}

static void verb_ports(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct spec_ports ports;
	struct err err = { 0 };
	int rc = spec_ports_parse(json_object_get(request, "ports"), &ports, &err);

	if (rc == 0)
		rc = box_allow_ports(&k->box, &ports, &err);
	if (rc < 0)
		keeper_reply_error(c, id, &err);
	else
		keeper_reply(c, id, NULL);
}

static void verb_stop(struct keeper *k, struct conn *c, json_int_t id, const json_t *request)
{
	struct err err;

	if (k->state > KEEPER_NEW && keeper_kill_all(k) < 0) {
		(void)err_raise(
			&err, ERR_TIMEOUT, "sandbox '%s': processes are left after SIGKILL", k->id);
		keeper_reply_error(c, id, &err);
		return;
	}
	if (json_is_true(json_object_get(request, "save")))
		keeper_save_output(k);
	keeper_stop(k);
	keeper_event(k, "sandbox.stopped", NULL, NULL);
	keeper_reply(c, id, NULL);
}

static const struct {
	const char *name;
	verb_fn *fn;
} verbs[] = {
	{ "prepare", verb_prepare },
	{ "hold", keeper_verb_hold },
	{ "claim", keeper_verb_claim },
	{ "start", verb_start },
	{ "exec", verb_exec },
	{ "execute", verb_execute },
	{ "attach", verb_attach },
	{ "detach", verb_detach },
	{ "signal", verb_signal },
	{ "kill", verb_kill },
	{ "freeze", verb_freeze },
	{ "thaw", verb_thaw },
	{ "usage", verb_usage },
	{ "status", verb_status },
	{ "where", verb_where },
	{ "changed", verb_changed },
	{ "adopt", verb_adopt },
	{ "ack", verb_ack },
	{ "gateway", verb_gateway },
	{ "ports", verb_ports },
	{ "stop", verb_stop },
	{ "ready", keeper_verb_ready },
	{ "capture", keeper_verb_capture },
	{ "examine", keeper_verb_examine },
	{ "release", keeper_verb_release },
	{ "restore", keeper_verb_restore },
	{ "go", keeper_verb_go },
	{ "suspend", keeper_verb_suspend },
	{ "uncounted", keeper_verb_uncounted },
};

static void handle_request(struct keeper *k, struct conn *c, const struct frame *f)
{
	json_t *request = json_loadb(f->payload, f->size, JSON_REJECT_DUPLICATES, NULL);
	const char *verb = json_string_value(json_object_get(request, "verb"));
	json_int_t id = json_integer_value(json_object_get(request, "id"));
	struct err err;

	for (size_t i = 0; verb != NULL && i < ARRAY_SIZE(verbs); i++) {
		if (str_eq(verb, verbs[i].name)) {
			verbs[i].fn(k, c, id, request);
			json_decref(request);
			return;
		}
	}
	(void)err_raise(
		&err, ERR_UNSUPPORTED, "this keeper knows no verb '%s'", verb != NULL ? verb : "");
	keeper_reply_error(c, id, &err);
	json_decref(request);
}

/* SIGKILL from a client means everything that the command started: what remained would have nobody. */
static void handle_signal(struct keeper *k, struct exec *e, const struct frame *f)
{
	uint32_t sig = f->size == 4 ? frame_get_u32(f->payload) : 0;

	if (sig == SIGKILL) {
		e->killed = e->state == EXEC_RUNNING;
		keeper_disturbed(k);
		exec_kill(e, &k->box);
	} else if (sig > 0 && sig <= (uint32_t)SIGRTMAX) {
		keeper_disturbed(k);
		(void)!exec_signal(e, &k->box, (int)sig); /* it may just have ended */
	}
}

static void handle_window(struct conn *c, const struct frame *f)
{
	struct attachment *a = find_attachment(c, f->channel);

	if (a != NULL && f->size == 4 && a->credit != UINT64_MAX)
		a->credit += frame_get_u32(f->payload);
}

static void handle_resize(struct exec *e, const struct frame *f)
{
	struct winsize size = { 0 };

	if (!e->tty || f->size != 4 || e->out < 0)
		return;
	size.ws_row = frame_get_u16(f->payload);
	size.ws_col = frame_get_u16(f->payload + 2);
	(void)ioctl(e->out, TIOCSWINSZ, &size);
	e->touched = true;
}

void keeper_handle(struct keeper *k, struct conn *c, const struct frame *f)
{
	struct exec *e = keeper_find_exec(k, f->channel);

	switch (f->type) {
	case FRAME_REQUEST:
		handle_request(k, c, f);
		break;
	case FRAME_STDIN:
		if (c->forgets)
			keeper_disturbed(k);
		if (e != NULL && f->size == 0)
			exec_feed_end(e);
		else if (e != NULL && exec_feed(e, f->payload, f->size) < 0)
			c->broken = true; /* the sender ignores the windows */
		break;
	case FRAME_RESIZE:
		if (c->primary && e != NULL && e->tty) /* by a request: nobody sends it again */
			keeper_disturbed(k);
		if (e != NULL)
			handle_resize(e, f);
		break;
	case FRAME_SIGNAL:
		if (e != NULL)
			handle_signal(k, e, f);
		break;
	case FRAME_WINDOW:
		handle_window(c, f);
		break;
	case FRAME_REPLY:
	case FRAME_EVENT:
	case FRAME_STDOUT:
	case FRAME_STDERR:
	case FRAME_STATUS:
	case FRAME_OBJECT:
	case FRAME_ERROR:
	case FRAME_GAP:
		c->broken = true; /* nothing that cayd may send */
		break;
	}
}

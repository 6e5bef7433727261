/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/control.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/jsontext.h"
#include "gateway/names.h"
#include "gateway/nameserver.h"
#include "gateway/owner.h"
#include "gateway/refusals.h"
#include "gateway/wire.h"
#include "io/framelink.h"

#include <string.h>

#define HOOKS_MAX 8

/* an event that cayd has not acknowledged */
struct pending {
	struct list node;
	uint64_t n;
	char *text;
};

/* somebody waits for that; on its stack */
struct awaited {
	struct list node;
	uint64_t n;
	bool unkept;
};

struct control {
	struct framelink *link; /* NULL: cayd is away */
	uint64_t links;         /* that there have been */
	struct list pendings, awaited;
	size_t n_pendings;
	uint64_t next, sent, acknowledged; /* numbers of events; sent: that anybody may have got */
	json_t *state;                     /* {part: value} */
	uint64_t stated,
		written; /* numbers of states: the last one sent; the last one that cayd has written down */
	uv_check_t hold; /* active: we are to stand still, and answer this request then */
	json_int_t hold_id;
};

struct hooks {
	gateway_fn *list[HOOKS_MAX];
	size_t n;
};

static struct hooks config_hooks, hold_hooks;

static void hooks_add(struct hooks *h, gateway_fn *fn)
{
	BUG_ON(h->n == HOOKS_MAX);
	h->list[h->n++] = fn;
}

static void hooks_call(const struct hooks *h, struct gateway *gw)
{
	for (size_t i = 0; i < h->n; i++)
		h->list[i](gw);
}

void gateway_on_config(gateway_fn *fn)
{
	hooks_add(&config_hooks, fn);
}

void gateway_on_hold(gateway_fn *fn)
{
	hooks_add(&hold_hooks, fn);
}

void control_init(struct gateway *gw)
{
	struct control *c = xnew(struct control);

	list_init(&c->pendings);
	list_init(&c->awaited);
	c->next = 1;
	c->state = json_object();
	(void)uv_check_init(gw->loop, &c->hold);
	c->hold.data = gw;
	gw->control = c;
}

static void send_text(struct control *c, enum frame_type type, const char *text)
{
	if (c->link != NULL && !c->link->dead)
		framelink_send(c->link, type, 0, text, strlen(text));
}

static void send_json(struct control *c, enum frame_type type, json_t *object)
{
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);

	json_decref(object);
	if (text != NULL && strlen(text) <= FRAME_PAYLOAD_MAX)
		send_text(c, type, text);
}

/* --- events --- */

bool gateway_congested(const struct gateway *gw)
{
	return gw->control->n_pendings >= GATEWAY_EVENTS_MAX;
}

static void send_event(struct control *c, const struct pending *p)
{
	if (c->link != NULL && !c->link->dead && p->n > c->sent)
		c->sent = p->n;
	send_text(c, FRAME_EVENT, p->text);
}

/* A NUL in a string would make the whole event unreadable for whoever takes strings as C does: its picture stands for it. */
static void show_nuls(char *json)
{
	static const char nul[] = "u0000", picture[] = "u2400";

	for (char *p = strchr(json, '\\'); p != NULL; p = strchr(p + 2, '\\'))
		if (strncmp(p + 1, nul, sizeof(nul) - 1) == 0)
			memcpy(p + 1, picture, sizeof(picture) - 1);
}

static void add_process(struct buf *b, const struct owner *owner)
{
	if (owner == NULL || owner->pid == 0)
		return;
	jsontext_member_integer(b, "pid", owner->pid);
	jsontext_member_integer(b, "inner_pid", owner->inner_pid);
	jsontext_member_string(b, "comm", owner->comm);
}

static char *event_text(const struct gateway *gw, uint64_t n, const char *type,
	const struct owner *owner, const struct buf *data)
{
	struct buf b = BUF_INIT(FRAME_PAYLOAD_MAX);
	char id[64];

	(void)snprintf(id, sizeof(id), "%s-%llu", gw->boot, (unsigned long long)n);
	jsontext_open(&b, '{');
	jsontext_member_integer(&b, "n", (int64_t)n);
	jsontext_member_string(&b, "type", type);
	jsontext_member_integer(&b, "time_ns", (int64_t)clock_wall_ns());
	jsontext_key(&b, "data");
	buf_add(&b, data->p, data->n - 1); /* its closing bracket comes behind the id */
	jsontext_member_string(&b, "id", id);
	add_process(&b, owner);
	jsontext_close(&b, '}');
	if (owner != NULL && owner->exec[0] != '\0')
		jsontext_member_string(&b, "exec", owner->exec);
	jsontext_close(&b, '}');
	if (buf_failed(&b))
		abort(); /* whoever makes an event bounds it */
	show_nuls(b.p);
	return buf_take(&b);
}

uint64_t gateway_event_text(
	struct gateway *gw, const char *type, const struct owner *owner, const struct buf *data)
{
	struct control *c = gw->control;
	struct pending *p = xnew(struct pending);

	p->n = c->next++;
	p->text = event_text(gw, p->n, type, owner, data);
	list_append(&c->pendings, &p->node);
	c->n_pendings++;
	send_event(c, p);
	return p->n;
}

static void add_json(struct buf *text, const json_t *data)
{
	cleanup_free char *dumped = json_dumps(data, JSON_COMPACT);

	BUG_ON(dumped == NULL);
	buf_str(text, dumped);
}

uint64_t gateway_event(
	struct gateway *gw, const char *type, const struct owner *owner, json_t *data)
{
	struct buf text = BUF_INIT(FRAME_PAYLOAD_MAX);
	uint64_t n;

	add_json(&text, data);
	json_decref(data);
	n = gateway_event_text(gw, type, owner, &text);
	buf_free(&text);
	return n;
}

void gateway_event_restate(struct gateway *gw, uint64_t number, const char *type,
	const struct owner *owner, const json_t *data)
{
	struct buf text = BUF_INIT(FRAME_PAYLOAD_MAX);

	add_json(&text, data);
	list_for_each (&gw->control->pendings, node, next) {
		struct pending *p = list_entry(node, struct pending, node);

		if (p->n != number)
			continue;
		free(p->text);
		p->text = event_text(gw, number, type, owner, &text);
		send_event(gw->control, p);
	}
	buf_free(&text);
}

int gateway_event_written(struct gateway *gw, uint64_t number, uint64_t deadline_ns)
{
	struct awaited a = { .n = number };
	int rc = 0;

	list_append(&gw->control->awaited, &a.node);
	while (gw->control->acknowledged < number && !a.unkept && rc == 0)
		rc = waiters_wait(&gw->changed, deadline_ns);
	list_remove(&a.node);
	return a.unkept ? -EIO : rc;
}

static void take_unkept(struct gateway *gw, uint64_t n)
{
	list_for_each (&gw->control->awaited, node, next) {
		struct awaited *a = list_entry(node, struct awaited, node);

		a->unkept = a->unkept || a->n == n;
	}
	waiters_wake(&gw->changed);
}

static void take_ack(struct gateway *gw, uint64_t n)
{
	struct control *c = gw->control;

	c->acknowledged = n > c->acknowledged ? n : c->acknowledged;
	while (!list_empty(&c->pendings)) {
		struct pending *p = list_entry(c->pendings.next, struct pending, node);

		if (p->n > n)
			break;
		list_remove(&p->node);
		c->n_pendings--;
		free(p->text);
		free(p);
	}
	waiters_wake(&gw->changed);
}

/* --- state --- */

static void send_state(struct control *c, const char *part, json_t *value)
{
	send_json(c, FRAME_OBJECT,
		json_pack("{s:{s:O}, s:I}", "state", part, value, "number", (json_int_t)c->stated));
}

uint64_t gateway_state(struct gateway *gw, const char *part, json_t *value)
{
	struct control *c = gw->control;

	(void)json_object_set_new(c->state, part, value);
	c->stated++;
	send_state(c, part, value);
	return c->stated;
}

int gateway_state_written(struct gateway *gw, uint64_t number, uint64_t deadline_ns)
{
	int rc = 0;

	while (gw->control->written < number && rc == 0)
		rc = waiters_wait(&gw->changed, deadline_ns);
	return rc;
}

/* --- configuration --- */

/* The same text again is the same policy: it keeps its rules' budgets and what was judged by it. */
static int take_policy(struct gateway *gw, const json_t *config, struct err *err)
{
	struct policy *policy;
	int rc = policy_compile(json_object_get(config, "policy"), &policy, err);

	if (rc < 0)
		return rc;
	policy_unref(gw->policy); /* connections that it judged have references of their own */
	gw->policy = policy;
	gw->policy_version = (uint64_t)json_integer_value(json_object_get(config, "version"));
	return 0;
}

static int configure(struct gateway *gw, json_t *config, struct err *err)
{
	bool same = gw->config != NULL && json_equal(json_object_get(gw->config, "policy"),
						  json_object_get(config, "policy"));
	int rc = same ? 0 : take_policy(gw, config, err);

	if (rc < 0)
		return rc;
	names_load(gw->names, json_object_get(json_object_get(config, "state"), "names"));
	json_decref(gw->config);
	gw->config = json_incref(config);
	hooks_call(&config_hooks, gw);
	waiters_wake(&gw->changed);
	return 0;
}

static void reply(struct control *c, json_int_t id, const struct err *err)
{
	send_json(c, FRAME_REPLY,
		err == NULL ? json_pack("{s:I,s:{}}", "id", id, "ok")
			    : json_pack("{s:I,s:o}", "id", id, "error", err_to_json(err)));
}

/* --- draining --- */

struct draining {
	struct gateway *gw;
	uint64_t link; /* by number: who asked may be gone by then */
	json_int_t id;
};

static void drain_main(void *arg)
{
	struct draining *d = arg;
	struct control *c = d->gw->control;

	refusals_drain(d->gw);
	if (c->links == d->link)
		reply(c, d->id, NULL);
	free(d);
}

/* Everything that was refused so far is told before the answer. */
static void drain(struct gateway *gw, json_int_t id)
{
	struct draining *d = xnew(struct draining);

	*d = (struct draining){ gw, gw->control->links, id };
	fiber_start(drain_main, d);
}

/* --- standing still --- */

static bool is_go(const struct frame *f)
{
	json_t *request =
		f->type == FRAME_REQUEST ? json_loadb(f->payload, f->size, 0, NULL) : NULL;
	const char *verb = json_string_value(json_object_get(request, "verb"));
	bool go = verb != NULL && str_eq(verb, "go");

	json_decref(request);
	return go;
}

/*
 * Nothing of this process happens between the answer and `go`, or the end of the connection: no event, no state, no byte to either side. All that was said before has left, and
 * whoever reads the answer has read it.
 */
static void stand_still(struct gateway *gw)
{
	struct framelink *l = gw->control->link;

	stream_block(&l->s, true);
	hooks_call(&hold_hooks, gw);
	reply(gw->control, gw->control->hold_id, NULL);
	framelink_await(l, is_go);
	stream_block(&l->s, false);
	framelink_deliver(l);
}

/* Runs between two rounds of the loop, when no fiber and no handler is half-way. */
static void on_hold(uv_check_t *hold)
{
	struct gateway *gw = hold->data;
	const struct framelink *l = gw->control->link;

	if (l != NULL && !l->dead && l->s.queued > 0)
		return; /* the loop is still writing */
	(void)uv_check_stop(hold);
	if (l != NULL && !l->dead)
		stand_still(gw);
}

static void take_request(struct gateway *gw, json_t *request)
{
	const char *verb = json_string_value(json_object_get(request, "verb"));
	json_int_t id = json_integer_value(json_object_get(request, "id"));
	struct control *c = gw->control;
	struct err err = { 0 };

	if (verb != NULL && str_eq(verb, "ack")) {
		take_ack(gw, (uint64_t)json_integer_value(json_object_get(request, "n")));
	} else if (verb != NULL && str_eq(verb, "unkept")) {
		take_unkept(gw, (uint64_t)json_integer_value(json_object_get(request, "n")));
	} else if (verb != NULL && str_eq(verb, "written")) {
		c->written = (uint64_t)json_integer_value(json_object_get(request, "number"));
		waiters_wake(&gw->changed);
	} else if (verb != NULL && str_eq(verb, "configure")) {
		int rc = configure(gw, json_object_get(request, "config"), &err);

		reply(c, id, rc < 0 ? &err : NULL);
	} else if (verb != NULL && str_eq(verb, "refuse")) {
		gw->refuses = true;
		nameserver_go_on();
		waiters_wake(&gw->changed);
		reply(c, id, NULL);
	} else if (verb != NULL && str_eq(verb, "drain")) {
		drain(gw, id);
	} else if (verb != NULL && str_eq(verb, "traffic")) {
		send_json(c, FRAME_REPLY,
			json_pack("{s:I,s:{s:I}}", "id", id, "ok", "bytes",
				(json_int_t)wire_counted()));
	} else if (verb != NULL && str_eq(verb, "hold")) {
		c->hold_id = id;
		(void)uv_check_start(&c->hold, on_hold);
	} else if (verb != NULL && str_eq(verb, "go")) {
		/* whoever stands still has seen it coming; whoever has not come to that need not any more */
		(void)uv_check_stop(&c->hold);
	} else {
		(void)err_raise(&err, ERR_UNSUPPORTED, "this gateway knows no verb '%s'",
			verb != NULL ? verb : "");
		reply(c, id, &err);
	}
}

/* --- the connection --- */

static void on_frame(struct framelink *l, const struct frame *f)
{
	json_t *request = f->type == FRAME_REQUEST
				  ? json_loadb(f->payload, f->size, JSON_REJECT_DUPLICATES, NULL)
				  : NULL;

	if (request != NULL)
		take_request(l->s.ctx, request);
	json_decref(request);
}

static void link_closed(struct stream *s)
{
	free(container_of(s, struct framelink, s));
}

static void on_dead(struct framelink *l)
{
	struct gateway *gw = l->s.ctx;

	if (gw->control->link == l)
		gw->control->link = NULL;
	framelink_close(l, link_closed);
}

static void send_all(struct gateway *gw)
{
	struct control *c = gw->control;
	const char *part;
	json_t *value;

	send_json(c, FRAME_OBJECT,
		json_pack("{s:{s:s, s:I, s:I}}", "hello", "boot", gw->boot, "sent",
			(json_int_t)c->sent, "acknowledged", (json_int_t)c->acknowledged));
	json_object_foreach (c->state, part, value)
		send_state(c, part, value);
	list_for_each (&c->pendings, node, next)
		send_event(c, list_entry(node, struct pending, node));
}

void control_open(struct gateway *gw, int fd)
{
	struct framelink *l = xnew(struct framelink);

	if (gw->control->link != NULL)
		framelink_abort(gw->control->link);
	l->on_frame = on_frame;
	l->on_dead = on_dead;
	l->peer = "server";
	l->s.ctx = gw;
	if (framelink_open(l, gw->loop, fd) < 0) {
		log_error("gateway", "the server's connection cannot be watched");
		free(l);
		return;
	}
	gw->control->link = l;
	gw->control->links++;
	send_all(gw);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/gateways.c - see the header.
 *
 * Invariants
 *  (1) an event of a gateway is acknowledged only when it is in the journal, so it may come again: after a crash of ours too. Its number and the gateway's boot id are in
 *      its data ("id"), which is how the second one is known. For which the journal has no room it is not taken, nor what follows it: the gateway keeps them, and sends
 *      them over another connection when there is room;
 *  (2) state is written to the catalogue before anything could depend on it being there; it is never ahead of what the gateway said.
 * Failure: a gateway that dies takes its connection along; the keeper starts another, says so, and it gets the state again.
 */
#include "api/gateways.h"
#include "api/credentials.h"
#include "api/mailbox.h"
#include "api/server.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/nesting.h"
#include "gateway/address.h"
#include "policy/policy.h"

#include <string.h>

#define CONNECT_NS (5 * NS_PER_S)
#define DRAIN_NS   NS_PER_S
#define HOLD_NS    (10 * NS_PER_S)
#define AGAIN_NS   NS_PER_S /* doubles up to 64 of them */
#define AGAIN_MAX  6U
#define BRIEF      2U /* tries that may fail in a row before anybody but the log hears of it */
#define OVER_MAX \
	256U /* of them wait for that: the gateway keeps each, and lets nothing out when it keeps many */
#define TELL_NS      NS_PER_S   /* refusals above the budget are counted so long at most */
#define STATE_LEVELS 64U        /* what reads it is on the small stack of a fiber */
#define STATE_MAX    (8U << 20) /* bytes; each part of it came in one frame */
#define LOOK_BACK    65536U     /* events in which one that came twice is looked for */

struct gateway_link {
	struct framelink link;
	unsigned int refs;       /* the connection's, and of those who wait for an answer */
	struct sandbox *sandbox; /* a reference */
	char boot[ID_LEN + 1];   /* "" until it has said hello */
	uint64_t seen;           /* highest number of this boot that is in the journal */
	struct event_ack ack;
	bool configured;
	bool full; /* an event was not taken, so that none is any more */
	uint64_t over,
		over_n; /* refusals above the budget that are not told yet, and the last one's number */
	bool counting; /* a fiber tells them in a moment */
};

static void link_unref(struct gateway_link *g)
{
	if (g == NULL || --g->refs > 0)
		return;
	list_remove(&g->ack.node);
	sandbox_unref(g->sandbox);
	free(g);
}

/* --- policy --- */

/* Parts "host" and "host:port"; what has more colons than one is an address of IPv6, with a port in brackets. Return: false when it is neither. */
static bool allow_parse(const char *text, const char **ret_host, size_t *ret_n, uint64_t *ret_port)
{
	bool bracketed = *text == '[';
	const char *end = bracketed ? strchr(text, ']') : strchr(text, ':');

	*ret_port = 0;
	if (bracketed && end == NULL)
		return false;
	if (end == NULL || (!bracketed && strchr(end + 1, ':') != NULL))
		end = text + strlen(text);
	*ret_host = text + bracketed;
	*ret_n = (size_t)(end - *ret_host);
	end += bracketed;
	return *ret_n > 0 &&
	       (*end == '\0' || (*end == ':' && str_to_u64(end + 1, 1, UINT16_MAX, ret_port) == 0));
}

/* The sandbox itself: its own loopback, whose connections come to no gateway. */
static bool is_inside(const char *host)
{
	size_t n = strlen(host), tail = strlen(".localhost");
	struct in6_addr address;

	if (str_eq(host, "localhost") || (n > tail && str_eq(host + n - tail, ".localhost")))
		return true;
	return address_parse(host, &address) == 0 && address_own(&address);
}

static json_t *allow_rule(const char *text, size_t number, struct err *err)
{
	cleanup_free char *name = str_dupf("allow-%zu", number + 1), *inside = NULL;
	const char *host;
	uint64_t port;
	size_t n;

	if (!allow_parse(text, &host, &n, &port)) {
		(void)err_raise(err, ERR_INVALID, "allow '%s': HOST or HOST:PORT is wanted", text);
		return NULL;
	}
	inside = str_dupf("%.*s", (int)n, host);
	if (is_inside(inside)) {
		(void)err_hint(err,
			err_raise(err, ERR_INVALID, "allow '%s': that is the sandbox itself", text),
			"for what runs on this machine: a policy with a rule for a name that says upstream: 127.0.0.1:PORT");
		return NULL;
	}
	if (port == 0)
		return json_pack("{s:s,s:{s:s%},s:s}", "name", name, "match", "host", host, n,
			"action", "allow");
	/* on the ports of the web with a look inside, on any other as it is */
	return json_pack("{s:s,s:{s:s%,s:I,s:s},s:s}", "name", name, "match", "host", host, n,
		"port", (json_int_t)port, "transport", port == 80 || port == 443 ? "http" : "tcp",
		"action", "allow");
}

static int add_allowed(json_t *document, const json_t *allow, struct err *err)
{
	json_t *rules = json_object_get(document, "rules"), *v;
	size_t i;

	if (rules == NULL) {
		rules = json_array();
		(void)json_object_set_new(document, "rules", rules);
	}
	json_array_foreach (allow, i, v) {
		json_t *rule = allow_rule(json_string_value(v), i, err);

		if (rule == NULL || json_array_insert_new(rules, i, rule) < 0)
			return -EINVAL;
	}
	return 0;
}

int gateway_policy_of(const json_t *request, json_t **ret, struct err *err)
{
	json_t *given = json_object_get(request, "policy");
	const char *text = json_string_value(given);
	const json_t *allow = json_object_get(request, "allow");
	struct policy *policy = NULL;
	json_t *document = NULL;
	int rc = 0;

	*ret = json_null();
	if (text == NULL && !json_is_object(given) && json_array_size(allow) == 0)
		return 0;
	if (json_is_object(given)) /* of a snapshot: what was checked when it was taken */
		document = json_deep_copy(given);
	else if (text != NULL)
		rc = policy_document(text, strlen(text), &document, err);
	else
		document = json_pack("{s:i}", "version", 1);
	if (rc == 0 && json_is_object(document))
		rc = add_allowed(document, allow, err);
	if (rc == 0)
		rc = policy_compile(document, &policy, err);
	policy_unref(policy);
	if (rc == 0)
		*ret = document;
	else
		json_decref(document);
	return rc;
}

json_t *gateway_ports(const struct sandbox *sb)
{
	const json_t *document = json_object_get(sb->doc, "policy");
	const struct policy_port_range *ranges;
	struct policy *policy;
	json_t *list = json_array();
	size_t n;

	if (!json_is_object(document) || policy_compile(document, &policy, NULL) < 0)
		return list; /* it was checked when it was taken; what a newer version made is refused */
	n = policy_ports(policy, &ranges);
	for (size_t i = 0; i < n; i++)
		(void)json_array_append_new(
			list, json_pack("[i,i]", ranges[i].first, ranges[i].last));
	policy_unref(policy);
	return list;
}

/* --- state --- */

int gateway_kept(struct server *srv, const char *id, json_t **ret, struct err *err)
{
	cleanup_free char *text = NULL;
	int rc = catalogue_get(srv->catalogue, CATALOGUE_GATEWAYS, id, &text, err);

	*ret = NULL;
	if (rc < 0) {
		err_context(err, "the state of the gateway");
		return rc;
	}
	if (text == NULL)
		*ret = json_object();
	else if (!nesting_exceeds(text, strlen(text), STATE_LEVELS))
		*ret = json_loads(text, 0, NULL);
	return *ret != NULL
		       ? 0
		       : err_hint(err,
				 err_raise(err, ERR_CORRUPT, "the state of the gateway is no JSON"),
				 "a gateway that would begin with it lets nothing out, since nobody knows what was spent; commands run in the sandbox, and its files can be fetched");
}

static int state_put(struct server *srv, const char *id, const json_t *state, struct err *err)
{
	cleanup_free char *text = json_dumps(state, JSON_COMPACT);

	if (text == NULL || strlen(text) > STATE_MAX)
		return err_raise(err, ERR_LIMIT, "the state of the gateway is larger than %u MiB",
			STATE_MAX >> 20);
	return catalogue_put(srv->catalogue, CATALOGUE_GATEWAYS, id, NULL, NULL, text, false, err);
}

static void say_written(struct gateway_link *g, json_int_t number)
{
	char text[96];

	(void)snprintf(
		text, sizeof(text), "{\"id\":0,\"verb\":\"written\",\"number\":%lld}", number);
	framelink_send(&g->link, FRAME_REQUEST, 0, text, strlen(text));
}

static void take_state(struct gateway_link *g, json_t *parts, json_int_t number)
{
	struct err err;
	json_t *state;

	if (g->sandbox->state == SANDBOX_REMOVING)
		return;                               /* its rows are gone */
	(void)json_object_del(parts, "placeholders"); /* ours alone */
	if (gateway_kept(g->sandbox->srv, g->sandbox->id, &state, &err) == 0)
		(void)json_object_update(state, parts);
	if (state == NULL || state_put(g->sandbox->srv, g->sandbox->id, state, &err) < 0)
		log_error("gateway", "keep the state of '%s': %s", g->sandbox->name, err.msg);
	else
		say_written(g, number);
	json_decref(state);
}

int gateway_state_put(struct server *srv, const char *id, const json_t *state, struct err *err)
{
	return json_object_size(state) > 0 ? state_put(srv, id, state, err) : 0;
}

int gateway_state_part(
	struct server *srv, const char *id, const char *part, json_t **ret, struct err *err)
{
	json_t *state;
	int rc = gateway_kept(srv, id, &state, err);

	*ret = json_incref(json_object_get(state, part));
	json_decref(state);
	return rc;
}

int gateway_state_keep(
	struct server *srv, const char *id, const char *part, json_t *value, struct err *err)
{
	json_t *state;
	int rc = gateway_kept(srv, id, &state, err);

	if (rc < 0)
		return rc;
	(void)json_object_set(state, part, value);
	rc = state_put(srv, id, state, err);
	json_decref(state);
	return rc;
}

void gateway_state_forget(struct server *srv, const char *id)
{
	(void)catalogue_delete(srv->catalogue, CATALOGUE_GATEWAYS, id, NULL);
	(void)catalogue_delete_owned(srv->catalogue, CATALOGUE_MAILS, id, NULL);
}

/* --- events --- */

static bool number_of(const char *id, const char *boot, uint64_t *ret)
{
	size_t n = strlen(boot);

	return id != NULL && strncmp(id, boot, n) == 0 && id[n] == '-' &&
	       str_to_u64(id + n + 1, 1, UINT64_MAX, ret) == 0;
}

/* The newest event of this boot in the journal: what an earlier cayd wrote down and did not acknowledge comes again. */
static uint64_t seen_before(const struct gateway_link *g)
{
	struct journal *j = g->sandbox->srv->journal;
	uint64_t last = journal_last_seq(j, g->sandbox->id), found = 0;

	(void)fault("gateway.look_back");
	for (uint64_t seq = last; seq > 0 && last - seq < LOOK_BACK && found == 0; seq--) {
		cleanup_buf struct buf line = BUF_INIT(4U << 20);
		json_t *event;

		if (journal_read(j, g->sandbox->id, seq, &line) < 0)
			break;
		if (strstr(buf_cstr(&line), g->boot) == NULL)
			continue;
		event = json_loadb(line.p, line.n, 0, NULL);
		(void)number_of(
			json_string_value(json_object_get(json_object_get(event, "data"), "id")),
			g->boot, &found);
		json_decref(event);
	}
	return found;
}

/* All of this boot up to there is in the journal. Only where something was sent to an earlier cayd that it did not acknowledge is looked for; an older gateway does not say so. */
static uint64_t seen_so_far(const struct gateway_link *g, const json_t *hello)
{
	const json_t *sent = json_object_get(hello, "sent");
	json_int_t acknowledged = json_integer_value(json_object_get(hello, "acknowledged"));
	uint64_t least = acknowledged > 0 ? (uint64_t)acknowledged : 0, found;

	if (json_is_integer(sent) && json_integer_value(sent) <= acknowledged)
		return least;
	found = seen_before(g);
	return found > least ? found : least;
}

/* Another connection, over which all comes that was not acknowledged. */
static void when_there_is_room(void *arg)
{
	struct gateway_link *g = arg; /* a reference */
	struct sandbox *sb = g->sandbox;

	while (sb->gateway == g && !sb->srv->stopping && journal_is_full(sb->srv->journal))
		(void)waiters_wait(&sb->changed, clock_now_ns() + AGAIN_NS);
	if (sb->gateway == g && !sb->srv->stopping)
		gateway_appeared(sb);
	link_unref(g);
}

static bool can_take(struct gateway_link *g)
{
	if (!g->full &&
		(journal_is_full(g->sandbox->srv->journal) || fault("gateway.take.full") < 0)) {
		g->full = true;
		g->refs++;
		fiber_start(when_there_is_room, g);
	}
	return !g->full;
}

static void say_unkept(struct gateway_link *g, uint64_t n)
{
	char text[96];

	(void)snprintf(text, sizeof(text), "{\"id\":0,\"verb\":\"unkept\",\"n\":%lu}", n);
	framelink_send(&g->link, FRAME_REQUEST, 0, text, strlen(text));
}

/* Who sent the message waits for the acknowledgement, and this comes before it. */
static void take_mail(struct gateway_link *g, uint64_t n, uint64_t time_ns, json_t *data)
{
	if (mail_keep(g->sandbox, time_ns, data) == 0)
		return;
	(void)json_object_set_new(data, "kept", json_false());
	say_unkept(g, n);
}

/* Its event is in the journal, and says what was so then: the message may still be missing, or its sender was told to send it again. */
static void take_mail_again(struct gateway_link *g, uint64_t n, uint64_t time_ns, json_t *data)
{
	if (json_is_false(json_object_get(data, "kept")))
		mail_withdraw(g->sandbox, data);
	else
		take_mail(g, n, time_ns, data);
}

/* Of what does not get out the sandbox makes as many as it likes. What a rule lets through is told whatever it takes: nobody hides a request behind others. */
static bool is_refusal(enum event_type type, const json_t *data)
{
	const char *outcome = json_string_value(json_object_get(data, "outcome"));

	if (type != EVENT_NET_EXCHANGE)
		return type == EVENT_SECRET_MISPLACED &&
		       !json_is_true(json_object_get(data, "passed"));
	return outcome != NULL && (str_eq(outcome, "denied") || str_eq(outcome, "refused"));
}

/* Those above the budget are acknowledged with this: what a crash leaves untold comes again. The id is that of the last, so that none that came twice is counted twice. */
static void tell_over(struct gateway_link *g)
{
	struct sandbox *sb = g->sandbox;
	struct event out = {
		.type = EVENT_NET_LOST, .sandbox = sb->id, .epoch = sandbox_epoch(sb)
	};
	cleanup_free char *id = NULL;

	/* without room nothing is acknowledged either: they come again */
	if (g->over == 0 || !can_take(g))
		return;
	id = str_dupf("%s-%lu", g->boot, g->over_n);
	out.data = json_pack("{s:s,s:I}", "id", id, "n", (json_int_t)g->over);
	(void)journal_add(sb->srv->journal, &out);
	server_acknowledge(sb->srv, &g->ack, g->over_n);
	g->over = 0;
}

static void tell_over_later(void *arg)
{
	struct gateway_link *g = arg; /* a reference */
	uint64_t deadline = clock_now_ns() + TELL_NS;

	while (g->sandbox->gateway == g && !g->sandbox->srv->stopping &&
		waiters_wait(&g->sandbox->changed, deadline) == 0)
		;
	g->counting = false;
	tell_over(g);
	link_unref(g);
}

static void count_over(struct gateway_link *g, uint64_t n)
{
	g->over_n = n;
	if (++g->over >= OVER_MAX)
		tell_over(g);
	if (g->counting)
		return;
	g->counting = true;
	g->refs++;
	fiber_start(tell_over_later, g);
}

/* All else is told by who does it: a gateway that was taken over forges no end of a command. */
static bool is_its_own(enum event_type type)
{
	return type == EVENT_NET_DENIED || type == EVENT_NET_CONNECTION ||
	       type == EVENT_NET_EXCHANGE || type == EVENT_NET_MAIL || type == EVENT_NET_LOOKUP ||
	       type == EVENT_NET_LOST || type == EVENT_SECRET_MISPLACED;
}

static void take_event(struct gateway_link *g, const json_t *e, size_t bytes)
{
	const char *type = json_string_value(json_object_get(e, "type"));
	const char *exec = json_string_value(json_object_get(e, "exec"));
	uint64_t n = (uint64_t)json_integer_value(json_object_get(e, "n"));
	json_t *data = json_object_get(e, "data");
	struct sandbox *sb = g->sandbox;
	struct event out = { .sandbox = sb->id, .epoch = sandbox_epoch(sb) };
	const struct exec *owner;

	if (g->full) /* who acknowledges one acknowledges all before it */
		return;
	out.type = type != NULL ? event_type_parse(type) : EVENT_KEEPER;
	out.time_ns = (uint64_t)json_integer_value(json_object_get(e, "time_ns"));
	if (n <= g->seen && out.type == EVENT_NET_MAIL)
		take_mail_again(g, n, out.time_ns, data);
	/* a newer gateway's have types that are not known */
	if (n <= g->seen || !is_its_own(out.type) || !json_is_object(data)) {
		tell_over(g);
		if (!g->full)
			server_acknowledge(sb->srv, &g->ack, n);
		return;
	}
	if (!can_take(g))
		return;
	g->seen = n;
	mishaps_take(&sb->mishaps, out.type, data);
	if (is_refusal(out.type, data) &&
		!log_budget_spend(&sb->told_refused, sb->srv->journal, bytes)) {
		count_over(g, n);
		return;
	}
	tell_over(g);
	owner = exec != NULL && id_valid(exec) ? exec_by_id(sb, exec) : NULL;
	out.exec = owner != NULL ? owner->id : NULL;
	if (owner != NULL && owner->created_n != 0)
		out.cause = json_pack("{s:I}", "event", (json_int_t)owner->created_n);
	out.data = json_incref(data);
	if (out.type == EVENT_NET_MAIL)
		take_mail(g, n, out.time_ns, data);
	(void)journal_add(sb->srv->journal, &out);
	server_acknowledge(sb->srv, &g->ack, n);
}

/* --- the connection --- */

static void take_object(struct gateway_link *g, json_t *object)
{
	const json_t *hello = json_object_get(object, "hello");
	const char *boot = json_string_value(json_object_get(hello, "boot"));
	json_t *state = json_object_get(object, "state");

	if (boot != NULL && id_valid(boot)) {
		(void)!str_copy(g->boot, sizeof(g->boot), boot);
		g->seen = seen_so_far(g, hello);
	}
	if (json_is_object(state))
		take_state(g, state, json_integer_value(json_object_get(object, "number")));
}

static void on_frame(struct framelink *l, const struct frame *f)
{
	struct gateway_link *g = container_of(l, struct gateway_link, link);
	json_t *object = frame_json(f);

	if (f->type == FRAME_OBJECT)
		take_object(g, object);
	else if (f->type == FRAME_EVENT && g->boot[0] != '\0')
		take_event(g, object, f->size);
	json_decref(object);
}

static void link_closed(struct stream *s)
{
	link_unref(container_of(container_of(s, struct framelink, s), struct gateway_link, link));
}

static void on_dead(struct framelink *l)
{
	struct gateway_link *g = container_of(l, struct gateway_link, link);

	tell_over(g);
	if (g->sandbox->gateway == g)
		g->sandbox->gateway = NULL;
	framelink_close(l, link_closed);
}

void gateway_close(struct sandbox *sb)
{
	if (sb->gateway != NULL)
		framelink_abort(&sb->gateway->link);
	mishaps_reset(&sb->mishaps);
	sb->gateway_wanted = sb->gateway_held = false;
	waiters_wake(&sb->changed);
}

void gateway_ended(struct sandbox *sb)
{
	sb->gateway_wanted = false;
	waiters_wake(&sb->changed);
}

/* What it has used and what it holds is in its state: without that it is not told to begin. */
static int configuration(const struct sandbox *sb, json_t **ret, struct err *err)
{
	const json_t *policy = json_object_get(sb->doc, "policy");
	json_t *config, *state, *secrets;
	int rc = gateway_kept(sb->srv, sb->id, &state, err);

	if (rc == 0)
		rc = credentials_secrets(sb, &secrets, err);
	if (rc < 0) {
		json_decref(state);
		return rc;
	}
	config = json_pack("{s:I,s:o,s:o}", "version",
		json_integer_value(json_object_get(sb->doc, "policy_version")), "state", state,
		"secrets", secrets);
	(void)json_object_set_new(config, "policy",
		json_is_object(policy) ? json_deep_copy(policy)
				       : json_pack("{s:i,s:[]}", "version", 1, "rules"));
	if (sb->srv->trust != NULL)
		(void)json_object_set_new(config, "trust", json_string(sb->srv->trust));
	if (sb->srv->through != NULL)
		(void)json_object_set_new(config, "through", json_string(sb->srv->through));
	if (sb->srv->nameservers != NULL)
		(void)json_object_set_new(config, "nameservers", json_string(sb->srv->nameservers));
	*ret = config;
	return 0;
}

static int configure(struct gateway_link *g, struct err *err)
{
	json_t *config;
	int rc = configuration(g->sandbox, &config, err);

	if (rc < 0)
		return rc;
	g->refs++;
	rc = framelink_call(&g->link, json_pack("{s:s,s:o}", "verb", "configure", "config", config),
		clock_now_ns() + CALL_NS, NULL, err);
	link_unref(g);
	return rc;
}

/* Its first: until the answer is there it may have changed again. */
static int configure_first(struct gateway_link *g, struct err *err)
{
	struct sandbox *sb = g->sandbox;
	unsigned int version;
	int rc;

	do {
		version = sb->gateway_version;
		rc = configure(g, err);
	} while (rc == 0 && sb->gateway == g && version != sb->gateway_version);
	g->configured = rc == 0;
	return rc;
}

/* A new connection to the keeper: from its answer to `gateway` on the other end is the gateway. NULL with @err set. */
static struct gateway_link *link_new(struct sandbox *sb, struct err *err)
{
	int fd = keeper_connect(sb->srv, sb->id);
	struct gateway_link *g;

	if (fd < 0) {
		(void)err_raise_sys(err, fd, "connect to the keeper of '%s'", sb->name);
		return NULL;
	}
	g = xnew(struct gateway_link);
	g->refs = 2; /* the connection's and the caller's */
	g->sandbox = sandbox_ref(sb);
	g->link.on_frame = on_frame;
	g->link.on_dead = on_dead;
	g->link.peer = "gateway";
	g->ack.link = &g->link;
	list_init(&g->ack.node);
	if (framelink_open(&g->link, sb->srv->loop, fd) < 0)
		abort();
	return g;
}

/* What goes out would wait for a configuration that may never come. One that has its configuration from an earlier server goes on with that. Context: waits. */
static void refuse(struct gateway_link *g)
{
	if (!g->link.dead && g->sandbox->gateway == g)
		(void)!framelink_call(&g->link, json_pack("{s:s}", "verb", "refuse"),
			clock_now_ns() + CONNECT_NS, NULL, NULL);
}

void gateway_trouble_over(struct sandbox *sb)
{
	free(sb->gateway_trouble.logged);
	free(sb->gateway_trouble.told);
	sb->gateway_trouble = (struct trouble){ 0 };
}

/* It takes the place of the one before. Context: waits. */
static int link_begin(struct gateway_link *g, struct err *err)
{
	struct sandbox *sb = g->sandbox;
	int rc;

	if (sb->gateway != NULL)
		framelink_abort(&sb->gateway->link);
	sb->gateway = g;
	rc = framelink_call(&g->link, json_pack("{s:s}", "verb", "gateway"),
		clock_now_ns() + CONNECT_NS, NULL, err);
	while (rc == 0 && sb->gateway == g && sb->gateway_held)
		(void)waiters_wait(&sb->changed, 0);
	if (rc == 0 && sb->gateway == g)
		rc = configure_first(g, err);
	if (rc == 0 && g->configured)
		gateway_trouble_over(sb);
	if (rc < 0 && sb->gateway_trouble.tries >= BRIEF)
		refuse(g);
	if (rc < 0)
		framelink_abort(&g->link);
	return rc;
}

static int appear(struct sandbox *sb, struct err *err)
{
	struct gateway_link *g = link_new(sb, err);
	int rc = g != NULL ? link_begin(g, err) : -EIO;

	link_unref(g);
	waiters_wake(&sb->changed);
	return rc;
}

/* It is there, nobody has reached it, and nobody else is about to. */
static bool is_missed(const struct sandbox *sb)
{
	return sb->gateway_wanted && sb->gateway == NULL && !sb->gone && sb->keeper != NULL &&
	       !sb->keeper->link.dead && !sb->srv->stopping;
}

/* Return: was it not the last one in @last, which it is now? */
static bool is_news(char **last, const struct err *err)
{
	if (*last != NULL && str_eq(*last, err->msg))
		return false;
	free(*last);
	*last = str_dup(err->msg);
	return true;
}

static void has_failed(struct sandbox *sb, const struct err *err)
{
	struct trouble *t = &sb->gateway_trouble;

	if (is_news(&t->logged, err))
		log_warn("gateway", "of sandbox '%s': %s", sb->name, err->msg);
	if (++t->tries > BRIEF && is_news(&t->told, err))
		(void)server_event(sb->srv, sb, EVENT_GATEWAY_FAILED, NULL,
			json_pack("{s:o}", "error", err_to_json(err)));
}

/* Longer each time, unless what it is made of changes meanwhile. */
static void wait_to_try_again(struct sandbox *sb)
{
	unsigned int version = sb->gateway_version, n = sb->gateway_trouble.tries - 1;
	uint64_t until = clock_now_ns() + (AGAIN_NS << (n < AGAIN_MAX ? n : AGAIN_MAX));

	while (is_missed(sb) && version == sb->gateway_version &&
		waiters_wait(&sb->changed, until) == 0)
		;
}

/* Until it has its configuration everything that goes out waits for it, for a while. */
static void appeared_main(void *arg)
{
	struct sandbox *sb = arg; /* a reference */
	struct err err = { 0 };

	while (appear(sb, &err) < 0 && is_missed(sb)) {
		has_failed(sb, &err);
		wait_to_try_again(sb);
		if (!is_missed(sb))
			break;
	}
	sandbox_unref(sb);
}

void gateway_appeared(struct sandbox *sb)
{
	sb->gateway_wanted = true;
	fiber_start(appeared_main, sandbox_ref(sb));
}

static bool is_awaited(const struct sandbox *sb)
{
	return sb->gateway_wanted && (sb->gateway == NULL || !sb->gateway->configured);
}

/* One that has only just been started has things to tell. Return: 0 when there is none, or it has its configuration; -ETIMEDOUT. */
static int wait_configured(struct sandbox *sb, uint64_t deadline)
{
	while (is_awaited(sb)) {
		if (waiters_wait(&sb->changed, deadline) < 0)
			return -ETIMEDOUT;
	}
	return 0;
}

static int unreachable(const struct sandbox *sb, struct err *err)
{
	return err_raise(
		err, ERR_UNAVAILABLE, "the gateway of sandbox '%s' cannot be reached", sb->name);
}

int gateway_configure(struct sandbox *sb, struct err *err)
{
	uint64_t deadline = clock_now_ns() + CALL_NS;
	unsigned int tries = sb->gateway_trouble.tries;
	int rc = 0;

	sb->gateway_version++;
	waiters_wake(&sb->changed);
	if (sb->keeper != NULL && !sb->keeper->link.dead)
		rc = framelink_call(&sb->keeper->link,
			json_pack("{s:s,s:o}", "verb", "ports", "ports", gateway_ports(sb)),
			deadline, NULL, err);
	if (rc < 0)
		return rc;
	if (sb->gateway != NULL && sb->gateway->configured)
		return configure(sb->gateway, err);
	/* who configures one just now sees the new version before it is done, or fails */
	while (is_awaited(sb) && sb->gateway_trouble.tries == tries) {
		if (waiters_wait(&sb->changed, deadline) < 0)
			break;
	}
	return is_awaited(sb) ? unreachable(sb, err) : 0;
}

void gateway_configure_surely(struct sandbox *sb)
{
	struct err err = { 0 };

	if (gateway_configure(sb, &err) == 0)
		return;
	log_warn("gateway", "what has changed for '%s': %s", sb->name, err.msg);
	if (sb->gateway_wanted)
		gateway_appeared(sb); /* from the beginning, until it has it */
}

void gateway_drain(struct sandbox *sb)
{
	uint64_t deadline = clock_now_ns() + DRAIN_NS;

	if (wait_configured(sb, deadline) < 0 || sb->gateway == NULL)
		return;
	(void)!framelink_call(
		&sb->gateway->link, json_pack("{s:s}", "verb", "drain"), deadline, NULL, NULL);
	if (sb->gateway != NULL)
		tell_over(sb->gateway);
}

/* --- standing still --- */

int gateway_hold(struct sandbox *sb, struct err *err)
{
	uint64_t deadline = clock_now_ns() + HOLD_NS;
	struct err why = { 0 };
	int rc = -EAGAIN;

	/* again when it died over the question: then another may be there, or none */
	while (rc < 0) {
		if (wait_configured(sb, deadline) < 0)
			return unreachable(sb, err);
		sb->gateway_held = true;
		if (sb->gateway == NULL)
			return 0;
		rc = framelink_call(&sb->gateway->link, json_pack("{s:s}", "verb", "hold"),
			deadline, NULL, &why);
		if (rc < 0)
			gateway_go(sb);
		if (rc < 0 && why.code != ERR_UNAVAILABLE) {
			*err = why;
			return rc;
		}
	}
	return 0;
}

void gateway_go(struct sandbox *sb)
{
	static const char go[] = "{\"id\":0,\"verb\":\"go\"}";

	if (sb->gateway_held && sb->gateway != NULL)
		framelink_send(&sb->gateway->link, FRAME_REQUEST, 0, go, sizeof(go) - 1);
	sb->gateway_held = false;
	waiters_wake(&sb->changed);
}

int gateway_traffic(struct sandbox *sb, uint64_t *ret, struct err *err)
{
	json_t *ok = NULL;
	int rc;

	*ret = 0;
	if (sb->gateway == NULL || !sb->gateway->configured)
		return 0;
	rc = framelink_call(&sb->gateway->link, json_pack("{s:s}", "verb", "traffic"),
		clock_now_ns() + CALL_NS, &ok, err);
	*ret = (uint64_t)json_integer_value(json_object_get(ok, "bytes"));
	json_decref(ok);
	return rc;
}

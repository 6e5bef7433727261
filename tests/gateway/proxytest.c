/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core of the gateway behind ordinary loopback listeners, for tests, bench and fuzzing: `proxytest CONFIG.json`. Not installed.
 *
 * CONFIG: {"policy": {…}, "listen": [{"tls": bool, "port": N?, "as_port": N, "as_address": "…"?, "as_name": "…"?}], "hosts": {"name": "address:port"}, "root": FILE,
 * "secrets": [{"name","value","placeholder"}]?, "bundle": FILE?, "extra": FILE?, "through": "host:port"?, "events": FILE?, "room": bytes of PROXY_TREES_MAX?, "shared": of PROXY_SHARED_MAX?, "budgets": "over", "busy" or "kept"?}. The sandbox's root is written to "root" when it does not exist. Prints {"ports": […]} when
 * it listens, ends when its standard input does.
 */
#include "gateway/proxy.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/jsontext.h"
#include "gateway/owner.h"
#include "gateway/secrets.h"
#include "gateway/spending.h"
#include "policy/ledger.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct listener {
	uv_poll_t poll;
	int fd;
	const json_t *config;
	struct proxy *proxy;
};

struct served {
	struct proxy_conn c;
	char address[INET6_ADDRSTRLEN];
};

static json_t *config;
static FILE *events;
static uint64_t connections;
static struct ledger *ledger; /* with "budgets": "kept" */

static attr_noreturn void die(const char *what, const char *why)
{
	(void)fprintf(stderr, "proxytest: %s: %s\n", what, why);
	_exit(2);
}

static const char *text(const char *key)
{
	return json_string_value(json_object_get(config, key));
}

static char *slurp(const char *path, size_t *ret_n)
{
	cleanup_fd int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	ssize_t n;
	char *p;

	*ret_n = 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	p = xalloc((size_t)st.st_size + 1);
	n = read(fd, p, (size_t)st.st_size);
	*ret_n = n > 0 ? (size_t)n : 0;
	return p;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------------------ */

static int dial_address(const char *target, struct proxy_dialled *ret, struct err *err)
{
	const char *colon = strrchr(target, ':');
	struct sockaddr_in to = { .sin_family = AF_INET };
	uint64_t port;
	int one = 1;

	if (colon == NULL || str_to_u64(colon + 1, 1, UINT16_MAX, &port) < 0)
		die("address", target);
	(void)snprintf(ret->address, sizeof(ret->address), "%.*s", (int)(colon - target), target);
	ret->port = (uint16_t)port;
	to.sin_port = htons(ret->port);
	if (inet_pton(AF_INET, ret->address, &to.sin_addr) != 1)
		die("address", target);
	ret->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(ret->fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		(void)close(ret->fd);
		return err_raise(
			err, ERR_UNAVAILABLE, "connect to %s: %s", target, strerror(errno));
	}
	(void)setsockopt(ret->fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
	(void)fcntl(ret->fd, F_SETFL, O_NONBLOCK);
	return 0;
}

static int dial(attr_unused void *ctx, const char *host, attr_unused uint16_t port,
	const struct policy_rule *rule, attr_unused uint64_t deadline_ns, struct proxy_dialled *ret,
	struct err *err)
{
	const char *target = rule != NULL && rule->upstream != NULL
				     ? rule->upstream
				     : json_string_value(json_object_get(
					       json_object_get(config, "hosts"), host));

	if (target == NULL)
		return err_raise(err, ERR_NOT_FOUND, "no address is known for '%s'", host);
	return dial_address(target, ret, err);
}

static void event(attr_unused void *ctx, attr_unused const struct proxy_conn *c, const char *type,
	const struct buf *data)
{
	if (events == NULL)
		return;
	(void)fwrite(data->p, 1, data->n - 1, events);
	(void)fprintf(events, ",\"type\":\"%s\"}\n", type);
	(void)fflush(events);
}

/* Budgets are never exhausted here, unless the configuration says so; what answers say for them is an event. */
static void tell_asked(const struct policy *policy, size_t rule)
{
	struct buf data = BUF_INIT(PROXY_EVENT_MAX);
	size_t n;

	jsontext_open(&data, '{');
	jsontext_member_string(&data, "rule", policy_rules(policy, &n)[rule].name);
	jsontext_close(&data, '}');
	event(NULL, NULL, "asked", &data);
	buf_free(&data);
}

static enum ledger_answer reserve_kept(const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts, struct ledger_result *ret)
{
	enum ledger_answer answer = ledger_reserve(ledger, rule, amounts, 1, ret);

	tell_asked(policy, rule);
	if (answer != LEDGER_NEED_LEASE)
		return answer;
	ledger_lease(ledger, rule, amounts);
	ledger_leased(ledger);
	return ledger_reserve(ledger, rule, amounts, 1, ret);
}

static bool busy(attr_unused void *ctx, attr_unused const struct policy *policy, size_t rule,
	const struct ledger_result *said)
{
	return ledger != NULL && ledger_busy(ledger, rule, said, 1);
}

static enum ledger_answer reserve(attr_unused void *ctx, const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts, struct ledger_result *ret)
{
	const char *said = json_string_value(json_object_get(config, "budgets"));
	size_t n;

	if (ledger != NULL)
		return reserve_kept(policy, rule, amounts, ret);
	ret->opened = spending_wanted(&policy_rules(policy, &n)[rule]);
	return said == NULL ? LEDGER_OK : str_eq(said, "busy") ? LEDGER_LATER : LEDGER_OVER;
}

static void add(void *ctx, attr_unused const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts)
{
	struct buf data = BUF_INIT(PROXY_EVENT_MAX);

	if (ledger != NULL)
		ledger_add(ledger, rule, amounts, 1);
	jsontext_open(&data, '{');
	jsontext_member_string(&data, "said", amounts->body != NULL ? "something" : "nothing");
	jsontext_close(&data, '}');
	event(ctx, NULL, "spent", &data);
	buf_free(&data);
}

static bool left(attr_unused void *ctx, const struct proxy_conn *c)
{
	static int diag_fd = -1;
	struct sockaddr_in from, to;
	socklen_t n = sizeof(from), m = sizeof(to);
	struct owner_socket s = { .protocol = IPPROTO_TCP };

	if (diag_fd < 0)
		diag_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (getpeername(c->w->fd, (struct sockaddr *)&from, &n) < 0 ||
		getsockname(c->w->fd, (struct sockaddr *)&to, &m) < 0)
		return true;
	s.from.s6_addr[10] = s.from.s6_addr[11] = s.to.s6_addr[10] = s.to.s6_addr[11] = 0xff;
	memcpy(s.from.s6_addr + 12, &from.sin_addr, 4);
	memcpy(s.to.s6_addr + 12, &to.sin_addr, 4);
	s.from_port = ntohs(from.sin_port);
	s.to_port = ntohs(to.sin_port);
	return owner_has_closed(diag_fd, &s);
}

static void refused(void *ctx, const struct proxy_conn *c, const char *what, const char *reason)
{
	struct buf data = BUF_INIT(PROXY_EVENT_MAX);

	jsontext_open(&data, '{');
	jsontext_member_string(&data, "what", what);
	jsontext_member_string(&data, "reason", reason);
	jsontext_member_string(&data, "sni", c->hello.sni);
	jsontext_member_integer(&data, "port", c->port);
	jsontext_close(&data, '}');
	event(ctx, c, "net.denied", &data);
	buf_free(&data);
}

/* ---- connections ------------------------------------------------------------------------------------------------------------ */

static void serve(void *arg)
{
	struct served *s = arg;

	proxy_serve(&s->c);
	free(s);
}

static const char *member(const json_t *object, const char *key, const char *otherwise)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value != NULL ? value : otherwise;
}

static void on_connection(uv_poll_t *poll, attr_unused int status, attr_unused int what)
{
	struct listener *l = poll->data;
	int fd, one = 1;

	while ((fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct served *s = xnew(struct served);

		(void)setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &one, sizeof(one));
		s->c = (struct proxy_conn){ .proxy = l->proxy,
			.fd = fd,
			.tls = json_is_true(json_object_get(l->config, "tls")),
			.address = member(l->config, "as_address", "192.0.2.1"),
			.name = member(l->config, "as_name", ""),
			.port = (uint16_t)json_integer_value(json_object_get(l->config, "as_port")),
			.number = ++connections };
		fiber_start(serve, s);
	}
}

static int listen_on(struct listener *l)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)json_integer_value(json_object_get(l->config, "port"))),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int one = 1;

	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l->fd, (struct sockaddr *)&a, n) < 0 || listen(l->fd, 4096) < 0 ||
		getsockname(l->fd, (struct sockaddr *)&a, &n) < 0)
		die("listen", strerror(errno));
	(void)uv_poll_init(l->proxy->loop, &l->poll, l->fd);
	l->poll.data = l;
	(void)uv_poll_start(&l->poll, UV_READABLE, on_connection);
	return ntohs(a.sin_port);
}

/* ---- set-up ----------------------------------------------------------------------------------------------------------------- */

static void load_root(struct ca_root *root)
{
	size_t n;
	cleanup_free char *pem = slurp(text("root"), &n);
	cleanup_fclose FILE *f = NULL;
	struct err err;

	if (pem != NULL) {
		if (ca_root_load(root, pem, n, &err) < 0)
			die("root", err.msg);
		return;
	}
	if (ca_root_new(root, "test", &err) < 0)
		die("root", err.msg);
	pem = ca_root_pem(root, true);
	f = fopen(text("root"), "we");
	if (f == NULL || fputs(pem, f) < 0)
		die("root", strerror(errno));
}

static void load_policy(struct proxy *p)
{
	struct policy *policy;
	struct err err;

	if (json_object_get(config, "policy") == NULL)
		return;
	if (policy_compile(json_object_get(config, "policy"), &policy, &err) < 0)
		die("policy", err.msg);
	if (text("budgets") != NULL && str_eq(text("budgets"), "kept"))
		ledger = ledger_new(policy);
	proxy_set_policy(p, policy, secrets_new(policy, json_object_get(config, "secrets"), &err));
	policy_unref(policy);
	if (p->secrets == NULL)
		die("secrets", err.msg);
}

static void on_input_end(uv_poll_t *poll, attr_unused int status, attr_unused int what)
{
	uv_stop(poll->loop);
}

int main(int argc, char **argv)
{
	uv_loop_t *loop = uv_default_loop();
	struct proxy proxy;
	struct ca_root root;
	struct err err;
	uv_poll_t input;
	json_t *ports = json_array();
	size_t n;

	config = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;
	if (config == NULL)
		die("config", "missing or no JSON");
	fiber_init(loop);
	load_root(&root);
	if (proxy_init(&proxy, loop, &root, &err) < 0)
		die("init", err.msg);
	load_policy(&proxy);
	proxy.bundle = slurp(text("bundle"), &proxy.bundle_n);
	proxy.extra = slurp(text("extra"), &proxy.extra_n);
	if (text("through") != NULL &&
		authority_parse(text("through"), strlen(text("through")), &proxy.through) < 0)
		die("through", text("through"));
	proxy.hooks = (struct proxy_hooks){ .dial = dial,
		.event = event,
		.refused = refused,
		.reserve = reserve,
		.busy = busy,
		.add = add,
		.left = left };
	if (json_object_get(config, "listen_ms") != NULL)
		proxy.listen_ns =
			(uint64_t)json_integer_value(json_object_get(config, "listen_ms")) *
			NS_PER_MS;
	if (json_object_get(config, "answer_ms") != NULL)
		proxy.answer_ns =
			(uint64_t)json_integer_value(json_object_get(config, "answer_ms")) *
			NS_PER_MS;
	if (json_object_get(config, "write_ms") != NULL)
		proxy.write_ns = (uint64_t)json_integer_value(json_object_get(config, "write_ms")) *
				 NS_PER_MS;
	if (json_object_get(config, "shared") != NULL)
		proxy.shared_max = (size_t)json_integer_value(json_object_get(config, "shared"));
	if (json_object_get(config, "room") != NULL) {
		proxy.room_ns = NS_PER_MS;
		proxy.trees.used = proxy.trees.max -
				   (size_t)json_integer_value(json_object_get(config, "room"));
	}
	events = text("events") != NULL ? fopen(text("events"), "ae") : NULL;
	n = json_array_size(json_object_get(config, "listen"));
	for (size_t i = 0; i < n; i++) {
		struct listener *l = xnew(struct listener);

		l->proxy = &proxy;
		l->config = json_array_get(json_object_get(config, "listen"), i);
		(void)json_array_append_new(ports, json_integer(listen_on(l)));
	}
	(void)uv_poll_init(loop, &input, STDIN_FILENO);
	(void)uv_poll_start(&input, UV_READABLE | UV_DISCONNECT, on_input_end);
	(void)printf("{\"ports\": ");
	(void)json_dumpf(ports, stdout, JSON_COMPACT);
	(void)printf("}\n");
	(void)fflush(stdout);
	(void)uv_run(loop, UV_RUN_DEFAULT);
	return 0;
}

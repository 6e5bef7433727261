/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/serve.h"
#include "base/log.h"
#include "base/str.h"
#include "gateway/budgets.h"
#include "gateway/conn.h"
#include "gateway/dial.h"
#include "gateway/proxy.h"
#include "gateway/secrets.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BUNDLE_MAX (8U << 20)

static struct {
	const char *p; /* mapped, shared with every other gateway */
	size_t n;
} bundle;

/* ---- hooks ------------------------------------------------------------------------------------------------------------------ */

/* No exchange without its event: connections that are open already wait here as new ones do at the listener. */
static void on_admit(void *ctx)
{
	struct gateway *gw = ctx;

	while (gateway_congested(gw))
		(void)!waiters_wait(&gw->changed, 0);
}

static int on_dial(void *ctx, const char *host, uint16_t port, const struct policy_rule *rule,
	uint64_t deadline_ns, struct proxy_dialled *ret, struct err *err)
{
	const struct dial_target target = { .host = host, .port = port, .rule = rule };
	struct dial_result result;
	int rc = dial(ctx, &target, deadline_ns, &result, err);

	if (rc < 0)
		return rc;
	ret->fd = result.fd;
	ret->port = result.port;
	memcpy(ret->address, result.address, sizeof(ret->address));
	return 0;
}

static void on_event(
	void *ctx, const struct proxy_conn *c, const char *type, const struct buf *data)
{
	(void)gateway_event_text(ctx, type, conn_owner(c->origin), data);
}

static enum ledger_answer on_reserve(void *ctx, const struct policy *policy, size_t rule,
	const struct ledger_amounts *amounts, struct ledger_result *ret)
{
	return budgets_reserve(ctx, policy, rule, amounts, ret);
}

static bool on_busy(
	void *ctx, const struct policy *policy, size_t rule, const struct ledger_result *said)
{
	return budgets_busy(ctx, policy, rule, said);
}

static uint64_t on_take(void *ctx, const struct policy *policy, size_t rule, uint64_t n)
{
	return budgets_take(ctx, policy, rule, n);
}

static void on_add(
	void *ctx, const struct policy *policy, size_t rule, const struct ledger_amounts *amounts)
{
	budgets_add(ctx, policy, rule, amounts);
}

static bool on_left(void *ctx, const struct proxy_conn *c)
{
	const struct gateway *gw = ctx;
	const struct conn *conn = c->origin;
	const struct owner_socket socket = { .protocol = IPPROTO_TCP,
		.from = conn->from,
		.to = conn->to,
		.from_port = conn->from_port,
		.to_port = conn->port };

	return owner_has_closed(gw->diag_fd, &socket);
}

static void on_refused(
	attr_unused void *ctx, const struct proxy_conn *c, const char *what, const char *reason)
{
	conn_denied(c->origin, what, reason);
}

/* ---- configuration ---------------------------------------------------------------------------------------------------------- */

static const char *member(const struct gateway *gw, const char *key)
{
	return json_string_value(json_object_get(gw->config, key));
}

static int take_root(struct gateway *gw, struct ca_root *root, struct err *err)
{
	const json_t *ca = json_object_get(json_object_get(gw->config, "state"), "ca");
	const char *pem = json_string_value(json_object_get(ca, "pem"));
	cleanup_free char *made = NULL;
	int rc;

	if (pem != NULL)
		return ca_root_load(root, pem, strlen(pem), err);
	rc = ca_root_new(root, gw->sandbox, err);
	if (rc < 0)
		return rc;
	made = ca_root_pem(root, true);
	gateway_state(gw, "ca", json_pack("{s:s}", "pem", made != NULL ? made : ""));
	return 0;
}

static int begin(struct gateway *gw, struct err *err)
{
	struct proxy *p = xnew(struct proxy);
	struct ca_root root;
	int rc = take_root(gw, &root, err);

	if (rc == 0) {
		rc = proxy_init(p, gw->loop, &root, err);
		ca_root_fini(&root);
	}
	if (rc < 0) {
		free(p);
		return rc;
	}
	p->hooks = (struct proxy_hooks){ .ctx = gw,
		.admit = on_admit,
		.dial = on_dial,
		.reserve = on_reserve,
		.busy = on_busy,
		.take = on_take,
		.add = on_add,
		.left = on_left,
		.event = on_event,
		.refused = on_refused };
	p->bundle = bundle.p;
	p->bundle_n = bundle.n;
	gw->proxy = p;
	return 0;
}

/* A policy whose secrets cannot be used allows nothing. */
static void take_policy(struct gateway *gw, struct proxy *p)
{
	struct err err = { 0 };
	struct secrets *secrets =
		secrets_new(gw->policy, json_object_get(gw->config, "secrets"), &err);

	if (secrets == NULL)
		log_error("gateway", "the secrets cannot be used: %s", err.msg);
	proxy_set_policy(p, secrets != NULL ? gw->policy : NULL, secrets);
}

/* Connections that are open stay as they are; what was kept for later is forgotten: it was opened under the former rules. */
static void on_config(struct gateway *gw)
{
	const char *through = member(gw, "through"), *trust = member(gw, "trust");
	struct err err = { 0 };
	struct proxy *p;

	if (gw->proxy == NULL && begin(gw, &err) < 0) {
		log_error("gateway", "HTTP is not served: %s", err.msg);
		return;
	}
	p = gw->proxy;
	take_policy(gw, p);
	proxy_forget_world(p);
	free(p->extra);
	p->extra = str_dup(trust);
	p->extra_n = trust != NULL ? strlen(trust) : 0;
	p->through = (struct authority){ 0 };
	if (through != NULL && authority_parse(through, strlen(through), &p->through) < 0)
		log_error("gateway", "'%s' is no HTTP proxy", through);
}

static void map_bundle(void)
{
	cleanup_fd int fd = open("/etc/ssl/certs/ca-certificates.crt", O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > BUNDLE_MAX)
		return;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return;
	bundle.p = p;
	bundle.n = (size_t)st.st_size;
}

int serve_init(struct gateway *gw)
{
	if (OPENSSL_init_ssl(0, NULL) != 1)
		return -ENOMEM;
	map_bundle();
	if (bundle.p == NULL)
		log_error("gateway",
			"this machine has no certificates of authorities: no host can be verified");
	budgets_init(gw);
	gateway_on_config(on_config);
	return 0;
}

json_t *serve_scrubbed(const struct gateway *gw, json_t *data)
{
	const struct proxy *p = gw->proxy;

	return secrets_scrub_json(p != NULL ? p->secrets : NULL, data);
}

/* ---- connections ------------------------------------------------------------------------------------------------------------ */

void conn_serve_http(struct conn *c)
{
	struct proxy_conn pc = { .proxy = c->gw->proxy,
		.fd = c->fd,
		.tls = c->protocol == CONN_TLS,
		.address = c->address,
		.name = c->name,
		.port = c->port,
		.number = c->number,
		.origin = c };

	policy_unref(TAKE_PTR(
		c->policy)); /* each exchange is judged by the one in force when it begins */
	if (c->gw->proxy == NULL) {
		conn_reset(c);
		return;
	}
	c->fd = -1;
	proxy_serve(&pc);
}

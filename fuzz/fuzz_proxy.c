/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP side of the gateway on sockets: the first byte chooses who is fuzzed, the rest is what that peer sends before it ends. '1', '2': the sandbox speaks
 * HTTP/1 or HTTP/2 to a gateway that denies everything; 'a', 'b': the world answers in HTTP/1 or HTTP/2 a request that is allowed.
 * What must hold: it ends, every stream is released, every exchange is told once, and nothing denied is dialled.
 */
#include "fuzz/fuzz.h"
#include "gateway/exchange.h"
#include "gateway/http1.h"
#include "gateway/http2.h"
#include "gateway/proxy.h"

#include <sys/socket.h>

#define IDLE_NS 20000000 /* the other end has ended: nothing is waited for that long */

static struct proxy proxy;
static struct policy *allow_all;
static const uint8_t *world;
static size_t world_n;
static size_t dialled;

/* A socket whose other end has sent @p and will send nothing more; it takes what it is sent. */
static int peer(const uint8_t *p, size_t n, int *ret_far)
{
	int fds[2], size = 4 << 20;

	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
	(void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	(void)setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	MUST(n == 0 || write(fds[1], p, n) == (ssize_t)n);
	(void)shutdown(fds[1], SHUT_WR);
	*ret_far = fds[1];
	return fds[0];
}

static int far_world = -1;

static int dial(attr_unused void *ctx, attr_unused const char *host, attr_unused uint16_t port,
	attr_unused const struct policy_rule *rule, attr_unused uint64_t deadline_ns,
	struct proxy_dialled *ret, attr_unused struct err *err)
{
	dialled++;
	fd_close(&far_world);
	*ret = (struct proxy_dialled){ .fd = peer(world, world_n, &far_world), .port = 80 };
	(void)snprintf(ret->address, sizeof(ret->address), "192.0.2.1");
	return 0;
}

static size_t told;

static void event(attr_unused void *ctx, attr_unused const struct proxy_conn *c,
	attr_unused const char *type, const struct buf *data)
{
	json_t *parsed =
		json_loadb(data->p, data->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	told++;
	MUST(json_object_get(parsed, "outcome") != NULL);
	json_decref(parsed);
}

static void refused(attr_unused void *ctx, attr_unused const struct proxy_conn *c,
	attr_unused const char *what, const char *reason)
{
	MUST(reason != NULL);
}

static void set_up(void)
{
	static const char rules[] =
		"{\"version\":1,\"rules\":[{\"name\":\"all\",\"match\":{\"host\":\"a.example\"},\"action\":\"allow\"}]}";
	struct ca_root root;
	struct err err;
	json_t *document = json_loads(rules, 0, NULL);

	fiber_init(uv_default_loop());
	MUST(ca_root_new(&root, "fuzz", &err) == 0);
	MUST(proxy_init(&proxy, uv_default_loop(), &root, &err) == 0);
	MUST(policy_compile(document, &allow_all, &err) == 0);
	json_decref(document);
	ca_root_fini(&root);
	proxy.hooks = (struct proxy_hooks){ .dial = dial, .event = event, .refused = refused };
}

static struct proxy_conn conn(int fd)
{
	return (struct proxy_conn){ .proxy = &proxy,
		.fd = fd,
		.address = "192.0.2.1",
		.name = "",
		.port = 80,
		.number = 1 };
}

static void serve_plain(void *arg)
{
	struct proxy_conn c = conn(*(int *)arg);

	proxy_serve(&c);
	*(int *)arg = -1;
}

static void serve_stream(void *ctx, struct channel *channel)
{
	(void)!exchange_run(ctx, channel);
}

static void refused_stream(attr_unused void *ctx)
{
}

static void serve_http2(void *arg)
{
	struct proxy_conn c = conn(*(int *)arg);
	struct wire *w = wire_new(proxy.loop, c.fd, NULL, 0);
	const struct http2_server server = { serve_stream, refused_stream, &c };
	struct http2 *h = http2_new(w, &server);

	(void)http2_run(h, IDLE_NS);
	MUST(http2_streams(h) == 0);
	http2_free(h);
	wire_close(w);
	*(int *)arg = -1;
}

static void ask(void *arg)
{
	static struct head head;
	struct channel *c = arg;
	struct arena arena = ARENA_INIT(EXCHANGE_ARENA_MAX);
	const char *piece;

	channel_next(c, &arena);
	head = (struct head){ .method = text_of("GET"),
		.scheme = text_of("https"),
		.authority = text_of("a.example"),
		.path = text_of("/") };
	if (channel_send_head(c, &head, true) == 0 && channel_flush(c) == 0 &&
		channel_recv_head(c, &head, 0) == 0) {
		MUST(head.status >= 100 && head.n_fields <= HEAD_FIELDS_MAX);
		while (channel_recv(c, &piece, 0) > 0)
			;
	}
	http2_release(c);
	arena_free(&arena);
}

static void ask_http2(void *arg)
{
	struct wire *w = wire_new(proxy.loop, *(int *)arg, NULL, 0);
	struct http2 *h = http2_new(w, NULL);

	for (int i = 0; i < 2; i++)
		fiber_start(ask, http2_request(h));
	(void)http2_run(h, IDLE_NS);
	MUST(http2_streams(h) == 0);
	http2_free(h);
	wire_close(w);
	*(int *)arg = -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char request[] =
		"POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
	uint8_t kind = size > 0 ? data[0] : 0;
	int fd, far;

	if (kind == 0 || strchr("12ab", kind) == NULL || size > 65536)
		return 0;
	if (proxy.loop == NULL)
		set_up();
	proxy_set_policy(&proxy, kind == 'a' ? allow_all : NULL, NULL);
	world = data + 1;
	world_n = size - 1;
	dialled = told = 0;
	fd = kind == 'a' ? peer((const uint8_t *)request, sizeof(request) - 1, &far)
			 : peer(data + 1, size - 1, &far);
	fiber_start(kind == '2' ? serve_http2 : kind == 'b' ? ask_http2 : serve_plain, &fd);
	do /* fibers run at the beginning: they may end without anything more to wait for */
		(void)uv_run(proxy.loop, UV_RUN_NOWAIT);
	while (fd >= 0);
	proxy_forget_world(&proxy);
	(void)uv_run(proxy.loop, UV_RUN_NOWAIT);
	fd_close(&far);
	fd_close(&far_world);
	MUST(kind == 'a' ? told == 1 : dialled == 0);
	MUST(proxy.n_exchanges == 0 && proxy.held.room.used == 0 && proxy.trees.used == 0);
	return 0;
}

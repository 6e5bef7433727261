/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tlsbench ADDRESS PORT [option…]: repeats GET requests over many connections at once and prints one JSON object.
 *
 *   --host H      Host header, server name (default: none)       --path P      (default /)
 *   --plain       no TLS                                         --connect T   ask for a tunnel to T ("host:port") first
 *   --conns N     connections at once (default 1)                --new         a new connection for each request
 *   --seconds S   how long (default 2)                           --status N    the status that every answer must have (default 200)
 *
 * The window begins when every connection has had its first answer: then "warm" is printed; with --new at once. After the report it waits for the end of its input.
 * One thread, epoll. Latencies are of single requests; with --new they hold the TCP and TLS handshakes too. Certificates are not checked: that costs the
 * client alone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX (8U << 20)
#define HEAD_MAX    8192
#define WARM_NS     30000000000U /* longest that warming up may take */

enum phase { CONNECTING, TUNNEL_ASKED, HANDSHAKE, ASKED };

struct client {
	int fd;
	SSL *ssl;
	enum phase phase;
	uint64_t began_ns;
	bool warm;
	char head[HEAD_MAX + 1];
	size_t head_n;
	bool in_body;
	uint64_t body_left;
};

static struct {
	struct sockaddr_in to;
	const char *host, *path, *tunnel;
	bool plain, fresh;
	int conns, status;
	double seconds;
} options = { .path = "/", .conns = 1, .status = 200, .seconds = 2 };

static SSL_CTX *ctx;
static int poller;
static char request[2048];
static uint64_t *samples, deadline_ns, began_window_ns;
static size_t n_samples, errors;
static int cold; /* connections without an answer yet */

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
{
	(void)fprintf(stderr, "tlsbench: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- a connection ----------------------------------------------------------------------------------------------------------- */

static void open_connection(struct client *c)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c };
	int one = 1;

	c->began_ns = now_ns();
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		die("socket");
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(c->fd, (struct sockaddr *)&options.to, sizeof(options.to)) < 0 &&
		errno != EINPROGRESS)
		die("connect");
	c->phase = CONNECTING;
	c->head_n = 0;
	c->in_body = false;
	if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e) < 0)
		die("epoll_ctl");
}

static void close_connection(struct client *c)
{
	SSL_free(c->ssl);
	c->ssl = NULL;
	(void)close(c->fd);
}

static void failed(struct client *c)
{
	errors++;
	close_connection(c);
	open_connection(c);
}

/* Return: > 0, 0 nothing now, -1 ended or broken. */
static int receive(struct client *c, char *p, int n)
{
	int got = c->ssl != NULL ? SSL_read(c->ssl, p, n) : (int)recv(c->fd, p, (size_t)n, 0);

	if (got > 0)
		return got;
	if (c->ssl != NULL)
		return SSL_get_error(c->ssl, got) == SSL_ERROR_WANT_READ ? 0 : -1;
	return got < 0 && errno == EAGAIN ? 0 : -1;
}

/* Requests are short: the socket always takes them whole. */
static bool transmit(struct client *c, const char *p)
{
	int n = (int)strlen(p);

	return (c->ssl != NULL ? SSL_write(c->ssl, p, n)
			       : (int)send(c->fd, p, (size_t)n, MSG_NOSIGNAL)) == n;
}

static bool ask(struct client *c)
{
	c->phase = ASKED;
	c->head_n = 0;
	c->in_body = false;
	if (!options.fresh)
		c->began_ns = now_ns();
	return transmit(c, request);
}

static void begin_tls(struct client *c)
{
	c->ssl = SSL_new(ctx);
	if (c->ssl == NULL || SSL_set_fd(c->ssl, c->fd) != 1)
		die("SSL_new");
	if (options.host != NULL)
		(void)SSL_set_tlsext_host_name(c->ssl, (char *)(uintptr_t)options.host);
	SSL_set_connect_state(c->ssl);
	c->phase = HANDSHAKE;
}

static void begin_window(void)
{
	(void)printf("warm\n");
	(void)fflush(stdout);
	n_samples = errors = 0;
	began_window_ns = now_ns();
	deadline_ns = began_window_ns + (uint64_t)(options.seconds * 1e9);
}

static void answered(struct client *c)
{
	if (!c->warm) {
		c->warm = true;
		if (--cold == 0)
			begin_window();
	}
	if (n_samples < SAMPLES_MAX)
		samples[n_samples++] = now_ns() - c->began_ns;
	if (options.fresh) {
		close_connection(c);
		open_connection(c);
	} else if (!ask(c)) {
		failed(c);
	}
}

/* Looks at the head that has come. Return: -1 not as it must be, 0 not whole, 1 whole. */
static int take_head(struct client *c)
{
	char *end, *length;
	size_t over;

	c->head[c->head_n] = '\0';
	end = strstr(c->head, "\r\n\r\n");
	if (end == NULL)
		return c->head_n == HEAD_MAX ? -1 : 0;
	over = c->head_n - (size_t)(end + 4 - c->head);
	*end = '\0';
	length = strcasestr(c->head, "\r\ncontent-length:");
	if (atoi(c->head + 9) != (c->phase == TUNNEL_ASKED ? 200 : options.status) ||
		(length == NULL && c->phase == ASKED))
		return -1;
	c->body_left = length != NULL ? strtoull(length + 17, NULL, 10) : 0;
	if (over > c->body_left)
		return -1;
	c->body_left -= over;
	c->in_body = true;
	return 1;
}

/* Return: -1 broken, 0 wait, 1 the answer is whole. */
static int read_answer(struct client *c)
{
	static char sink[65536];

	for (;;) {
		int room = c->in_body ? (int)(c->body_left < sizeof(sink) ? c->body_left
									  : sizeof(sink))
				      : (int)(HEAD_MAX - c->head_n);
		int n, rc;

		if (c->in_body && c->body_left == 0)
			return 1;
		n = receive(c, c->in_body ? sink : c->head + c->head_n, room);
		if (n <= 0)
			return n;
		if (c->in_body) {
			c->body_left -= (uint64_t)n;
			continue;
		}
		c->head_n += (size_t)n;
		rc = take_head(c);
		if (rc < 0)
			return rc;
	}
}

/* Return: false when it broke. */
static bool advance(struct client *c)
{
	int rc;

	if (c->phase == CONNECTING) {
		char text[300];

		if (options.tunnel == NULL && options.plain)
			return ask(c);
		if (options.tunnel == NULL) {
			begin_tls(c);
			return advance(c);
		}
		(void)snprintf(text, sizeof(text), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n",
			options.tunnel, options.tunnel);
		c->phase = TUNNEL_ASKED;
		return transmit(c, text);
	}
	if (c->phase == HANDSHAKE) {
		rc = SSL_do_handshake(c->ssl);
		if (rc == 1)
			return ask(c);
		rc = SSL_get_error(c->ssl, rc);
		return rc == SSL_ERROR_WANT_READ || rc == SSL_ERROR_WANT_WRITE;
	}
	rc = read_answer(c);
	if (rc <= 0)
		return rc == 0;
	if (c->phase == TUNNEL_ASKED) {
		begin_tls(c);
		return advance(c);
	}
	answered(c);
	return true;
}

/* ---- the run ---------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double percentile(double p)
{
	size_t at = (size_t)((double)n_samples * p);

	return n_samples == 0 ? 0 : (double)samples[at < n_samples ? at : n_samples - 1] / 1e6;
}

static void report(double seconds)
{
	struct rusage used;

	(void)getrusage(RUSAGE_SELF, &used);
	qsort(samples, n_samples, sizeof(*samples), by_value);
	(void)printf(
		"{\"requests\": %zu, \"errors\": %zu, \"seconds\": %.3f, \"per_second\": %.1f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
		"\"client_cpu_s\": %.3f}\n",
		n_samples, errors, seconds, seconds > 0.001 ? (double)n_samples / seconds : 0,
		percentile(0.5), percentile(0.99),
		(double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
			(double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
	(void)fflush(stdout);
}

static void run(void)
{
	struct client *clients = calloc((size_t)options.conns, sizeof(*clients));
	struct epoll_event events[256];
	char byte;

	if (clients == NULL)
		die("memory");
	deadline_ns = now_ns() + WARM_NS;
	cold = options.fresh ? 1 : options.conns;
	for (int i = 0; i < options.conns; i++)
		open_connection(&clients[i]);
	while (now_ns() < deadline_ns) {
		int n = epoll_wait(poller, events, 256, 100);

		for (int i = 0; i < n; i++) {
			struct client *c = events[i].data.ptr;

			if (c->phase == CONNECTING && (events[i].events & EPOLLOUT) == 0)
				continue;
			if (!advance(c))
				failed(c);
		}
	}
	if (cold > 0)
		begin_window(); /* it never got warm: nothing is reported */
	report((double)(now_ns() - began_window_ns) / 1e9);
	(void)!read(STDIN_FILENO, &byte, 1);
	free(clients);
}

static void parse(int argc, char **argv)
{
	if (argc < 3 || inet_pton(AF_INET, argv[1], &options.to.sin_addr) != 1)
		die("usage: tlsbench ADDRESS PORT [option...]");
	options.to.sin_family = AF_INET;
	options.to.sin_port = htons((uint16_t)atoi(argv[2]));
	for (int i = 3; i < argc; i++) {
		const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";

		i++;
		if (strcmp(name, "--plain") == 0 || strcmp(name, "--new") == 0) {
			*(strcmp(name, "--plain") == 0 ? &options.plain : &options.fresh) = true;
			i--;
		} else if (strcmp(name, "--host") == 0) {
			options.host = value;
		} else if (strcmp(name, "--path") == 0) {
			options.path = value;
		} else if (strcmp(name, "--connect") == 0) {
			options.tunnel = value;
		} else if (strcmp(name, "--conns") == 0) {
			options.conns = atoi(value);
		} else if (strcmp(name, "--status") == 0) {
			options.status = atoi(value);
		} else if (strcmp(name, "--seconds") == 0) {
			options.seconds = atof(value);
		} else {
			die(name);
		}
	}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	samples = malloc(SAMPLES_MAX * sizeof(*samples));
	poller = epoll_create1(EPOLL_CLOEXEC);
	ctx = SSL_CTX_new(TLS_client_method());
	if (samples == NULL || poller < 0 || ctx == NULL)
		die("memory");
	SSL_CTX_set_read_ahead(ctx, 1);
	(void)snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n",
		options.path,
		options.tunnel != NULL ? options.tunnel
		: options.host != NULL ? options.host
				       : argv[1]);
	run();
	return 0;
}

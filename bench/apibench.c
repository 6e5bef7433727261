/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench/apibench.c - repeats a sequence of HTTP requests over a unix socket from many connections at once, and measures each.
 *
 *   apibench SOCKET CONNECTIONS ROUNDS {LABEL METHOD PATH BODY SAVE WANT}…
 *
 * A step is six arguments. BODY, SAVE and WANT may be "-" (none). SAVE names a variable that takes the first "id" of the answer; {name} in PATH and BODY is
 * replaced by it. {worker} is the number of the connection. A LABEL that starts with '@' is done once by each connection before all of them begin, with '~' once at
 * the end, both untimed; '-' is untimed in every round. Steps of the same label are added up.
 *
 * Prints {"wall_ns":N,"steps":{"LABEL":{"ns":[…],"errors":N}},"errors":{"text":N}}. A status other than 2xx, or an answer without
 * the text WANT (a command that was answered for and did not end well), is an error and no sample; the rest of that round is left out, except the steps whose label starts with '~'. Every wait is bounded by 60 s.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define STEP_ARGS   6
#define MAX_STEPS   32
#define MAX_VARS    8
#define MAX_REQUEST 16384
#define MAX_ANSWER  (4U << 20)

struct step {
	const char *label, *method, *path, *body, *save, *want;
	unsigned int slot; /* index of the label among the timed ones */
};

struct var {
	const char *name;
	char value[64];
};

struct worker {
	pthread_t thread;
	unsigned int number;
	int sock;
	struct var vars[MAX_VARS];
	size_t n_vars;
	uint64_t *ns; /* [slot][round]; 0 = no sample */
	unsigned int errors[MAX_STEPS];
	char first_error[400];
	char *answer;
};

static const char *socket_path;
static unsigned int connections, rounds, n_steps, n_labels;
static struct step steps[MAX_STEPS];
static const char *labels[MAX_STEPS];
static pthread_barrier_t barrier;

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static int connect_server(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 60 };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(socket_path) >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, socket_path, strlen(socket_path));
	if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
		connect(sock, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (sock >= 0)
			(void)close(sock);
		return -1;
	}
	return sock;
}

static const char *var_get(const struct worker *w, const char *name, size_t n)
{
	for (size_t i = 0; i < w->n_vars; i++) {
		if (strlen(w->vars[i].name) == n && memcmp(w->vars[i].name, name, n) == 0)
			return w->vars[i].value;
	}
	return NULL;
}

static void var_set(struct worker *w, const char *name, const char *value, size_t n)
{
	size_t i = 0;

	while (i < w->n_vars && strcmp(w->vars[i].name, name) != 0)
		i++;
	if (i == MAX_VARS || n >= sizeof(w->vars[i].value))
		return;
	w->vars[i].name = name;
	memcpy(w->vars[i].value, value, n);
	w->vars[i].value[n] = '\0';
	w->n_vars = i == w->n_vars ? i + 1 : w->n_vars;
}

/* Copy @text with {variables} put in; what is no variable stays (JSON has braces too). */
static size_t expand(const struct worker *w, const char *text, char *out, size_t size)
{
	size_t n = 0;

	while (*text != '\0' && n + 1 < size) {
		const char *end = *text == '{' ? strchr(text, '}') : NULL;
		const char *value =
			end != NULL ? var_get(w, text + 1, (size_t)(end - text - 1)) : NULL;

		if (value != NULL && n + strlen(value) + 1 < size) {
			memcpy(out + n, value, strlen(value));
			n += strlen(value);
			text = end + 1;
		} else {
			out[n++] = *text++;
		}
	}
	out[n] = '\0';
	return n;
}

static bool send_all(int sock, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(sock, p, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		p += sent;
		n -= (size_t)sent;
	}
	return true;
}

/* Length of the whole answer once its head is there, 0 before; only Content-Length and no body are understood. */
static size_t answer_length(const char *p)
{
	const char *end = strstr(p, "\r\n\r\n");
	const char *length = end != NULL ? strcasestr(p, "\r\ncontent-length:") : NULL;

	if (end == NULL)
		return 0;
	end += 4;
	if (length == NULL || length > end)
		return (size_t)(end - p);
	return (size_t)(end - p) + strtoul(length + 17, NULL, 10);
}

/* One request and its answer. Return: HTTP status, or 0 when the connection failed. */
static int exchange(struct worker *w, const char *request, size_t n)
{
	size_t have = 0, whole = 0;

	if (!send_all(w->sock, request, n))
		return 0;
	while (whole == 0 || have < whole) {
		ssize_t got = recv(w->sock, w->answer + have, MAX_ANSWER - 1 - have, 0);

		if (got <= 0)
			return 0;
		have += (size_t)got;
		w->answer[have] = '\0';
		whole = whole != 0 ? whole : answer_length(w->answer);
		if (whole >= MAX_ANSWER)
			return 0;
	}
	return have > 12 ? atoi(w->answer + 9) : 0;
}

static void save_id(struct worker *w, const char *name)
{
	const char *body = strstr(w->answer, "\r\n\r\n");
	const char *p = body != NULL ? strstr(body, "\"id\":") : NULL;

	p = p != NULL ? strchr(p + 5, '"') : NULL;
	if (p != NULL)
		var_set(w, name, p + 1, strcspn(p + 1, "\""));
}

static void note_error(struct worker *w, const struct step *s, int status)
{
	const char *body = strstr(w->answer, "\r\n\r\n");

	if (w->first_error[0] == '\0')
		(void)snprintf(w->first_error, sizeof(w->first_error), "%s: %d %.300s", s->label,
			status,
			status == 0    ? strerror(errno)
			: body != NULL ? body + 4
				       : "");
	if (status == 0) {
		(void)close(w->sock);
		w->sock = connect_server();
	}
}

static bool is_wanted(const struct worker *w, const struct step *s)
{
	const char *body = strstr(w->answer, "\r\n\r\n");

	return strcmp(s->want, "-") == 0 || (body != NULL && strstr(body, s->want) != NULL);
}

static bool run_step(struct worker *w, const struct step *s, uint64_t *ret_ns)
{
	char path[2048], body[8192], request[MAX_REQUEST];
	size_t n_body = s->body[0] == '-' ? 0 : expand(w, s->body, body, sizeof(body));
	uint64_t start;
	int n, status;

	(void)expand(w, s->path, path, sizeof(path));
	n = snprintf(request, sizeof(request),
		"%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%.*s", s->method,
		path, n_body > 0 ? "Content-Type: application/json\r\n" : "", n_body, (int)n_body,
		body);
	if (n < 0 || n >= MAX_REQUEST)
		return false;
	w->answer[0] = '\0';
	start = now_ns();
	status = exchange(w, request, (size_t)n);
	*ret_ns = now_ns() - start;
	if (status < 200 || status > 299 || !is_wanted(w, s)) {
		note_error(w, s, status);
		w->errors[s->slot]++;
		return false;
	}
	if (s->save[0] != '-')
		save_id(w, s->save);
	return true;
}

static bool run_marked(struct worker *w, char mark)
{
	uint64_t ns;
	bool ok = true;

	for (unsigned int i = 0; i < n_steps; i++) {
		if (steps[i].label[0] == mark)
			ok = run_step(w, &steps[i], &ns) && ok;
	}
	return ok;
}

static void run_round(struct worker *w, unsigned int round)
{
	for (unsigned int i = 0; i < n_steps; i++) {
		const struct step *s = &steps[i];
		uint64_t ns, *sample = &w->ns[s->slot * rounds + round];

		if (s->label[0] == '@' || s->label[0] == '~')
			continue;
		if (!run_step(w, s, &ns)) {
			*sample = 0;
			return;
		}
		*sample += ns;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	char number[16];
	bool ready;

	var_set(w, "worker", number, (size_t)snprintf(number, sizeof(number), "%u", w->number));
	w->sock = connect_server();
	ready = w->sock >= 0 && run_marked(w, '@');
	(void)pthread_barrier_wait(&barrier);
	for (unsigned int round = 0; ready && round < rounds; round++)
		run_round(w, round);
	(void)pthread_barrier_wait(&barrier);
	if (w->sock >= 0) {
		(void)run_marked(w, '~');
		(void)close(w->sock);
	} else {
		(void)snprintf(
			w->first_error, sizeof(w->first_error), "connect: %s", strerror(errno));
	}
	return NULL;
}

static void print_text(const char *s)
{
	putchar('"');
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		putchar((unsigned char)*s < 0x20 ? ' ' : *s);
	}
	putchar('"');
}

static void print_result(const struct worker *workers, uint64_t wall_ns)
{
	const char *sep = "";

	printf("{\"wall_ns\":%" PRIu64 ",\"steps\":{", wall_ns);
	for (unsigned int l = 0; l < n_labels; l++) {
		unsigned int errors = 0;
		const char *comma = "";

		printf("%s\"%s\":{\"ns\":[", l > 0 ? "," : "", labels[l]);
		for (unsigned int c = 0; c < connections; c++) {
			errors += workers[c].errors[l];
			for (unsigned int r = 0; r < rounds; r++) {
				uint64_t ns = workers[c].ns[l * rounds + r];

				if (ns != 0 && labels[l][0] != '-') {
					printf("%s%" PRIu64, comma, ns);
					comma = ",";
				}
			}
		}
		printf("],\"errors\":%u}", errors);
	}
	printf("},\"errors\":[");
	for (unsigned int c = 0; c < connections; c++) {
		if (workers[c].first_error[0] != '\0') {
			printf("%s", sep);
			print_text(workers[c].first_error);
			sep = ",";
		}
	}
	printf("]}\n");
}

static void parse_steps(char **argv)
{
	for (unsigned int i = 0; i < n_steps; i++, argv += STEP_ARGS) {
		struct step *s = &steps[i];

		*s = (struct step){ argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], 0 };
		while (s->slot < n_labels && strcmp(labels[s->slot], s->label) != 0)
			s->slot++;
		if (s->slot == n_labels)
			labels[n_labels++] = s->label;
	}
}

int main(int argc, char **argv)
{
	struct worker *workers;
	uint64_t start;

	if (argc < 4 + STEP_ARGS || (argc - 4) % STEP_ARGS != 0 ||
		(argc - 4) / STEP_ARGS > MAX_STEPS) {
		fprintf(stderr,
			"usage: apibench SOCKET CONNECTIONS ROUNDS {LABEL METHOD PATH BODY SAVE WANT}...\n");
		return 2;
	}
	socket_path = argv[1];
	connections = (unsigned int)strtoul(argv[2], NULL, 10);
	rounds = (unsigned int)strtoul(argv[3], NULL, 10);
	n_steps = (unsigned int)(argc - 4) / STEP_ARGS;
	parse_steps(argv + 4);
	workers = calloc(connections, sizeof(*workers));
	if (workers == NULL || connections == 0 || rounds == 0 ||
		pthread_barrier_init(&barrier, NULL, connections + 1) != 0)
		return 1;
	for (unsigned int i = 0; i < connections; i++) {
		pthread_attr_t attr;

		workers[i].number = i;
		workers[i].ns = calloc((size_t)n_labels * rounds, sizeof(uint64_t));
		workers[i].answer =
			malloc(MAX_ANSWER); /* touched only as far as answers are long */
		if (workers[i].ns == NULL || workers[i].answer == NULL ||
			pthread_attr_init(&attr) != 0 ||
			pthread_attr_setstacksize(&attr, 256U << 10) != 0 ||
			pthread_create(&workers[i].thread, &attr, work, &workers[i]) != 0)
			return 1;
	}
	(void)pthread_barrier_wait(&barrier);
	start = now_ns();
	(void)pthread_barrier_wait(&barrier);
	start = now_ns() - start;
	for (unsigned int i = 0; i < connections; i++)
		(void)pthread_join(workers[i].thread, NULL);
	print_result(workers, start);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/cli.h"
#include "base/clock.h"
#include "base/str.h"
#include "prog/cay/cli_member.h"

#include <stdarg.h>
#include <sys/socket.h>

#define SERVERS_MAX 20         /* that end under one request */
#define TARGET_MAX  (1U << 20) /* an argument has 128 KiB at most, and each byte of it three */

static int unwritten; /* -errno: why something of what was printed in passing is not there */

void cli_fini(struct cli *cli)
{
	json_decref(TAKE_PTR(cli->error));
	json_decref(TAKE_PTR(cli->beside));
	if (cli->http_ready)
		http_client_fini(&cli->http);
}

int cli_lost(struct cli *cli, int rc)
{
	switch (rc) {
	case -ECONNRESET:
	case -EPIPE:
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_UNAVAILABLE, "the server closed the connection"),
			"see the log of cayd; sandboxes that run go on and are taken over by the next one");
	case -EBADMSG:
		return err_raise(&cli->err, ERR_CORRUPT,
			"what answers on '%s' does not speak as cayd does", cli->http.path);
	case -EMSGSIZE:
		return err_raise(&cli->err, ERR_TOO_LARGE, "the answer of the server is too large");
	default:
		return err_raise_sys(&cli->err, rc, "talk to the server at '%s'", cli->http.path);
	}
}

/* Where anybody may have made the directory (/tmp) who answers has to be ours: else secrets and files would go to another user. */
static int check_peer(struct cli *cli)
{
	cleanup_free char *shared = str_dupf("/tmp/cay-%u/cayd.sock", geteuid());
	struct ucred peer = { .uid = (uid_t)-1 };
	socklen_t n = sizeof(peer);

	if (!str_eq(cli->http.path, shared) ||
		(getsockopt(cli->http.fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
			peer.uid == geteuid()))
		return 0;
	http_client_close(&cli->http);
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_DENIED,
			"what answers at '%s' belongs to user %u, not to you", cli->http.path,
			peer.uid),
		"set XDG_RUNTIME_DIR, or CAY_RUN to a directory of your own");
}

int cli_connect_only(struct cli *cli)
{
	int rc;

	if (!cli->http_ready) {
		cleanup_free char *path = cli_socket_path();

		http_client_init(&cli->http, path);
		cli->http_ready = true;
	}
	rc = http_client_connect(&cli->http);
	if (rc == -EACCES || rc == -EPERM)
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_DENIED, "the API socket '%s' is not yours",
				cli->http.path),
			"CAY_RUN or CAY_SOCKET selects another server");
	if (rc < 0)
		(void)err_raise(&cli->err, ERR_UNAVAILABLE, "no server at '%s': %s", cli->http.path,
			strerrordesc_np(-rc));
	return rc < 0 ? rc : check_peer(cli);
}

void cli_connect_early(struct cli *cli)
{
	if (cli_connect_only(cli) < 0)
		cli->err = (struct err){ 0 };
}

void cli_leave(int status)
{
	(void)fflush(NULL);
	_exit(status);
}

int cli_connect(struct cli *cli)
{
	int rc = cli_connect_only(cli);

	/* the one that was started for us may be told to end at once, by somebody else: then the next one */
	for (int i = 0; i < SERVERS_MAX && (rc == -ENOENT || rc == -ECONNREFUSED); i++) {
		struct err why = { 0 };
		int started;

		cli_progress(cli, NULL);
		started = cli_start_server(&why);
		rc = cli_connect_only(cli);
		if (rc < 0 && started < 0) {
			cli->unstarted = true;
			cli->err = why; /* why ours failed is the better reason */
			return started == -EAGAIN ? rc : started;
		}
	}
	return rc;
}

void cli_progress(struct cli *cli, const char *text)
{
	static bool shown;
	struct buf line = BUF_INIT(1024);

	if (!cli->talk || (text == NULL && !shown))
		return;
	buf_str(&line, "\r\033[K");
	if (text != NULL)
		text_escape(&line, text);
	(void)!write(STDERR_FILENO, line.p, line.n);
	shown = text != NULL;
	buf_free(&line);
}

/* Waits for the head of the answer, telling so after each second. */
static int wait_head(struct cli *cli)
{
	uint64_t begin = clock_now_ns();
	int rc;

	while ((rc = http_client_response(&cli->http, 1000)) == -ETIMEDOUT) {
		cleanup_free char *line = str_dupf("%s … %llu s",
			cli->doing != NULL ? cli->doing : "waiting for the server",
			(unsigned long long)((clock_now_ns() - begin) / NS_PER_S));

		cli_progress(cli, line);
	}
	cli_progress(cli, NULL);
	return rc;
}

int cli_fail_api(struct cli *cli, json_t *error)
{
	const char *hint = cli_string(error, "hint", ""),
		   *message = cli_string(error, "message", "the server gave no reason");
	enum err_code code = err_code_parse(cli_string(error, "code", "internal"));
	struct buf said = BUF_INIT(8192);
	bool ours = cli_member_explain(&cli->args, cli_string(error, "member", ""), message, &said);
	int rc = err_raise(&cli->err, code, "%s", ours ? buf_cstr(&said) : message);

	buf_free(&said);
	json_decref(cli->error);
	cli->error = json_copy(error);
	if (ours)
		(void)json_object_set_new(cli->error, "message", json_string(cli->err.msg));
	if (*hint != '\0')
		(void)err_hint(&cli->err, rc, "%s", hint);
	return rc;
}

void cli_forgive(struct cli *cli)
{
	json_decref(TAKE_PTR(cli->error));
	json_decref(TAKE_PTR(cli->beside));
	cli->err = (struct err){ 0 };
}

int cli_answered(struct cli *cli)
{
	struct buf body = BUF_INIT(1U << 20);
	cleanup_json json_t *answer = NULL;
	json_t *error;
	int rc = wait_head(cli), status = cli->http.response.status;

	if (rc < 0)
		return cli_lost(cli, rc);
	if (status < 400)
		return status;
	rc = http_client_body_all(&cli->http, &body);
	if (rc == 0)
		answer = json_loadb(buf_cstr(&body), body.n, 0, NULL);
	buf_free(&body);
	error = json_object_get(answer, "error");
	if (!json_is_object(error))
		return err_raise(&cli->err, ERR_INTERNAL,
			"the server answered %d and gave no reason", status);
	rc = cli_fail_api(cli, error);
	(void)json_object_del(answer, "error");
	json_decref(cli->beside);
	cli->beside = TAKE_PTR(answer);
	return rc;
}

static int send_once(struct cli *cli, const char *method, const char *target, const char *headers,
	const char *text)
{
	bool fresh;
	int rc;

	for (int attempt = 0;; attempt++) {
		fresh = !cli->http_ready || cli->http.fd < 0;
		rc = cli_connect(cli);
		if (rc < 0)
			return rc;
		rc = http_client_request(&cli->http, method, target, headers,
			text != NULL ? "application/json" : NULL, text,
			text != NULL ? strlen(text) : 0);
		/* A kept connection may have been closed meanwhile; a fresh one has an answer for us even when it is closed. */
		if (rc == 0 || fresh || attempt > 0)
			break;
		fd_close(&cli->http.fd);
	}
	if (rc < 0 && rc != -EPIPE)
		return cli_lost(cli, rc);
	return cli_answered(cli);
}

/* Was nothing done because the server ends? With @again also: did it go away without an answer? */
static bool server_ended(const struct cli *cli, bool again)
{
	return cli->err.code == ERR_SHUTTING_DOWN ||
	       (again && cli->err.code == ERR_UNAVAILABLE && cli->error == NULL && !cli->unstarted);
}

static int send_to_some_server(struct cli *cli, const char *method, const char *target,
	const char *headers, const json_t *body, bool again)
{
	cleanup_free char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
	int rc;

	if (body != NULL && text == NULL)
		return err_raise(&cli->err, ERR_INVALID, "an argument is not valid UTF-8");
	for (int i = 0;; i++) {
		cli_forgive(cli); /* what an earlier request was refused for */
		rc = send_once(cli, method, target, headers, text);
		if (rc >= 0 || i >= SERVERS_MAX || !server_ended(cli, again))
			return rc;
		http_client_close(&cli->http);
	}
}

int cli_send(struct cli *cli, const char *method, const char *target, const char *headers,
	const json_t *body)
{
	return send_to_some_server(cli, method, target, headers, body, str_eq(method, "GET"));
}

int cli_send_again(struct cli *cli, const char *method, const char *target, const char *headers,
	const json_t *body)
{
	return send_to_some_server(cli, method, target, headers, body, true);
}

/* The JSON answer whose head has come. */
static int read_answer(struct cli *cli, json_t **ret)
{
	struct buf text = BUF_INIT(ANSWER_MAX);
	int rc = http_client_body_all(&cli->http, &text);
	json_t *answer = NULL;

	if (rc == 0)
		answer = text.n == 0 ? json_null()
				     : json_loadb(text.p, text.n, JSON_DECODE_ANY, NULL);
	buf_free(&text);
	if (rc < 0)
		return cli_lost(cli, rc);
	if (answer == NULL)
		return cli_lost(cli, -EBADMSG);
	if (ret != NULL)
		*ret = answer;
	else
		json_decref(answer);
	return 0;
}

int cli_call(
	struct cli *cli, const char *method, const char *target, const json_t *body, json_t **ret)
{
	int rc = cli_send(cli, method, target, NULL, body);

	return rc < 0 ? rc : read_answer(cli, ret);
}

char *cli_key_header(struct cli *cli, const char *key)
{
	if (*key != '\0' && key[strcspn(key, "\r\n")] == '\0')
		return str_dupf("Idempotency-Key: %s\r\n", key);
	(void)err_raise(&cli->err, ERR_USAGE, "--idempotency-key: a line of text is wanted");
	return NULL;
}

int cli_call_keyed(
	struct cli *cli, const char *method, const char *target, const json_t *body, json_t **ret)
{
	const char *key = cli_args_value(&cli->args, FLAG_IDEMPOTENCY_KEY);
	cleanup_free char *header = NULL;
	int rc;

	if (key == NULL)
		return cli_call(cli, method, target, body, ret);
	header = cli_key_header(cli, key);
	rc = header != NULL ? cli_send_again(cli, method, target, header, body) : -EINVAL;
	return rc < 0 ? rc : read_answer(cli, ret);
}

int cli_get(struct cli *cli, const char *target, json_t **ret)
{
	return cli_call(cli, "GET", target, NULL, ret);
}

char *cli_target(const char *fmt, ...)
{
	struct buf out = BUF_INIT(TARGET_MAX);
	va_list ap;
	char *text;

	va_start(ap, fmt);
	for (const char *p = fmt; *p != '\0'; p++) {
		struct buf part = BUF_INIT(TARGET_MAX);

		if (p[0] != '%' || p[1] != 's') {
			buf_char(&out, *p);
			p += p[0] == '%' && p[1] == '%';
			continue;
		}
		http_target_escape(&part, va_arg(ap, const char *));
		/* A slash inside an argument is data. */
		for (size_t i = 0; i < part.n; i++) {
			if (part.p[i] == '/')
				buf_str(&out, "%2F");
			else
				buf_char(&out, part.p[i]);
		}
		buf_free(&part);
		p++;
	}
	va_end(ap);
	text = buf_take(&out);
	if (text == NULL)
		abort(); /* arguments are shorter */
	return text;
}

int cli_write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno != EINTR)
			return -errno;
		if (k > 0) {
			p += k;
			n -= (size_t)k;
		}
	}
	return 0;
}

int cli_print(struct cli *cli, struct buf *out)
{
	int rc = cli_write_all(STDOUT_FILENO, buf_cstr(out), out->n);

	buf_free(out);
	return rc < 0 ? err_raise_sys(&cli->err, rc, "write to standard output") : 0;
}

/* What has no error to fill: cli_written() asks later. */
static void print_noting(const char *p, size_t n)
{
	int rc = cli_write_all(STDOUT_FILENO, p, n);

	if (rc < 0 && rc != -EPIPE && unwritten == 0)
		unwritten = rc;
}

void cli_put_json(struct buf *out, const char *text, bool watched)
{
	if (watched)
		text_escape_json(out, text);
	else
		buf_str(out, text);
}

int cli_print_json(const json_t *object)
{
	cleanup_free char *text = json_dumps(object, JSON_INDENT(2) | JSON_ENCODE_ANY);
	struct buf out = BUF_INIT(ANSWER_MAX);

	if (text != NULL) {
		cli_put_json(&out, text, isatty(STDOUT_FILENO));
		buf_char(&out, '\n');
		print_noting(buf_cstr(&out), out.n);
	}
	buf_free(&out);
	return 0;
}

int cli_written(struct cli *cli, int rc)
{
	if (rc < 0 || unwritten == 0)
		return rc;
	return err_raise_sys(&cli->err, unwritten, "write to standard output");
}

static void error_json(struct cli *cli, struct buf *out)
{
	cleanup_json json_t *error =
		cli->error != NULL ? json_incref(cli->error)
				   : json_pack("{s:s, s:s, s:s, s:i}", "code",
					     err_code_name(cli->err.code), "message", cli->err.msg,
					     "hint", cli->err.hint, "errno", cli->err.sys);
	cleanup_json json_t *whole = json_pack("{s:O}", "error", error);
	int rc = cli->error != NULL && cli->beside != NULL ? json_object_update(whole, cli->beside)
							   : 0;
	cleanup_free char *text = rc == 0 && whole != NULL ? json_dumps(whole, JSON_COMPACT) : NULL;

	cli_put_json(out,
		text != NULL ? text : "{\"error\":{\"code\":\"internal\",\"message\":\"\"}}",
		cli->talk);
	buf_char(out, '\n');
}

int cli_print_error(struct cli *cli)
{
	struct buf out = BUF_INIT(64U << 20);

	cli_progress(cli, NULL);
	if (cli->json) {
		error_json(cli, &out);
	} else {
		buf_str(&out, cli->talk_colour ? "\033[31mcay:\033[0m " : "cay: ");
		text_escape(&out, cli->err.msg);
		if (cli->err.hint[0] != '\0') {
			buf_str(&out, cli->talk_colour ? "\n\033[2mhint:\033[0m " : "\nhint: ");
			text_escape(&out, cli->err.hint);
		}
		buf_char(&out, '\n');
	}
	(void)cli_write_all(STDERR_FILENO, buf_cstr(&out), out.n);
	buf_free(&out);
	return err_code_exit(cli->err.code);
}

int cli_each(struct cli *cli, int (*one)(struct cli *cli, const char *name, void *ctx), void *ctx)
{
	int status = 0;

	for (size_t i = 0; i < cli->args.n_positional; i++) {
		bool answered;
		int failed;

		if (one(cli, cli->args.positional[i], ctx) >= 0)
			continue;
		answered = cli->error != NULL;
		failed = cli_print_error(cli);
		status = status != 0 ? status : failed;
		cli_forgive(cli);
		if (!answered)
			break;
	}
	return status;
}

struct removal {
	const char *kind;
	json_t *removed;
};

static int remove_one(struct cli *cli, const char *name, void *ctx)
{
	const struct removal *removal = ctx;
	cleanup_free char *target = cli_target("/v1/%s/%s", removal->kind, name);
	int rc = cli_call(cli, "DELETE", target, NULL, NULL);

	return rc < 0 ? rc : json_array_append_new(removal->removed, json_string(name));
}

int cli_remove_each(struct cli *cli, const char *kind)
{
	cleanup_json json_t *answer = json_pack("{s:[]}", "removed");
	struct removal removal = { kind, json_object_get(answer, "removed") };
	int status = cli_each(cli, remove_one, &removal);

	if (cli->json && json_array_size(removal.removed) > 0)
		(void)cli_print_json(answer);
	return status;
}

const char *cli_string(const json_t *object, const char *member, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(object, member));

	return s != NULL ? s : otherwise;
}

int cli_refuse_value(struct cli *cli, enum cli_flag flag, const char *value, const char *why)
{
	return err_raise(&cli->err, ERR_USAGE, "--%s '%s': %s", cli_flags[flag].name, value, why);
}

uint64_t cli_number(const json_t *object, const char *member)
{
	json_int_t n = json_integer_value(json_object_get(object, member));

	return n > 0 ? (uint64_t)n : 0;
}

void cli_paint(const struct cli *cli, struct buf *out, const char *colour)
{
	if (cli->colour)
		buf_fmt(out, "\033[%sm", colour);
}

/* A fork has the labels of what it was made from, and is no run. */
static const char *last_run_in(const json_t *list)
{
	for (size_t n = json_array_size(list); n > 0; n--) {
		const json_t *one = json_array_get(list, n - 1);

		if (!json_is_string(json_object_get(one, "parent")))
			return cli_string(one, "name", "");
	}
	return NULL;
}

int cli_no_cwd(struct cli *cli, const char *hint)
{
	cleanup_free char *cwd = getcwd(NULL, 0);

	if (cwd == NULL && (errno == ENAMETOOLONG || errno == ERANGE))
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_TOO_LARGE,
				"the current directory's path is longer than the kernel tells"),
			"%s", hint);
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_NOT_FOUND, "the current directory is gone"), "%s", hint);
}

int cli_last_run(struct cli *cli, char **ret)
{
	cleanup_free char *cwd = getcwd(NULL, 0), *target = NULL;
	cleanup_json json_t *answer = NULL;
	const char *name;
	int rc;

	if (cwd == NULL)
		return cli_no_cwd(cli, "name a sandbox; cay ps -a lists them");
	if (!str_utf8_valid(cwd, strlen(cwd)))
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_INVALID,
				"the current directory's name is not valid UTF-8"),
			"name a sandbox; cay ps -a lists them");
	if (strlen(cwd) > LAST_RUN_CWD_MAX)
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_TOO_LARGE,
				"the current directory's name is too long to find its runs by"),
			"name a sandbox; cay ps -a lists them");
	target = cli_target("/v1/sandboxes?state=stopped&label=cay.run.cwd%%3D%s", cwd);
	rc = cli_get(cli, target, &answer);
	if (rc < 0)
		return rc;
	name = last_run_in(json_object_get(answer, "sandboxes"));
	if (name == NULL)
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_NOT_FOUND, "no run of '%s' was kept", cwd),
			"name a sandbox; cay ps -a lists them");
	*ret = str_dup(name);
	return 0;
}

int cli_name(struct cli *cli, char **ret)
{
	if (cli->args.n_positional == 0)
		return cli_last_run(cli, ret);
	*ret = str_dup(cli->args.positional[0]);
	return 0;
}

bool cli_names_step(const char *name)
{
	return strchr(name, '@') != NULL;
}

void cli_warn_of(const json_t *object)
{
	const json_t *databases = json_object_get(object, "databases"), *one;
	struct buf out = BUF_INIT(65536);
	size_t i;

	if (json_array_size(databases) == 0)
		return;
	buf_str(&out, "cay: warning: programs in '");
	text_escape(&out, cli_string(object, "name", ""));
	buf_str(&out, "' have SQLite databases open (");
	json_array_foreach ((json_t *)(uintptr_t)databases, i, one) {
		buf_str(&out, i > 0 ? ", " : "");
		text_escape(&out, json_string_value(one));
	}
	buf_str(&out,
		"): a connection that one of them opens from now on does not see the locks of those that it has; have it close and open them anew (docs/live-fork.md)\n");
	(void)!write(STDERR_FILENO, out.p, out.n);
	buf_free(&out);
}

int cli_print_named(struct cli *cli, const json_t *object)
{
	if (cli->json)
		return cli_print_json(object);
	cli_warn_of(object);
	cli_print_word(cli_string(object, "name", ""));
	return 0;
}

void cli_print_word(const char *s)
{
	struct buf out = BUF_INIT(65536);

	text_escape(&out, s);
	buf_char(&out, '\n');
	print_noting(buf_cstr(&out), out.n);
	buf_free(&out);
}

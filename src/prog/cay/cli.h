/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay/cli.h - what every command works with: its arguments, the connection to the server, the way to fail and to print.
 *
 * A command returns the exit status of the process, or a negative errno with @err filled, which main() prints.
 */
#ifndef CAY_PROG_CLI_H
#define CAY_PROG_CLI_H

#include "base/buf.h"
#include "base/err.h"
#include "io/unix_http_client.h"
#include "prog/cay/cli_args.h"
#include "prog/cay/text.h"

#include <jansson.h>

#define ANSWER_MAX (256U << 20)

static inline void cleanup_json(json_t **j)
{
	json_decref(*j);
}

#define cleanup_json cleanup(cleanup_json)

struct cli {
	const char *build; /* of which sources we are: tools/build_id.py; static */
	struct cli_args args;
	struct http_client http;
	bool http_ready; /* @http is initialised */
	bool unstarted;  /* no server runs and none could be started: there is no other to ask */
	struct err err;
	json_t *error;     /* the error object as the API sent it; NULL when the error is ours */
	json_t *beside;    /* what it sent with it (conflicts of an apply), or NULL */
	const char *doing; /* what the progress line says */
	bool json;         /* --json */
	bool watched;      /* standard output is a terminal */
	bool talk;         /* standard error is a terminal */
	bool colour, talk_colour; /* they are, and colours are wanted there */
};

/** cli_fini() - close and free. */
void cli_fini(struct cli *cli);

/** cli_connect() - be connected to the server, which is started when none runs. Return: 0 or negative with @cli->err filled. */
int cli_connect(struct cli *cli) attr_must_use;

/** cli_connect_early() - connect now if a server runs, so that it accepts while we say what we want; who finds nobody there, or somebody who goes, connects again later. */
void cli_connect_early(struct cli *cli);

/** cli_leave() - ends the program with exit status @status: what was allocated goes with it, and giving it back piece by piece would take longer than all else behind a short command. */
_Noreturn void cli_leave(int status);

/** cli_connect_only() - the same without starting anything. */
int cli_connect_only(struct cli *cli) attr_must_use;

/**
 * cli_send() - send a request and wait for the head of its answer; a failure that the API reports becomes @cli->err.
 * @headers: further lines with CRLF, or NULL. @body: JSON, borrowed; NULL for none.
 *
 * A server that ends meanwhile is waited for, and the next one asked, where that is safe.
 * Shows a progress line after a second when standard error is a terminal.
 * Return: HTTP status (2xx or 101), or negative with @cli->err filled.
 */
int cli_send(struct cli *cli, const char *method, const char *target, const char *headers,
	const json_t *body) attr_must_use;

/** cli_send_again() - the same for a request that may be sent twice, because it has a key: it is when the server goes away without an answer. */
int cli_send_again(struct cli *cli, const char *method, const char *target, const char *headers,
	const json_t *body) attr_must_use;

/** cli_answered() - wait for the head of an answer to what was sent by hand. Return as cli_send(). */
int cli_answered(struct cli *cli) attr_must_use;

/** cli_lost() - @rc of the connection as an error of the user's. Return: @rc. */
int cli_lost(struct cli *cli, int rc);

/** cli_call() - cli_send() and read the JSON answer. @ret: owned by the caller; NULL allowed; JSON null for an empty answer. */
int cli_call(struct cli *cli, const char *method, const char *target, const json_t *body,
	json_t **ret) attr_must_use;

/** cli_key_header() - the header line for idempotency key @key; owned by the caller. NULL with @cli->err filled: it is no line of text. */
char *cli_key_header(struct cli *cli, const char *key);

/** cli_call_keyed() - cli_call() with the key of --idempotency-key, if that was given: then it is sent again when the server goes away without an answer. */
int cli_call_keyed(struct cli *cli, const char *method, const char *target, const json_t *body,
	json_t **ret) attr_must_use;

/** cli_get() - GET an object. */
int cli_get(struct cli *cli, const char *target, json_t **ret) attr_must_use;

/** cli_fail_api() - make @cli->err from an API error object (borrowed). Return: a negative errno. */
int cli_fail_api(struct cli *cli, json_t *error);

/** cli_forgive() - the last error was no error: what was asked for may be missing. */
void cli_forgive(struct cli *cli);

/** cli_target() - a request target: @fmt with %s, each argument percent-encoded as one segment. Free with free(). */
char *cli_target(const char *fmt, ...) attr_printf(1, 2) attr_must_use;

/** cli_put_json() - append the JSON text @text as it is, or, where a terminal shows it (@watched), so that nothing in it moves its cursor. */
void cli_put_json(struct buf *out, const char *text, bool watched);

/** cli_print_json() - the object and a newline on standard output; cli_written() tells whether they are there. Return: 0. */
int cli_print_json(const json_t *object);

/** cli_write_all() - write all bytes. Return: 0 or -errno. */
int cli_write_all(int fd, const char *p, size_t n);

/** cli_print() - write the text to standard output and free it. Return: 0, or negative with @cli->err filled. */
int cli_print(struct cli *cli, struct buf *out);

/** cli_print_word() - a name on a line of standard output, escaped; cli_written() tells whether it is there. */
void cli_print_word(const char *s);

/** cli_written() - behind all that was printed. Return: @rc; where standard output did not take something, negative with @cli->err filled, unless @rc is negative already. */
int cli_written(struct cli *cli, int rc) attr_must_use;

/** cli_names_step() - is @name one of a step (NAME@STEP), which no sandbox has: what was not found is its snapshot? */
bool cli_names_step(const char *name);

/** cli_warn_of() - say on standard error what whoever has forked, rewound or resumed sandbox @object must know of it: databases that its programs have to open anew. */
void cli_warn_of(const json_t *object);

/** cli_print_named() - @object as JSON when that was asked for, else its name and what there is to warn of. Return: 0, or negative with @cli->err filled. */
int cli_print_named(struct cli *cli, const json_t *object);

/** cli_print_error() - @cli->err on standard error. Return: the exit status that belongs to it. */
int cli_print_error(struct cli *cli);

/**
 * cli_each() - @one for each positional argument; what fails is told, and the next has its turn, unless there is no server.
 * @one: 0, or negative with @cli->err filled.
 * Return: 0, or the exit status of the first that failed.
 */
int cli_each(struct cli *cli, int (*one)(struct cli *cli, const char *name, void *ctx), void *ctx);

/** cli_remove_each() - DELETE /v1/@kind/NAME for each positional argument, as cli_each(); with --json it prints which are gone. Return: as cli_each(). */
int cli_remove_each(struct cli *cli, const char *kind);

/** cli_no_cwd() - fail because getcwd() failed: the directory is gone, or lies too deep. @hint: what to do. Return: negative. */
int cli_no_cwd(struct cli *cli, const char *hint) attr_must_use;

/** cli_progress() - show or (NULL) clear the progress line. */
void cli_progress(struct cli *cli, const char *text);

#define LAST_RUN_CWD_MAX \
	255 /* a label's longest value: runs of directories with longer names are found by their own names alone */

/** cli_last_run() - the name of this directory's last kept run. Return: 0 and the name (free()), or negative. */
int cli_last_run(struct cli *cli, char **ret) attr_must_use;

/** cli_name() - the first positional argument, or this directory's last kept run. Free with free(). */
int cli_name(struct cli *cli, char **ret) attr_must_use;

/** cli_refuse_value() - @value of @flag is no good, @why ("a number is wanted"). Return: negative, %ERR_USAGE. */
int cli_refuse_value(struct cli *cli, enum cli_flag flag, const char *value, const char *why);

/** cli_other_build() - is the server that gave @answer (of GET /v1/version or /v1/doctor) of other sources than we are? One that does not say is. */
bool cli_other_build(const struct cli *cli, const json_t *answer);

/** cli_string() - a member of @object as text; @otherwise when it is missing or no string. Borrowed. */
const char *cli_string(const json_t *object, const char *member, const char *otherwise);

/** cli_number() - a member of @object as a number; 0 when missing. */
uint64_t cli_number(const json_t *object, const char *member);

/** cli_paint() - a colour escape ("31", "1", "0") when colours are on; "" otherwise. Static per call site's literal. */
void cli_paint(const struct cli *cli, struct buf *out, const char *colour);

/** cli_socket_path() - where the API socket is: CAY_SOCKET, CAY_RUN, or the default. Free with free(). */
char *cli_socket_path(void) attr_must_use;

/**
 * cli_start_server() - start cayd in the background and wait until it says that it accepts.
 * Return: 0 when it ended well (or says that one runs already), or negative with @err filled.
 */
int cli_start_server(struct err *err) attr_must_use;

#define CLI_SCOPE_MAX 9

/**
 * cli_server_scope() - the words before the command line of an ordinary user's server that get it a control group of its own, without which sandboxes have no limits.
 * Return: how many of @argv are filled; 0 where no systemd manages this user, or no limits were said to be fine.
 */
size_t cli_server_scope(const char *argv[CLI_SCOPE_MAX]);

/** cli_program() - path of a program of ours: beside this executable or where the others are installed (CAY_PROGRAM_DIR). Return: 0 and the path (free()), or -ENOENT. */
int cli_program(const char *name, char **ret) attr_must_use;

#endif

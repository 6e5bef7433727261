/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/listing.h"

#include <signal.h>
#include <termios.h>

#define VALUE_MAX 8192

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

/* Who ends us while nothing is shown of what is typed does so when the terminal is as before. What is ignored stays so. */
static void catch_signals(bool on)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	static struct sigaction before[ARRAY_SIZE(signals)];
	const struct sigaction action = { .sa_handler = on_signal };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		if (on)
			(void)sigaction(signals[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN)
			(void)sigaction(signals[i], on ? &action : &before[i], NULL);
	}
	if (!on && caught != 0)
		(void)raise(caught);
}

/* A value comes on standard input only: arguments and variables of processes can be seen by others. */
static int read_value(struct cli *cli, const char *name, char value[VALUE_MAX])
{
	struct termios before, silent;
	bool terminal = tcgetattr(STDIN_FILENO, &before) == 0;
	size_t n = 0;
	ssize_t got = 0;

	if (terminal) {
		silent = before;
		silent.c_lflag &= ~(tcflag_t)ECHO;
		catch_signals(true);
		/* before the prompt: what is typed (or pasted) at once must neither show nor be lost */
		(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
		(void)fprintf(stderr, "value of %s: ", name);
	}
	while (n < VALUE_MAX - 1 && (got = read(STDIN_FILENO, value + n, VALUE_MAX - 1 - n)) > 0) {
		n += (size_t)got;
		if (terminal && value[n - 1] == '\n')
			break;
	}
	if (terminal) {
		(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
		catch_signals(false);
		(void)fputc('\n', stderr);
	}
	if (got < 0)
		return err_raise_sys(&cli->err, -errno, "read standard input");
	if (n == VALUE_MAX - 1)
		return err_raise(&cli->err, ERR_TOO_LARGE, "the value is too long");
	while (n > 0 && (value[n - 1] == '\n' || value[n - 1] == '\r'))
		n--;
	if (memchr(value, '\0', n) != NULL)
		return err_raise(
			&cli->err, ERR_INVALID, "the value of secret '%s' is no text", name);
	if (n == 0)
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_INVALID,
				"no value for secret '%s' came on standard input", name),
			"cay secret set %s <FILE", name);
	value[n] = '\0';
	return 0;
}

int cmd_secret_set(struct cli *cli)
{
	const char *name = cli->args.positional[0];
	cleanup_free char *target = cli_target("/v1/secrets/%s", name);
	cleanup_json json_t *body = NULL, *answer = NULL;
	char value[VALUE_MAX];
	int rc = read_value(cli, name, value);

	if (rc < 0)
		return rc;
	body = json_pack("{s:s}", "value", value);
	explicit_bzero(value, sizeof(value));
	if (body == NULL)
		return err_raise(
			&cli->err, ERR_INVALID, "the value of secret '%s' is no text", name);
	rc = cli_call(cli, "PUT", target, body, &answer);
	return rc == 0 && cli->json ? cli_print_json(answer) : rc;
}

static void put_secret(struct table *t, const json_t *secret, int64_t now_s)
{
	struct buf cell = BUF_INIT(4096);

	table_cell(t, cli_string(secret, "name", "?"));
	buf_fmt(&cell, "%llu", (unsigned long long)cli_number(secret, "version"));
	table_buf(t, &cell);
	text_age(&cell, cli_string(secret, "updated", ""), now_s);
	table_buf(t, &cell);
	buf_free(&cell);
}

int cmd_secret_ls(struct cli *cli)
{
	static const struct listing secrets = { "secrets", "NAME|>VERSION|>SET", put_secret };

	return listing_show(cli, "/v1/secrets", &secrets);
}

int cmd_secret_rm(struct cli *cli)
{
	return cli_remove_each(cli, "secrets");
}

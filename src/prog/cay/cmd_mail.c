/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/base64.h"
#include "prog/cay/cmd.h"
#include "prog/cay/listing.h"

static void put_mail(struct table *t, const json_t *mail, int64_t now_s)
{
	const json_t *to = json_object_get(mail, "to");
	int64_t more = (int64_t)cli_number(mail, "recipients") - 1;
	struct buf cell = BUF_INIT(65536);

	buf_fmt(&cell, "%llu", (unsigned long long)cli_number(mail, "number"));
	table_buf(t, &cell);
	text_age(&cell, cli_string(mail, "time", ""), now_s);
	table_buf(t, &cell);
	table_cell(t, cli_string(mail, "from", "?"));
	buf_str(&cell, json_array_size(to) > 0 ? json_string_value(json_array_get(to, 0)) : "?");
	if (more > 0)
		buf_fmt(&cell, " and %lld more", (long long)more);
	table_buf(t, &cell);
	buf_str(&cell, cli_string(mail, "subject", "-"));
	if (json_is_true(json_object_get(mail, "undone")))
		buf_str(&cell, "  (undone by a rewind)");
	table_buf(t, &cell);
	buf_free(&cell);
}

int cmd_mail_ls(struct cli *cli)
{
	static const struct listing mails = { "mails", ">#|>AGE|FROM|TO|SUBJECT", put_mail };
	cleanup_free char *target =
		cli_target("/v1/sandboxes/%s/mails?limit=100000", cli->args.positional[0]);

	return listing_show(cli, target, &mails);
}

static void put_line(struct buf *out, const char *name, const char *value)
{
	if (value == NULL)
		return;
	buf_fmt(out, "%s: ", name);
	text_escape(out, value);
	buf_char(out, '\n');
}

/* Text of a mail with its lines as lines; anything else that a terminal would obey is escaped. */
static void put_text(struct buf *out, const char *text)
{
	while (*text != '\0') {
		size_t n = strcspn(text, "\r\n");
		cleanup_free char *line = str_dupf("%.*s", (int)n, text);

		text_escape(out, line);
		buf_char(out, '\n');
		text += n + (text[n] == '\r' && text[n + 1] == '\n');
		text += *text != '\0';
	}
}

/* The message as it came, and nothing else. */
static int print_raw(struct cli *cli, const json_t *mail)
{
	const json_t *text = json_object_get(mail, "raw");
	const char *encoded = cli_string(mail, "raw_base64", NULL);
	struct buf out = BUF_INIT(1U << 20);

	if (json_is_string(text))
		buf_add(&out, json_string_value(text), json_string_length(text));
	else if (encoded == NULL || base64_decode(encoded, strlen(encoded), &out) < 0)
		return err_raise(
			&cli->err, ERR_NOT_FOUND, "of this mail only what was parsed is kept");
	if (json_is_true(json_object_get(mail, "raw_cut")))
		(void)fputs(
			"cay: the mail is longer; this is the part of it that is kept\n", stderr);
	return cli_print(cli, &out);
}

int cmd_mail_show(struct cli *cli)
{
	cleanup_free char *target = cli_target(
		"/v1/sandboxes/%s/mails/%s", cli->args.positional[0], cli->args.positional[1]);
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(16U << 20);
	const json_t *mail;
	json_t *attachment;
	size_t i;
	int rc = cli_get(cli, target, &answer);

	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	mail = json_object_get(answer, "mail");
	if (cli_args_has(&cli->args, FLAG_RAW))
		return print_raw(cli, mail);
	put_line(&out, "From", cli_string(mail, "from", cli_string(answer, "from", NULL)));
	put_line(&out, "To", cli_string(mail, "to", NULL));
	put_line(&out, "Cc", cli_string(mail, "cc", NULL));
	put_line(&out, "Subject", cli_string(mail, "subject", NULL));
	put_line(&out, "Date", cli_string(mail, "date", NULL));
	json_array_foreach (json_object_get(mail, "attachments"), i, attachment) {
		buf_str(&out, "Attached: ");
		text_escape(&out, cli_string(attachment, "name", "?"));
		buf_fmt(&out, " (%llu bytes)\n",
			(unsigned long long)cli_number(attachment, "bytes"));
	}
	buf_char(&out, '\n');
	put_text(&out, cli_string(mail, "text", cli_string(mail, "html", "")));
	return cli_print(cli, &out);
}

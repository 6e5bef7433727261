/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/smtp.h"
#include "base/str.h"

#include <ctype.h>
#include <strings.h>

void smtp_init(struct smtp *s, const char *name, bool tls_offered, bool secured)
{
	*s = (struct smtp){ .name = name,
		.tls_offered = tls_offered && !secured,
		.secured = secured,
		.recipients.max = (size_t)SMTP_RECIPIENTS_MAX * (SMTP_ADDRESS_MAX + 1),
		.line.max = SMTP_LINE_MAX,
		.message.max = SMTP_MESSAGE_MAX };
}

void smtp_fini(struct smtp *s)
{
	buf_free(&s->recipients);
	buf_free(&s->line);
	buf_free(&s->message);
}

static void forget_mail(struct smtp *s)
{
	s->state = SMTP_COMMAND;
	s->has_sender = false;
	s->oversize = s->continued = false;
	*s->sender = '\0';
	s->n_recipients = 0;
	buf_reset(&s->recipients);
	buf_reset(&s->message);
}

void smtp_secured(struct smtp *s)
{
	forget_mail(s);
	buf_reset(&s->line);
	s->secured = true;
	s->tls_offered = false;
	s->greeted = false;
	*s->helo = *s->auth = '\0';
}

static enum smtp_step say(struct buf *out, const char *line)
{
	buf_str(out, line);
	buf_str(out, "\r\n");
	return SMTP_MORE;
}

void smtp_greet(struct smtp *s, struct buf *out)
{
	buf_fmt(out, "220 %s ESMTP\r\n", s->name);
}

static enum smtp_step wrong(struct smtp *s, struct buf *out, const char *line)
{
	(void)say(out, line);
	if (++s->errors < SMTP_ERRORS_MAX)
		return SMTP_MORE;
	(void)say(out, "421 4.7.0 Too many errors");
	return SMTP_QUIT;
}

static enum smtp_step hello(struct smtp *s, const char *arg, bool extended, struct buf *out)
{
	if (*arg == '\0' || strlen(arg) >= sizeof(s->helo))
		return wrong(s, out, "501 5.5.4 A name is needed");
	forget_mail(s);
	s->greeted = true;
	(void)snprintf(s->helo, sizeof(s->helo), "%s", arg);
	if (!extended) {
		buf_fmt(out, "250 %s\r\n", s->name);
		return SMTP_MORE;
	}
	buf_fmt(out,
		"250-%s\r\n250-PIPELINING\r\n250-SIZE %u\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n"
		"250-ENHANCEDSTATUSCODES\r\n%s250 AUTH PLAIN LOGIN\r\n",
		s->name, SMTP_MESSAGE_MAX, s->tls_offered ? "250-STARTTLS\r\n" : "");
	return SMTP_MORE;
}

/* The address in "FROM:<address> PARAMETERS". Return: length of the part up to and with '>', 0 when malformed. */
static size_t address(const char *arg, const char *word, char ret[SMTP_ADDRESS_MAX + 1])
{
	size_t skip = strlen(word);
	const char *open, *close;

	if (strncasecmp(arg, word, skip) != 0)
		return 0;
	open = arg + skip;
	open += strspn(open, " ");
	close = *open == '<' ? strchr(open, '>') : NULL;
	if (close == NULL || (size_t)(close - open) - 1 > SMTP_ADDRESS_MAX)
		return 0;
	memcpy(ret, open + 1, (size_t)(close - open) - 1);
	ret[close - open - 1] = '\0';
	return strpbrk(ret, "<\r\n\t ") == NULL ? (size_t)(close - arg) + 1 : 0;
}

/* A declared size over the limit is refused before a byte of it was sent (RFC 1870). */
static bool too_large(const char *parameters)
{
	const char *size = strcasestr(parameters, " SIZE=");
	uint64_t value;
	char digits[24] = "";

	if (size == NULL)
		return false;
	(void)snprintf(
		digits, sizeof(digits), "%.*s", (int)strspn(size + 6, "0123456789"), size + 6);
	return str_to_u64(digits, 0, SMTP_MESSAGE_MAX, &value) < 0;
}

static enum smtp_step mail_from(struct smtp *s, const char *arg, struct buf *out)
{
	char sender[SMTP_ADDRESS_MAX + 1];
	size_t used = address(arg, "FROM:", sender);

	if (!s->greeted || s->has_sender)
		return wrong(s, out, "503 5.5.1 Not now");
	if (used == 0)
		return wrong(s, out, "501 5.1.7 MAIL FROM:<address> is needed");
	if (too_large(arg + used))
		return wrong(s, out, "552 5.3.4 The message is too large");
	s->has_sender = true;
	(void)snprintf(s->sender, sizeof(s->sender), "%s", sender);
	return say(out, "250 2.1.0 Ok");
}

static enum smtp_step rcpt_to(struct smtp *s, const char *arg, struct buf *out)
{
	char recipient[SMTP_ADDRESS_MAX + 1];

	if (!s->has_sender)
		return wrong(s, out, "503 5.5.1 MAIL FROM comes first");
	if (address(arg, "TO:", recipient) == 0 || *recipient == '\0')
		return wrong(s, out, "501 5.1.3 RCPT TO:<address> is needed");
	if (s->n_recipients == SMTP_RECIPIENTS_MAX)
		return say(out, "452 4.5.3 Too many recipients");
	buf_add(&s->recipients, recipient, strlen(recipient) + 1);
	s->n_recipients++;
	return say(out, "250 2.1.5 Ok");
}

static enum smtp_step data(struct smtp *s, struct buf *out)
{
	if (s->n_recipients == 0)
		return wrong(s, out, "503 5.5.1 RCPT TO comes first");
	s->state = SMTP_DATA;
	return say(out, "354 End with a line that holds only a dot");
}

static enum smtp_step authenticated(struct smtp *s, struct buf *out)
{
	s->state = SMTP_COMMAND;
	return say(out, "235 2.7.0 Accepted");
}

/* Any name and any password will do; they are not kept. */
static enum smtp_step auth(struct smtp *s, const char *arg, struct buf *out)
{
	bool plain = strncasecmp(arg, "PLAIN", 5) == 0 && (arg[5] == '\0' || arg[5] == ' ');
	bool login = strncasecmp(arg, "LOGIN", 5) == 0 && (arg[5] == '\0' || arg[5] == ' ');
	bool initial = (plain || login) && arg[5] == ' ';

	if (!s->greeted || s->has_sender || *s->auth != '\0')
		return wrong(s, out, "503 5.5.1 Not now");
	if (!plain && !login)
		return wrong(s, out, "504 5.5.4 PLAIN or LOGIN");
	(void)snprintf(s->auth, sizeof(s->auth), "%s", plain ? "PLAIN" : "LOGIN");
	if (plain && initial)
		return authenticated(s, out);
	s->state = plain ? SMTP_AUTH_PLAIN : initial ? SMTP_AUTH_PASSWORD : SMTP_AUTH_USER;
	if (plain)
		return say(out, "334 ");
	return say(out, initial ? "334 UGFzc3dvcmQ6" : "334 VXNlcm5hbWU6");
}

static enum smtp_step auth_line(struct smtp *s, const char *line, struct buf *out)
{
	if (str_eq(line, "*")) {
		s->state = SMTP_COMMAND;
		*s->auth = '\0';
		return say(out, "501 5.7.0 Given up");
	}
	if (s->state != SMTP_AUTH_USER)
		return authenticated(s, out);
	s->state = SMTP_AUTH_PASSWORD;
	return say(out, "334 UGFzc3dvcmQ6");
}

static enum smtp_step starttls(struct smtp *s, const char *arg, struct buf *out)
{
	if (!s->tls_offered || *arg != '\0')
		return wrong(s, out, "502 5.5.1 Not here");
	(void)say(out, "220 2.0.0 Ready");
	return SMTP_STARTTLS;
}

static bool is_verb(const char *line, const char *verb, const char **ret_arg)
{
	size_t n = strlen(verb);

	if (strncasecmp(line, verb, n) != 0 || (line[n] != '\0' && line[n] != ' '))
		return false;
	*ret_arg = line + n + strspn(line + n, " ");
	return true;
}

static enum smtp_step command(struct smtp *s, const char *line, struct buf *out)
{
	const char *arg = "";

	if (is_verb(line, "EHLO", &arg) || is_verb(line, "HELO", &arg))
		return hello(s, arg, (line[0] | 0x20) == 'e', out);
	if (is_verb(line, "MAIL", &arg))
		return mail_from(s, arg, out);
	if (is_verb(line, "RCPT", &arg))
		return rcpt_to(s, arg, out);
	if (is_verb(line, "DATA", &arg))
		return data(s, out);
	if (is_verb(line, "AUTH", &arg))
		return auth(s, arg, out);
	if (is_verb(line, "STARTTLS", &arg))
		return starttls(s, arg, out);
	if (is_verb(line, "RSET", &arg)) {
		forget_mail(s);
		return say(out, "250 2.0.0 Ok");
	}
	if (is_verb(line, "NOOP", &arg))
		return say(out, "250 2.0.0 Ok");
	if (is_verb(line, "VRFY", &arg))
		return say(out, "252 2.1.5 Send it and see");
	if (is_verb(line, "QUIT", &arg)) {
		(void)say(out, "221 2.0.0 Bye");
		return SMTP_QUIT;
	}
	return wrong(s, out, "500 5.5.2 No such command");
}

/* A piece of a message's line. A dot at its beginning was put there by the sender (RFC 5321 section 4.5.2). */
static void keep(struct smtp *s, const char *p, size_t n, bool ends)
{
	if (!s->continued && n > 0 && *p == '.') {
		p++;
		n--;
	}
	s->continued = !ends;
	s->oversize = s->oversize || s->message.n + n + 2 > SMTP_MESSAGE_MAX;
	if (s->oversize)
		return;
	buf_add(&s->message, p, n);
	if (ends)
		buf_str(&s->message, "\r\n");
}

static enum smtp_step data_line(struct smtp *s, const char *line, size_t n, struct buf *out)
{
	if (s->continued || n != 1 || *line != '.') {
		keep(s, line, n, true);
		return SMTP_MORE;
	}
	if (!s->oversize)
		return SMTP_MESSAGE;
	forget_mail(s);
	return say(out, "552 5.3.4 The message is too large");
}

static enum smtp_step take_line(struct smtp *s, const char *line, size_t n, struct buf *out)
{
	if (s->state == SMTP_DATA)
		return data_line(s, line, n, out);
	if (memchr(line, '\0', n) != NULL || memchr(line, '\n', n) != NULL ||
		memchr(line, '\r', n) != NULL || !str_utf8_valid(line, n))
		return wrong(s, out, "500 5.5.2 Lines are UTF-8 and end with CR LF");
	return s->state == SMTP_COMMAND ? command(s, line, out) : auth_line(s, line, out);
}

/* No room is left for the line: a message's goes on in a new piece, but for a CR that may belong to its end. */
static enum smtp_step long_line(struct smtp *s, struct buf *out)
{
	bool held = s->line.p[s->line.n - 1] == '\r';

	if (s->state != SMTP_DATA) {
		(void)say(out, "500 5.5.2 The line is too long");
		return SMTP_QUIT;
	}
	keep(s, s->line.p, s->line.n - held, false);
	buf_reset(&s->line);
	if (held)
		buf_char(&s->line, '\r');
	return SMTP_MORE;
}

static enum smtp_step whole_line(struct smtp *s, struct buf *out)
{
	size_t n = s->line.n - 2;
	enum smtp_step step;

	s->line.p[n] = '\0';
	step = take_line(s, s->line.p, n, out);
	buf_reset(&s->line);
	return step;
}

enum smtp_step smtp_feed(struct smtp *s, const char *p, size_t n, size_t *ret_used, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		enum smtp_step step = SMTP_MORE;

		buf_char(&s->line, p[i]);
		if (p[i] == '\n' && s->line.n >= 2 && s->line.p[s->line.n - 2] == '\r')
			step = whole_line(s, out);
		else if (s->line.n == SMTP_LINE_MAX)
			step = long_line(s, out);
		if (step != SMTP_MORE) {
			*ret_used = i + 1;
			return step;
		}
	}
	*ret_used = n;
	return SMTP_MORE;
}

void smtp_accept(struct smtp *s, const char *id, struct buf *out)
{
	forget_mail(s);
	buf_fmt(out, "250 2.0.0 Kept as %s\r\n", id);
}

void smtp_refuse(struct smtp *s, const char *reason, struct buf *out)
{
	forget_mail(s);
	buf_fmt(out, "550 5.7.1 %s\r\n", reason);
}

void smtp_defer(struct smtp *s, const char *reason, struct buf *out)
{
	forget_mail(s);
	buf_fmt(out, "451 4.3.0 %s\r\n", reason);
}

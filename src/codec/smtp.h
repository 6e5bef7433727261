/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/smtp.h - the server's side of SMTP (RFC 5321), as a mailbox speaks it that takes everything: any sender, any recipient, any password.
 *
 * Bytes in, bytes and whole messages out; no socket. Lines end with CRLF and nothing else, and a message ends with CRLF "." CRLF and nothing else: what other
 * servers take for an end (LF "." LF) is text here, so that nothing hides behind it. What was sent before TLS began is forgotten after it, input included (RFC 3207).
 */
#ifndef CAY_CODEC_SMTP_H
#define CAY_CODEC_SMTP_H

#include "base/buf.h"

#define SMTP_LINE_MAX       12288 /* of a command; AUTH lines are the longest (RFC 4954) */
#define SMTP_RECIPIENTS_MAX 10000
#define SMTP_ADDRESS_MAX    320
#define SMTP_MESSAGE_MAX    (25U << 20)
#define SMTP_ERRORS_MAX     20 /* wrong commands, then the connection ends */

enum smtp_step {
	SMTP_MORE,     /* all was consumed: send @out, read on */
	SMTP_MESSAGE,  /* a message is complete: smtp_accept(), smtp_refuse() or smtp_defer() */
	SMTP_STARTTLS, /* send @out, forget what was read beyond, begin TLS, then smtp_secured() */
	SMTP_QUIT      /* send @out and close */
};

struct smtp {
	const char *name; /* our name in greetings; borrowed */
	bool tls_offered; /* STARTTLS may be used */
	bool secured;
	enum smtp_state {
		SMTP_COMMAND,
		SMTP_DATA,
		SMTP_AUTH_USER,
		SMTP_AUTH_PASSWORD,
		SMTP_AUTH_PLAIN
	} state;
	bool greeted;   /* EHLO or HELO came */
	bool oversize;  /* the message is too large; the rest is read and dropped */
	bool continued; /* the message's line goes on */
	unsigned int errors;
	char helo[256];
	char auth[16]; /* mechanism, "" without */
	bool has_sender;
	char sender[SMTP_ADDRESS_MAX + 1]; /* "" for bounces */
	struct buf recipients;             /* NUL-terminated addresses one after the other */
	size_t n_recipients;
	struct buf line;    /* a line that is not complete yet */
	struct buf message; /* unstuffed, with CRLF */
};

/** smtp_init() - a new connection. @name: borrowed. @tls_offered: may the client ask for STARTTLS? @secured: TLS runs already (port 465). */
void smtp_init(struct smtp *s, const char *name, bool tls_offered, bool secured);

/** smtp_fini() - free what is held. */
void smtp_fini(struct smtp *s);

/** smtp_greet() - append the first line. */
void smtp_greet(struct smtp *s, struct buf *out);

/**
 * smtp_feed() - consume input up to the next step.
 * @p, @n: received bytes. @ret_used: how many were consumed; call again with the rest after the step was dealt with.
 * @out: answers are appended.
 */
enum smtp_step smtp_feed(
	struct smtp *s, const char *p, size_t n, size_t *ret_used, struct buf *out) attr_must_use;

/** smtp_accept() - the message of %SMTP_MESSAGE is kept; answer so and be ready for the next. @id: told to the client. */
void smtp_accept(struct smtp *s, const char *id, struct buf *out);

/** smtp_refuse() - it is not; @reason is a short text of printable ASCII. */
void smtp_refuse(struct smtp *s, const char *reason, struct buf *out);

/** smtp_defer() - it is not now, and may be when it is sent again; @reason as above. */
void smtp_defer(struct smtp *s, const char *reason, struct buf *out);

/** smtp_secured() - TLS has begun: start again, as RFC 3207 section 4.2 has it. */
void smtp_secured(struct smtp *s);

#endif

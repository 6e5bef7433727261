/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/form_method.h"
#include "base/str.h"
#include "codec/httphead.h"
#include "policy/parameter.h"

#include <ctype.h>
#include <strings.h>

#define NAME "_method"

/* Where @word ends in @text, capitals or not. Return: NULL when it is not there. */
static const char *behind(struct policy_text text, const char *word)
{
	for (size_t i = 0; i + strlen(word) <= text.n; i++)
		if (strncasecmp(text.p + i, word, strlen(word)) == 0)
			return text.p + i + strlen(word);
	return NULL;
}

/* The value of the parameter @name of a type, as far as nobody takes less for it. Return: false when it comes twice, or is written in a way that not all read alike. */
static bool parameter_of(struct policy_text type, const char *name, struct policy_text *ret)
{
	const char *end = type.p + type.n, *p = behind(type, name);

	*ret = (struct policy_text){ 0 };
	if (p == NULL)
		return true;
	if (p == end || *p++ != '=' ||
		behind((struct policy_text){ p, (size_t)(end - p) }, name) != NULL)
		return false;
	if (p < end && *p == '"')
		p++;
	ret->p = p;
	while (p < end && (isalnum((unsigned char)*p) || strchr("()+_-./:=?", *p) != NULL))
		p++;
	ret->n = (size_t)(p - ret->p);
	return ret->n > 0;
}

/* Are names in a form of that type written in bytes that ASCII has? */
static bool is_plain(struct policy_text type)
{
	static const char *const plain[] = { "utf-8", "utf8", "us-ascii", "iso-8859-1",
		"windows-1252" };
	struct policy_text charset;

	if (!parameter_of(type, "charset", &charset))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (charset.n == strlen(plain[i]) &&
			strncasecmp(charset.p, plain[i], charset.n) == 0)
			return true;
	return charset.n == 0;
}

/* What is looked for between parts: "--" and the beginning of @boundary. */
static void seek(struct form_method *m, struct policy_text boundary)
{
	size_t k = 0;

	m->mark_n =
		2 + (boundary.n < FORM_METHOD_MARK_MAX - 2 ? boundary.n : FORM_METHOD_MARK_MAX - 2);
	memcpy(m->mark, "--", 2);
	memcpy(m->mark + 2, boundary.p, m->mark_n - 2);
	for (size_t i = 1; i < m->mark_n; i++) { /* Knuth, Morris, Pratt */
		while (k > 0 && m->mark[i] != m->mark[k])
			k = m->back[k - 1];
		k += m->mark[i] == m->mark[k];
		m->back[i] = (unsigned char)k;
	}
}

void form_method_begin(struct form_method *m, const struct head *head)
{
	struct policy_text coding = head_field(head, "content-encoding"),
			   type = head_field(head, "content-type"), boundary;
	bool multipart = false, form = false;

	*m = (struct form_method){ 0 };
	for (size_t i = 0; i < head->n_fields; i++) {
		if (!head_names(head->fields[i].name, "content-type"))
			continue;
		multipart = multipart || behind(head->fields[i].value, "multipart/") != NULL;
		form = form || behind(head->fields[i].value, "form-urlencoded") != NULL;
	}
	/* Rack takes what has no type for a form */
	form = form || (type.n == 0 && text_is(head->method, "POST"));
	if (!multipart && !form)
		return;
	m->kind = multipart ? FORM_MULTIPART : FORM_PARTS;
	if (multipart && parameter_of(type, "boundary", &boundary) && boundary.n > 0)
		seek(m, boundary);
	if ((multipart && (form || m->mark_n == 0)) || !is_plain(type) ||
		head_unclear(head, "content-type") || head_unclear(head, "content-encoding") ||
		(coding.n > 0 && !text_is(coding, "identity")))
		m->kind = FORM_HIDDEN;
}

/* ---- a=b&c=d ---------------------------------------------------------------------------------------------------------------- */

static bool part_ends(struct form_method *m, struct policy_text *ret)
{
	char *equals = memchr(m->part, '=', m->n), name[FORM_METHOD_PART_MAX + 1];
	size_t n = m->n, name_n = equals != NULL ? (size_t)(equals - m->part) : n;
	bool cut = m->long_part;

	m->n = 0;
	m->begun = m->long_part = false;
	parameter_name(m->part, name_n, name);
	if (!parameter_is(name, NAME))
		return false;
	*ret = (struct policy_text){ m->value, 0 };
	if (!cut && equals != NULL &&
		httphead_decode(equals + 1, n - name_n - 1, true, m->value, sizeof(m->value)) == 0)
		ret->n = strlen(m->value);
	return true;
}

/* Spaces and brackets in front of a name are none. */
static void skip_front(struct form_method *m)
{
	static const char *const escapes[] = { "%20", "%5b", "%5d" };
	bool skip = m->n == 1 && memchr("+ []", m->part[0], 4) != NULL;

	for (size_t i = 0; i < ARRAY_SIZE(escapes) && m->n == 3; i++)
		skip = skip || strncasecmp(m->part, escapes[i], 3) == 0;
	m->n = skip ? 0 : m->n;
	m->begun = m->n > 3 || (m->n > 0 && m->part[0] != '%');
}

static bool feed_parts(
	struct form_method *m, const char *p, size_t n, size_t *used, struct policy_text *ret)
{
	for (*used = 0; *used < n; ++*used) {
		char c = p[*used];

		if (c == '&' || c == ';') {
			if (part_ends(m, ret)) {
				++*used;
				return true;
			}
			continue;
		}
		if (m->n == FORM_METHOD_PART_MAX) {
			m->long_part = true;
			continue;
		}
		m->part[m->n++] = c;
		if (!m->begun)
			skip_front(m);
	}
	return p == NULL && part_ends(m, ret);
}

/* ---- multipart -------------------------------------------------------------------------------------------------------------- */

/* Does the head end with @word, which begins there? */
static bool ends_with(const struct form_method *m, const char *word)
{
	const char *at = m->tail + sizeof(m->tail) - strlen(word);

	return strncasecmp(at, word, strlen(word)) == 0 && !isalnum((unsigned char)at[-1]);
}

/* One more byte of a part's head. Return: does the name end with it, or something in which it could be hidden? */
static bool feed_head(struct form_method *m, char c)
{
	static const char *const names[] = { NAME, "%5fmethod", ".method", " method", "[method",
		"name*" /* RFC 2231 */, "=?" /* RFC 2047 */ };
	bool found = false;

	if (c == '\\')
		return false; /* of a quoted pair */
	memmove(m->tail, m->tail + 1, sizeof(m->tail) - 1);
	m->tail[sizeof(m->tail) - 1] = c;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		found = found || ends_with(m, names[i]);
	return found;
}

/* Does what parts the parts end with @c? Some readers look for it anywhere, not only where a line begins. */
static bool mark_ends(struct form_method *m, char c)
{
	while (m->marked > 0 && m->mark[m->marked] != c)
		m->marked = m->back[m->marked - 1];
	m->marked += m->mark[m->marked] == c;
	if (m->marked < m->mark_n)
		return false;
	m->marked = m->back[m->marked - 1];
	return true;
}

/*
 * A line ends with @c. The head of a part ends with an empty line; what some readers take for one, and others do not, is none. One of LF alone ends it for all but those who look on for one with CR: what
 * seems to be said behind it is said when such a one follows, wherever.
 * Return: does it?
 */
static bool line_ends(struct form_method *m, char c)
{
	bool with_cr = c == '\n' && memcmp(m->before, "\n\r", 2) == 0;
	bool next = m->ends % 2 == 0 ? c == '\r' : c == '\n';

	m->ends = next ? m->ends + 1 : c == '\r';
	if (c == '\n' && m->at == PART_BOUNDARY)
		m->at = PART_BEGUN;
	if (c == '\n' && m->before[1] == '\n' && m->at == PART_HEAD)
		m->at = PART_DOUBT;
	if (m->ends == 4 && (m->at == PART_HEAD || m->at == PART_DOUBT))
		m->at = PART_BODY;
	if (m->ends == 4)
		m->ends = 2;
	return with_cr && m->doubted;
}

static bool feed_byte(struct form_method *m, char c)
{
	bool found;

	if (c == '\r' || c == '\n') {
		found = line_ends(m, c);
		m->before[0] = m->before[1];
		m->before[1] = c;
		return found;
	}
	m->before[1] = c;
	m->ends = 0;
	if (m->at == PART_BEGUN)
		m->at = PART_HEAD; /* there is something in it */
	if (mark_ends(m, c))
		m->at = PART_BOUNDARY;
	found = m->at != PART_BODY && feed_head(m, c);
	m->doubted = m->doubted || (found && m->at == PART_DOUBT);
	return found && m->at != PART_DOUBT;
}

static bool feed_multipart(struct form_method *m, const char *p, size_t n, size_t *used)
{
	for (*used = 0; *used < n;)
		if (feed_byte(m, p[(*used)++]))
			return true;
	return false;
}

/* ----------------------------------------------------------------------------------------------------------------------------- */

static bool feed(
	struct form_method *m, const char *p, size_t n, size_t *used, struct policy_text *ret)
{
	*ret = (struct policy_text){ "", 0 };
	*used = n;
	switch (m->kind) {
	case FORM_NONE:
		return false;
	case FORM_PARTS:
		return feed_parts(m, p, n, used, ret);
	case FORM_MULTIPART:
		return feed_multipart(m, p, n, used);
	case FORM_HIDDEN:
		*used = 0;
		return true;
	}
	return false;
}

bool form_method_feed(
	struct form_method *m, const char *p, size_t n, size_t *used, struct policy_text *ret)
{
	if (!feed(m, p, n, used, ret))
		return false;
	if (++m->n_said > FORM_METHOD_SAID_MAX)
		ret->n = 0;
	if (ret->n == 0)
		m->kind =
			FORM_NONE; /* who is let through with one that nobody knows is so with all */
	return true;
}

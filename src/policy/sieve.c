/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state machine over bytes (@state, in strings @escape) that knows which brackets are open, and beside it the containers that are kept, which are always the outermost ones (@frames). What stands at
 * a place is wanted when a pointer leads there (@next): a scalar as it is; a container, also on the way there, becomes a frame of its own. What turns out to hold nothing is dropped again when it ends.
 */
#include "policy/sieve.h"
#include "base/buf.h"
#include "base/str.h"
#include "policy/sieve_paths.h"

#include <math.h>

#define NUMBER_MAX 512 /* characters */

/* What is kept takes, roughly: jansson's structs and malloc's own. */
#define COST_VALUE   64
#define COST_OBJECT  224 /* with its table, also when it is empty */
#define COST_ARRAY   128
#define COST_MEMBER  96
#define COST_ELEMENT 16

#define NUMBER_SIGN '\xff' /* before a number that is kept as text: no string in UTF-8 begins so */

enum state {
	VALUE,
	VALUE_OR_END,
	NAME,
	NAME_OR_END,
	COLON,
	COMMA_OR_END,
	STRING,
	NUMBER,
	WORD,
	DONE
};

enum escape { PLAIN, ESCAPE, HEX, LOW_BACKSLASH, LOW_U, LOW_HEX, UTF8 };

/* A container that is kept while it is open. */
struct frame {
	json_t *value;
	struct sieve_set at;
	struct sieve_set next; /* of the value that comes or is being read */
	char *key;             /* of that value, when it has to be kept; objects */
	bool object;
	bool counts;    /* elements are told apart by their place */
	bool worth;     /* holds something that is looked at */
	bool lists;     /* holds a list where a pointer names a member */
	uint64_t index; /* of the next element */
	size_t mark;    /* memory that was taken before it */
};

struct sieve {
	const struct sieve_paths *paths;
	size_t memory, memory_max;
	size_t bytes, values, objects, arrays, names; /* of the text, whatever is kept of it */
	int error;
	enum state state;
	enum escape escape;
	bool name;                     /* the string is a member's name */
	bool wanted;                   /* the scalar that is being read is kept */
	size_t keep;                   /* bytes of the string to be kept */
	struct buf text;               /* of it, decoded */
	unsigned int code, high;       /* of a \u escape */
	unsigned int digits;           /* still to come, of it or of a UTF-8 sequence */
	unsigned char least, greatest; /* its next byte */
	char number[NUMBER_MAX + 1];
	size_t number_n;
	const char *word; /* what is left of true, false, null */
	json_t *word_value;
	char brackets[SIEVE_DEPTH_MAX];
	size_t depth;
	struct frame *frames;
	size_t n_frames, cap_frames;
	json_t *root;
};

struct sieve *sieve_new(const struct sieve_paths *paths, size_t memory_max)
{
	struct sieve *s = xnew(struct sieve);

	s->paths = paths;
	s->memory_max = memory_max;
	s->text.max = memory_max < SIZE_MAX / 2 ? memory_max : SIZE_MAX / 2;
	return s;
}

static void frame_fini(struct frame *f)
{
	json_decref(f->value);
	sieve_set_fini(&f->at);
	sieve_set_fini(&f->next);
	free(f->key);
}

void sieve_free(struct sieve *s)
{
	if (s == NULL)
		return;
	while (s->n_frames > 0)
		frame_fini(&s->frames[--s->n_frames]);
	free(s->frames);
	json_decref(s->root);
	buf_free(&s->text);
	free(s);
}

size_t sieve_memory(const struct sieve *s)
{
	return s->memory;
}

size_t sieve_memory_of_all(const struct sieve *s)
{
	return s->bytes + s->values * (COST_VALUE + COST_ELEMENT) + s->names * COST_MEMBER +
	       s->objects * (COST_OBJECT - COST_VALUE) + s->arrays * (COST_ARRAY - COST_VALUE);
}

size_t sieve_text_of_all(const struct sieve *s)
{
	return s->bytes;
}

static int fail(struct sieve *s, int error)
{
	if (s->error == 0)
		s->error = error;
	return s->error;
}

static void pay(struct sieve *s, size_t n)
{
	s->memory += n;
	if (s->memory > s->memory_max)
		(void)fail(s, -EMSGSIZE);
}

/* ---- the tree --------------------------------------------------------------------------------------------------------------- */

/* The kept container that the next value stands in; NULL when that is dropped, or there is none. */
static struct frame *parent(struct sieve *s)
{
	return s->n_frames == s->depth && s->depth > 0 ? &s->frames[s->depth - 1] : NULL;
}

/* Is the value that comes a member or element that is looked at, or on the way of one? */
static bool is_kept(const struct sieve *s, const struct frame *f)
{
	return f != NULL && (s->paths == NULL || f->next.n > 0);
}

/* Puts @value (stolen) where the text has it; NULL: nothing that is looked at. */
static void attach(struct sieve *s, struct frame *f, json_t *value)
{
	if (f == NULL) {
		json_decref(value);
		return;
	}
	f->worth = f->worth || value != NULL;
	if (f->object) {
		if (f->key == NULL) /* of no interest */
			return;
		pay(s, COST_MEMBER + strlen(f->key));
		if (json_object_set_new_nocheck(
			    f->value, f->key, value != NULL ? value : json_null()) < 0)
			(void)fail(s, -EMSGSIZE);
		free(f->key);
		f->key = NULL;
	} else if (value != NULL || f->counts) {
		pay(s, COST_ELEMENT);
		if (json_array_append_new(f->value, value != NULL ? value : json_null()) < 0)
			(void)fail(s, -EMSGSIZE);
	}
}

/* A scalar is over. @value: stolen. */
static void take_scalar(struct sieve *s, json_t *value)
{
	if (value != NULL)
		pay(s, COST_VALUE);
	attach(s, parent(s), value);
	s->state = COMMA_OR_END;
}

/* A value begins: what of it is wanted? */
static void value_begins(struct sieve *s)
{
	struct frame *f = parent(s);

	if (f != NULL && !f->object && s->paths != NULL)
		sieve_set_element(s->paths, &f->at, f->index, &f->next);
	if (f != NULL)
		f->index++;
	s->wanted = f != NULL && (s->paths == NULL || f->next.ends);
}

static void open_frame(struct sieve *s, bool object)
{
	struct frame *above = parent(s), *f;
	bool lists; /* pointer_alike() looks for one; of a list's own elements one is enough */

	if (s->n_frames == s->cap_frames) {
		s->cap_frames = s->cap_frames * 2 + 8;
		s->frames = reallocarray(s->frames, s->cap_frames, sizeof(*s->frames));
		if (s->frames == NULL)
			abort();
		above = parent(s);
	}
	f = &s->frames[s->n_frames++];
	*f = (struct frame){ .object = object, .mark = s->memory };
	f->value = object ? json_object() : json_array();
	pay(s, object ? COST_OBJECT : COST_ARRAY);
	if (s->paths == NULL)
		return;
	if (above == NULL) {
		sieve_set_begin(s->paths, &f->at);
	} else { /* the set moves on; its memory is not needed above any more */
		f->at = above->next;
		above->next = (struct sieve_set){ 0 };
	}
	f->counts = !object && sieve_set_counts(s->paths, &f->at);
	lists = !object && sieve_set_names(s->paths, &f->at);
	f->worth = lists && !(above != NULL && !above->object && !above->counts && above->lists);
	if (above != NULL)
		above->lists = above->lists || lists;
}

static int open_container(struct sieve *s, bool object)
{
	if (s->depth == SIEVE_DEPTH_MAX)
		return fail(s, -EBADMSG);
	s->objects += object;
	s->arrays += !object;
	if (s->depth == 0 || is_kept(s, parent(s)))
		open_frame(s, object);
	s->brackets[s->depth++] = object ? '{' : '[';
	s->state = object ? NAME_OR_END : VALUE_OR_END;
	return s->error;
}

static int close_container(struct sieve *s, bool object)
{
	struct frame *f = parent(s);
	json_t *value = NULL;

	if (s->depth == 0 || s->brackets[s->depth - 1] != (object ? '{' : '['))
		return fail(s, -EBADMSG);
	s->depth--;
	s->state = s->depth > 0 ? COMMA_OR_END : DONE;
	if (f == NULL) {
		attach(s, parent(s), NULL);
		return s->error;
	}
	if (s->depth == 0 || s->paths == NULL || f->worth || f->at.ends) {
		value = f->value;
		f->value = NULL;
	} else {
		s->memory = f->mark;
	}
	frame_fini(f);
	s->n_frames--;
	if (s->depth > 0)
		attach(s, parent(s), value);
	else
		s->root = value;
	return s->error;
}

/* A member's name is over. */
static int take_name(struct sieve *s)
{
	const char *key = buf_cstr(&s->text);
	struct frame *f = parent(s);
	bool keep = true;

	s->state = COLON;
	s->names++;
	if (f == NULL)
		return 0;
	if (strlen(key) != s->text.n)
		return fail(s, -EBADMSG);
	if (s->paths != NULL) {
		sieve_set_member(s->paths, &f->at, key, &f->next);
		keep = f->next.n > 0 || f->next.alike;
		f->worth = f->worth || f->next.alike;
	}
	if (!keep)
		return 0;
	if (json_object_get(f->value, key) != NULL)
		return fail(s, -EBADMSG);
	f->key = str_dup(key);
	return 0;
}

/* ---- strings ---------------------------------------------------------------------------------------------------------------- */

static int string_begins(struct sieve *s, bool name)
{
	s->name = name;
	s->escape = PLAIN;
	s->keep = 0;
	s->state = STRING;
	buf_reset(&s->text);
	if (name)
		s->keep = parent(s) != NULL ? SIZE_MAX : 0;
	else if (s->wanted)
		s->keep = s->paths == NULL ? SIZE_MAX : parent(s)->next.string_bytes;
	return 0;
}

static void keep_text(struct sieve *s, const char *p, size_t n)
{
	size_t left = s->keep - s->text.n;

	buf_add(&s->text, p, n < left ? n : left);
	if (buf_failed(&s->text))
		(void)fail(s, -EMSGSIZE);
}

static void keep_code(struct sieve *s, unsigned int c)
{
	char out[4];
	size_t n = 0;

	if (c < 0x80) {
		out[n++] = (char)c;
	} else if (c < 0x800) {
		out[n++] = (char)(0xc0 | c >> 6);
	} else if (c < 0x10000) {
		out[n++] = (char)(0xe0 | c >> 12);
		out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
	} else {
		out[n++] = (char)(0xf0 | c >> 18);
		out[n++] = (char)(0x80 | (c >> 12 & 0x3f));
		out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
	}
	if (c >= 0x80)
		out[n++] = (char)(0x80 | (c & 0x3f));
	keep_text(s, out, n);
}

/* Four digits of an escape are there. What is dropped need not be text: JSON has escapes for halves of characters, and some write them alone. */
static int take_code(struct sieve *s)
{
	bool low = s->code >= 0xdc00 && s->code <= 0xdfff, dropped = !s->name && !s->wanted;

	if (dropped) {
		s->escape = PLAIN;
		return 0;
	}
	if (s->escape == LOW_HEX) {
		if (!low)
			return fail(s, -EBADMSG);
		keep_code(s, 0x10000 + ((s->high - 0xd800) << 10) + (s->code - 0xdc00));
	} else if (s->code >= 0xd800 && s->code <= 0xdbff) {
		s->high = s->code;
		s->escape = LOW_BACKSLASH;
		return 0;
	} else if (low || (s->code == 0 && s->name)) {
		return fail(s, -EBADMSG);
	} else {
		keep_code(s, s->code);
	}
	s->escape = PLAIN;
	return s->error;
}

static int take_hex(struct sieve *s, unsigned char c)
{
	int digit = str_hex_digit((char)c);

	if (digit < 0)
		return fail(s, -EBADMSG);
	s->code = s->code << 4 | (unsigned int)digit;
	return --s->digits > 0 ? 0 : take_code(s);
}

static int take_escape(struct sieve *s, char c)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = c != '\0' ? strchr(from, c) : NULL;

	if (c == 'u') {
		s->escape = HEX;
		s->code = 0;
		s->digits = 4;
		return 0;
	}
	if (at == NULL)
		return fail(s, -EBADMSG);
	keep_text(s, &to[at - from], 1);
	s->escape = PLAIN;
	return s->error;
}

/* The first byte of a sequence of UTF-8 (Unicode 3.9, table 3-7). */
static int take_lead(struct sieve *s, unsigned char c)
{
	if (c < 0xc2 || c > 0xf4)
		return fail(s, -EBADMSG);
	s->digits = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	s->least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	s->greatest = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	s->escape = UTF8;
	keep_text(s, (char *)&c, 1);
	return s->error;
}

static int take_trail(struct sieve *s, unsigned char c)
{
	if (c < s->least || c > s->greatest)
		return fail(s, -EBADMSG);
	s->least = 0x80;
	s->greatest = 0xbf;
	if (--s->digits == 0)
		s->escape = PLAIN;
	keep_text(s, (char *)&c, 1);
	return s->error;
}

static int string_ends(struct sieve *s)
{
	json_t *value = NULL;

	if (s->name)
		return take_name(s);
	if (s->wanted) {
		pay(s, s->text.n);
		value = json_stringn_nocheck(buf_cstr(&s->text), s->text.n);
		if (value == NULL)
			return fail(s, -EMSGSIZE);
	}
	if (s->text.cap > 65536)
		buf_free(&s->text);
	take_scalar(s, value);
	return s->error;
}

static int take_plain(struct sieve *s, unsigned char c)
{
	if (c == '"')
		return string_ends(s);
	if (c == '\\') {
		s->escape = ESCAPE;
		return 0;
	}
	return c < 0x20 ? fail(s, -EBADMSG) : take_lead(s, c);
}

static int string_byte(struct sieve *s, unsigned char c)
{
	switch (s->escape) {
	case PLAIN:
		return take_plain(s, c);
	case ESCAPE:
		return take_escape(s, (char)c);
	case HEX:
	case LOW_HEX:
		return take_hex(s, c);
	case LOW_BACKSLASH:
		s->escape = LOW_U;
		return c == '\\' ? 0 : fail(s, -EBADMSG);
	case LOW_U:
		s->escape = LOW_HEX;
		s->code = 0;
		s->digits = 4;
		return c == 'u' ? 0 : fail(s, -EBADMSG);
	case UTF8:
		return take_trail(s, c);
	}
	return fail(s, -EBADMSG);
}

/* How many of the bytes stand for themselves and for no more than a character each. */
static size_t plain_run(const char *p, size_t n)
{
	size_t i = 0;

	while (i < n && (unsigned char)p[i] >= 0x20 && (unsigned char)p[i] < 0x80 && p[i] != '"' &&
		p[i] != '\\')
		i++;
	return i;
}

/* ---- numbers and words ------------------------------------------------------------------------------------------------------ */

static const char *skip_digits(const char *p)
{
	while (*p >= '0' && *p <= '9')
		p++;
	return p;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? Return: is it one; @ret_real: with a fraction or an exponent. */
static bool is_number(const char *p, bool *ret_real)
{
	const char *at;

	p += *p == '-';
	at = *p == '0' ? p + 1 : skip_digits(p);
	if (at == p)
		return false;
	*ret_real = *at == '.' || *at == 'e' || *at == 'E';
	if (*at == '.') {
		p = at + 1;
		at = skip_digits(p);
		if (at == p)
			return false;
	}
	if (*at == 'e' || *at == 'E') {
		p = at + 1;
		p += *p == '+' || *p == '-';
		at = skip_digits(p);
		if (at == p)
			return false;
	}
	return *at == '\0';
}

/* Return: NULL when it is larger than what can be kept. */
static json_t *number_value(const char *text, bool real)
{
	double v;
	long long whole;

	errno = 0;
	if (real) {
		v = strtod(text, NULL);
		return errno == ERANGE && fabs(v) == HUGE_VAL ? NULL : json_real(v);
	}
	whole = strtoll(text, NULL, 10);
	return errno == ERANGE ? NULL : json_integer(whole);
}

/* As it was written, for sieve_number(). */
static json_t *number_text(struct sieve *s)
{
	char text[NUMBER_MAX + 2] = { NUMBER_SIGN };

	memcpy(text + 1, s->number, s->number_n);
	pay(s, s->number_n + 1);
	return json_stringn_nocheck(text, s->number_n + 1);
}

static int number_ends(struct sieve *s)
{
	json_t *value = NULL;
	bool real;

	s->number[s->number_n] = '\0';
	if (!is_number(s->number, &real))
		return fail(s, -EBADMSG);
	if (s->wanted) {
		value = s->paths == NULL ? number_text(s) : number_value(s->number, real);
		if (value == NULL)
			return fail(s, -EBADMSG);
	}
	take_scalar(s, value);
	return s->error;
}

const char *sieve_number(const json_t *value)
{
	const char *text = json_string_value(value);

	return text != NULL && *text == NUMBER_SIGN ? text + 1 : NULL;
}

static int word_begins(struct sieve *s, char c)
{
	s->word = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
	s->word_value = c == 't' ? json_true() : c == 'f' ? json_false() : json_null();
	s->state = WORD;
	return 0;
}

static int word_byte(struct sieve *s, char c)
{
	if (c != *s->word)
		return fail(s, -EBADMSG);
	if (*++s->word == '\0')
		take_scalar(s, s->wanted ? s->word_value : NULL); /* static in jansson */
	return s->error;
}

/* ---- structure -------------------------------------------------------------------------------------------------------------- */

static int value_byte(struct sieve *s, char c)
{
	if (c == ']' && s->state == VALUE_OR_END)
		return close_container(s, false);
	if (s->depth == 0 && c != '{' && c != '[')
		return fail(s, -EBADMSG);
	s->values++;
	value_begins(s);
	if (c == '{' || c == '[')
		return open_container(s, c == '{');
	if (c == '"')
		return string_begins(s, false);
	if (c == 't' || c == 'f' || c == 'n')
		return word_begins(s, c);
	if (c != '-' && (c < '0' || c > '9'))
		return fail(s, -EBADMSG);
	s->state = NUMBER;
	s->number[0] = c;
	s->number_n = 1;
	return 0;
}

static int structure_byte(struct sieve *s, char c)
{
	bool object = s->depth > 0 && s->brackets[s->depth - 1] == '{';

	if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
		return 0;
	switch (s->state) {
	case VALUE:
	case VALUE_OR_END:
		return value_byte(s, c);
	case NAME:
	case NAME_OR_END:
		if (c == '}' && s->state == NAME_OR_END)
			return close_container(s, true);
		return c == '"' ? string_begins(s, true) : fail(s, -EBADMSG);
	case COLON:
		s->state = VALUE;
		return c == ':' ? 0 : fail(s, -EBADMSG);
	case COMMA_OR_END:
		if (c == '}' || c == ']')
			return close_container(s, c == '}');
		s->state = object ? NAME : VALUE;
		return c == ',' ? 0 : fail(s, -EBADMSG);
	case STRING:
	case NUMBER:
	case WORD:
	case DONE:
		break;
	}
	return fail(s, -EBADMSG);
}

static bool in_number(char c)
{
	return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static int feed_byte(struct sieve *s, char c)
{
	if (s->state == STRING)
		return string_byte(s, (unsigned char)c);
	if (s->state == WORD)
		return word_byte(s, c);
	if (s->state != NUMBER)
		return structure_byte(s, c);
	if (!in_number(c))
		return number_ends(s) < 0 ? s->error : structure_byte(s, c);
	if (s->number_n == NUMBER_MAX)
		return fail(s, -EBADMSG);
	s->number[s->number_n++] = c;
	return 0;
}

int sieve_feed(struct sieve *s, const char *p, size_t n)
{
	s->bytes += n;
	for (size_t i = 0; i < n && s->error == 0;) {
		size_t run = s->state == STRING && s->escape == PLAIN ? plain_run(p + i, n - i) : 0;

		if (run > 0 && s->keep > s->text.n)
			keep_text(s, p + i, run);
		i += run;
		if (i < n && s->error == 0)
			(void)feed_byte(s, p[i++]);
	}
	return s->error;
}

json_t *sieve_end(struct sieve *s)
{
	return s->error == 0 && s->state == DONE ? json_incref(s->root) : NULL;
}

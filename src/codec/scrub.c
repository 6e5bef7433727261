/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub_set is the automaton: a trie of all renderings with failure links. A scrub runs one copy of its state for each view; a view turns source bytes into symbols,
 * each of which knows the source bytes it came from, so that a match can be written over in place. Bytes are held back while some view is in the middle of a match.
 */
#include "codec/scrub.h"
#include "base/str.h"

#include <ctype.h>

#define RENDERINGS   9  /* itself, two of hexadecimal, three offsets in two base64 alphabets */
#define KEPT_LETTERS 12 /* of a secret that a placeholder must not share */

struct node {
	uint32_t child, next; /* first child; next sibling; 0 = none */
	uint32_t fail;        /* longest proper suffix that is a prefix of something */
	uint32_t depth;
	uint32_t output;  /* 1 + rendering that ends here; 0 = none */
	uint32_t below;   /* a rendering that begins with what leads here */
	uint32_t shorter; /* next node on the failure chain with an output; 0 = none */
	unsigned char byte;
};

struct rendering {
	size_t pair;
	size_t n;
	char *replace;
	struct measure {
		uint8_t before,
			bits; /* of the secret, that its first symbol leaves out; that each has */
	} measure;
};

struct scrub_set {
	struct node *nodes;
	size_t n_nodes, nodes_cap;
	struct rendering *renderings;
	size_t n_renderings, n_pairs;
	size_t longest;
	size_t n_views;   /* that could see more than the first ones do */
	bool starts[256]; /* bytes that can begin a match */
};

bool scrub_secret_valid(const char *s)
{
	size_t n = strlen(s), letters = 0;

	for (const char *p = s; *p != '\0'; p++) {
		if (*p <= ' ' || *p > '~')
			return false;
		letters += isalnum((unsigned char)*p) != 0;
	}
	return n >= SCRUB_SECRET_MIN && n <= SCRUB_SECRET_MAX && letters >= 6;
}

/* Where the part begins that is replaced: behind the last '_' or '-' that leaves enough. */
static size_t kept_prefix(const char *secret)
{
	size_t kept = 0, letters = 0;

	for (size_t i = strlen(secret); i-- > 0;) {
		letters += isalnum((unsigned char)secret[i]) != 0;
		if (i > 0 && letters >= KEPT_LETTERS &&
			(secret[i - 1] == '_' || secret[i - 1] == '-')) {
			kept = i;
			break;
		}
	}
	return kept;
}

static char like(char c, unsigned char random)
{
	if (isdigit((unsigned char)c))
		return (char)('0' + random % 10);
	if (islower((unsigned char)c))
		return (char)('a' + random % 26);
	return isupper((unsigned char)c) ? (char)('A' + random % 26) : c;
}

char *scrub_placeholder(const char *secret, const unsigned char *random)
{
	char *s = str_dup(secret);

	for (size_t i = kept_prefix(secret); s[i] != '\0'; i++)
		s[i] = like(s[i], random[i]);
	return s;
}

/* the automaton */

static uint32_t add_node(struct scrub_set *set, unsigned char byte, uint32_t depth)
{
	if (set->n_nodes == set->nodes_cap) {
		set->nodes_cap = set->nodes_cap * 2 + 64;
		set->nodes = realloc(set->nodes, set->nodes_cap * sizeof(*set->nodes));
		if (set->nodes == NULL)
			abort();
	}
	set->nodes[set->n_nodes] = (struct node){ .byte = byte, .depth = depth };
	return (uint32_t)set->n_nodes++;
}

static uint32_t child_of(const struct scrub_set *set, uint32_t node, unsigned char byte)
{
	uint32_t c = set->nodes[node].child;

	while (c != 0 && set->nodes[c].byte != byte)
		c = set->nodes[c].next;
	return c;
}

static void add_rendering(struct scrub_set *set, size_t pair, const char *find, const char *replace,
	size_t n, struct measure measure)
{
	uint32_t at = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)find[i];
		uint32_t c = child_of(set, at, byte);

		if (c == 0) {
			c = add_node(set, byte, (uint32_t)i + 1);
			set->nodes[c].next = set->nodes[at].child;
			set->nodes[at].child = c;
		}
		at = c;
	}
	if (set->nodes[at].output != 0)
		return; /* two secrets with the same rendering */
	set->starts[(unsigned char)find[0]] = true;
	set->renderings[set->n_renderings] =
		(struct rendering){ pair, n, memcpy(xalloc(n + 1), replace, n), measure };
	set->nodes[at].output = (uint32_t)++set->n_renderings;
	if (n > set->longest)
		set->longest = n;
}

static uint32_t step(const struct scrub_set *set, uint32_t state, unsigned char byte)
{
	for (;;) {
		uint32_t c = child_of(set, state, byte);

		if (c != 0 || state == 0)
			return c;
		state = set->nodes[state].fail;
	}
}

/* A node is made behind the one that it is a child of. */
static void name_renderings(struct scrub_set *set)
{
	for (size_t i = set->n_nodes; i-- > 1;) {
		struct node *node = &set->nodes[i];

		node->below = node->output != 0 ? node->output - 1 : set->nodes[node->child].below;
	}
}

/* Failure links level by level: those of shallower nodes are ready when a deeper one needs them. */
static void link_nodes(struct scrub_set *set)
{
	uint32_t *queue = xalloc((set->n_nodes + 1) * sizeof(*queue));
	size_t head = 0, tail = 0;

	queue[tail++] = 0;
	while (head < tail) {
		uint32_t at = queue[head++];

		for (uint32_t c = set->nodes[at].child; c != 0; c = set->nodes[c].next) {
			struct node *node = &set->nodes[c];

			node->fail = at == 0 ? 0 : step(set, set->nodes[at].fail, node->byte);
			node->shorter = set->nodes[node->fail].output != 0
						? node->fail
						: set->nodes[node->fail].shorter;
			queue[tail++] = c;
		}
	}
	free(queue);
}

enum view_kind { VIEW_PLAIN, VIEW_PERCENT, VIEW_JSON, VIEW_PERCENT_TWICE, VIEW_HTML, VIEW_COUNT };

/* Has @s what is escaped by those who leave letters and digits as they are? Others look the same in the last views as in the first. */
static bool has_special(const char *s)
{
	while (isalnum((unsigned char)*s) || (*s != '\0' && strchr("-_.~", *s) != NULL))
		s++;
	return *s != '\0';
}

/* renderings */

static void hex(const char *s, size_t n, const char *digits, char *out)
{
	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[(unsigned char)s[i] >> 4];
		out[2 * i + 1] = digits[(unsigned char)s[i] & 15];
	}
}

/* The first base64 digit that is determined by what has @offset (0, 1, 2) bytes before it in its group of three. */
static size_t base64_first(size_t offset)
{
	return (offset * 8 + 5) / 6;
}

/* The base64 digits that @s alone determines when @offset bytes stand before it in its group. Return: how many. */
static size_t base64_inner(const char *s, size_t n, size_t offset, const char *alphabet, char *out)
{
	size_t first = base64_first(offset), last = (offset + n) * 8 / 6, count = 0;

	for (size_t digit = first; digit < last; digit++) {
		unsigned int value = 0;

		for (size_t bit = digit * 6; bit < digit * 6 + 6; bit++)
			value = value << 1 |
				((unsigned int)(unsigned char)s[bit / 8 - offset] >> (7 - bit % 8) &
					1);
		out[count++] = alphabet[value];
	}
	return count;
}

static const char alphabets[2][65] = {
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
};

static void add_pair(struct scrub_set *set, size_t pair, const char *find, const char *replace)
{
	size_t n = strlen(find);
	cleanup_free char *a = xalloc(2 * n + 1), *b = xalloc(2 * n + 1);

	add_rendering(set, pair, find, replace, n, (struct measure){ 0, 8 });
	for (int upper = 0; upper < 2; upper++) {
		const char *digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";

		hex(find, n, digits, a);
		hex(replace, n, digits, b);
		add_rendering(set, pair, a, b, 2 * n, (struct measure){ 0, 4 });
	}
	for (size_t i = 0; i < 6; i++) {
		size_t count = base64_inner(find, n, i % 3, alphabets[i / 3], a);

		(void)base64_inner(replace, n, i % 3, alphabets[i / 3], b);
		add_rendering(set, pair, a, b, count,
			(struct measure){ (uint8_t)(base64_first(i % 3) * 6 - i % 3 * 8), 6 });
	}
}

static bool pair_valid(const struct scrub_pair *pair)
{
	const char *f = pair->find, *r = pair->replace;

	if (!scrub_secret_valid(f) || strlen(f) != strlen(r))
		return false;
	for (; *f != '\0'; f++, r++)
		if (*f != *r && (!isalnum((unsigned char)*f) || !isalnum((unsigned char)*r)))
			return false;
	return true;
}

struct scrub_set *scrub_set_new(const struct scrub_pair *pairs, size_t n)
{
	struct scrub_set *set;

	if (n > SCRUB_PAIRS_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (!pair_valid(&pairs[i]))
			return NULL;
	set = xnew(struct scrub_set);
	set->n_pairs = n;
	set->renderings = xalloc((n * RENDERINGS + 1) * sizeof(*set->renderings));
	set->n_views = VIEW_PERCENT_TWICE;
	(void)add_node(set, 0, 0);
	for (size_t i = 0; i < n; i++) {
		add_pair(set, i, pairs[i].find, pairs[i].replace);
		if (has_special(pairs[i].find))
			set->n_views = VIEW_COUNT;
	}
	link_nodes(set);
	name_renderings(set);
	return set;
}

void scrub_set_free(struct scrub_set *set)
{
	if (set == NULL)
		return;
	for (size_t i = 0; i < set->n_renderings; i++) {
		explicit_bzero(set->renderings[i].replace, set->renderings[i].n);
		free(set->renderings[i].replace);
	}
	for (size_t i = 0; i < set->n_nodes; i++)
		set->nodes[i].byte = 0;
	free(set->renderings);
	free(set->nodes);
	free(set);
}

/* streams */

#define ESCAPE_MAX 8 /* &#x002f; */

/** struct symbol - one byte of a view and the source bytes it was written with. */
struct symbol {
	uint64_t at; /* offset in the stream */
	uint8_t width;
	unsigned char byte;
};

struct view {
	uint32_t state;
	uint64_t at;                 /* offset of the first byte that is no symbol yet */
	uint64_t count;              /* symbols so far */
	struct symbol *ring;         /* the last ones, by count modulo the ring */
	char escape[ESCAPE_MAX + 1]; /* one that is not complete yet */
	size_t escape_n;
};

/** struct scrub_heard - how much of the beginning of each secret was said, by pair: bits of it. */
struct scrub_heard {
	size_t n_pairs, bits[];
};

struct scrub {
	const struct scrub_set *set;
	struct scrub_heard *notes;       /* NULL: nobody wants to know */
	const struct scrub_heard *known; /* NULL: nothing is */
	bool evenly;
	struct buf held;  /* source bytes not given out yet */
	uint64_t held_at; /* offset of the first */
	struct view views[VIEW_COUNT];
	struct tally {
		uint64_t found;
		uint64_t end; /* where the last one ended: every view sees most of them */
	} * tallies;          /* by pair */
};

struct scrub *scrub_new(const struct scrub_set *set)
{
	struct scrub *s = xnew(struct scrub);

	s->set = set;
	s->held.max = SIZE_MAX / 2;
	s->tallies = xalloc((set->n_pairs + 1) * sizeof(*s->tallies));
	for (unsigned int i = 0; i < set->n_views; i++)
		s->views[i].ring = xalloc((set->longest + 1) * sizeof(struct symbol));
	return s;
}

void scrub_free(struct scrub *s)
{
	if (s == NULL)
		return;
	for (unsigned int i = 0; i < s->set->n_views; i++)
		free(s->views[i].ring);
	buf_free(&s->held);
	free(s->tallies);
	free(s);
}

struct scrub_heard *scrub_heard_new(const struct scrub *s)
{
	size_t n = s->set->n_pairs;
	struct scrub_heard *heard = xalloc(sizeof(*heard) + n * sizeof(heard->bits[0]));

	heard->n_pairs = n;
	return heard;
}

void scrub_note(struct scrub *s, struct scrub_heard *heard)
{
	BUG_ON(heard->n_pairs != s->set->n_pairs);
	s->notes = heard;
}

void scrub_spare(struct scrub *s, const struct scrub_heard *heard)
{
	BUG_ON(heard->n_pairs != s->set->n_pairs);
	s->known = heard;
}

void scrub_evenly(struct scrub *s)
{
	s->evenly = true;
}

bool scrub_holds(const struct scrub *s)
{
	return s->held.n > 0;
}

uint64_t scrub_found(const struct scrub *s, size_t i)
{
	return s->tallies[i].found;
}

static struct symbol *symbol_at(const struct scrub *s, const struct view *v, uint64_t i)
{
	return &v->ring[i % (s->set->longest + 1)];
}

/*
 * Write @c over a symbol in the way in which it was written. Only letters and digits are ever replaced, so it is one byte or
 * ends in the two hexadecimal digits of %41 or \u0041.
 */
static void overwrite(struct scrub *s, const struct symbol *symbol, char c)
{
	uint64_t last = symbol->at + symbol->width - 1;
	char *p, digits[3];

	if (symbol->byte == (unsigned char)c || last < s->held_at)
		return;
	p = s->held.p + (last - s->held_at);
	if (symbol->width == 1) {
		*p = c;
		return;
	}
	(void)snprintf(digits, sizeof(digits),
		islower((unsigned char)p[0]) || (last > s->held_at && islower((unsigned char)p[-1]))
			? "%02x"
			: "%02X",
		(unsigned char)c);
	*p = digits[1];
	if (last > s->held_at) /* else the first digit was given out by scrub_flush() */
		p[-1] = digits[0];
}

static void replace(struct scrub *s, const struct view *v, const struct rendering *r)
{
	struct tally *tally = &s->tallies[r->pair];

	for (size_t i = 0; i < r->n; i++)
		overwrite(s, symbol_at(s, v, v->count - r->n + i), r->replace[i]);
	if (tally->end != v->at)
		tally->found++;
	tally->end = v->at;
}

/* How much of a secret, in bits, @n symbols of its rendering @r are. */
static size_t measured(const struct rendering *r, size_t n)
{
	return r->measure.before + n * r->measure.bits;
}

static void note(struct scrub *s, const struct node *node)
{
	const struct rendering *r = &s->set->renderings[node->below];
	size_t bits = measured(r, node->depth), *most = &s->notes->bits[r->pair];

	*most = bits > *most ? bits : *most;
}

static void feed(struct scrub *s, struct view *v, unsigned char byte, size_t width)
{
	const struct scrub_set *set = s->set;

	*symbol_at(s, v, v->count++) = (struct symbol){ v->at, (uint8_t)width, byte };
	v->at += width;
	v->state = step(set, v->state, byte);
	if (s->notes != NULL && v->state != 0)
		note(s, &set->nodes[v->state]);
	for (uint32_t n = v->state; n != 0; n = set->nodes[n].shorter)
		if (set->nodes[n].output != 0)
			replace(s, v, &set->renderings[set->nodes[n].output - 1]);
}

static int hex_value(const char *p, size_t n)
{
	int value = 0;

	for (size_t i = 0; i < n; i++) {
		if (!isxdigit((unsigned char)p[i]))
			return -1;
		value = value * 16 +
			(isdigit((unsigned char)p[i]) ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
	}
	return value;
}

enum { ESCAPE_OPEN = -1, ESCAPE_NONE = -2 };

/* "&amp;", "&#47;", "&#x2F;": only what is no letter and no digit, which could not be written over in place. */
static int unescape_html(const char *p, size_t n)
{
	static const struct {
		const char *name;
		char means;
	} names[] = { { "amp", '&' }, { "lt", '<' }, { "gt", '>' }, { "quot", '"' },
		{ "apos", '\'' } };
	char text[ESCAPE_MAX], *end;
	long value;

	if (p[n - 1] != ';')
		return n < ESCAPE_MAX && (n == 1 || isalnum((unsigned char)p[n - 1]) ||
						 (n == 2 && p[1] == '#'))
			       ? ESCAPE_OPEN
			       : ESCAPE_NONE;
	(void)snprintf(text, sizeof(text), "%.*s", (int)(n - 2), p + 1);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_eq(text, names[i].name))
			return names[i].means;
	if (text[0] != '#' || n < 4)
		return ESCAPE_NONE;
	value = (text[1] | 0x20) == 'x' ? strtol(text + 2, &end, 16) : strtol(text + 1, &end, 10);
	return *end == '\0' && value > ' ' && value < 0x7f && !isalnum((int)value) ? (int)value
										   : ESCAPE_NONE;
}

/* "%2541" */
static int unescape_twice(const char *p, size_t n)
{
	if (memcmp(p, "%25", n < 3 ? n : 3) != 0 || (n > 3 && hex_value(p + 3, n - 3) < 0))
		return ESCAPE_NONE;
	return n < 5 ? ESCAPE_OPEN : hex_value(p + 3, 2);
}

/* What @n bytes that begin with the escape character mean: a byte, ESCAPE_OPEN (more is needed), ESCAPE_NONE (nothing). */
static int unescape(enum view_kind kind, const char *p, size_t n)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	size_t start = kind == VIEW_PERCENT ? 1 : 2, digits = kind == VIEW_PERCENT ? 2 : 4;
	const char *plain;
	int value;

	if (kind == VIEW_HTML)
		return unescape_html(p, n);
	if (kind == VIEW_PERCENT_TWICE)
		return unescape_twice(p, n);
	if (n == 1)
		return ESCAPE_OPEN;
	if (kind == VIEW_JSON && p[1] != 'u') {
		plain = memchr(from, p[1], sizeof(from) - 1);
		return plain != NULL ? (unsigned char)to[plain - from] : ESCAPE_NONE;
	}
	value = hex_value(p + start, n - start);
	if (value < 0)
		return ESCAPE_NONE;
	if (n < start + digits)
		return ESCAPE_OPEN;
	return value < 256 ? value : 0;
}

static void push(struct scrub *s, enum view_kind kind, unsigned char byte);

/* The first byte of an escape that is none stands for itself; what follows it is looked at again. */
static void give_up_escape(struct scrub *s, enum view_kind kind)
{
	struct view *v = &s->views[kind];
	char rest[ESCAPE_MAX];
	size_t n = v->escape_n - 1;

	memcpy(rest, v->escape + 1, n);
	v->escape_n = 0;
	feed(s, v, (unsigned char)v->escape[0], 1);
	for (size_t i = 0; i < n; i++)
		push(s, kind, (unsigned char)rest[i]);
}

static void push(struct scrub *s, enum view_kind kind, unsigned char byte)
{
	static const int starts[VIEW_COUNT] = { [VIEW_PLAIN] = -1,
		[VIEW_PERCENT] = '%',
		[VIEW_JSON] = '\\',
		[VIEW_PERCENT_TWICE] = '%',
		[VIEW_HTML] = '&' };
	struct view *v = &s->views[kind];
	int meaning;

	if (v->escape_n == 0 && byte != starts[kind]) {
		feed(s, v, byte, 1);
		return;
	}
	v->escape[v->escape_n++] = (char)byte;
	meaning = unescape(kind, v->escape, v->escape_n);
	if (meaning >= 0) {
		feed(s, v, (unsigned char)meaning, v->escape_n);
		v->escape_n = 0;
	} else if (meaning == ESCAPE_NONE) {
		give_up_escape(s, kind);
	}
}

/* Where the last bytes begin that some secret or other could begin with, in whatever rendering: there is no space in any. */
static uint64_t last_run(const struct scrub *s)
{
	size_t most = s->set->longest * ESCAPE_MAX, n = 0;

	while (n < s->held.n && n < most && s->held.p[s->held.n - n - 1] > ' ' &&
		s->held.p[s->held.n - n - 1] <= '~')
		n++;
	return s->held_at + s->held.n - n;
}

/* Bytes from here on may still become part of a match. */
static uint64_t settled(const struct scrub *s)
{
	uint64_t least = s->evenly ? last_run(s) : UINT64_MAX;

	for (unsigned int i = 0; i < s->set->n_views; i++) {
		const struct view *v = &s->views[i];
		uint32_t depth = s->set->nodes[v->state].depth;
		uint64_t at = depth > 0 ? symbol_at(s, v, v->count - depth)->at : v->at;

		if (at < least)
			least = at;
	}
	return least;
}

static bool idle(const struct scrub *s)
{
	for (unsigned int i = 0; i < s->set->n_views; i++)
		if (s->views[i].state != 0 || s->views[i].escape_n > 0)
			return false;
	return true;
}

/* How many of the next bytes cannot begin anything. */
static size_t dull(const struct scrub_set *set, const unsigned char *p, size_t n)
{
	size_t i = 0;

	while (i < n && !set->starts[p[i]] && p[i] != '%' && p[i] != '\\' && p[i] != '&')
		i++;
	return i;
}

static void give_out(struct scrub *s, uint64_t until, struct buf *out)
{
	size_t n = until > s->held_at ? (size_t)(until - s->held_at) : 0;

	if (n == 0)
		return;
	buf_add(out, s->held.p, n);
	buf_consume(&s->held, n);
	s->held_at = until;
}

void scrub_write(struct scrub *s, const void *p, size_t n, struct buf *out)
{
	const unsigned char *bytes = p;

	if (n == 0)
		return;
	buf_add(&s->held, p, n);
	for (size_t i = 0; i < n;) {
		size_t skip = idle(s) ? dull(s->set, bytes + i, n - i) : 0;

		for (unsigned int k = 0; k < s->set->n_views; k++)
			s->views[k].at += skip;
		i += skip;
		if (i == n)
			break;
		for (unsigned int k = 0; k < s->set->n_views; k++)
			push(s, (enum view_kind)k, bytes[i]);
		i++;
	}
	give_out(s, settled(s), out);
}

/* The last symbols lead to @node, as the beginning of a secret does: replace them when that is no chance, and no news to whoever reads it. Return: is it no chance? */
static bool replace_beginning(
	struct scrub *s, const struct view *v, const struct node *node, size_t certain)
{
	const struct rendering *r = &s->set->renderings[node->below];
	size_t n = node->depth, differ = 0;

	for (size_t i = 0; i < n; i++)
		differ += symbol_at(s, v, v->count - n + i)->byte != (unsigned char)r->replace[i];
	if (differ < certain)
		return false;
	if (s->known != NULL && measured(r, n) <= s->known->bits[r->pair])
		return true;
	for (size_t i = 0; i < n; i++)
		overwrite(s, symbol_at(s, v, v->count - n + i), r->replace[i]);
	return true;
}

static void flush(struct scrub *s, size_t certain, struct buf *out)
{
	const struct node *nodes = s->set->nodes;

	for (unsigned int i = 0; i < s->set->n_views; i++) {
		const struct view *v = &s->views[i];
		uint32_t n = v->state;

		while (n != 0 && !replace_beginning(s, v, &nodes[n], certain))
			n = nodes[n].fail;
	}
	give_out(s, s->held_at + s->held.n, out);
}

void scrub_flush(struct scrub *s, struct buf *out)
{
	flush(s, SCRUB_CERTAIN, out);
}

void scrub_let_go(struct scrub *s, struct buf *out)
{
	flush(s, SCRUB_SURE, out);
}

void scrub_end(struct scrub *s, struct buf *out)
{
	for (unsigned int i = 0; i < s->set->n_views; i++)
		while (s->views[i].escape_n > 0)
			give_up_escape(s, (enum view_kind)i);
	if (s->held.n > 0)
		give_out(s, s->held_at + s->held.n, out);
}

uint64_t scrub_whole(const struct scrub_set *set, const void *p, size_t n, struct buf *out)
{
	struct scrub *s = scrub_new(set);
	uint64_t found = 0;

	scrub_write(s, p, n, out);
	scrub_end(s, out);
	for (size_t i = 0; i < set->n_pairs; i++)
		found += scrub_found(s, i);
	scrub_free(s);
	return found;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/pattern.h"
#include "base/str.h"
#include "codec/authority.h"
#include "codec/urlpath.h"
#include "policy/policy.h"

#include <arpa/inet.h>

/* hosts */

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool name_valid(const char *s)
{
	size_t label = 0, n = strlen(s);

	if (n == 0 || n > POLICY_HOST_MAX)
		return false;
	for (; *s != '\0'; s++) {
		if (*s == '.' && label == 0)
			return false;
		label = *s == '.' ? 0 : label + 1;
		if (label > 63 || (*s != '.' && !name_char(*s)))
			return false;
	}
	return label > 0;
}

struct address {
	unsigned char bytes[16];
	unsigned int bits;
};

static bool address_parse(const char *s, struct address *ret)
{
	if (inet_pton(AF_INET, s, ret->bytes) == 1)
		ret->bits = 32;
	else if (inet_pton(AF_INET6, s, ret->bytes) == 1)
		ret->bits = 128;
	else
		return false;
	return true;
}

static bool network_parse(const char *s, struct address *ret, unsigned int *ret_prefix)
{
	char text[INET6_ADDRSTRLEN];
	const char *slash = strchr(s, '/');
	size_t n = slash != NULL ? (size_t)(slash - s) : strlen(s);
	uint64_t prefix;

	if (n >= sizeof(text))
		return false;
	memcpy(text, s, n);
	text[n] = '\0';
	if (!address_parse(text, ret))
		return false;
	prefix = ret->bits;
	if (slash != NULL && str_to_u64(slash + 1, 0, ret->bits, &prefix) < 0)
		return false;
	*ret_prefix = (unsigned int)prefix;
	return true;
}

static bool network_holds(const struct address *net, unsigned int prefix, const struct address *a)
{
	unsigned int whole = prefix / 8, rest = prefix % 8;

	if (net->bits != a->bits || memcmp(net->bytes, a->bytes, whole) != 0)
		return false;
	return rest == 0 || ((net->bytes[whole] ^ a->bytes[whole]) >> (8 - rest)) == 0;
}

bool host_pattern_valid(const char *s)
{
	struct address net;
	unsigned int prefix;

	if (str_eq(s, "*") || network_parse(s, &net, &prefix))
		return true;
	if (str_starts(s, "*."))
		return name_valid(s + 2);
	return name_valid(*s == '.' ? s + 1 : s);
}

static bool is_mapped(const struct address *net, unsigned int prefix)
{
	static const unsigned char mapped[12] = { [10] = 0xFF, [11] = 0xFF };

	return net->bits == 128 && prefix >= 96 && memcmp(net->bytes, mapped, sizeof(mapped)) == 0;
}

const char *host_pattern_flaw(const char *s)
{
	const char *name = str_starts(s, "*.") ? s + 2 : *s == '.' ? s + 1 : s;
	char host[AUTHORITY_HOST_SIZE];
	struct address net;
	unsigned int prefix;
	bool is_address;

	if (str_eq(s, "*"))
		return NULL;
	if (network_parse(s, &net, &prefix))
		return is_mapped(&net, prefix)
			       ? "is an IPv4 address or network in IPv6, which is judged as IPv4 (\"10.0.0.1\")"
			       : NULL;
	if (authority_host(name, strlen(name), host, &is_address) < 0 || is_address)
		return "ends in a number, and is no address as it is judged, whatever a program writes (four decimal numbers, \"127.0.0.1\")";
	return NULL;
}

static bool below(const char *host, const char *domain)
{
	size_t n = strlen(host), d = strlen(domain);

	return n > d + 1 && host[n - d - 1] == '.' && str_eq(host + n - d, domain);
}

bool host_pattern_match(const char *pattern, const char *host)
{
	struct address net, address;
	unsigned int prefix;

	if (str_eq(pattern, "*"))
		return true;
	if (address_parse(host, &address))
		return network_parse(pattern, &net, &prefix) &&
		       network_holds(&net, prefix, &address);
	if (str_starts(pattern, "*."))
		return below(host, pattern + 2);
	if (*pattern == '.')
		return str_eq(host, pattern + 1) || below(host, pattern + 1);
	return str_eq(host, pattern);
}

/* globs: a list of tokens, run as a set of states over the text (no backtracking) */

enum token_kind { TOKEN_BYTE, TOKEN_ANY, TOKEN_RUN };

struct token {
	enum token_kind kind;
	bool slash; /* may be, or may hold, a '/' */
	char byte;
};

static size_t add_token(struct token *t, size_t n, enum token_kind kind, bool slash, char byte)
{
	if (n < PATTERN_GLOB_MAX * 2)
		t[n] = (struct token){ kind, slash, byte };
	return n + 1;
}

/* Return: number of tokens, or -1 when @s is no glob. */
static ssize_t glob_tokens(const char *s, enum glob_kind kind, struct token *t)
{
	bool text = kind == GLOB_TEXT;
	size_t n = 0;

	if (strlen(s) > PATTERN_GLOB_MAX)
		return -1;
	for (; *s != '\0'; s++) {
		if (*s == '*') {
			bool crosses = text || s[1] == '*';

			s += s[1] == '*';
			n = add_token(t, n, TOKEN_RUN, crosses, 0);
		} else if (*s == '?') {
			n = add_token(t, n, TOKEN_ANY, text, 0);
		} else if (*s == '{' && !text) {
			s = strchr(s, '}');
			if (s == NULL)
				return -1;
			n = add_token(t, n, TOKEN_ANY, false, 0);
			n = add_token(t, n, TOKEN_RUN, false, 0);
		} else {
			s += *s == '\\' && s[1] != '\0';
			n = add_token(t, n, TOKEN_BYTE, true, *s);
		}
	}
	return (ssize_t)n;
}

bool glob_valid(const char *s, enum glob_kind kind)
{
	struct token t[PATTERN_GLOB_MAX * 2];

	if (kind == GLOB_PATH && *s != '/' && !str_starts(s, "**"))
		return false;
	return glob_tokens(s, kind, t) >= 0;
}

/* An escape as canonical paths have it: of a byte that has to be escaped, with capital digits. */
static bool escape_canonical(const char *s)
{
	char path[] = { '/', '%', s[1], s[1] != '\0' ? s[2] : '\0', '\0' }, out[sizeof(path)];

	return urlpath_canonical(path, strlen(path), out) == 4 && str_eq(path, out);
}

/* What stands at @s as itself, not as a wildcard. */
static const char *literal_flaw(const char *s)
{
	if (*s == '%' && !escape_canonical(s))
		return "holds an escape that no request is judged with: letters, digits and \"-._~\" stand for themselves, other bytes as %2F, with capital digits";
	if (*s <= ' ' || *s > '~' || *s == '#' || *s == '\\')
		return "holds a byte that requests write as an escape, as %20 or %C3%A4";
	return NULL;
}

const char *glob_path_flaw(const char *s)
{
	const char *const begin = s;
	const char *segment = s, *flaw = NULL;

	for (; flaw == NULL; s++) {
		size_t n = (size_t)(s - segment);

		if (*s == '/' || *s == '\0') {
			if ((n == 1 && *segment == '.') ||
				(n == 2 && memcmp(segment, "..", 2) == 0))
				flaw = "has a segment of dots, which are removed from a request before it is judged";
			else if (n == 0 && *s == '/' && s != begin)
				flaw = "has an empty segment, which are removed from a request before it is judged";
			segment = s + 1;
		} else if (*s == '{') {
			s = strchr(s, '}');
		} else {
			s += *s == '\\' && s[1] != '\0';
			flaw = literal_flaw(s);
		}
		if (*s == '\0')
			break;
	}
	return flaw;
}

/* A run may match nothing: a state before it is also a state behind it. */
static void spread(const struct token *t, size_t n, bool *on)
{
	for (size_t i = 0; i < n; i++)
		if (on[i] && t[i].kind == TOKEN_RUN)
			on[i + 1] = true;
}

static bool takes(const struct token *t, char c)
{
	if (t->kind == TOKEN_BYTE)
		return t->byte == c;
	return t->slash || c != '/';
}

/* All states over one byte; from the back, so that a state is read before it is written. */
static void advance(const struct token *t, size_t n, bool *on, char c)
{
	on[n] = false;
	for (size_t i = n; i-- > 0;) {
		bool step = on[i] && takes(&t[i], c);

		on[i] = step && t[i].kind == TOKEN_RUN;
		if (step && t[i].kind != TOKEN_RUN)
			on[i + 1] = true;
	}
	spread(t, n, on);
}

size_t glob_reads(const char *glob)
{
	struct token t[PATTERN_GLOB_MAX * 2];
	ssize_t n = glob_tokens(glob, GLOB_TEXT, t);
	bool open = false;

	for (; n > 0 && t[n - 1].kind == TOKEN_RUN; n--)
		open = true;
	for (ssize_t i = 0; i < n; i++)
		if (t[i].kind == TOKEN_RUN)
			return SIZE_MAX;
	return n < 0 ? SIZE_MAX : (size_t)n + !open;
}

bool glob_match(const char *glob, enum glob_kind kind, const char *text, size_t n)
{
	struct token all[PATTERN_GLOB_MAX * 2], *t = all;
	bool on[PATTERN_GLOB_MAX * 2 + 1] = { true };
	ssize_t got = glob_tokens(glob, kind, all);
	size_t left = (size_t)got;

	if (got < 0)
		return false;
	for (; left > 0 && t->kind == TOKEN_BYTE; t++, left--, text++, n--)
		if (n == 0 || *text != t->byte)
			return false;
	spread(t, left, on);
	for (size_t k = 0; k < n; k++)
		advance(t, left, on, text[k]);
	return on[left];
}

/* JSON pointers */

bool pointer_valid(const char *s)
{
	size_t depth = 0;

	if (*s == '\0' || strlen(s) > PATTERN_GLOB_MAX || !str_utf8_valid(s, strlen(s)))
		return false;
	if (*s != '/')
		return strchr(s, '/') == NULL;
	for (; *s != '\0'; s++) {
		depth += *s == '/';
		if (*s == '~' && s[1] != '0' && s[1] != '1')
			return false;
	}
	return depth <= POINTER_DEPTH;
}

struct walk {
	bool (*each)(const json_t *value, void *ctx);
	void *ctx;
	size_t n;
	bool stopped;
	bool alike; /* something on the way is what some readers take for the member that was named */
};

/* The letter at @p without its case, and how long it is: the Kelvin sign is a k and the long s an s for readers that fold Unicode. */
static char folded(const char *p, size_t *ret_n)
{
	*ret_n = 1;
	if (strncmp(p, "\xc5\xbf", 2) == 0) {
		*ret_n = 2;
		return 's';
	}
	if (strncmp(p, "\xe2\x84\xaa", 3) == 0) {
		*ret_n = 3;
		return 'k';
	}
	return *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
}

/* Protocol Buffers take "maxTokens" for "max_tokens": an underscore counts for nothing, but for one in front (names like "_id" stand beside "id"). */
static const char *past_underscores(const char *p)
{
	return p + strspn(p, "_");
}

bool pointer_same_name(const char *a, const char *b)
{
	size_t n, k;

	while (*a != '\0' && *b != '\0' && folded(a, &n) == folded(b, &k)) {
		a = past_underscores(a + n);
		b = past_underscores(b + k);
	}
	return *a == *b && *a == '\0';
}

static const json_t *member(struct walk *w, const json_t *object, const char *name)
{
	const char *key;
	json_t *value;

	if (w->each == NULL)
		json_object_foreach ((json_t *)(uintptr_t)object, key, value)
			w->alike |= !str_eq(key, name) && pointer_same_name(key, name);
	w->alike |= json_is_array(object);
	return json_object_get(object, name);
}

const char *pointer_part(const char *pointer, char part[PATTERN_GLOB_MAX + 1])
{
	size_t n = 0;

	for (pointer++; *pointer != '\0' && *pointer != '/'; pointer++) {
		char c = *pointer;

		if (c == '~')
			c = *++pointer == '1' ? '/' : '~';
		if (n < PATTERN_GLOB_MAX)
			part[n++] = c;
	}
	part[n] = '\0';
	return pointer;
}

static void walk_to(struct walk *w, const json_t *value, const char *pointer);

static void walk_all(struct walk *w, const json_t *value, const char *rest)
{
	const json_t *child;
	const char *key;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)value, i, child)
		walk_to(w, child, rest);
	json_object_foreach ((json_t *)(uintptr_t)value, key, child)
		walk_to(w, child, rest);
}

static void walk_to(struct walk *w, const json_t *value, const char *pointer)
{
	char part[PATTERN_GLOB_MAX + 1];
	const char *rest;
	uint64_t i;

	if (value == NULL || w->stopped)
		return;
	if (*pointer == '\0') {
		w->n++;
		w->stopped = w->each != NULL && !w->each(value, w->ctx);
		return;
	}
	rest = pointer_part(pointer, part);
	if (str_eq(part, "*"))
		walk_all(w, value, rest);
	else if (json_is_array(value) && str_to_u64(part, 0, SIZE_MAX, &i) == 0)
		walk_to(w, json_array_get(value, (size_t)i), rest);
	else
		walk_to(w, member(w, value, part), rest);
}

static void walk_from(struct walk *w, const json_t *root, const char *pointer)
{
	if (*pointer == '/')
		walk_to(w, root, pointer);
	else
		walk_to(w, member(w, root, pointer), "");
}

size_t pointer_walk(const json_t *root, const char *pointer,
	bool (*each)(const json_t *value, void *ctx), void *ctx)
{
	struct walk w = { .each = each, .ctx = ctx };

	walk_from(&w, root, pointer);
	return w.n;
}

bool pointer_alike(const json_t *root, const char *pointer)
{
	struct walk w = { 0 };

	walk_from(&w, root, pointer);
	return w.alike;
}

static json_t *step_into(json_t *value, const char *part)
{
	uint64_t i;

	if (json_is_object(value))
		return json_object_get(value, part);
	return str_to_u64(part, 0, SIZE_MAX, &i) == 0 ? json_array_get(value, (size_t)i) : NULL;
}

bool pointer_set(json_t *root, const char *pointer, json_t *value)
{
	char part[PATTERN_GLOB_MAX + 1];

	if (*pointer != '/') {
		(void)snprintf(part, sizeof(part), "%s", pointer);
	} else {
		pointer = pointer_part(pointer, part);
		for (; *pointer != '\0'; pointer = pointer_part(pointer, part))
			root = step_into(root, part);
	}
	if (!json_is_object(root))
		return value == NULL && !json_is_array(root); /* nothing is there */
	if (value == NULL)
		(void)json_object_del(root, part);
	return value == NULL || json_object_set(root, part, value) == 0;
}

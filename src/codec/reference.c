/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/reference.h"
#include "base/str.h"

static bool is_lower_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
	return is_lower_alnum(c) || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
	return (c >= 'a' && c <= 'f') || (c >= '0' && c <= '9');
}

bool digest_valid(const char *s)
{
	size_t want = str_starts(s, "sha256:") ? 64 : str_starts(s, "sha512:") ? 128 : 0;
	size_t n = 0;

	if (want == 0)
		return false;
	for (s += 7; is_hex(s[n]); n++)
		if (n == want)
			return false;
	return n == want && s[n] == '\0';
}

/* Length of the separator between two runs of letters and digits: ".", "_", "__" or any number of "-"; 0 when there is none. */
static size_t separator_length(const char *s, size_t n)
{
	size_t i = 0;

	if (n > 0 && s[0] == '.')
		return 1;
	if (n > 0 && s[0] == '_')
		return n > 1 && s[1] == '_' ? 2 : 1;
	while (i < n && s[i] == '-')
		i++;
	return i;
}

static bool component_valid(const char *s, size_t n)
{
	size_t i = 0, run, gap;

	for (;;) {
		for (run = 0; i < n && is_lower_alnum(s[i]); i++)
			run++;
		if (run == 0)
			return false;
		if (i == n)
			return true;
		gap = separator_length(s + i, n - i);
		if (gap == 0)
			return false;
		i += gap;
	}
}

static bool path_valid(const char *s, size_t n)
{
	for (;;) {
		const char *slash = memchr(s, '/', n);
		size_t length = slash != NULL ? (size_t)(slash - s) : n;

		if (!component_valid(s, length))
			return false;
		if (slash == NULL)
			return true;
		s += length + 1;
		n -= length + 1;
	}
}

/* Labels of letters, digits and inner dashes, with single dots between them. */
static bool host_valid(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool edge = i == 0 || i == n - 1 || s[i - 1] == '.' || s[i + 1] == '.';

		if (!is_alnum(s[i]) && ((s[i] != '.' && s[i] != '-') || edge))
			return false;
	}
	return n > 0;
}

static bool registry_valid(const char *s, size_t n)
{
	const char *colon = memchr(s, ':', n);
	size_t host = colon != NULL ? (size_t)(colon - s) : n;

	if (colon != NULL && (n - host < 2 || n - host > 6))
		return false;
	for (size_t i = host + 1; i < n; i++)
		if (s[i] < '0' || s[i] > '9')
			return false;
	return host_valid(s, host);
}

static bool tag_valid(const char *s, size_t n)
{
	if (n == 0 || n > REFERENCE_TAG_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(s[i]) && s[i] != '_' && (i == 0 || (s[i] != '.' && s[i] != '-')))
			return false;
	return true;
}

static bool is_registry(const char *s, size_t n)
{
	if (n == 9 && memcmp(s, "localhost", 9) == 0)
		return true;
	for (size_t i = 0; i < n; i++)
		if (s[i] == '.' || s[i] == ':' || (s[i] >= 'A' && s[i] <= 'Z'))
			return true;
	return false;
}

static void take(char *dst, const char *s, size_t n)
{
	memcpy(dst, s, n);
	dst[n] = '\0';
}

static int bad(const char **ret_reason, int rc, const char *reason)
{
	if (ret_reason != NULL)
		*ret_reason = reason;
	return rc;
}

/* Registry and path of the @n bytes before tag and digest. */
static int parse_name(struct reference *ref, const char *s, size_t n, const char **ret_reason)
{
	const char *slash = memchr(s, '/', n), *rest = s;
	size_t first = slash != NULL ? (size_t)(slash - s) : 0, left = n;

	take(ref->registry, REFERENCE_DEFAULT_REGISTRY, strlen(REFERENCE_DEFAULT_REGISTRY));
	if (slash != NULL && is_registry(s, first)) {
		if (first > REFERENCE_NAME_MAX || !registry_valid(s, first))
			return bad(ret_reason, -EINVAL, "the registry is malformed");
		take(ref->registry, s, first);
		rest = slash + 1;
		left = n - first - 1;
	}
	if (str_eq(ref->registry, "index.docker.io"))
		take(ref->registry, REFERENCE_DEFAULT_REGISTRY, strlen(REFERENCE_DEFAULT_REGISTRY));
	if (!path_valid(rest, left))
		return bad(ret_reason, -EINVAL,
			"a name is made of lower-case letters and digits with '.', '_', '__' or '-' between them and '/' between its parts");
	bool library = str_eq(ref->registry, REFERENCE_DEFAULT_REGISTRY) &&
		       memchr(rest, '/', left) == NULL;
	if (strlen(ref->registry) + 1 + (library ? 8 : 0) + left > REFERENCE_NAME_MAX)
		return bad(ret_reason, -ENAMETOOLONG, "the name is longer than 255 bytes");
	take(ref->path, "library/", library ? 8 : 0);
	take(ref->path + (library ? 8 : 0), rest, left);
	return 0;
}

int reference_parse(const char *text, struct reference *ret, const char **ret_reason)
{
	struct reference ref = { .tag = "" };
	const char *at = strchr(text, '@'), *colon = NULL;
	size_t n = at != NULL ? (size_t)(at - text) : strlen(text);
	int rc;

	if (at != NULL && !digest_valid(at + 1))
		return bad(ret_reason, -EINVAL,
			"a digest is 'sha256:' and 64 lower-case hexadecimal digits");
	if (at != NULL)
		take(ref.digest, at + 1, strlen(at + 1));
	for (size_t i = n; i > 0 && text[i - 1] != '/' && colon == NULL; i--)
		if (text[i - 1] == ':')
			colon = text + i - 1;
	if (colon != NULL) {
		size_t length = (size_t)(text + n - colon) - 1;

		if (!tag_valid(colon + 1, length))
			return bad(ret_reason, -EINVAL,
				"a tag is up to 128 letters, digits, '_', '.' and '-', the first no '.' or '-'");
		take(ref.tag, colon + 1, length);
		n = (size_t)(colon - text);
	} else if (at == NULL) {
		take(ref.tag, REFERENCE_DEFAULT_TAG, strlen(REFERENCE_DEFAULT_TAG));
	}
	rc = parse_name(&ref, text, n, ret_reason);
	if (rc < 0)
		return rc;
	*ret = ref;
	return 0;
}

static void print(char text[REFERENCE_TEXT_SIZE], const struct reference *ref, const char *registry,
	const char *path, const char *tag)
{
	if (snprintf(text, REFERENCE_TEXT_SIZE, "%s%s%s%s%s%s%s", registry,
		    registry[0] != '\0' ? "/" : "", path, tag[0] != '\0' ? ":" : "", tag,
		    ref->digest[0] != '\0' ? "@" : "", ref->digest) < 0)
		text[0] = '\0';
}

void reference_text(const struct reference *ref, char text[REFERENCE_TEXT_SIZE])
{
	print(text, ref, ref->registry, ref->path, ref->tag);
}

void reference_short(const struct reference *ref, char text[REFERENCE_TEXT_SIZE])
{
	bool docker = str_eq(ref->registry, REFERENCE_DEFAULT_REGISTRY);
	bool library =
		docker && str_starts(ref->path, "library/") && strchr(ref->path + 8, '/') == NULL;
	/* "a.b/c" of docker.io would be read as a registry when shortened; "localhost/c" too. */
	size_t first = strcspn(ref->path, "/");
	bool hides = docker && (library || !is_registry(ref->path, first));

	print(text, ref, hides ? "" : ref->registry, ref->path + (library ? 8 : 0), ref->tag);
}

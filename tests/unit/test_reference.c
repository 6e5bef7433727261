/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/reference.h"
#include "t.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *text_of(const char *input, bool brief)
{
	static char text[REFERENCE_TEXT_SIZE];
	struct reference ref;

	if (reference_parse(input, &ref, NULL) < 0)
		return "refused";
	if (brief)
		reference_short(&ref, text);
	else
		reference_text(&ref, text);
	return text;
}

TEST(malformed_names_are_refused)
{
	static const char *const bad[] = { "", ":", "@", "/", "a/", "/a", "a//b", "A", "a:", "a:-x",
		"a:.x", "a b", "a..b", "a___b", "-a", "a-", "_a", "a_", "a@sha256:12", "a@",
		"a@md5:" HEX64, "a@sha256:" HEX64 "0", "a@sha256:" HEX64 "@sha256:" HEX64, "a:b:c",
		"a.b:x/c", "a.b:/c", "a.b:123456/c", "-a.b/c", "a-.b/c", "a..b/c", ".a/c", "../etc",
		"a/../b", "a\n", "a\x7f", "caf\xc3\xa9", "a:t\xc3\xa9", "h.x/", "http://a/b",
		"a%2fb", "a\\b" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *reason = NULL;
		struct reference ref;

		check_int(reference_parse(bad[i], &ref, &reason), -EINVAL);
		check(reason != NULL);
	}
}

TEST(too_long_is_refused)
{
	char text[400];
	struct reference ref;

	memset(text, 'a', sizeof(text));
	text[255 - 18 + 1] = '\0'; /* docker.io/library/ is 18 bytes */
	check_int(reference_parse(text, &ref, NULL), -ENAMETOOLONG);
	text[255 - 18] = '\0';
	check_int(reference_parse(text, &ref, NULL), 0);
	memset(text, 'a', sizeof(text));
	memcpy(text, "a:", 2);
	text[2 + REFERENCE_TAG_MAX + 1] = '\0';
	check_int(reference_parse(text, &ref, NULL), -EINVAL);
	text[2 + REFERENCE_TAG_MAX] = '\0';
	check_int(reference_parse(text, &ref, NULL), 0);
}

TEST(names_are_completed)
{
	check_str(text_of("debian", false), "docker.io/library/debian:latest");
	check_str(text_of("debian:12", false), "docker.io/library/debian:12");
	check_str(text_of("a/b", false), "docker.io/a/b:latest");
	check_str(text_of("index.docker.io/a/b", false), "docker.io/a/b:latest");
	check_str(text_of("localhost/b", false), "localhost/b:latest");
	check_str(text_of("localhost:5000/b:x", false), "localhost:5000/b:x");
	check_str(text_of("Host/b", false), "Host/b:latest");
	check_str(text_of("ghcr.io/a/b:t@sha256:" HEX64, false), "ghcr.io/a/b:t@sha256:" HEX64);
	check_str(text_of("ghcr.io/a__b/c-d--e.f", false), "ghcr.io/a__b/c-d--e.f:latest");
	check_str(text_of("a@sha256:" HEX64, false), "docker.io/library/a@sha256:" HEX64);
}

TEST(short_forms_parse_to_the_same)
{
	check_str(text_of("docker.io/library/debian:12", true), "debian:12");
	check_str(text_of("docker.io/a/b", true), "a/b:latest");
	check_str(text_of("docker.io/a.b/c", true), "docker.io/a.b/c:latest");
	check_str(text_of("docker.io/localhost/c", true), "docker.io/localhost/c:latest");
	check_str(text_of("docker.io/library/a/b", true), "library/a/b:latest");
	check_str(text_of("quay.io/x", true), "quay.io/x:latest");
}

TEST(digests)
{
	check(digest_valid("sha256:" HEX64));
	check(digest_valid("sha512:" HEX64 HEX64));
	check(!digest_valid("sha512:" HEX64));
	check(!digest_valid("sha256:" HEX64 "0"));
	check(!digest_valid(
		"sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"));
	check(!digest_valid("sha256:"));
	check(!digest_valid(""));
}

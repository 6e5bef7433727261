/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/reference.h - names of images: [registry[:port]/]path[:tag][@digest].
 *
 * Grammar of github.com/distribution/reference, read strictly; IPv6 literals are not taken. A first component is a registry when it holds a dot,
 * a colon or a capital, or is "localhost"; otherwise the registry is docker.io, where a path of one component gets "library/" before it.
 */
#ifndef CAY_CODEC_REFERENCE_H
#define CAY_CODEC_REFERENCE_H

#include "base/attr.h"

#define REFERENCE_NAME_MAX   255 /* registry + "/" + path, as the distribution specification has it */
#define REFERENCE_TAG_MAX    128
#define REFERENCE_DIGEST_MAX 135 /* "sha512:" and 128 digits */
#define REFERENCE_TEXT_SIZE  (REFERENCE_NAME_MAX + REFERENCE_TAG_MAX + REFERENCE_DIGEST_MAX + 3)

#define REFERENCE_DEFAULT_REGISTRY "docker.io"
#define REFERENCE_DEFAULT_TAG      "latest"

/** struct reference - a parsed name, normalised: every part is filled but @digest, which may be empty. */
struct reference {
	char registry[REFERENCE_NAME_MAX + 1]; /* "docker.io", "localhost:5000" */
	char path[REFERENCE_NAME_MAX + 1];     /* "library/debian" */
	char tag[REFERENCE_TAG_MAX +
		 1]; /* "latest" when neither tag nor digest was given; "" when only a digest was */
	char digest[REFERENCE_DIGEST_MAX + 1]; /* "sha256:…" or "" */
};

/**
 * reference_parse() - read a name.
 * @text: NUL-terminated.
 * @ret:  filled on success, untouched otherwise.
 * @ret_reason: on failure set to a static phrase that says what is wrong; may be NULL.
 *
 * Return: 0, -EINVAL (not a reference), -ENAMETOOLONG.
 */
int reference_parse(const char *text, struct reference *ret, const char **ret_reason) attr_must_use;

/** reference_text() - the complete form: "docker.io/library/debian:12". Parsing it gives @ref again. */
void reference_text(const struct reference *ref, char text[REFERENCE_TEXT_SIZE]);

/** reference_short() - the form that people type: "debian:12". Parsing it gives @ref again. */
void reference_short(const struct reference *ref, char text[REFERENCE_TEXT_SIZE]);

/** digest_valid() - is @s "sha256:" with 64, or "sha512:" with 128, lower-case hexadecimal digits? */
bool digest_valid(const char *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: policy/sieve.h - JSON read piece by piece, of which only what somebody looks at is kept.
 *
 * The text is checked whole (RFC 8259; the same is refused as by jansson: invalid UTF-8, NUL in names, and in what is kept lone surrogates and numbers out of range), but a tree is built only of what lies on the way of JSON
 * pointers: images and long texts beside them cost no memory. A tree that came out of a sieve gives pointer_walk() and pointer_alike() the same values for these pointers as the whole tree would, but that
 * a container a pointer leads to may be empty, and that a long string ends where nobody reads on. Two members of one name are refused where a pointer looks at that name (everywhere when all is kept).
 *
 * All of it is kept by whoever changes the text and writes it anew (sieve_write()). Then a number is what was written, of any size and precision (sieve_number()), so that who reads decimals, or
 * whole numbers of more than 64 bits, finds what was sent.
 */
#ifndef CAY_POLICY_SIEVE_H
#define CAY_POLICY_SIEVE_H

#include "base/attr.h"

#include <jansson.h>

#define SIEVE_DEPTH_MAX \
	400 /* trees are walked by recursion, up to 300 bytes of a fiber's stack a level */

struct sieve;
struct sieve_paths;

/** sieve_paths_new() - no pointer yet; sieve_paths_free(). */
struct sieve_paths *sieve_paths_new(void) attr_must_use;

/** sieve_paths_add() - somebody looks at what @pointer (pointer_valid()) leads to, and of a string at no more than its first @string_bytes (SIZE_MAX: all of it). */
void sieve_paths_add(struct sieve_paths *paths, const char *pointer, size_t string_bytes);

/** sieve_paths_free() - NULL is allowed. */
void sieve_paths_free(struct sieve_paths *paths);

/**
 * sieve_new() - begin to read.
 * @paths: what is kept; borrowed; NULL: all of it, with numbers as they are written.
 * @memory_max: bytes that what is kept may take, roughly.
 */
struct sieve *sieve_new(const struct sieve_paths *paths, size_t memory_max) attr_must_use;

/** sieve_feed() - the next piece of the text. Return: 0; -EBADMSG, it is no JSON; -EMSGSIZE, what must be kept is too much. After a failure only sieve_free(). */
int sieve_feed(struct sieve *s, const char *p, size_t n) attr_must_use;

/** sieve_end() - the text is over. Return: the tree, a new reference; NULL when it was not one whole object or array. */
json_t *sieve_end(struct sieve *s) attr_must_use;

/** sieve_memory() - bytes that the tree takes, roughly. */
size_t sieve_memory(const struct sieve *s);

/** sieve_memory_of_all() - bytes that the tree of the text so far would take, at most, if all of it were kept, roughly. */
size_t sieve_memory_of_all(const struct sieve *s);

/** sieve_text_of_all() - bytes that the text so far takes, at most, when sieve_write() writes it anew. */
size_t sieve_text_of_all(const struct sieve *s);

/** sieve_free() - NULL is allowed. */
void sieve_free(struct sieve *s);

/** sieve_number() - how @value, of a tree of which all was kept, was written there; NULL: it is no number, or came from elsewhere. To jansson it is a string. */
const char *sieve_number(const json_t *value);

/**
 * sieve_write() - write @tree, of which all was kept, and which may have been changed since: compact, with members in their order.
 * @put: gets the text in pieces; what it says other than 0 ends it.
 * Return: 0, or what @put said.
 */
int sieve_write(const json_t *tree, int (*put)(const char *p, size_t n, void *ctx), void *ctx);

#endif

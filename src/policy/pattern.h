/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/pattern.h - hosts, globs and JSON pointers, as rules use them. Pure; linear in pattern times text. */
#ifndef CAY_POLICY_PATTERN_H
#define CAY_POLICY_PATTERN_H

#include "base/attr.h"

#include <jansson.h>

#define PATTERN_GLOB_MAX 1024 /* bytes of one glob */
#define POINTER_DEPTH    16   /* parts of one JSON pointer */

/**
 * host_pattern_valid() - is @s a pattern for hosts?
 * A name; "*.name": everything below it; ".name": the name and everything below it; "*": everything; an address; "address/bits". Lower case.
 */
bool host_pattern_valid(const char *s);

/** host_pattern_flaw() - why no host that is judged matches the valid pattern @s (static text); NULL: one may. Hosts are in canonical form (codec/authority.h). */
const char *host_pattern_flaw(const char *s);

/** host_pattern_match() - does @host (lower case; or an address in canonical text) match? */
bool host_pattern_match(const char *pattern, const char *host);

/** enum glob_kind - what a star stands for. */
enum glob_kind {
	GLOB_PATH, /* '*' and '{name}' stay inside one segment, '**' crosses '/' */
	GLOB_TEXT  /* '*' is any run of bytes */
};

/** glob_valid() - is @s a glob of @kind (braces closed, not too long; a path begins with '/' or "**")? */
bool glob_valid(const char *s, enum glob_kind kind);

/**
 * glob_path_flaw() - why a valid path glob says something that no canonical path (codec/urlpath.h) has, so that it would never match; a static phrase, or NULL.
 */
const char *glob_path_flaw(const char *s);

/** glob_match() - does the whole of @text match? '?' is one byte (no '/' in paths), '\' takes the next byte as it is. */
bool glob_match(const char *glob, enum glob_kind kind, const char *text, size_t n);

/** glob_reads() - how many bytes of a text decide whether it matches the %GLOB_TEXT @glob, whatever follows them; SIZE_MAX: all. */
size_t glob_reads(const char *glob);

/** pointer_part() - copy the first part of @pointer, "~1" and "~0" undone; it begins with '/'. Return: what follows it. */
const char *pointer_part(const char *pointer, char part[PATTERN_GLOB_MAX + 1]);

/** pointer_same_name() - are the names equal for whom capitals are small letters, the Kelvin sign is a k and the long s an s, and underscores but for the first byte are nothing? */
bool pointer_same_name(const char *a, const char *b);

/** pointer_valid() - is @s a member name without '/', or a JSON pointer (RFC 6901) of at most %POINTER_DEPTH parts? */
bool pointer_valid(const char *s);

/**
 * pointer_walk() - call @each for every value that @pointer leads to; the part "*" is every element or member.
 * @each: returns false to stop the walk.
 *
 * Return: how many values were visited.
 */
size_t pointer_walk(const json_t *root, const char *pointer,
	bool (*each)(const json_t *value, void *ctx), void *ctx);

/**
 * pointer_alike() - has an object on the way of @pointer, or the last one, a member whose name differs from the one that @pointer names in nothing but case and underscores?
 * Readers that do not tell capitals from small letters (Go's encoding/json), or know both forms of a name (Protocol Buffers), may take it for that one. Or does a list stand where @pointer names a member? Some readers take one for several requests
 * (JSON-RPC, GraphQL), or its elements for the members in order (Rust's serde). NULL is allowed.
 */
bool pointer_alike(const json_t *root, const char *pointer);

/**
 * pointer_set() - set what @pointer names to @value, or remove it when @value is NULL. Members that lead there must exist, or there is nothing to remove; "*" means nothing here.
 * Return: false when there is no such place, or an element of a list should be removed.
 */
bool pointer_set(json_t *root, const char *pointer, json_t *value) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/sieve_paths.h - the pointers of a sieve as a tree of their parts; only for sieve.c. */
#ifndef CAY_POLICY_SIEVE_PATHS_H
#define CAY_POLICY_SIEVE_PATHS_H

#include "policy/sieve.h"

/** struct sieve_set - the parts of pointers that one place of a text is at, and what is wanted there. */
struct sieve_set {
	uint32_t *nodes;
	size_t n, cap;
	bool ends;           /* a pointer leads here */
	size_t string_bytes; /* of a string that stands here */
	bool alike;          /* not a name that is looked at, but some readers take it for one */
};

/** sieve_set_begin() - the set of the whole text. */
void sieve_set_begin(const struct sieve_paths *paths, struct sieve_set *ret);

/** sieve_set_member() - the set of the member @key of what is at @from. */
void sieve_set_member(const struct sieve_paths *paths, const struct sieve_set *from,
	const char *key, struct sieve_set *ret);

/** sieve_set_element() - the set of element @index of what is at @from. */
void sieve_set_element(const struct sieve_paths *paths, const struct sieve_set *from,
	uint64_t index, struct sieve_set *ret);

/** sieve_set_counts() - does a pointer tell elements of what is at @from by their place? */
bool sieve_set_counts(const struct sieve_paths *paths, const struct sieve_set *from);

/** sieve_set_names() - does a pointer name a member of what is at @from, which a list has not? */
bool sieve_set_names(const struct sieve_paths *paths, const struct sieve_set *from);

/** sieve_set_fini() - free what it holds. */
void sieve_set_fini(struct sieve_set *set);

#endif

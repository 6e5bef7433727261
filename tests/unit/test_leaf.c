/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/leaf.h"
#include "t.h"

TEST(one_object_a_host_and_a_bound)
{
	struct ca_root root;
	struct leaf_cache *cache;
	X509 *first, *kept;
	char host[32];

	check_int(ca_root_new(&root, "a1", NULL), 0);
	cache = leaf_cache_new(&root);
	first = leaf_get(cache, "first.example", 0);
	check(first != NULL && leaf_get(cache, "first.example", 0) == first);
	kept = leaf_get(cache, "kept.example", 0);
	(void)X509_up_ref(first);
	for (int i = 0; i < LEAF_MAX - 1; i++) {
		(void)snprintf(host, sizeof(host), "h%d.example", i);
		check(leaf_get(cache, host, 0) != NULL);
		check(leaf_get(cache, "kept.example", 0) == kept);
	}
	check(leaf_get(cache, "first.example", 0) != first); /* it was the longest unused */
	X509_free(first);
	leaf_cache_free(cache);
	ca_root_fini(&root);
}

TEST(a_leaf_is_renewed_before_it_expires)
{
	const time_t day = 86400;
	struct ca_root root;
	struct leaf_cache *cache;
	X509 *first, *second;

	check_int(ca_root_new(&root, "a1", NULL), 0);
	cache = leaf_cache_new(&root);
	first = leaf_get(cache, "a.example", 0);
	check(first != NULL && X509_up_ref(first) == 1);
	check(leaf_get(cache, "a.example", 45 * day) == first);
	second = leaf_get(cache, "a.example", 46 * day);
	check(second != NULL && X509_cmp(second, first) != 0);
	check(X509_verify(second, root.key) == 1);
	check(X509_check_private_key(second, leaf_key(cache)) == 1);
	check(leaf_get(cache, "a.example", 47 * day) == second);
	check(X509_up_ref(second) == 1); /* made while the clock was ahead: not good yet */
	check(leaf_get(cache, "a.example", 5 * day) != second);
	X509_free(second);
	X509_free(first);
	leaf_cache_free(cache);
	ca_root_fini(&root);
}

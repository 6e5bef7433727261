/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/leaf.h"
#include "t.h"

TEST(one_object_a_host_and_a_bound)
{
	struct ca_root root;
	struct ca_issuer issuer;
	struct leaf_cache *cache;
	X509 *first, *kept;
	char host[32];

	check_int(ca_root_new(&root, "a1", NULL), 0);
	check_int(ca_issuer_new(&issuer, &root, NULL), 0);
	cache = leaf_cache_new(&issuer);
	first = leaf_get(cache, "first.example");
	check(first != NULL && leaf_get(cache, "first.example") == first);
	kept = leaf_get(cache, "kept.example");
	(void)X509_up_ref(first);
	for (int i = 0; i < LEAF_MAX - 1; i++) {
		(void)snprintf(host, sizeof(host), "h%d.example", i);
		check(leaf_get(cache, host) != NULL);
		check(leaf_get(cache, "kept.example") == kept);
	}
	check(leaf_get(cache, "first.example") != first); /* it was the longest unused */
	X509_free(first);
	leaf_cache_free(cache);
	ca_issuer_fini(&issuer);
	ca_root_fini(&root);
}

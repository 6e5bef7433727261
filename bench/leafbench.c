/* SPDX-License-Identifier: Apache-2.0 */
/* leafbench COUNT: prints {"root_us","leaf_us","again_us"}: a root, a leaf for a new host, a leaf that is there already. */
#include "base/clock.h"
#include "gateway/leaf.h"

int main(int argc, char **argv)
{
	long n = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	uint64_t t0 = clock_now_ns(), t1, t2, t3;
	struct ca_root root;
	struct leaf_cache *cache;
	char host[40];

	if (n <= 0 || n > LEAF_MAX || ca_root_new(&root, "bench", NULL) < 0 ||
		(cache = leaf_cache_new(&root)) == NULL)
		return 1;
	t1 = clock_now_ns();
	for (long i = 0; i < n; i++) {
		(void)snprintf(host, sizeof(host), "h%ld.example", i);
		if (leaf_get(cache, host, 0) == NULL)
			return 1;
	}
	t2 = clock_now_ns();
	for (long i = 0; i < n; i++) {
		(void)snprintf(host, sizeof(host), "h%ld.example", i);
		if (leaf_get(cache, host, 0) == NULL)
			return 1;
	}
	t3 = clock_now_ns();
	(void)printf("{\"root_us\": %.1f, \"leaf_us\": %.1f, \"again_us\": %.2f}\n",
		(double)(t1 - t0) / 1e3, (double)(t2 - t1) / 1e3 / (double)n,
		(double)(t3 - t2) / 1e3 / (double)n);
	leaf_cache_free(cache);
	ca_root_fini(&root);
	return 0;
}

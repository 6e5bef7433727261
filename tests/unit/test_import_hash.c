/* SPDX-License-Identifier: Apache-2.0 */
/* As a packager compiles: what hashes layers may not hang on a check of ours. */
#define NDEBUG
#include "prog/cay-import/import_hash.c"
#include "t.h"

static void hash_of(const char *text, char ret[160])
{
	struct import_hash *hash = import_hash_new(false);

	import_hash_add(hash, text, strlen(text));
	import_hash_text(hash, ret, 160);
	import_hash_free(hash);
}

TEST(layers_have_their_digests)
{
	char text[160];

	hash_of("", text);
	check_str(text, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	hash_of("abc", text);
	check_str(text, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

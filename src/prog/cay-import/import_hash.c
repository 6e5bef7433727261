/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-import/import_hash.h"

#include <openssl/evp.h>
#include <string.h>

struct import_hash {
	bool sha512;
	EVP_MD_CTX *context;
};

struct import_hash *import_hash_new(bool sha512)
{
	struct import_hash *hash = xnew(struct import_hash);
	int done;

	hash->sha512 = sha512;
	hash->context = EVP_MD_CTX_new();
	BUG_ON(hash->context == NULL);
	done = EVP_DigestInit_ex(hash->context, sha512 ? EVP_sha512() : EVP_sha256(), NULL);
	BUG_ON(done != 1);
	return hash;
}

void import_hash_add(struct import_hash *hash, const void *bytes, size_t n)
{
	int done = EVP_DigestUpdate(hash->context, bytes, n);

	BUG_ON(done != 1);
}

void import_hash_text(struct import_hash *hash, char *text, size_t size)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int n;
	int done = EVP_DigestFinal_ex(hash->context, digest, &n);

	BUG_ON(done != 1 || size < 8 + 2 * (size_t)n);
	memset(text, 0, size);
	memcpy(text, hash->sha512 ? "sha512:" : "sha256:", 7);
	for (unsigned int i = 0; i < n; i++) {
		text[7 + 2 * i] = "0123456789abcdef"[digest[i] >> 4];
		text[8 + 2 * i] = "0123456789abcdef"[digest[i] & 15];
	}
}

void import_hash_free(struct import_hash *hash)
{
	if (hash == NULL)
		return;
	EVP_MD_CTX_free(hash->context);
	free(hash);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "store/vault.h"
#include "base/str.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>

#define NONCE_SIZE 12
#define TAG_SIZE   16
#define SEALED_MAX (NONCE_SIZE + VAULT_VALUE_MAX + TAG_SIZE)

/* One direction, with the name as associated data. Return: whether it worked and, when opening, the tag was right. */
static bool gcm(bool seal, const unsigned char *key, const unsigned char *nonce, const char *name,
	const unsigned char *in, size_t n, unsigned char *out, unsigned char *tag)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int used = 0, last = 0;
	bool fine = ctx != NULL &&
		    EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce, seal) == 1 &&
		    EVP_CipherUpdate(ctx, NULL, &used, (const unsigned char *)name,
			    (int)strlen(name)) == 1 &&
		    EVP_CipherUpdate(ctx, out, &used, in, (int)n) == 1;

	if (fine && !seal)
		fine = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG_SIZE, tag) == 1;
	fine = fine && EVP_CipherFinal_ex(ctx, out + used, &last) == 1;
	if (fine && seal)
		fine = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG_SIZE, tag) == 1;
	EVP_CIPHER_CTX_free(ctx);
	return fine;
}

static char *to_hex(const unsigned char *p, size_t n)
{
	char *text = xalloc(2 * n + 1);

	str_hex(text, p, n);
	return text;
}

/* Return: number of bytes, 0 when it is no hexadecimal text of at most @max bytes. */
static size_t from_hex(const char *text, unsigned char *out, size_t max)
{
	size_t n = strlen(text) / 2;

	if (n > max || strlen(text) % 2 != 0 || text[strspn(text, "0123456789abcdef")] != '\0')
		return 0;
	for (size_t i = 0; i < n; i++) {
		char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };

		out[i] = (unsigned char)strtoul(digits, NULL, 16);
	}
	return n;
}

char *vault_seal(const unsigned char key[VAULT_KEY_SIZE], const char *name, const char *value)
{
	unsigned char sealed[SEALED_MAX];
	size_t n = strlen(value);

	if (n > VAULT_VALUE_MAX || RAND_bytes(sealed, NONCE_SIZE) != 1 ||
		!gcm(true, key, sealed, name, (const unsigned char *)value, n, sealed + NONCE_SIZE,
			sealed + NONCE_SIZE + n))
		return NULL;
	return to_hex(sealed, NONCE_SIZE + n + TAG_SIZE);
}

int vault_open(const unsigned char key[VAULT_KEY_SIZE], const char *name, const char *sealed,
	char value[VAULT_VALUE_MAX + 1])
{
	unsigned char bytes[SEALED_MAX];
	size_t n = from_hex(sealed, bytes, sizeof(bytes));

	if (n < NONCE_SIZE + TAG_SIZE ||
		!gcm(false, key, bytes, name, bytes + NONCE_SIZE, n - NONCE_SIZE - TAG_SIZE,
			(unsigned char *)value, bytes + n - TAG_SIZE))
		return -EBADMSG;
	value[n - NONCE_SIZE - TAG_SIZE] = '\0';
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/vault.h - short values, encrypted with AES-256-GCM (NIST SP 800-38D) under a random nonce, as text.
 *
 * The name is authenticated with the value, so that sealed values cannot be exchanged.
 */
#ifndef CAY_STORE_VAULT_H
#define CAY_STORE_VAULT_H

#include "base/attr.h"

#define VAULT_KEY_SIZE  32
#define VAULT_VALUE_MAX 4096

/** vault_seal() - encrypt @value. Return: lower-case hexadecimal of nonce, ciphertext and tag, free(); NULL when it is too long or there is no randomness. */
char *vault_seal(
	const unsigned char key[VAULT_KEY_SIZE], const char *name, const char *value) attr_must_use;

/** vault_open() - decrypt what vault_seal() made into @value, NUL-terminated; overwrite it after use. Return: 0 or -EBADMSG. */
int vault_open(const unsigned char key[VAULT_KEY_SIZE], const char *name, const char *sealed,
	char value[VAULT_VALUE_MAX + 1]) attr_must_use;

#endif

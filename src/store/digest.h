/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/digest.h - SHA-256 and HMAC-SHA256. */
#ifndef CAY_STORE_DIGEST_H
#define CAY_STORE_DIGEST_H

#include "base/attr.h"

#define DIGEST_SIZE      32
#define DIGEST_TEXT_SIZE 65

/** digest_bytes() - SHA-256 of @n bytes. */
void digest_bytes(const void *bytes, size_t n, unsigned char digest[DIGEST_SIZE]);

/**
 * digest_file() - SHA-256 of the first @size bytes of the regular file behind @fd, holes read as zeros.
 * @size: what it had when it was looked at, so that one which grows meanwhile is read no longer; of one that is shorter by now all.
 * Return: 0 or -errno.
 */
int digest_file(int fd, uint64_t size, unsigned char digest[DIGEST_SIZE]) attr_must_use;

/**
 * digest_data() - what tells the content of the regular file behind @fd from every other: SHA-256 over its size and over each block that has another byte than zero,
 * with its place. Takes as long as what is stored, not as the file is large: one of exabytes is made by a single call.
 * Return: 0 or -errno.
 */
int digest_data(int fd, unsigned char digest[DIGEST_SIZE]) attr_must_use;

/** digest_hmac() - HMAC-SHA256 (RFC 2104) with a 32-byte key. */
void digest_hmac(const unsigned char key[DIGEST_SIZE], const void *bytes, size_t n,
	unsigned char digest[DIGEST_SIZE]);

/** digest_text() - lower-case hexadecimal. */
void digest_text(const unsigned char digest[DIGEST_SIZE], char text[DIGEST_TEXT_SIZE]);

#endif

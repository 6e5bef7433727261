/* SPDX-License-Identifier: Apache-2.0 */
/* The plain functions of libcrypto link statically without dragging in its providers; they are deprecated, not going away in 3.x. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "store/digest.h"
#include "base/str.h"
#include "sys/file.h"

#include <endian.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK 64

void digest_bytes(const void *bytes, size_t n, unsigned char digest[DIGEST_SIZE])
{
	SHA256_CTX ctx;

	(void)SHA256_Init(&ctx);
	(void)SHA256_Update(&ctx, bytes, n);
	(void)SHA256_Final(digest, &ctx);
}

int digest_file(int fd, uint64_t size, unsigned char digest[DIGEST_SIZE])
{
	static unsigned char chunk[1 << 18];
	SHA256_CTX ctx;

	(void)SHA256_Init(&ctx);
	for (uint64_t at = 0; at < size;) {
		uint64_t left = size - at;
		ssize_t n = pread(
			fd, chunk, left < sizeof(chunk) ? (size_t)left : sizeof(chunk), (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		(void)SHA256_Update(&ctx, chunk, (size_t)n);
		at += (uint64_t)n;
	}
	(void)SHA256_Final(digest, &ctx);
	return 0;
}

/* As many bytes as the file has there, up to @n: a short read would make other blocks of the same content. */
static ssize_t read_block(int fd, unsigned char *bytes, size_t n, off_t at)
{
	size_t got = 0;

	while (got < n) {
		ssize_t more = pread(fd, bytes + got, n - got, at + (off_t)got);

		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0)
			return -errno;
		if (more == 0)
			break;
		got += (size_t)more;
	}
	return (ssize_t)got;
}

/* Blocks stand at multiples of their size, whichever of them are holes: content alone decides, not how it is stored. */
int digest_data(int fd, unsigned char digest[DIGEST_SIZE])
{
	static const unsigned char zeros[1 << 16];
	static unsigned char block[sizeof(zeros)];
	uint64_t number;
	struct stat st;
	SHA256_CTX ctx;

	if (fstat(fd, &st) < 0)
		return -errno;
	number = htole64((uint64_t)st.st_size);
	(void)SHA256_Init(&ctx);
	(void)SHA256_Update(&ctx, &number, sizeof(number));
	for (off_t at = 0;;) {
		ssize_t n;

		at = file_data_from(fd, at) & ~(off_t)(sizeof(block) - 1);
		n = read_block(fd, block, sizeof(block), at);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		if (memcmp(block, zeros, (size_t)n) != 0) {
			number = htole64((uint64_t)at);
			(void)SHA256_Update(&ctx, &number, sizeof(number));
			(void)SHA256_Update(&ctx, block, (size_t)n);
		}
		at += (off_t)sizeof(block);
	}
	(void)SHA256_Final(digest, &ctx);
	return 0;
}

void digest_hmac(const unsigned char key[DIGEST_SIZE], const void *bytes, size_t n,
	unsigned char digest[DIGEST_SIZE])
{
	unsigned char pad[BLOCK] = { 0 };
	SHA256_CTX ctx;

	memcpy(pad, key, DIGEST_SIZE);
	for (size_t i = 0; i < BLOCK; i++)
		pad[i] ^= 0x36;
	(void)SHA256_Init(&ctx);
	(void)SHA256_Update(&ctx, pad, BLOCK);
	(void)SHA256_Update(&ctx, bytes, n);
	(void)SHA256_Final(digest, &ctx);
	for (size_t i = 0; i < BLOCK; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	(void)SHA256_Init(&ctx);
	(void)SHA256_Update(&ctx, pad, BLOCK);
	(void)SHA256_Update(&ctx, digest, DIGEST_SIZE);
	(void)SHA256_Final(digest, &ctx);
}

void digest_text(const unsigned char digest[DIGEST_SIZE], char text[DIGEST_TEXT_SIZE])
{
	str_hex(text, digest, DIGEST_SIZE);
}

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-import/unzip.h - a part of a file, decompressed while it is read, counted and hashed on both sides.
 *
 * Plain, gzip (of several members too) and zstd, told apart by their first bytes. Hashing what is used, and not what was looked at before,
 * leaves no moment in which the file can change.
 */
#ifndef CAY_IMPORT_UNZIP_H
#define CAY_IMPORT_UNZIP_H

#include "base/err.h"
#include "codec/reference.h"

/** struct blob - bytes @offset..+@size of the file behind @fd. */
struct blob {
	int fd; /* borrowed */
	uint64_t offset, size;
};

struct unzip;

/**
 * unzip_open() - start reading @blob.
 * @limit_bytes: more decompressed bytes are refused with %ERR_HOSTILE_ARCHIVE, and so is a ratio above %UNZIP_RATIO_MAX.
 * @sha512:      hash with SHA-512, else with SHA-256.
 *
 * Return: free with unzip_close(); NULL with *@err.
 */
struct unzip *unzip_open(
	const struct blob *blob, uint64_t limit_bytes, bool sha512, struct err *err) attr_must_use;

#define UNZIP_RATIO_MAX  250
#define UNZIP_RATIO_FROM (256ULL << 20) /* decompressed bytes from which the ratio counts */

/** unzip_read() - fill @n bytes unless the stream ends first; @context is a struct unzip (fits tar_read_fn). Return: bytes, -errno with *@err. */
ssize_t unzip_read(void *context, void *bytes, size_t n, struct err *err);

/** unzip_drain() - read to the end, so that the digests are those of the whole. Return: 0 or -errno with *@err. */
int unzip_drain(struct unzip *unzip, struct err *err) attr_must_use;

/** unzip_compressed() - is the blob compressed? */
bool unzip_compressed(const struct unzip *unzip);

/** unzip_digests() - "sha256:…" of the stored and of the decompressed bytes; once, after unzip_drain(). */
void unzip_digests(struct unzip *unzip, char stored[REFERENCE_DIGEST_MAX + 1],
	char plain[REFERENCE_DIGEST_MAX + 1]);

/** unzip_close() - NULL is allowed. */
void unzip_close(struct unzip *unzip);

static inline void cleanup_unzip_closep(struct unzip **unzip)
{
	unzip_close(*unzip);
}

#define cleanup_unzip cleanup(cleanup_unzip_closep)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-import/import_hash.h - SHA-256 and SHA-512 in steps. A file of its own: OpenSSL's names and base/err.h's meet badly. */
#ifndef CAY_IMPORT_HASH_H
#define CAY_IMPORT_HASH_H

#include "base/attr.h"

struct import_hash;

/** import_hash_new() - an empty hash; free with import_hash_free(). */
struct import_hash *import_hash_new(bool sha512) attr_must_use;

/** import_hash_add() - hash @n more bytes. */
void import_hash_add(struct import_hash *hash, const void *bytes, size_t n);

/** import_hash_text() - "sha256:…" or "sha512:…" into @text of @size bytes, the rest of which is zeroed; once, at the end. */
void import_hash_text(struct import_hash *hash, char *text, size_t size);

/** import_hash_free() - NULL is allowed. */
void import_hash_free(struct import_hash *hash);

#endif

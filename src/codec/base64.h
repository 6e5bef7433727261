/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: codec/base64.h - bytes as text: RFC 4648 section 4, padded, without line ends. */
#ifndef CAY_CODEC_BASE64_H
#define CAY_CODEC_BASE64_H

#include "base/buf.h"

/** base64_encode() - @n bytes (below 1 GiB) as text. Return: free(). */
char *base64_encode(const void *p, size_t n) attr_must_use;

/** base64_decode() - append the bytes that @n characters stand for to @out. Return: 0; -EBADMSG when they are not exactly what base64_encode() writes. */
int base64_decode(const char *p, size_t n, struct buf *out) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/origin.h - from which file overlayfs has copied one up: a handle of the lower file in an attribute of the copy (fs/overlayfs/overlayfs.h, struct ovl_fb).
 */
#ifndef CAY_STORE_ORIGIN_H
#define CAY_STORE_ORIGIN_H

#include "base/attr.h"
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/** struct origin - the attribute. */
struct origin {
	uint8_t version, magic, len, flags, type;
	uint8_t uuid[16];
	uint8_t fid[128];
} __attribute__((packed));

/** origin_get() - read it from (@dir, @name). @prefix: of overlay's attributes. Return: bytes of the attribute (0 where it says only that there was a file), -ENODATA, other -errno. */
ssize_t origin_get(const char *prefix, int dir, const char *name, struct origin *ret) attr_must_use;

/** origin_size() - bytes of the handle in @o, of which origin_get() said @n; negative when there is none. */
ssize_t origin_size(const struct origin *o, ssize_t n);

/** origin_open() - a place (O_PATH) for the file that the handle of @n bytes leads to, in the file system of @mount. Descriptor or -errno. Context: CAP_DAC_READ_SEARCH. */
int origin_open(int mount, const struct origin *o, size_t n) attr_must_use;

/** origin_stat() - what it leads to. Return: 1, 0 when there is no such thing any more, negative when it cannot be told. */
int origin_stat(int mount, const struct origin *o, size_t n, struct stat *ret) attr_must_use;

/** origin_opens() - false: there is no such thing any more. */
bool origin_opens(int mount, const struct origin *o, size_t n);

/** origin_above() - of the file in a layer of the pool that @o leads to: what was that copied up from? @ret may be @o. Return: bytes of the handle; negative when there is none. */
ssize_t origin_above(int pool, const char *prefix, const struct origin *o, size_t n,
	struct origin *ret) attr_must_use;

/** origin_first() - what is in a layer may have been copied up from the host, and from there into the next, @max times at most: the first counts. Return: as above. */
ssize_t origin_first(int pool, const char *prefix, int dir, const char *name, size_t max,
	struct origin *ret) attr_must_use;

/** origin_text() - @n bytes of @o as they are recorded; free() it. */
char *origin_text(const struct origin *o, size_t n) attr_must_use;

#endif

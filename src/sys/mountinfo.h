/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/mountinfo.h - the table of mounts as the kernel prints it. Source: Documentation/filesystems/proc.rst, 3.5. */
#ifndef CAY_SYS_MOUNTINFO_H
#define CAY_SYS_MOUNTINFO_H

#include "base/attr.h"

/** struct mountinfo - one mount; borrowed for the call. @point: as seen by whose table it is, without escapes. @options: of the file system. */
struct mountinfo {
	const char *point, *type, *options;
};

/**
 * mountinfo_each() - call @fn for each mount of the table @path (/proc/PID/mountinfo), in its order, until it says something else than 0.
 * Return: what @fn said last, or -errno: the table cannot be read, or is larger than 4 MiB.
 */
int mountinfo_each(
	const char *path, int (*fn)(void *ctx, const struct mountinfo *m), void *ctx) attr_must_use;

#endif

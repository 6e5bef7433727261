/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/loop.h - a file as a block device. Root only. */
#ifndef CAY_SYS_LOOP_H
#define CAY_SYS_LOOP_H

#include "base/attr.h"

#define LOOP_PATH_SIZE 32

#define LOOP_NAME_SIZE 64

/**
 * loop_attach() - bind the open file @file to a free loop device that goes away with its last user.
 * @file: open for reading and writing; direct I/O is used where the file system can.
 * @name: what the device tells of itself, for loop_open_named(); shorter than %LOOP_NAME_SIZE.
 * @path: set to "/dev/loopN".
 *
 * Return: descriptor of the device (keep it open until the device is mounted) or -errno.
 */
int loop_attach(int file, const char *name, char path[LOOP_PATH_SIZE]) attr_must_use;

/** loop_open_named() - open the device @path if it is bound and has this @name; it stays bound while it is open. Descriptor, -ENODEV when it is not that, -errno. */
int loop_open_named(const char *path, const char *name) attr_must_use;

#endif

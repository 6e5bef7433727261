/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/loop.h - a file as a block device. Root only. */
#ifndef CAY_SYS_LOOP_H
#define CAY_SYS_LOOP_H

#include "base/attr.h"

#define LOOP_PATH_SIZE 32

/**
 * loop_attach() - bind the open file @file to a free loop device that goes away with its last user.
 * @file: open for reading and writing; direct I/O is used where the file system can.
 * @path: set to "/dev/loopN".
 *
 * Return: descriptor of the device (keep it open until the device is mounted) or -errno.
 */
int loop_attach(int file, char path[LOOP_PATH_SIZE]) attr_must_use;

#endif

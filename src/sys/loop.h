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
 * @name: what the device tells of itself; shorter than %LOOP_NAME_SIZE.
 * @path: set to "/dev/loopN".
 *
 * Return: descriptor of the device (keep it open until the device is mounted) or -errno.
 */
int loop_attach(int file, const char *name, char path[LOOP_PATH_SIZE]) attr_must_use;

/**
 * loop_attach_once() - the same, but the device that @file is bound to already when there is one: two devices over one file would be two caches over one file system.
 * @name: no other file's device has it. The number of the device is kept in an attribute of @file.
 *
 * Context: whoever calls it holds a lock that every other caller for that file takes, until the device is mounted. Root.
 */
int loop_attach_once(int file, const char *name, char path[LOOP_PATH_SIZE]) attr_must_use;

#endif

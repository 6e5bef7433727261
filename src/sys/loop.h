/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/loop.h - a file as a block device. Root only. */
#ifndef CAY_SYS_LOOP_H
#define CAY_SYS_LOOP_H

#include "base/attr.h"

#define LOOP_PATH_SIZE 32

#define LOOP_NAME_SIZE 64

/**
 * loop_attach_once() - bind the open file @file to a free loop device that goes away with its last user; where it is bound to one already, that one: two devices over one file would be two
 * caches over one file system.
 * @file: open for reading and writing; direct I/O is used where the file system can. The name of its device is kept in an attribute of it.
 * @name: what the device tells of itself; shorter than %LOOP_NAME_SIZE. No other file's device has it.
 * @path: set to "/dev/loopN".
 *
 * Return: descriptor of the device (keep it open until the device is mounted) or -errno.
 * Context: whoever calls it holds a lock that every other caller for that file takes, until the device is mounted. Root.
 */
int loop_attach_once(int file, const char *name, char path[LOOP_PATH_SIZE]) attr_must_use;

#endif

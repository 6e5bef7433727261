/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-import/import_jail.h - what cay-import takes from itself before it reads the first byte of an archive. */
#ifndef CAY_IMPORT_JAIL_H
#define CAY_IMPORT_JAIL_H

#include "base/err.h"

/**
 * import_jail_enter() - make @tree the whole visible file system, keep only what writing files of any owner needs, and refuse all other system calls.
 * @tree:        descriptor of a detached mount, or of a directory (then chroot, the host's mounts stay unreachable but are there).
 * @limit_bytes: no file may grow beyond.
 *
 * The process was started as root of namespaces of its own (store/import_start.c). Return: 0 or -errno with *@err.
 */
int import_jail_enter(int tree, uint64_t limit_bytes, struct err *err) attr_must_use;

#endif

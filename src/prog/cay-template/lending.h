/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/lending.h - shared memory of processes that the keeper named, opened for a dumper: /proc/PID/map_files is open to the host's root alone. */
#ifndef CAY_TEMPLATE_LENDING_H
#define CAY_TEMPLATE_LENDING_H

#include "prog/cay-template/fork.h"

/**
 * lending_open() - open to be read what @l names: memory that has no name in any file system, mapped by a process that the keeper named, if it is one of the sandbox that process
 * @dumper, who asks for it, was executed in.
 *
 * Return: descriptor; -EPERM for anything else, or who may not (rootless); other -errno.
 */
long lending_open(const struct template_lend *l, int32_t dumper);

#endif

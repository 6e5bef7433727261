/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/jail.h - what the gateway gives up before it reads the first byte from a sandbox. */
#ifndef CAY_GATEWAY_JAIL_H
#define CAY_GATEWAY_JAIL_H

#include "base/err.h"

/**
 * jail_prepare() - keep the event loop from what the jail refuses: io_uring, which libuv uses unasked since 1.45.
 * @libuv: version of the library, as uv_version() says it.
 * Context: once, single-threaded, before the loop is made. Return: 0 or -errno with @err.
 */
int jail_prepare(unsigned int libuv, struct err *err) attr_must_use;

/**
 * jail_enter() - no files, no programs, no further privilege, bounded memory and descriptors; a system call outside the list ends the process.
 * Context: once, single-threaded, after everything that needs files was read. Return: 0 or -errno with @err naming the step.
 */
int jail_enter(struct err *err) attr_must_use;

#endif

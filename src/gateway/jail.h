/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/jail.h - what the gateway gives up before it reads the first byte from a sandbox. */
#ifndef CAY_GATEWAY_JAIL_H
#define CAY_GATEWAY_JAIL_H

#include "base/err.h"

/**
 * jail_enter() - no files, no programs, no further privilege, bounded memory and descriptors; a system call outside the list ends the process.
 * Context: once, single-threaded, after everything that needs files was read. Return: 0 or -errno with @err naming the step.
 */
int jail_enter(struct err *err) attr_must_use;

#endif

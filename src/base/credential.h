/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/credential.h - which places of a machine hold credentials and are never exposed to a sandbox. */
#ifndef CAY_BASE_CREDENTIAL_H
#define CAY_BASE_CREDENTIAL_H

#include "base/err.h"

/**
 * credential_place() - what is kept at or above @path ("SSH keys"), or below it when it is a directory that holds much more than one
 * program's files; NULL otherwise. Pure: @path is absolute, clean text. Return: static text.
 */
const char *credential_place(const char *path);

/** credential_at() - the same of what @path is on this machine: its links resolved, and what lies directly below it looked for, but for what a project has of its own (.npmrc). */
const char *credential_at(const char *path);

/** credential_exposed() - as credential_at(), for what is exposed on purpose: also whatever of a home directory's places lies in it. */
const char *credential_exposed(const char *path);

/** credential_refuse() - say that @path is not exposed because of @what. Return: negative, @err filled (%ERR_DENIED). */
int credential_refuse(const char *path, const char *what, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/temporary.h - the file that goes with a cay that is interrupted. */
#ifndef CAY_PROG_TEMPORARY_H
#define CAY_PROG_TEMPORARY_H

/** temporary_keep() - from now on SIGINT, SIGTERM, SIGHUP and SIGQUIT remove @path before they end us; who ignores one goes on doing so. @path: borrowed until one of those below. */
void temporary_keep(const char *path);

/** temporary_forget() - it is none any more. */
void temporary_forget(void);

/** temporary_remove() - remove it, if there is one. */
void temporary_remove(void);

#endif

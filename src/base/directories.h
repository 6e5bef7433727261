/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: base/directories.h - where a server keeps its state and its sockets, and where its user is at home: one table for all programs.
 *
 * A variable that is set and empty counts as not set. Several slashes in a row are one, and none stays at the end: people write both.
 */
#ifndef CAY_BASE_DIRECTORIES_H
#define CAY_BASE_DIRECTORIES_H

#include "base/attr.h"

/**
 * directories_home() - of who runs this program: HOME, else what the user database says.
 *
 * Return: a path to be freed; NULL when neither names an absolute one.
 */
char *directories_home(void);

/**
 * directories_state() - CAY_STATE; of root's server /var/lib/cay; else cay in XDG_DATA_HOME or in ~/.local/share.
 * @ret_of: the name of the variable that it was made of, static; "" when of none. May be NULL.
 *
 * Return: a path to be freed, which need not be absolute; NULL when there is no home to put it into.
 */
char *directories_state(const char **ret_of);

/** directories_run() - CAY_RUN; of root's server /run/cay; else cay in XDG_RUNTIME_DIR, or /tmp/cay-UID. As directories_state(), never NULL. */
char *directories_run(const char **ret_of);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/gitdir.h - what git takes for a repository. */
#ifndef CAY_BASE_GITDIR_H
#define CAY_BASE_GITDIR_H

#include <stdbool.h>

/** gitdir_is() - is @dir, a descriptor, the directory in which git keeps a repository: a project's ".git", or a bare one (gitrepository-layout(5))? */
bool gitdir_is(int dir);

#endif

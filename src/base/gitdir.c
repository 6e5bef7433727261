/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gitdir.h"

#include <fcntl.h>
#include <unistd.h>

bool gitdir_is(int dir)
{
	/* HEAD may be a link that leads nowhere, before the first commit */
	return faccessat(dir, "HEAD", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       faccessat(dir, "objects", F_OK, 0) == 0 && faccessat(dir, "refs", F_OK, 0) == 0;
}

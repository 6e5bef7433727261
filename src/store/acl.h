/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/acl.h - access lists of files (acl(5)), as far as modes and they say the same thing twice. */
#ifndef CAY_STORE_ACL_H
#define CAY_STORE_ACL_H

#include "base/attr.h"

#include <sys/types.h>

/** ACL_ACCESS, ACL_DEFAULT - the attributes that hold an entry's own list, and the one that what is made in a directory gets. */
#define ACL_ACCESS  "system.posix_acl_access"
#define ACL_DEFAULT "system.posix_acl_default"

/** struct acl - as the kernel gives it (linux/posix_acl_xattr.h). */
struct acl {
	size_t n; /* bytes; 0: there is none */
	char bytes[65536];
};

/** acl_get() - list @xattr of (@dir, @name), a link itself; none where the file system has none. Return: 0 or -errno. */
int acl_get(int dir, const char *name, const char *xattr, struct acl *ret) attr_must_use;

/** acl_group_mode() - of @mode, which a file with list @acl has, what it is without: the bits of the group are what the group may, and no more the most that anybody in the list may. */
mode_t acl_group_mode(const struct acl *acl, mode_t mode);

/** acl_alike() - may the same the same, but for what chmod(2) sets: owner, others, mask? Two that are not there are. */
bool acl_alike(const struct acl *a, const struct acl *b);

#endif

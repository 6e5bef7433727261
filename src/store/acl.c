/* SPDX-License-Identifier: Apache-2.0 */
#include "store/acl.h"
#include "store/tree.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <string.h>

int acl_get(int dir, const char *name, const char *xattr, struct acl *ret)
{
	ssize_t n = tree_xattr_get(dir, name, xattr, ret->bytes, sizeof(ret->bytes));

	ret->n = n < 0 ? 0 : (size_t)n;
	return n < 0 && n != -ENODATA ? (int)n : 0;
}

/* The entry at *@at, which moves behind it; false: no more. */
static bool next_entry(const struct acl *acl, size_t *at, struct posix_acl_xattr_entry *ret)
{
	if (*at == 0)
		*at = sizeof(struct posix_acl_xattr_header);
	if (*at + sizeof(*ret) > acl->n)
		return false;
	memcpy(ret, acl->bytes + *at, sizeof(*ret));
	*at += sizeof(*ret);
	return true;
}

mode_t acl_group_mode(const struct acl *acl, mode_t mode)
{
	struct posix_acl_xattr_entry e;
	mode_t group = S_IRWXG >> 3, mask = group;

	if (acl->n == 0)
		return mode;
	for (size_t at = 0; next_entry(acl, &at, &e);) {
		if (e.e_tag == ACL_GROUP_OBJ)
			group = e.e_perm;
		else if (e.e_tag == ACL_MASK)
			mask = e.e_perm;
	}
	return (mode & ~(mode_t)S_IRWXG) | ((group & mask) << 3 & S_IRWXG);
}

static bool is_of_mode(const struct posix_acl_xattr_entry *e)
{
	return e->e_tag == ACL_USER_OBJ || e->e_tag == ACL_OTHER || e->e_tag == ACL_MASK;
}

bool acl_alike(const struct acl *a, const struct acl *b)
{
	struct posix_acl_xattr_entry one, two;

	if (a->n != b->n)
		return false;
	for (size_t at_a = 0, at_b = 0; next_entry(a, &at_a, &one) && next_entry(b, &at_b, &two);) {
		if (one.e_tag != two.e_tag || one.e_id != two.e_id ||
			(one.e_perm != two.e_perm && !is_of_mode(&one)))
			return false;
	}
	return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sandbox/account.h - users and groups of a sandbox, from its own /etc/passwd and /etc/group. Bounded: the files are hostile. */
#ifndef CAY_SANDBOX_ACCOUNT_H
#define CAY_SANDBOX_ACCOUNT_H

#include "base/err.h"
#include <limits.h>
#include <sys/types.h>

#define ACCOUNT_GROUPS_MAX 64

/** struct account - who a program runs as. */
struct account {
	char name[256];
	char home[PATH_MAX];
	uid_t uid;
	gid_t gid;
	gid_t groups[ACCOUNT_GROUPS_MAX]; /* supplementary, without duplicates */
	size_t n_groups;
};

/**
 * account_find() - resolve "NAME", "UID", "NAME:GROUP" or "UID:GID" ("" means uid 0).
 * @user: as above. Ids up to 65534.
 *
 * "root" is 0 where no entry says otherwise. A uid without an entry is allowed: its home is "/" (/root for 0) and its group has the same number.
 * Context: inside the sandbox, without privileges over anything outside. Return: 0, or %ERR_BAD_USER.
 */
int account_find(const char *user, struct account *ret, struct err *err) attr_must_use;

/**
 * account_among() - the same of texts that are there.
 * @passwd, @group: what is in the two files; are cut into pieces.
 */
int account_among(const char *user, char *passwd, char *group, struct account *ret,
	struct err *err) attr_must_use;

#endif

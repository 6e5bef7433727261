/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/subids.h - the files that lend ids to users, lines NAME-OR-UID:FIRST:COUNT: subuid(5), subgid(5). Pure. */
#ifndef CAY_BASE_SUBIDS_H
#define CAY_BASE_SUBIDS_H

#include "base/attr.h"

#include <sys/types.h>

#define SUBIDS_NEEDED \
	65535U             /* in one range: that of the user himself is the 65536th of a sandbox */
#define SUBIDS_LENT 65536U /* as useradd lends them */
#define SUBIDS_FILE (16U << 20) /* such a file is not larger */

/**
 * subids_find() - what @text lends to the user @name, who is @uid.
 * @ret_largest: ids in the largest of his ranges, 0 when he has none; may be NULL.
 *
 * Return: first id of his first range of at least SUBIDS_NEEDED, or 0 when none is.
 */
uint32_t subids_find(const char *text, const char *name, uid_t uid, uint64_t *ret_largest);

/**
 * subids_free() - where SUBIDS_LENT ids begin, from 524288 on, of which none is in a range of one of the @n @texts, whoever has it.
 *
 * usermod itself does not look: two users who are lent the same ids could end each other's sandboxes, and read and write their files.
 */
uint64_t subids_free(const char *const *texts, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/same_file.c - is what has a name now the file that was mapped by it? Below the sandbox's own files lie those of the machine, which somebody may have replaced
 * since: the code of a new library over the data of the old one is nobody's program.
 */
#include "prog/cay-template/fork.h"

#include <asm-generic/errno-base.h>
#include <linux/magic.h>
#include <linux/stat.h>

#define AT_EMPTY_PATH 0x1000

/* Size and time go with a file into layers and copies of these, which its number does not. */
static bool is_unchanged(const struct image_file *was, const struct statx *is)
{
	return is->stx_size == was->size && is->stx_mtime.tv_sec == was->changed_s &&
	       is->stx_mtime.tv_nsec == was->changed_ns;
}

/* A number is given again when its file is removed, but not with the same time of birth. */
static bool is_itself(const struct image_file *was, const struct statx *is)
{
	bool has_birth = (is->stx_mask & STATX_BTIME) != 0;

	if (is->stx_ino != was->inode || has_birth != (was->has_birth != 0))
		return false;
	return !has_birth ||
	       (is->stx_btime.tv_sec == was->born_s && is->stx_btime.tv_nsec == was->born_ns);
}

/* What is in memory comes with the image, or is the keeper's; the kernel's own files are as old as they are looked at. */
static bool is_made_anew(int fd)
{
	static const uint32_t kinds[] = { TMPFS_MAGIC, RAMFS_MAGIC, SYSFS_MAGIC, PROC_SUPER_MAGIC };
	uint64_t fs[32]; /* struct statfs */

	if (CALL2(__NR_fstatfs, fd, fs) < 0)
		return false;
	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (fs[0] == kinds[i])
			return true;
	}
	return false;
}

void same_file_check(int fd, const struct image_description *d)
{
	const struct image_file *was =
		(const struct image_file *)(const void *)image_bytes(d->data);
	struct statx is;

	if (d->data.length == 0)
		return;
	(void)fork_must(
		CALL5(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &is),
		image_bytes(d->path));
	if (!is_unchanged(was, &is) && !(d->a == 0 && is_itself(was, &is)) && !is_made_anew(fd))
		fork_fail_by_name(d, TEMPLATE_REPLACED);
}

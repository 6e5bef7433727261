/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/watches.c - inotify queues with the numbers of their watches, when everything else is in its place: making it would be seen. In the opener. */
#include "prog/cay-template/fork.h"

#define SET_NEXT_WD 0x40044900U /* INOTIFY_IOC_SETNEXTWD */
#define DONT_FOLLOW 0x02000000U /* IN_DONT_FOLLOW: the names have no links in them */
#define USER_MASK \
	0xa4000fffU /* IN_ALL_EVENTS, EXCL_UNLINK, ONESHOT; the kernel shows others of its own */

int watches_make(const struct image_description *d)
{
	int fd = (int)fork_must(CALL1(__NR_inotify_init1, BARE_CLOEXEC), "make an inotify queue");
	int32_t next = 1;

	for (uint64_t i = d->a; i < d->a + d->b; i++) {
		const struct image_notification *w =
			IMAGE_ROW(struct image_notification, TABLE_NOTIFICATIONS, i);
		const char *path = image_bytes(w->path);
		long wd;

		(void)fork_must(
			CALL3(__NR_ioctl, fd, SET_NEXT_WD, w->wd), "choose the number of a watch");
		wd = fork_must(CALL3(__NR_inotify_add_watch, fd, path,
				       (w->mask & USER_MASK) | DONT_FOLLOW),
			path);
		if (wd != w->wd)
			fork_fail("watch under the same number", -EEXIST);
		next = wd >= next ? (int32_t)wd + 1 : next;
	}
	(void)fork_must(CALL3(__NR_ioctl, fd, SET_NEXT_WD, next), "choose the number of a watch");
	return fd;
}

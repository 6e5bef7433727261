/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/confine_told.h - what confine_told() and prog/cay-template, which has no libc, have in common. */
#ifndef CAY_SYS_CONFINE_TOLD_H
#define CAY_SYS_CONFINE_TOLD_H

#include <linux/seccomp.h>
#include <stdint.h>

/* SECCOMP_RET_USER_NOTIF, of a call that is not refused where nobody listens */
#define CONFINE_LEARN (SECCOMP_RET_USER_NOTIF | 1U)
/* the same, of one that is refused with EOPNOTSUPP then */
#define CONFINE_KNOW (SECCOMP_RET_USER_NOTIF | 2U)

/* ioctl(2) of a listener, and its argument, in linux/seccomp.h of 6.6: who calls and who answers take turns, which is cheaper on one processor */
#define CONFINE_SET_FLAGS    SECCOMP_IOW(4, uint64_t)
#define CONFINE_SYNC_WAKE_UP 1UL

#endif

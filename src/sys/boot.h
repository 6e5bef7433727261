/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/boot.h - which run of the machine this is. */
#ifndef CAY_SYS_BOOT_H
#define CAY_SYS_BOOT_H

#include "base/buf.h"

/** boot_id() - of this run of the machine, until it is started anew; empty where it cannot be read. @text: empty, holds it. */
const char *boot_id(struct buf *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/boot.h"
#include "sys/file.h"

#include <fcntl.h>
#include <string.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

const char *boot_id(struct buf *text)
{
	char *id;

	if (file_read_at(AT_FDCWD, BOOT_ID, text) < 0)
		return "";
	id = (char *)(uintptr_t)buf_cstr(text);
	id[strcspn(id, "\n")] = '\0';
	return id;
}

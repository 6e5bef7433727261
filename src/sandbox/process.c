/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/process.h"
#include "base/str.h"
#include "codec/proctext.h"
#include "sys/file.h"

#include <fcntl.h>
#include <unistd.h>

#define STATUS_MAX 16384

/* The program's own choice, up to its last line end. */
static int read_comm(int proc, char *ret, size_t size)
{
	cleanup_fd int fd = openat(proc, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size);

	if (n <= 0)
		return -ESRCH;
	ret[n - 1] = '\0'; /* the line end, which the kernel adds */
	for (char *p = ret; *p != '\0'; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7F)
			*p = '?';
	str_utf8_tidy(ret);
	return 0;
}

/* The namespaces of procfs and of the sandbox come first; a program may have made further ones. */
static int read_numbers(int proc, struct process *ret)
{
	cleanup_buf struct buf text = BUF_INIT(STATUS_MAX);
	uint64_t numbers[2];
	int rc = file_read_at(proc, "status", &text);

	if (rc < 0)
		return rc;
	if (proc_numbers(buf_cstr(&text), "NSpid", 10, numbers, 2) != 2)
		return -ESRCH;
	ret->inner_pid = (int32_t)numbers[1];
	ret->parent = (int32_t)proc_number(buf_cstr(&text), "PPid", 10, 0);
	return 0;
}

int process_describe(int proc, int32_t pid, struct process *ret)
{
	int rc;

	*ret = (struct process){ .pid = pid };
	rc = read_comm(proc, ret->comm, sizeof(ret->comm));
	return rc < 0 ? rc : read_numbers(proc, ret);
}

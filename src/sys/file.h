/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/file.h - small files (procfs, cgroupfs, ours) relative to directories; all return -errno. */
#ifndef CAY_SYS_FILE_H
#define CAY_SYS_FILE_H

#include "base/buf.h"
#include <sys/types.h>

/** file_write_at() - open an existing file for writing and write @text in one write(2). Return: 0 or -errno. */
int file_write_at(int dirfd, const char *path, const char *text) attr_must_use;

/** file_write_fmt_at() - the same with formatted text of at most 500 bytes. */
int file_write_fmt_at(int dirfd, const char *path, const char *fmt, ...)
	attr_printf(3, 4) attr_must_use;

/** file_create_at() - create or truncate a file with @mode and fill it. Return: 0 or -errno. */
int file_create_at(
	int dirfd, const char *path, mode_t mode, const void *bytes, size_t n) attr_must_use;

/** file_read_at() - append the whole file to @out (bounded by its maximum: -EMSGSIZE). Return: 0 or -errno. */
int file_read_at(int dirfd, const char *path, struct buf *out) attr_must_use;

/** file_read_again() - the same of the open file @fd, from its beginning, wherever it stands. */
int file_read_again(int fd, struct buf *out) attr_must_use;

/** file_read_u64_at() - a file that holds one decimal number; "max" reads as UINT64_MAX. Return: 0 or -errno. */
int file_read_u64_at(int dirfd, const char *path, uint64_t *ret) attr_must_use;

/**
 * file_read_key() - number behind "@key " at the start of a line of @fd, read from its beginning (cgroup flat-keyed files).
 * Return: 0, -ENOENT when the key is missing, other -errno.
 */
int file_read_key(int fd, const char *key, uint64_t *ret) attr_must_use;

/** file_read_key_at() - file_read_key() of the file @path. Return: 0, -ENOENT when file or key are missing, other -errno. */
int file_read_key_at(int dirfd, const char *path, const char *key, uint64_t *ret) attr_must_use;

/** file_own_dir() - the directory of the program that runs, without a slash at its end, into @dir of @size bytes. Return: 0 or -errno. */
int file_own_dir(char *dir, size_t size) attr_must_use;

/** file_mkdirs_at() - create clean absolute or relative @path below @dirfd with all parents, never through symlinks. 0 or -errno. */
int file_mkdirs_at(int dirfd, const char *path, mode_t mode) attr_must_use;

/** file_set_mode() - give @mode to what is behind @fd, which may be O_PATH, but not of a link. Return: 0 or -errno. */
int file_set_mode(int fd, mode_t mode) attr_must_use;

/** file_read_all() - read exactly @n bytes from a blocking descriptor. Return: 0, -EPIPE when it ends before, -errno. */
int file_read_all(int fd, void *bytes, size_t n) attr_must_use;

/** file_write_all() - write all bytes to a blocking descriptor. Return: 0 or -errno. */
int file_write_all(int fd, const void *bytes, size_t n) attr_must_use;

/**
 * file_data_from() - where the next bytes of @fd are that may be other than zero, from @at on: holes are passed over, so that who only looks for such bytes pays for
 * what is stored and not for the size, which costs a program nothing.
 * Return: @at or more; the size of the file when only a hole is left; @at where the file system does not tell.
 */
off_t file_data_from(int fd, off_t at);

/**
 * file_seal() - nobody changes memory file @fd any more, nor its seals. Waits some seconds when the kernel itself still holds some of its pages, as it
 * does for an instant while it moves them about. Return: 0, -EBUSY when it still does, or somebody has the file mapped to be written, other -errno.
 */
int file_seal(int fd) attr_must_use;

/**
 * file_lock() - take the lock of the open file or directory @fd (flock): it is held until every copy of the descriptor is closed.
 * @alone: nobody else may hold it; else it is shared.
 * @timeout_ms: how long to wait; 0 = not at all.
 *
 * Return: 0, -ETIMEDOUT when somebody else held it all the time, other -errno.
 * Context: takes SIGALRM and the interval timer while it waits; a process of one thread.
 */
int file_lock(int fd, bool alone, unsigned int timeout_ms) attr_must_use;

#endif

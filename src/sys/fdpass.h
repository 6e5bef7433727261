/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/fdpass.h - messages with descriptors over SOCK_SEQPACKET unix sockets. */
#ifndef CAY_SYS_FDPASS_H
#define CAY_SYS_FDPASS_H

#include "base/attr.h"

#define FDPASS_MAX 248 /* the kernel takes 253 */

/**
 * fdpass_send() - send one message with @n_fds descriptors (borrowed).
 * Return: 0 or -errno; blocks while the socket is full.
 */
int fdpass_send(int sock, const void *bytes, size_t n, const int *fds, size_t n_fds) attr_must_use;

/**
 * fdpass_recv() - receive one message.
 * @fds: room for @max_fds descriptors; received ones are close-on-exec and owned by the caller.
 * @ret_n_fds: set to the number received.
 *
 * Return: bytes (0 = the peer is gone), -EMSGSIZE when the message or its descriptors did not fit (all closed), other -errno.
 */
ssize_t fdpass_recv(int sock, void *bytes, size_t size, int *fds, size_t max_fds,
	size_t *ret_n_fds) attr_must_use;

/** fdpass_listen() - a SOCK_SEQPACKET socket that processes of our own user and root can reach at @path, where nothing may be yet. Return: descriptor or -errno. */
int fdpass_listen(const char *path) attr_must_use;

/** fdpass_accept() - the next connection to @fd. Blocks. Return: descriptor or -errno. */
int fdpass_accept(int fd) attr_must_use;

/** fdpass_connect() - connect to a SOCK_SEQPACKET socket. Return: descriptor or -errno. */
int fdpass_connect(const char *path) attr_must_use;

#endif

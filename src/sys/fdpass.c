/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/fdpass.h"
#include "base/str.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#define FEW 8 /* who may wait to be accepted */

int fdpass_send(int sock, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * FDPASS_MAX)];
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	BUG_ON(n_fds > FDPASS_MAX);
	if (n_fds > 0) {
		struct cmsghdr *c;

		memset(control, 0, sizeof(control));
		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	while (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

ssize_t fdpass_recv(int sock, void *bytes, size_t size, int *fds, size_t max_fds, size_t *ret_n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * FDPASS_MAX)];
	struct iovec iov = { .iov_base = bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	size_t n_fds = 0;
	bool overflow;
	ssize_t n;

	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	overflow = (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (n_fds < max_fds) {
				fds[n_fds++] = fd;
			} else {
				(void)close(fd);
				overflow = true;
			}
		}
	}
	if (overflow) {
		for (size_t i = 0; i < n_fds; i++)
			(void)close(fds[i]);
		return -EMSGSIZE;
	}
	*ret_n_fds = n_fds;
	return n;
}

static int socket_for(struct sockaddr_un *address, const char *path)
{
	int fd;

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (str_copy(address->sun_path, sizeof(address->sun_path), path) < 0)
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int fdpass_listen(const char *path)
{
	struct sockaddr_un address;
	cleanup_fd int fd = socket_for(&address, path);
	mode_t before;
	int rc;

	if (fd < 0)
		return fd;
	before = umask(0177);
	rc = bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	(void)umask(before);
	if (rc == 0 && listen(fd, FEW) < 0)
		rc = -errno;
	return rc < 0 ? rc : TAKE_FD(fd);
}

int fdpass_accept(int fd)
{
	int peer;

	do
		peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	while (peer < 0 && errno == EINTR);
	return peer < 0 ? -errno : peer;
}

int fdpass_connect(const char *path)
{
	struct sockaddr_un address;
	cleanup_fd int fd = socket_for(&address, path);

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

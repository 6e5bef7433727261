/* SPDX-License-Identifier: Apache-2.0 */
#include "io/unix_http_client.h"
#include "base/clock.h"
#include "base/str.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define IN_MAX    (4U << 20)
#define READ_SIZE 61440 /* with the NUL of a struct buf still one small allocation */

void http_client_init(struct http_client *c, const char *path)
{
	*c = (struct http_client){
		.path = str_dup(path),
		.fd = -1,
		.in = BUF_INIT(IN_MAX),
		.head = BUF_INIT(HTTP_RESPONSE_HEAD_MAX),
	};
}

void http_client_close(struct http_client *c)
{
	fd_close(&c->fd);
	buf_reset(&c->in);
	c->used = 0;
}

void http_client_fini(struct http_client *c)
{
	http_client_close(c);
	buf_free(&c->in);
	buf_free(&c->head);
	free(TAKE_PTR(c->path));
}

/* Connects by way of the directory when the path is longer than an address holds. */
static int connect_long(int fd, const char *path)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = NULL, *near = NULL;
	cleanup_fd int dirfd = -1;
	struct sockaddr_un to = { .sun_family = AF_UNIX };

	if (slash == NULL)
		return -ENAMETOOLONG;
	dir = str_dupf("%.*s", slash > path ? (int)(slash - path) : 1, path);
	dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	near = str_dupf("/proc/self/fd/%d%s", dirfd, slash);
	if (str_copy(to.sun_path, sizeof(to.sun_path), near) < 0)
		return -ENAMETOOLONG;
	return connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
}

int http_client_connect(struct http_client *c)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	cleanup_fd int fd = -1;
	int rc = 0;

	if (c->fd >= 0)
		return 0;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (str_copy(to.sun_path, sizeof(to.sun_path), c->path) < 0)
		rc = connect_long(fd, c->path);
	else if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
		rc = -errno;
	if (rc == 0)
		c->fd = TAKE_FD(fd);
	return rc;
}

/* Sends both pieces in one call where the kernel takes them. */
static int send_all(int fd, struct iovec *iov, size_t n)
{
	while (n > 0) {
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (unsigned short)n };
		ssize_t sent = sendmsg(fd, &msg, MSG_NOSIGNAL);
		size_t left;

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return -errno;
		for (left = (size_t)sent; n > 0 && left >= iov->iov_len; iov++, n--)
			left -= iov->iov_len;
		if (n > 0) {
			iov->iov_base = (char *)iov->iov_base + left;
			iov->iov_len -= left;
		}
	}
	return 0;
}

int http_client_send(struct http_client *c, const void *p, size_t n)
{
	struct iovec iov = { (void *)(uintptr_t)p, n };

	return c->fd < 0 ? -ENOTCONN : send_all(c->fd, &iov, 1);
}

int http_client_request(struct http_client *c, const char *method, const char *target,
	const char *headers, const char *type, const void *body, size_t n)
{
	struct buf head = BUF_INIT(1U << 20);
	struct iovec iov[2];
	int rc;

	buf_fmt(&head, "%s %s HTTP/1.1\r\nHost: cay\r\n%s", method, target,
		headers != NULL ? headers : "");
	if (type != NULL)
		buf_fmt(&head, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, n);
	buf_str(&head, "\r\n");
	iov[0] = (struct iovec){ head.p, head.n };
	iov[1] = (struct iovec){ (void *)(uintptr_t)body, n };
	rc = buf_failed(&head) ? -E2BIG
	     : c->fd < 0       ? -ENOTCONN
			       : send_all(c->fd, iov, n > 0 ? 2 : 1);
	buf_free(&head);
	return rc;
}

/* Receives some bytes. Return: how many, 0 at the end of the stream, -ETIMEDOUT, -errno. */
static ssize_t receive(struct http_client *c, uint64_t deadline_ns)
{
	char *room;
	ssize_t n;

	if (c->used > 0) {
		buf_consume(&c->in, c->used);
		c->used = 0;
	}
	room = buf_room(&c->in, READ_SIZE);
	if (room == NULL)
		return -EMSGSIZE;
	for (;;) {
		if (deadline_ns > 0) {
			struct pollfd p = { .fd = c->fd, .events = POLLIN };
			uint64_t now = clock_now_ns();

			if (now >= deadline_ns ||
				poll(&p, 1, (int)((deadline_ns - now) / NS_PER_MS) + 1) == 0)
				return -ETIMEDOUT;
		}
		n = recv(c->fd, room, READ_SIZE, 0);
		if (n >= 0)
			break;
		if (errno != EINTR)
			return -errno;
	}
	buf_grown(&c->in, (size_t)n);
	return n;
}

int http_client_response(struct http_client *c, int timeout_ms)
{
	uint64_t deadline = 0;

	if (timeout_ms >= 0)
		deadline = clock_now_ns() + NS_PER_MS * (unsigned int)timeout_ms;
	for (;;) {
		ssize_t n = http_response_parse(
			buf_cstr(&c->in) + c->used, c->in.n - c->used, &c->response);

		if (n < 0)
			return (int)n;
		if (n > 0) {
			c->used += (size_t)n;
			if (c->response.status < 200 && c->response.status != 101)
				continue; /* an interim answer */
			buf_reset(&c->head);
			buf_add(&c->head, c->response.head, c->response.head_size);
			c->response.head = c->head.p;
			http_body_begin(&c->body, &c->response);
			return 0;
		}
		n = receive(c, deadline);
		if (n <= 0)
			return n < 0 ? (int)n : -ECONNRESET;
	}
}

ssize_t http_client_body(struct http_client *c, const char **ret)
{
	while (!c->body.done) {
		size_t size;
		ssize_t n = http_body_next(
			&c->body, buf_cstr(&c->in) + c->used, c->in.n - c->used, ret, &size);

		if (n < 0)
			return n;
		c->used += (size_t)n;
		if (size > 0)
			return (ssize_t)size;
		if (n > 0)
			continue;
		n = receive(c, 0);
		if (n < 0)
			return n;
		if (n == 0 && c->body.kind != HTTP_BODY_UNTIL_CLOSE)
			return -ECONNRESET;
		if (n == 0)
			c->body.done = true;
	}
	if (c->response.close || c->body.kind == HTTP_BODY_UNTIL_CLOSE)
		http_client_close(c);
	return 0;
}

int http_client_body_all(struct http_client *c, struct buf *out)
{
	const char *piece;
	ssize_t n;

	while ((n = http_client_body(c, &piece)) > 0)
		buf_add(out, piece, (size_t)n);
	if (n < 0)
		return (int)n;
	return buf_failed(out) ? -EMSGSIZE : 0;
}

int http_client_upgraded(struct http_client *c, struct buf *rest)
{
	buf_consume(&c->in, c->used);
	c->used = 0;
	if (rest->p == NULL) {
		/* with the room that there is */
		*rest = (struct buf){ c->in.p, c->in.n, c->in.cap, rest->max, false };
		c->in = (struct buf)BUF_INIT(IN_MAX);
	} else {
		buf_add(rest, buf_cstr(&c->in), c->in.n);
		buf_reset(&c->in);
	}
	return TAKE_FD(c->fd);
}

void http_target_escape(struct buf *out, const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "-._~/:@";

	for (; *s != '\0'; s++) {
		if (strchr(plain, *s) != NULL)
			buf_char(out, *s);
		else
			buf_fmt(out, "%%%02X", (unsigned char)*s);
	}
}

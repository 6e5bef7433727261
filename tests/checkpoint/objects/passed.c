/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that wait in unix sockets: in streams between other bytes, in datagrams and records, of what nobody else has, and sockets that hold others. */
#include "object.h"

#include <sys/socket.h>

enum { MANY = 253 };

static void pass(int socket, const char *text, const int *fds, size_t n)
{
	char control[CMSG_SPACE(MANY * sizeof(int))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	MUST(sendmsg(socket, &m, 0) == (ssize_t)strlen(text));
}

/* What comes has the bytes @text, and @n descriptors. */
static void take(int socket, const char *text, int *fds, size_t n)
{
	char control[CMSG_SPACE(MANY * sizeof(int))], got[256] = { 0 };
	struct iovec iov = { got, strlen(text) };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *c;

	MUST(recvmsg(socket, &m, MSG_DONTWAIT) == (ssize_t)strlen(text));
	c = CMSG_FIRSTHDR(&m);
	if (strcmp(got, text) != 0 || (c != NULL) != (n > 0))
		object_fail("'%s' with %s", got, c != NULL ? "descriptors" : "none");
	if (n == 0)
		return;
	MUST(c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(n * sizeof(int)));
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
}

static void expect(int fd, const char *text)
{
	char got[64] = { 0 };

	MUST(read(fd, got, strlen(text)) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
}

int main(void)
{
	int stream[2], datagrams[2], records[2], inside[2], own[2], fds[MANY], got[MANY],
		fd = open("/tmp/passed", O_RDWR | O_CREAT, 0600);
	char c;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, records) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, inside) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, own) == 0);
	MUST(fd >= 0 && write(fd, "0123456789", 10) == 10 && lseek(fd, 3, SEEK_SET) == 3);
	/* streams: between bytes that come without; shared with one that we keep */
	MUST(write(stream[0], "before", 6) == 6);
	pass(stream[0], "with a file", &fd, 1);
	MUST(write(stream[0], "after", 5) == 5);
	for (int i = 0; i < MANY; i++)
		fds[i] = fd;
	pass(stream[0], "many", fds, MANY);
	/* a pipe that nobody has but the queue, with something in it */
	MUST(pipe(fds) == 0 && write(fds[1], "in the pipe", 11) == 11);
	pass(datagrams[0], "a pipe", fds, 2);
	MUST(close(fds[0]) == 0 && close(fds[1]) == 0);
	MUST(write(datagrams[0], "none", 4) == 4);
	/* a socket in a queue in a queue */
	pass(inside[0], "deeper", &fd, 1);
	MUST(write(inside[0], "plain", 5) == 5);
	pass(records[0], "a socket", &inside[1], 1);
	MUST(close(inside[1]) == 0);
	/* and one that holds itself, which the kernel clears away when it likes */
	pass(own[0], "myself", &own[1], 1);
	MUST(close(own[1]) == 0);

	object_ready();

	take(stream[1], "before", NULL, 0);
	take(stream[1], "with", got, 1);
	MUST(lseek(got[0], 0, SEEK_CUR) == 3 && lseek(got[0], 5, SEEK_SET) == 5);
	expect(fd, "56");
	take(stream[1], " a fileafter", NULL, 0);
	take(stream[1], "many", got, MANY);
	MUST(lseek(got[MANY - 1], 0, SEEK_CUR) == 7);
	take(datagrams[1], "a pipe", got, 2);
	expect(got[0], "in the pipe");
	MUST(write(got[1], "more", 4) == 4);
	expect(got[0], "more");
	MUST(close(got[1]) == 0 && read(got[0], &c, 1) == 0);
	take(datagrams[1], "none", NULL, 0);
	take(records[1], "a socket", got, 1);
	take(got[0], "deeper", got + 1, 1);
	MUST(lseek(got[1], 0, SEEK_CUR) == 7);
	take(got[0], "plain", NULL, 0);
	MUST(write(got[0], "back", 4) == 4);
	expect(inside[0], "back");
	MUST(close(own[0]) == 0);
	return object_done();
}

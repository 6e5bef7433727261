/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets: pairs, a server with a path and an accepted client, abstract names, data in both directions, half-closed ends. */
#include "object.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static int server(const char *name, size_t n, struct sockaddr_un *a, socklen_t *length)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path, name, n);
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	MUST(bind(fd, (struct sockaddr *)a, *length) == 0 && listen(fd, 5) == 0);
	return fd;
}

static int client(const struct sockaddr_un *a, socklen_t length)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	MUST(connect(fd, (const struct sockaddr *)a, length) == 0);
	return fd;
}

static void talk(int from, int to)
{
	char c = 0;

	MUST(write(from, "t", 1) == 1 && read(to, &c, 1) == 1 && c == 't');
}

int main(void)
{
	struct sockaddr_un path, abstract, now = { 0 };
	socklen_t path_n, abstract_n, n = sizeof(now);
	int pair[2], packets[2], half[2], lonely[2], listener, named[2], hidden, hidden_end[2];
	char got[64] = { 0 };
	struct stat st;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0 &&
		socketpair(AF_UNIX, SOCK_STREAM, 0, lonely) == 0);
	MUST(write(pair[0], "to one", 6) == 6 && write(pair[1], "to zero", 7) == 7);
	MUST(write(half[0], "last", 4) == 4 && shutdown(half[0], SHUT_WR) == 0);
	MUST(write(lonely[1], "bye", 3) == 3 && close(lonely[1]) == 0);
	listener = server("/tmp/socket", sizeof("/tmp/socket"), &path, &path_n);
	MUST(chmod("/tmp/socket", 0640) == 0);
	named[0] = client(&path, path_n);
	MUST((named[1] = accept(listener, NULL, NULL)) >= 0);
	hidden = server("\0hidden", 7, &abstract, &abstract_n);
	hidden_end[0] = client(&abstract, abstract_n);
	MUST((hidden_end[1] = accept(hidden, NULL, NULL)) >= 0);
	MUST(write(named[0], "request", 7) == 7 && write(hidden_end[1], "answer", 6) == 6);

	int fresh;

	object_ready();

	MUST(read(pair[1], got, 64) == 6 && memcmp(got, "to one", 6) == 0);
	MUST(read(pair[0], got, 64) == 7 && memcmp(got, "to zero", 7) == 0);
	talk(pair[0], pair[1]);
	talk(packets[1], packets[0]);
	MUST(read(half[1], got, 64) == 4 && read(half[1], got, 64) == 0);
	talk(half[1], half[0]);
	MUST(read(lonely[0], got, 64) == 3 && read(lonely[0], got, 64) == 0);
	MUST(read(named[1], got, 64) == 7 && memcmp(got, "request", 7) == 0);
	MUST(read(hidden_end[0], got, 64) == 6 && memcmp(got, "answer", 6) == 0);
	talk(named[1], named[0]);
	talk(hidden_end[0], hidden_end[1]);
	MUST(getsockname(named[1], (struct sockaddr *)&now, &n) == 0 &&
		strcmp(now.sun_path, "/tmp/socket") == 0);
	MUST(stat("/tmp/socket", &st) == 0 && (st.st_mode & 07777) == 0640);
	fresh = client(&path, path_n);
	talk(fresh, accept(listener, NULL, NULL));
	fresh = client(&abstract, abstract_n);
	talk(fresh, accept(hidden, NULL, NULL));
	return object_done();
}

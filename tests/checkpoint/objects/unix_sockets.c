/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets: pairs, a server with a path and an accepted client, abstract names, data in both directions, half-closed ends; whom the other end belongs to. */
#include "object.h"

#include <grp.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

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

/* A client of other ids, which stays until its end is told to it. */
static pid_t client_as(const struct sockaddr_un *a, socklen_t length, unsigned int id)
{
	const gid_t groups[] = { id + 2, id + 3 };
	pid_t pid = fork();
	char c;

	if (pid == 0) {
		int fd;

		MUST(setgroups(2, groups) == 0);
		MUST(setgid(id + 1) == 0 && setuid(id) == 0);
		MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
		fd = client(a, length);
		_exit(read(fd, &c, 1) != 0);
	}
	return pid;
}

static void expect_other(int fd, pid_t pid, unsigned int uid, unsigned int gid)
{
	struct ucred said;
	socklen_t n = sizeof(said);

	MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &said, &n) == 0);
	if (said.pid != pid || said.uid != uid || said.gid != gid)
		object_fail("process %d of %u, not %d of %u", said.pid, said.uid, pid, uid);
}

static void expect_groups(int fd, int n, gid_t first)
{
	gid_t said[8];
	socklen_t size = sizeof(said);

	MUST(getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, said, &size) == 0);
	if (size != (socklen_t)n * sizeof(*said))
		object_fail("%zu groups instead of %d", size / sizeof(*said), n);
	for (int i = 0; i < n; i++)
		MUST(said[i] == first + (gid_t)i);
}

/* Its last words were not read: the other end is told of a reset, once. */
static int reset_end(void)
{
	int pair[2];

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[0], "x", 1) == 1);
	MUST(close(pair[1]) == 0);
	return pair[0];
}

static int many_bytes(int *other, const char *bytes, int n)
{
	int pair[2], half = n;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	MUST(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &half, sizeof(half)) == 0);
	MUST(send(pair[0], bytes, (size_t)n, MSG_DONTWAIT) == n);
	*other = pair[0];
	return pair[1];
}

/** struct much - more waits than a new socket, or the sender as it is now, may leave unread. */
struct much {
	int left, lowered[2], letters;
	size_t n;
};

enum { LETTER = 220000 };

static char letter[LETTER];

static struct much make_much(const char *bytes, size_t n)
{
	int pair[2], most = 1 << 20, least = 4096, sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/tmp/letters" };
	struct much m = { .letters = socket(AF_UNIX, SOCK_DGRAM, 0) };

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, m.lowered) == 0);
	MUST(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &most, sizeof(most)) == 0);
	MUST(setsockopt(m.lowered[0], SOL_SOCKET, SO_SNDBUF, &most, sizeof(most)) == 0);
	MUST(setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &most, sizeof(most)) == 0);
	for (ssize_t some; (some = send(pair[0], bytes, n, MSG_DONTWAIT)) > 0;)
		m.n += (size_t)some;
	MUST(errno == EAGAIN && send(m.lowered[0], bytes, n, MSG_DONTWAIT) == (ssize_t)n);
	MUST(setsockopt(m.lowered[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)) == 0);
	MUST(bind(m.letters, (struct sockaddr *)&a, sizeof(a)) == 0);
	memset(letter, 'l', LETTER);
	MUST(sendto(sender, letter, LETTER, MSG_DONTWAIT, (struct sockaddr *)&a, sizeof(a)) ==
		LETTER);
	MUST(close(pair[0]) == 0 && close(sender) == 0);
	m.left = pair[1];
	return m;
}

static void check_much(const struct much *m, const char *bytes, char *back, size_t n)
{
	int size = 0;
	socklen_t size_n = sizeof(size);
	size_t got = 0;

	for (ssize_t some; (some = read(m->left, back, n)) > 0;)
		got += (size_t)some;
	MUST(got == m->n);
	for (size_t at = 0; at < n;) {
		ssize_t some = read(m->lowered[1], back + at, n - at);

		MUST(some > 0);
		at += (size_t)some;
	}
	MUST(memcmp(bytes, back, n) == 0);
	MUST(getsockopt(m->lowered[0], SOL_SOCKET, SO_SNDBUF, &size, &size_n) == 0);
	MUST(size == 2 * 4096);
	MUST(recv(m->letters, letter, LETTER, 0) == LETTER && letter[LETTER - 1] == 'l');
}

int main(void)
{
	static char bulk[200000], back[sizeof(bulk)];
	struct sockaddr_un path, abstract, now = { 0 };
	socklen_t path_n, abstract_n, n = sizeof(now);
	int pair[2], packets[2], half[2], lonely[2], listener, named[2], hidden, hidden_end[2];
	char got[64] = { 0 };
	struct stat st;
	struct much much;

	MUST(setgroups(1, &(gid_t){ 5 }) == 0);
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

	int fresh, accepted[2], reset = reset_end(), filled, filler, size = 0;
	socklen_t size_n = sizeof(size);
	pid_t child = client_as(&abstract, abstract_n, 77), gone;

	MUST((accepted[0] = accept(hidden, NULL, NULL)) >= 0);
	gone = client_as(&abstract, abstract_n, 88);
	MUST((accepted[1] = accept(hidden, NULL, NULL)) >= 0 && kill(gone, SIGKILL) == 0 &&
		waitpid(gone, NULL, 0) == gone);
	for (size_t i = 0; i < sizeof(bulk); i++)
		bulk[i] = (char)(i * 7);
	filled = many_bytes(&filler, bulk, (int)sizeof(bulk));
	much = make_much(bulk, sizeof(bulk));

	object_ready();

	expect_other(accepted[0], child, 77, 78);
	expect_groups(accepted[0], 2, 79);
	expect_groups(named[0], 1, 5);
	expect_groups(named[1], 1, 5);
	expect_groups(pair[0], 1, 5);
	expect_other(accepted[1], gone, 88, 89);
	expect_other(named[0], getpid(), 0, 0);
	expect_other(named[1], getpid(), 0, 0);
	expect_other(pair[0], getpid(), 0, 0);
	expect_other(hidden, getpid(), 0, 0);
	MUST(close(accepted[0]) == 0 && waitpid(child, &size, 0) == child && size == 0);
	MUST(read(accepted[1], got, 1) == 0);
	MUST(read(reset, got, 1) < 0 && errno == ECONNRESET && read(reset, got, 1) == 0);
	for (size_t at = 0; at < sizeof(bulk);) {
		ssize_t more = read(filled, back + at, sizeof(back) - at);

		MUST(more > 0);
		at += (size_t)more;
	}
	MUST(memcmp(bulk, back, sizeof(bulk)) == 0);
	MUST(getsockopt(filler, SOL_SOCKET, SO_SNDBUF, &size, &size_n) == 0 &&
		size == 2 * (int)sizeof(bulk));

	check_much(&much, bulk, back, sizeof(bulk));
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

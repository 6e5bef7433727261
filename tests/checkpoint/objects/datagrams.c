/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams and records of unix sockets that wait: their bounds, their senders, who is connected to whom, and who is gone. */
#include "object.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address(const char *name, socklen_t *n)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	strcpy(a.sun_path + (name[0] == '@'), name + (name[0] == '@'));
	*n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + (name[0] != '@'));
	return a;
}

static int named(const char *name)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	socklen_t n;
	struct sockaddr_un a = address(name, &n);

	MUST(bind(fd, (struct sockaddr *)&a, n) == 0);
	return fd;
}

static void connect_to(int fd, const char *name)
{
	socklen_t n;
	struct sockaddr_un a = address(name, &n);

	MUST(connect(fd, (struct sockaddr *)&a, n) == 0);
}

static void send_to(int fd, const char *name, const char *text)
{
	socklen_t n;
	struct sockaddr_un a = address(name, &n);

	MUST(sendto(fd, text, strlen(text), 0, (struct sockaddr *)&a, n) == (ssize_t)strlen(text));
}

/* @from NULL: of one without a name. @who: what the kernel says of the sender, NULL = it says nothing. */
static void expect(int fd, const char *text, const char *from, const struct ucred *who)
{
	char got[64] = { 0 }, control[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec iov = { got, sizeof(got) };
	struct sockaddr_un a = { 0 };
	struct msghdr m = { .msg_name = &a,
		.msg_namelen = sizeof(a),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
	struct cmsghdr *c;

	if (n != (ssize_t)strlen(text) || memcmp(got, text, strlen(text)) != 0)
		object_fail("%zd bytes '%s', not '%s'", n, got, text);
	if (from == NULL)
		MUST(m.msg_namelen == 0);
	else
		MUST(strcmp(a.sun_path + (from[0] == '@'), from + (from[0] == '@')) == 0);
	c = CMSG_FIRSTHDR(&m);
	MUST((c != NULL) == (who != NULL));
	if (who != NULL) {
		struct ucred said;

		memcpy(&said, CMSG_DATA(c), sizeof(said));
		if (memcmp(&said, who, sizeof(said)) != 0)
			object_fail("sent by process %d of %u, not %d of %u", said.pid, said.uid,
				who->pid, who->uid);
	}
}

static void expect_nothing(int fd)
{
	char c;

	errno = 0;
	MUST(recv(fd, &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

/* A child of other ids sends and is gone. */
static pid_t send_as(const char *to, const char *text, unsigned int id)
{
	pid_t pid = fork();

	if (pid == 0) {
		int fd = named("@child");

		MUST(setgid(id + 1) == 0 && setuid(id) == 0);
		send_to(fd, to, text);
		_exit(0);
	}
	MUST(waitpid(pid, NULL, 0) == pid);
	return pid;
}

int main(void)
{
	int pair[2], records[2], half[2], lonely[2], left[2];
	int log = named("/tmp/log"), hidden = named("@hidden"), client = named("/tmp/client"),
	    other = socket(AF_UNIX, SOCK_DGRAM, 0), gone = named("/tmp/gone"),
	    anybody = socket(AF_UNIX, SOCK_DGRAM, 0), one = 1, removed = named("/tmp/removed"),
	    to_removed = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct ucred me = { .pid = getpid(), .uid = getuid(), .gid = getgid() },
		     child = { .uid = 1234, .gid = 1235 };
	struct stat st;
	char c;

	/* unlike pairs, to each other by their names */
	connect_to(client, "@hidden");
	connect_to(hidden, "/tmp/client");
	connect_to(other, "/tmp/log");
	connect_to(to_removed, "/tmp/removed");
	MUST(unlink("/tmp/removed") == 0);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, records) == 0);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, half) == 0);
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, lonely) == 0);
	MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, left) == 0);
	MUST(write(pair[0], "one", 3) == 3 && write(pair[0], "", 0) == 0 &&
		write(pair[0], "two", 3) == 3 && write(pair[1], "back", 4) == 4);
	MUST(write(records[0], "first", 5) == 5 && write(records[0], "second", 6) == 6);
	MUST(write(half[0], "last", 4) == 4 && shutdown(half[0], SHUT_WR) == 0);
	MUST(write(lonely[1], "a", 1) == 1 && write(lonely[1], "b", 1) == 1);
	MUST(write(left[1], "left", 4) == 4 && close(left[1]) == 0 && close(lonely[1]) == 0);
	MUST(write(client, "to hidden", 9) == 9);
	MUST(write(to_removed, "to removed", 10) == 10);
	MUST(setsockopt(log, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0);
	send_to(gone, "/tmp/log", "from one that is gone");
	MUST(close(gone) == 0 && unlink("/tmp/gone") == 0);
	MUST(write(other, "from other", 10) == 10);
	send_to(client, "/tmp/log", "from client");
	send_to(anybody, "/tmp/log", "from anybody");
	MUST(chmod("/tmp/log", 0666) == 0);
	child.pid = send_as("/tmp/log", "from a child", child.uid);

	object_ready();

	expect(pair[1], "one", NULL, NULL);
	expect(pair[1], "", NULL, NULL);
	expect(pair[1], "two", NULL, NULL);
	expect_nothing(pair[1]);
	expect(pair[0], "back", NULL, NULL);
	expect(records[1], "first", NULL, NULL);
	expect(records[1], "second", NULL, NULL);
	expect_nothing(records[1]);
	MUST(write(records[1], "answer", 6) == 6);
	expect(records[0], "answer", NULL, NULL);
	expect(half[1], "last", NULL, NULL);
	MUST(read(half[1], &c, 1) == 0 && write(half[1], "still", 5) == 5);
	expect(half[0], "still", NULL, NULL);
	expect(lonely[0], "a", NULL, NULL);
	expect(lonely[0], "b", NULL, NULL);
	MUST(read(lonely[0], &c, 1) == 0);
	expect(left[0], "left", NULL, NULL);
	MUST(write(left[0], "x", 1) < 0 && errno == ECONNREFUSED);
	expect(hidden, "to hidden", "/tmp/client", NULL);
	MUST(write(hidden, "to client", 9) == 9);
	expect(client, "to client", "@hidden", NULL);
	expect(log, "from one that is gone", "/tmp/gone", &me);
	expect(log, "from other", NULL, &me);
	expect(log, "from client", "/tmp/client", &me);
	expect(log, "from anybody", NULL, &me);
	expect(log, "from a child", "@child", &child);
	expect_nothing(log);
	MUST(write(other, "more", 4) == 4);
	expect(log, "more", NULL, &me);
	expect(removed, "to removed", NULL, NULL);
	MUST(write(to_removed, "more", 4) == 4);
	expect(removed, "more", NULL, NULL);
	MUST(stat("/tmp/removed", &st) < 0 && stat("/tmp/gone", &st) < 0);
	MUST(stat("/tmp/log", &st) == 0 && S_ISSOCK(st.st_mode));
	return object_done();
}

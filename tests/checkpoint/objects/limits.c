/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with a time limit of the socket's (SO_RCVTIMEO, SO_SNDTIMEO) or of a lock's: nobody is told of a stop, and each ends as it would have. */
#include "asleep.h"
#include "object.h"

#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { CALLS = 11 };

static const struct timeval hour = { 3600, 0 };
static int pairs[CALLS][2]; /* the second is ours */
static int semaphores;
static volatile bool answered[CALLS];
static volatile pid_t tids[CALLS];

static void by_recv(int fd)
{
	char c;

	MUST(recv(fd, &c, 1, 0) == 1);
}

static void by_read(int fd)
{
	char c;

	MUST(read(fd, &c, 1) == 1);
}

static void by_readv(int fd)
{
	char c;

	MUST(readv(fd, &(struct iovec){ &c, 1 }, 1) == 1);
}

static void by_recvmsg(int fd)
{
	char c;
	struct iovec iov = { &c, 1 };

	MUST(recvmsg(fd, &(struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1 }, 0) == 1);
}

static void by_splice(int fd)
{
	int through[2];

	MUST(pipe(through) == 0);
	MUST(splice(fd, NULL, through[1], NULL, 1, 0) == 1);
}

/* Until no more may wait: of datagrams that is a number, the same in a fork. */
static void fill(int fd)
{
	while (send(fd, "x", 1, MSG_DONTWAIT) > 0)
		;
	MUST(errno == EAGAIN);
}

static void by_send(int fd)
{
	fill(fd);
	MUST(send(fd, "x", 1, 0) == 1);
}

static void by_write(int fd)
{
	fill(fd);
	MUST(write(fd, "x", 1) == 1);
}

static void by_sendfile(int fd)
{
	int file = open("/proc/self/exe", O_RDONLY);

	fill(fd);
	MUST(sendfile(fd, file, NULL, 1) == 1 && lseek(file, 0, SEEK_CUR) == 1);
}

static void by_accept(int fd)
{
	int one = accept(fd, NULL, NULL);

	MUST(one >= 0 && close(one) == 0);
}

static struct sockaddr_un address_of(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "%s", name);
	return a;
}

static void by_connect(int fd)
{
	struct sockaddr_un full = address_of("full");

	MUST(connect(fd, (struct sockaddr *)&full, sizeof(full)) == 0);
}

static void by_semaphore(int fd)
{
	struct sembuf take = { .sem_op = -1 };
	struct timespec limit = { 3600, 0 };

	(void)fd;
	MUST(semtimedop(semaphores, &take, 1, &limit) == 0);
}

static void (*const ways[CALLS])(int) = { by_recv, by_read, by_readv, by_recvmsg, by_splice,
	by_send, by_write, by_sendfile, by_accept, by_connect, by_semaphore };
enum { SENDING = 5, ACCEPTING = 8, CONNECTING, TAKING };

/* A listener called @name whose backlog has room for one. */
static int listen_as(const char *name)
{
	struct sockaddr_un a = address_of(name);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 0) == 0);
	return fd;
}

static int connect_to(const char *name)
{
	struct sockaddr_un a = address_of(name);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	MUST(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static void build(void)
{
	for (int i = 0; i < ACCEPTING; i++)
		MUST(socketpair(AF_UNIX, i < SENDING ? SOCK_STREAM : SOCK_DGRAM, 0, pairs[i]) == 0);
	pairs[ACCEPTING][0] = listen_as("empty");
	pairs[CONNECTING][0] = socket(AF_UNIX, SOCK_STREAM, 0);
	pairs[CONNECTING][1] = listen_as("full");
	(void)connect_to("full");
	for (int i = 0; i < TAKING; i++) {
		MUST(setsockopt(pairs[i][0], SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof(hour)) == 0);
		MUST(setsockopt(pairs[i][0], SOL_SOCKET, SO_SNDTIMEO, &hour, sizeof(hour)) == 0);
	}
	semaphores = semget(IPC_PRIVATE, 1, 0600);
	MUST(semaphores >= 0);
}

/* Have the call of @i end. */
static void answer(int i)
{
	char one;

	if (i < SENDING)
		MUST(write(pairs[i][1], "x", 1) == 1);
	else if (i < ACCEPTING)
		while (!answered[i] && recv(pairs[i][1], &one, 1, MSG_DONTWAIT) != 0)
			(void)sched_yield();
	else if (i == ACCEPTING)
		(void)connect_to("empty");
	else if (i == CONNECTING)
		MUST(accept(pairs[i][1], NULL, NULL) >= 0);
	else
		MUST(semop(semaphores, &(struct sembuf){ .sem_op = 1 }, 1) == 0);
}

static void *thread(void *argument)
{
	int i = (int)(intptr_t)argument;

	tids[i] = (pid_t)syscall(SYS_gettid);
	ways[i](pairs[i][0]);
	answered[i] = true;
	return NULL;
}

int main(void)
{
	struct timespec moment = { 0, 50000000 };
	pthread_t threads[CALLS];

	build();
	for (int i = 0; i < CALLS; i++)
		MUST(pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < CALLS; i++)
		asleep_await(&tids[i]);

	object_ready();

	(void)nanosleep(&moment, NULL);
	for (int i = 0; i < CALLS; i++) {
		if (answered[i])
			object_fail("call %d has ended", i);
	}
	for (int i = 0; i < CALLS; i++) {
		answer(i);
		MUST(pthread_join(threads[i], NULL) == 0);
	}
	MUST(semctl(semaphores, 0, IPC_RMID) == 0);
	return object_done();
}

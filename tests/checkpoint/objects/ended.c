/* SPDX-License-Identifier: Apache-2.0 */
/* Files of /proc about processes and threads that have ended while they were open: also where another has the number since. They say so, and tell nothing of anybody else. */
#include "object.h"

#include <sys/socket.h>

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	MUST(pid > 0);
	return pid;
}

static int open_of(pid_t pid, const char *rest)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, rest);
	fd = open(path, O_RDONLY);
	MUST(fd >= 0);
	return fd;
}

static void end(pid_t pid)
{
	MUST(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* Whose number is given again when 32,768 or more others have had theirs; to whoever asks for it the next time, as root. Return: 0 = nobody may ask here. */
static pid_t sleeper_with(pid_t pid)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
			set_tid, set_tid_size;
	} args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1 };
	long made = syscall(SYS_clone3, &args, sizeof(args));

	if (made == 0) {
		for (;;)
			(void)pause();
	}
	MUST(made == pid || (made < 0 && (errno == EPERM || errno == ENOSYS)));
	return made < 0 ? 0 : pid;
}

static void is_ended(int fd)
{
	char text[64];

	MUST(pread(fd, text, sizeof(text), 0) < 0 && errno == ESRCH);
}

static void send_it(int socket, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte = 'x';
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	MUST(sendmsg(socket, &m, 0) == 1 && close(fd) == 0);
}

static int receive_it(int socket)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	int fd;

	MUST(recvmsg(socket, &m, 0) == 1 && CMSG_FIRSTHDR(&m) != NULL);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

int main(void)
{
	pid_t gone = sleeper(), other = sleeper(), again, child;
	char thread[64];
	int fds[5], pair[2], passed, status;

	fds[0] = open_of(gone, "stat");
	fds[1] = open_of(gone, "status");
	MUST(read(fds[1], thread, 5) == 5);
	(void)snprintf(thread, sizeof(thread), "task/%d/stat", gone);
	fds[2] = open_of(gone, thread);
	fds[3] = open_of(other, "statm");
	passed = open_of(other, "comm");
	MUST((fds[4] = dup(fds[0])) >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	send_it(pair[0], passed);
	end(gone);
	end(other);
	again = sleeper_with(gone);
	/* who has some of them too */
	child = fork();
	if (child == 0) {
		MUST(read(pair[0], thread, 1) == 1);
		is_ended(fds[0]);
		(void)fflush(stdout);
		_exit(0);
	}

	object_ready();

	for (int i = 0; i < 5; i++)
		is_ended(fds[i]);
	is_ended(receive_it(pair[1]));
	MUST(write(pair[1], "g", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
	if (again > 0)
		end(again);
	return object_done();
}

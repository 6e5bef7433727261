/* SPDX-License-Identifier: Apache-2.0 */
#include "events/argv_reader.h"
#include "base/ablate.h"
#include "base/attr.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Never empty, which would look like the end. */
struct answer {
	bool waited;
	char text[ARGV_READER_MAX];
};

static ssize_t read_now(pid_t pid, char text[ARGV_READER_MAX])
{
	char path[32];
	cleanup_fd int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, ARGV_READER_MAX);
	return n < 0 ? -errno : n;
}

/* --- the child --- */

/* How often this process has slept, not how often it had no processor. */
static long sleeps(void)
{
	struct rusage usage = { 0 };

	(void)getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

/* Nothing of the server's is held open by it. */
static bool is_by_itself(int socket, pid_t parent)
{
	(void)prctl(PR_SET_NAME, "cayd-reader");
	return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent &&
	       dup2(socket, STDIN_FILENO) >= 0 && raw_close_range(STDIN_FILENO + 1, ~0U, 0) == 0;
}

static attr_noreturn void serve(int socket, pid_t parent)
{
	struct answer a;
	ssize_t n;
	pid_t pid;

	if (!is_by_itself(socket, parent))
		_exit(1);
	while (recv(STDIN_FILENO, &pid, sizeof(pid), 0) == (ssize_t)sizeof(pid)) {
		const long before = sleeps();

		n = read_now(pid, a.text);
		a.waited = sleeps() != before;
		if (send(STDIN_FILENO, &a, offsetof(struct answer, text) + (size_t)(n > 0 ? n : 0),
			    MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* --- for the server --- */

/* Return: a place for one more that is ended, or NULL. */
static pid_t *reap(struct argv_reader *r)
{
	pid_t *place = NULL;

	for (size_t i = 0; i < ARGV_READER_ENDED; i++) {
		if (r->ended[i] != 0 && waitpid(r->ended[i], NULL, WNOHANG) != 0)
			r->ended[i] = 0;
		place = r->ended[i] == 0 ? &r->ended[i] : place;
	}
	return place;
}

static int start(struct argv_reader *r)
{
	const pid_t parent = getpid();
	int pair[2];
	pid_t pid;

	if (reap(r) == NULL)
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		serve(pair[1], parent);
	(void)close(pair[1]);
	if (pid < 0) {
		(void)close(pair[0]);
		return -ENOMEM;
	}
	r->pid = pid;
	r->socket = pair[0];
	return 0;
}

static ssize_t ask(const struct argv_reader *r, pid_t pid, int wait_ms, char text[ARGV_READER_MAX],
	bool *ret_waited)
{
	struct pollfd p = { .fd = r->socket, .events = POLLIN };
	struct answer a;
	ssize_t n;

	if (send(r->socket, &pid, sizeof(pid), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	*ret_waited = true;
	if (poll(&p, 1, wait_ms) <= 0)
		return -ETIMEDOUT;
	n = recv(r->socket, &a, sizeof(a), MSG_DONTWAIT);
	if (n < (ssize_t)offsetof(struct answer, text))
		return n < 0 ? -errno : -EPIPE;
	*ret_waited = a.waited;
	n -= (ssize_t)offsetof(struct answer, text);
	memcpy(text, a.text, (size_t)n);
	return n;
}

void argv_reader_begin(struct argv_reader *r)
{
	(void)start(r); /* if not now, then when it is needed */
}

ssize_t argv_reader_read(
	struct argv_reader *r, pid_t pid, int wait_ms, char text[ARGV_READER_MAX], bool *ret_waited)
{
	ssize_t rc;

	*ret_waited = false;
	if (ablated("argv_apart"))
		return read_now(pid, text);
	rc = r->socket < 0 ? start(r) : 0;
	if (rc == 0)
		rc = ask(r, pid, wait_ms, text, ret_waited);
	if (rc < 0)
		argv_reader_end(r);
	return rc;
}

void argv_reader_end(struct argv_reader *r)
{
	if (r->socket < 0)
		return;
	fd_close(&r->socket);
	(void)kill(r->pid, SIGKILL);
	*reap(r) = r->pid;
	(void)reap(r);
}

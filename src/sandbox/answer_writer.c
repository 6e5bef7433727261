/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/answer_writer.h"
#include "base/clock.h"
#include "sandbox/ration.h"
#include "sys/fdpass.h"
#include "sys/raw.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES_MAX 256U
#define WAIT_MS   1000
#define END_MS \
	10000 /* a killed one ends at once but on a starved machine, and where it waits for a page that does not come */

struct question {
	int32_t tid;
	uint32_t n;
	uint64_t address;
	unsigned char bytes[BYTES_MAX];
};

struct answer {
	int rc;
	uint64_t faults;
};

/* --- the child --- */

/* Nothing of the keeper's is held open by it. */
static bool is_by_itself(int socket, pid_t parent)
{
	(void)prctl(PR_SET_NAME, "cay-writer");
	return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent &&
	       dup2(socket, STDIN_FILENO) >= 0 && raw_close_range(STDIN_FILENO + 1, ~0U, 0) == 0;
}

/* How often it has slept. */
static int64_t sleeps(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) < 0 ? 0 : usage.ru_nvcsw;
}

/* Who slept waited for the memory, and not for a processor; many short waits are as a long one. */
static void write_one(const struct question *q, const struct procmem *memory, struct answer *ret)
{
	const uint64_t began_ns = clock_now_ns();
	const int64_t slept = sleeps();

	ret->rc = procmem_write(memory, q->address, q->bytes, q->n, &ret->faults);
	if (sleeps() != slept)
		ret->faults +=
			(clock_now_ns() - began_ns) / NS_PER_MS * RATION_WAIT_FAULTS / WAIT_MS;
}

static attr_noreturn void serve(int socket, pid_t parent)
{
	struct question q;
	int fds[2];
	size_t n_fds;

	if (!is_by_itself(socket, parent))
		_exit(1);
	while (fdpass_recv(STDIN_FILENO, &q, sizeof(q), fds, ARRAY_SIZE(fds), &n_fds) ==
			(ssize_t)sizeof(q) &&
		n_fds == ARRAY_SIZE(fds)) {
		struct procmem memory = { .tid = q.tid, .mem = fds[0], .maps = fds[1] };
		struct answer a = { 0 };

		write_one(&q, &memory, &a);
		procmem_close(&memory);
		if (send(STDIN_FILENO, &a, sizeof(a), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* --- for the keeper --- */

static int start(struct answer_writer *w)
{
	const pid_t parent = getpid();
	int pair[2], process;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		serve(pair[1], parent);
	(void)close(pair[1]);
	process = pid < 0 ? -errno : raw_pidfd_open(pid);
	if (process < 0) {
		(void)close(pair[0]); /* by which it ends, too */
		return process;
	}
	w->socket = pair[0];
	w->process = process;
	return 0;
}

/* Return: 0: it has answered, -ETIMEDOUT, other -errno. */
static int ask(const struct answer_writer *w, const struct question *q, const struct procmem *p,
	struct answer *ret)
{
	const int fds[2] = { p->mem, p->maps };
	struct pollfd answered = { .fd = w->socket, .events = POLLIN };
	int rc = fdpass_send(w->socket, q, sizeof(*q), fds, ARRAY_SIZE(fds));

	if (rc == 0 && poll(&answered, 1, WAIT_MS) <= 0)
		rc = -ETIMEDOUT;
	if (rc == 0 && recv(w->socket, ret, sizeof(*ret), MSG_DONTWAIT) != (ssize_t)sizeof(*ret))
		rc = -EPIPE;
	return rc;
}

int answer_writer_write(struct answer_writer *w, const struct procmem *p, uint64_t address,
	const void *bytes, size_t n, uint64_t *ret_faults)
{
	struct question q = { .tid = p->tid, .n = (uint32_t)n, .address = address };
	struct answer a = { 0 };
	int rc = n > BYTES_MAX ? -EINVAL : w->socket < 0 ? start(w) : 0;

	if (rc == 0) {
		memcpy(q.bytes, bytes, n);
		rc = ask(w, &q, p, &a);
		if (rc < 0 && !answer_writer_end(w))
			rc = -EINPROGRESS;
	}
	*ret_faults = a.faults;
	return rc < 0 ? rc : a.rc;
}

bool answer_writer_end(struct answer_writer *w)
{
	struct pollfd ended = { .fd = w->process, .events = POLLIN };
	siginfo_t how;
	bool has;

	if (w->socket < 0)
		return true;
	fd_close(&w->socket);
	(void)raw_pidfd_kill(w->process, SIGKILL);
	has = poll(&ended, 1, END_MS) > 0;
	if (has)
		(void)waitid(P_PIDFD, (id_t)w->process, &how, WEXITED);
	fd_close(&w->process);
	return has;
}

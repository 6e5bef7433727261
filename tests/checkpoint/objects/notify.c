/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of inotify with the numbers of their watches; descriptors of processes, living, ended and waited for, and of threads. */
#include "object.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>

#define OF_THREAD O_EXCL /* PIDFD_THREAD, Linux 6.9 */

static void expect(int fd, int wd, uint32_t mask, const char *name)
{
	char bytes[512] __attribute__((aligned(8)));
	const struct inotify_event *e = (const struct inotify_event *)bytes;

	MUST(read(fd, bytes, sizeof(bytes)) >= (ssize_t)sizeof(*e));
	if (e->wd != wd || (e->mask & IN_ALL_EVENTS) != mask ||
		strcmp(e->len > 0 ? e->name : "", name) != 0)
		object_fail(
			"event %x of watch %d, '%s'", e->mask, e->wd, e->len > 0 ? e->name : "");
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);

	MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static bool ended(int pidfd)
{
	return poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1, 0) == 1;
}

static int pidfd_of(pid_t pid, unsigned int flags)
{
	return (int)syscall(SYS_pidfd_open, pid, flags);
}

static pid_t child(bool lives)
{
	pid_t pid = fork();

	if (pid == 0 && lives)
		(void)pause();
	if (pid == 0)
		_exit(5);
	return pid;
}

/** struct of_threads - descriptors of threads, and a set that waits for one of them; -1: this kernel has none. */
struct of_threads {
	pthread_t thread;
	int begun[2], end[2]; /* it says its number, and ends when something comes */
	int of_it, of_first, of_child, set;
};

static void *until_told(void *of)
{
	const struct of_threads *t = of;
	pid_t own = gettid();
	char c;

	MUST(write(t->begun[1], &own, sizeof(own)) == sizeof(own) && read(t->end[0], &c, 1) == 1);
	return NULL;
}

static void make_of_threads(struct of_threads *t, pid_t child)
{
	struct epoll_event e = { .events = EPOLLIN, .data.u64 = 77 };
	pid_t number;

	MUST(pipe(t->begun) == 0 && pipe(t->end) == 0);
	MUST(pthread_create(&t->thread, NULL, until_told, t) == 0);
	MUST(read(t->begun[0], &number, sizeof(number)) == sizeof(number));
	t->of_it = pidfd_of(number, OF_THREAD | O_NONBLOCK);
	t->of_first = pidfd_of(getpid(), OF_THREAD);
	t->of_child = pidfd_of(child, OF_THREAD);
	t->set = epoll_create1(EPOLL_CLOEXEC);
	MUST(t->of_it < 0 || epoll_ctl(t->set, EPOLL_CTL_ADD, t->of_it, &e) == 0);
}

static void check_of_threads(struct of_threads *t)
{
	struct epoll_event e;

	if (t->of_it < 0)
		return;
	MUST((fcntl(t->of_it, F_GETFL) & (OF_THREAD | O_NONBLOCK)) == (OF_THREAD | O_NONBLOCK));
	MUST(!ended(t->of_it) && !ended(t->of_first) && !ended(t->of_child));
	MUST(epoll_wait(t->set, &e, 1, 0) == 0);
	MUST(write(t->end[1], "e", 1) == 1 && pthread_join(t->thread, NULL) == 0);
	MUST(epoll_wait(t->set, &e, 1, 10000) == 1 && e.data.u64 == 77);
	MUST(ended(t->of_it) && !ended(t->of_first));
}

int main(void)
{
	int queue = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), empty = inotify_init1(0), watch[4];
	pid_t living = child(true), zombie = child(false), reaped = child(false);
	int of[3] = { pidfd_of(living, O_NONBLOCK), pidfd_of(zombie, 0), pidfd_of(reaped, 0) };
	int twice = dup(of[0]);
	siginfo_t info = { 0 };
	struct of_threads threads;

	MUST(queue >= 0 && empty >= 0 && of[0] >= 0 && of[1] >= 0 && of[2] >= 0);
	MUST(waitpid(reaped, NULL, 0) == reaped);
	MUST(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT) == 0);
	MUST(mkdir("/tmp/watched", 0700) == 0 && mkdir("/tmp/watched/below", 0700) == 0);
	put("/tmp/watched/file", "x");
	watch[0] = inotify_add_watch(queue, "/tmp", IN_ALL_EVENTS);
	watch[1] = inotify_add_watch(queue, "/tmp/watched/below", IN_CREATE | IN_ONLYDIR);
	watch[2] = inotify_add_watch(queue, "/tmp/watched/file", IN_CLOSE_WRITE);
	MUST(inotify_rm_watch(queue, watch[0]) == 0);
	expect(queue, watch[0], 0, "");
	watch[3] = inotify_add_watch(queue, "/etc", IN_ATTRIB | IN_DELETE_SELF);
	MUST(watch[1] == 2 && watch[3] == 4);
	make_of_threads(&threads, living);

	object_ready();

	check_of_threads(&threads);
	errno = 0;
	MUST(read(queue, &info, sizeof(info)) < 0 && errno == EAGAIN);
	put("/tmp/watched/below/new", "");
	expect(queue, watch[1], IN_CREATE, "new");
	put("/tmp/watched/file", "y");
	expect(queue, watch[2], IN_CLOSE_WRITE, "");
	put("/tmp/unseen", "z");
	MUST(inotify_rm_watch(queue, watch[0]) < 0 && inotify_rm_watch(queue, watch[3]) == 0);
	expect(queue, watch[3], 0, "");
	MUST(inotify_add_watch(queue, "/tmp", IN_CREATE) > watch[3]);
	MUST(fcntl(empty, F_GETFL) == O_RDONLY);

	MUST(!ended(of[0]) && !ended(twice) && ended(of[1]) && ended(of[2]));
	MUST(waitid(P_PIDFD, (id_t)of[2], &info, WEXITED) < 0 && errno == ECHILD);
	MUST(waitid(P_PIDFD, (id_t)of[1], &info, WEXITED) == 0 && info.si_pid == zombie &&
		info.si_status == 5);
	MUST(waitid(P_PIDFD, (id_t)of[0], &info, WEXITED) < 0 && errno == EAGAIN);
	MUST(syscall(SYS_pidfd_send_signal, of[0], SIGTERM, NULL, 0) == 0);
	MUST(poll(&(struct pollfd){ .fd = twice, .events = POLLIN }, 1, 10000) == 1);
	MUST(waitid(P_PIDFD, (id_t)twice, &info, WEXITED) == 0 && info.si_pid == living);
	return object_done();
}

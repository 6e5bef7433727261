/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cayd - the server. Here is what needs privileges, done once before they are dropped: directories, lock, sockets, the kernel's process events, cay-spawn.
 *
 *	cayd [--foreground | --background]
 *
 * --background returns when the server accepts connections (or one was running already); --foreground (the default) stays.
 *
 * A server that systemd keeps is followed by one that systemd keeps: whoever needs one meanwhile (--background, for clients that were attached) leaves the place to it for
 * a while, or it would find it taken and fail. The lock file says who had it: "kept", or, when that has ended and not because it was asked to through its API, "next".
 * One that a command has started ends for one that systemd starts, and leaves the place to it in the same way.
 */
#include "api/server.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "build_id.h"
#include "codec/authority.h"
#include "prog/cayd/caller.h"
#include "prog/cayd/place.h"
#include "sys/confine.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/raw.h"
#include "sys/urgency.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define OTHER_NS  (90 * NS_PER_S) /* longer than a server takes to end */
#define NEXT_NS   (5 * NS_PER_S)  /* longer than systemd takes to start the next one */
#define TRUST_MAX (256U << 10) /* bytes of further roots: they travel in one frame with a policy */

static attr_noreturn void usage(int status)
{
	static const char text[] =
		"usage: cayd [--foreground | --background]\n"
		"Serves the cay API on a unix socket. `cay` starts it by itself; see cay --help.\n";

	(void)!write(status == 0 ? STDOUT_FILENO : STDERR_FILENO, text, sizeof(text) - 1);
	exit(status);
}

static int open_lock(const struct place *p)
{
	char path[PLACE_SIZE + 16];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/cayd.lock", p->run);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

/* One server per instance: the lock is held for the life of the process. Return: descriptor, -EAGAIN when another holds it. */
static int take_lock(const struct place *p)
{
	int fd = open_lock(p);

	if (fd < 0)
		return fd;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK ? -EAGAIN : -errno;

		(void)close(fd);
		return rc;
	}
	return fd;
}

/* Is the place that @lock is of to be left to a server that somebody is about to start? @since: from when on we have wanted it. */
static bool is_promised(int lock, uint64_t since)
{
	char word[8] = "";
	struct stat st;
	uint64_t ended;

	if (pread(lock, word, sizeof(word) - 1, 0) <= 0 || fstat(lock, &st) < 0)
		return false;
	if (str_eq(word, "kept")) /* it was killed, nobody knows when */
		return clock_now_ns() - since < NEXT_NS;
	ended = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	return str_eq(word, "next") && clock_wall_ns() - ended < NEXT_NS;
}

static void say(int lock, const char *word)
{
	if (ftruncate(lock, 0) == 0) /* else somebody waits for nothing, or fails, as without it */
		(void)!pwrite(lock, word, strlen(word), 0);
}

/* Did systemd execute this very process? */
static bool is_kept(void)
{
	const char *pid = getenv("SYSTEMD_EXEC_PID");
	uint64_t n;

	return pid != NULL && str_to_u64(pid, 1, INT32_MAX, &n) == 0 && (pid_t)n == getpid();
}

static int listen_api(const struct place *p)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (str_copy(address.sun_path, sizeof(address.sun_path), p->socket) < 0)
		return -ENAMETOOLONG;
	(void)unlink(p->socket);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	/* who may use it is decided by SO_PEERCRED */
	if (chmod(p->socket, p->rootless ? 0600 : 0666) < 0 || listen(fd, 512) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* --- cay-spawn --- */

static attr_noreturn void exec_spawn(const struct place *p, const char *path, int socket_fd)
{
	char mode[16], uid[16], gid[16], name[] = "cay-spawn";
	char *argv[] = { name, mode, uid, gid, NULL };

	(void)snprintf(mode, sizeof(mode), "%s",
		!p->rootless     ? "root"
		: p->subuid != 0 ? "range"
				 : "single");
	(void)snprintf(uid, sizeof(uid), "%u", p->subuid);
	(void)snprintf(gid, sizeof(gid), "%u", p->subgid);
	if (dup2(socket_fd, SPAWN_FD) < 0 ||
		raw_close_range(SPAWN_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(1);
	(void)setenv("CAY_STATE", p->state, 1);
	(void)setenv("CAY_RUN", p->run, 1);
	(void)setenv("CAY_TAG", p->tag, 1);
	(void)setenv("CAY_MODE", p->rootless ? "rootless" : "root", 1);
	(void)execv(path, argv);
	log_error("start", "run '%s': %s", path, strerrordesc_np(errno));
	_exit(1);
}

/* Return: our end of its socket, or -1, which was logged. */
static int start_spawn(const struct place *p)
{
	char path[4096] = "";
	int pair[2], rc = place_program("cay-spawn", path, sizeof(path));
	pid_t pid = -1;

	if (rc < 0) {
		log_error("start", "there is no cay-spawn beside cayd, nor '%s': %s", path,
			strerrordesc_np(-rc));
		return -1;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0)
		pid = fork();
	if (pid < 0) {
		log_error("start", "start '%s': %s", path, strerrordesc_np(errno));
		return -1;
	}
	if (pid == 0)
		exec_spawn(p, path, pair[1]);
	(void)close(pair[1]);
	(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
	return pair[0];
}

/* --- giving up --- */

static int drop_privileges(const struct place *p)
{
	if (p->rootless)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(p->gid, p->gid, p->gid) < 0 ||
		setresuid(p->uid, p->uid, p->uid) < 0)
		return -errno;
	return 0;
}

static int harden(void)
{
	struct rlimit files;
	int rc = confine_core();

	if (rc < 0)
		return rc;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	return 0;
}

/* The file that CAY_TRUST names, for as long as the process lives. */
static int read_trust(const char **ret)
{
	static struct buf pem = BUF_INIT(TRUST_MAX);
	const char *path = getenv("CAY_TRUST");
	int rc;

	if (path == NULL)
		return 0;
	rc = file_read_at(AT_FDCWD, path, &pem);
	if (rc < 0)
		log_error("start", "read CAY_TRUST '%s': %s", path, strerrordesc_np(-rc));
	*ret = buf_cstr(&pem);
	return rc;
}

/* CAY_THROUGH: "host:port", or as a URL. */
static int read_through(const char **ret)
{
	const char *text = getenv("CAY_THROUGH");
	struct authority a;

	if (text == NULL || *text == '\0')
		return 0;
	*ret = str_starts(text, "http://") ? text + strlen("http://") : text;
	if (authority_parse(*ret, strlen(*ret), &a) == 0 && a.port != 0)
		return 0;
	log_error("start", "CAY_THROUGH '%s': HOST:PORT of an HTTP proxy is wanted", text);
	return -EINVAL;
}

/* Whoever can connect may ask us to end: server_run() lets that in when it can listen to it. */
static void hold_back_ends(void)
{
	sigset_t ends;

	(void)sigemptyset(&ends);
	(void)sigaddset(&ends, SIGTERM);
	(void)sigaddset(&ends, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &ends, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

static int serve(struct place *p, int lock, int ready_fd)
{
	struct server_setup setup = { .build = CAY_BUILD,
		.state = p->state,
		.run = p->run,
		.tag = p->tag,
		.socket = p->socket,
		.rootless = p->rootless,
		.group = p->admit_gid };
	static struct proc_connector connector;
	char reason[200] = "";
	struct err err = { 0 };
	int rc;

	if (place_lock(p, &err) < 0 || place_make(p, &err) < 0) {
		log_err("start", &err);
		return 1;
	}
	if (read_trust(&setup.trust) < 0 || read_through(&setup.through) < 0)
		return 1;
	rc = proc_connector_open(&connector);
	if (rc < 0)
		(void)snprintf(reason, sizeof(reason), "process events are not available: %s",
			rc == -EPERM ? "the kernel gives them to root only (before Linux 6.6)"
			: rc == -ENXIO
				? "the kernel gives them to its first pid namespace only, which this is not"
				: strerrordesc_np(-rc));
	setup.connector = &connector;
	setup.process_error = reason;
	setup.uid_map = !p->rootless || p->subuid != 0 ? "range" : "single";
	setup.state_fd = open(p->state, O_PATH | O_DIRECTORY | O_CLOEXEC);
	setup.run_fd = open(p->run, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (setup.state_fd < 0 || setup.run_fd < 0) {
		log_error("start", "open '%s' and '%s': %s", p->state, p->run,
			strerrordesc_np(errno));
		return 1;
	}
	setup.spawn_fd = start_spawn(p);
	hold_back_ends();
	urgency_set(
		true); /* everybody waits for its words; nothing is started by it from here on */
	setup.listen_fd = setup.spawn_fd < 0 ? -ECHILD : listen_api(p);
	if (setup.listen_fd < 0 && setup.spawn_fd >= 0)
		log_error("start", "socket '%s': %s", p->socket, strerrordesc_np(-setup.listen_fd));
	if (setup.listen_fd < 0)
		return 1;
	rc = drop_privileges(p);
	if (rc == 0)
		rc = harden();
	if (rc < 0) {
		log_error("start", "drop privileges: %s", strerrordesc_np(-rc));
		return 1;
	}
	setup.ready_fd = ready_fd;
	setup.lock_fd = lock;
	return server_run(&setup);
}

/*
 * systemd starts us, and the server at the other end of @fd is none that it keeps: that one ends, and the place is promised to us before clients that are attached need the
 * next one. @asked: the server that was told so; 0 = none yet. Return: does it end?
 */
static bool replace(const struct place *p, int fd, pid_t *asked)
{
	cleanup_fd int lock = open_lock(p), server = -1;
	struct pollfd end = { .fd = fd };
	struct ucred other = { 0 };
	socklen_t n = sizeof(other);
	char word[8] = "";

	if (lock < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &n) < 0 || other.pid <= 0 ||
		(other.uid != p->uid && other.uid != geteuid()))
		return false;
	if (other.pid == *asked)
		return true;
	if (pread(lock, word, sizeof(word) - 1, 0) < 0 || str_eq(word, "kept"))
		return false;
	server = raw_pidfd_open(other.pid);
	/* the number is its own for as long as it holds the connection */
	if (server < 0 || poll(&end, 1, 0) != 0)
		return true;
	say(lock, "next");
	*asked = other.pid;
	return raw_pidfd_kill(server, SIGTERM) == 0;
}

/*
 * The lock is held by another: it is starting, running or ending; or, with @patient, is to be left to another. Wait until it accepts, or is gone; nothing announces either.
 * Return: 0 it accepts; 1 it is gone, @lock is ours; -errno.
 */
static int wait_for_other(const struct place *p, bool patient, int *lock)
{
	uint64_t since = clock_now_ns(), deadline = since + OTHER_NS;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	bool replaces = !patient && is_kept();
	pid_t asked = 0;

	if (str_copy(address.sun_path, sizeof(address.sun_path), p->socket) < 0)
		return -ENAMETOOLONG;
	while (clock_now_ns() < deadline) {
		cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
			!(replaces && replace(p, fd, &asked)))
			return 0;
		*lock = take_lock(p);
		if (*lock >= 0 && patient && is_promised(*lock, since))
			fd_close(lock);
		else if (*lock != -EAGAIN)
			return *lock < 0 ? *lock : 1;
		(void)poll(NULL, 0, 5);
	}
	log_error("start", "another cayd holds '%s/cayd.lock' but does not answer", p->run);
	return -ETIMEDOUT;
}

/* What the child has said since the log was @from long goes to who started us. Return: was there anything? */
static bool repeat(int log_fd, off_t from)
{
	char text[1500];
	ssize_t n = pread(log_fd, text, sizeof(text), from);

	return n > 0 && write(STDERR_FILENO, text, (size_t)n) == n;
}

/* Serve, and promise the place to who follows where somebody is to: from now on, however long it took to end. */
static int serve_and_leave(struct place *p, int lock, int ready_fd)
{
	int rc = serve(p, lock, ready_fd);
	struct stat st;

	if (fstat(lock, &st) == 0 && st.st_size > 0)
		say(lock, "next");
	return rc;
}

/* Become a background process: the parent leaves when the child accepts connections. */
static int background(struct place *p, int lock)
{
	char path[PLACE_SIZE + 16], byte;
	int ready[2], log_fd, null_fd, rc;
	off_t from;
	pid_t pid;

	(void)snprintf(path, sizeof(path), "%s/cayd.log", p->run);
	log_fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (log_fd < 0 || null_fd < 0 || pipe2(ready, O_CLOEXEC) < 0) {
		log_error("start", "open '%s': %s", path, strerrordesc_np(errno));
		return 1;
	}
	from = lseek(log_fd, 0, SEEK_END);
	say(lock, "");
	rc = fault("server.background.fork");
	pid = rc < 0 ? rc : fork();
	if (pid < 0) {
		log_error("start", "start a process: %s", strerrordesc_np(rc < 0 ? -rc : errno));
		return 1;
	}
	if (pid > 0) {
		(void)close(ready[1]);
		(void)close(lock);
		if (read(ready[0], &byte, 1) == 1)
			return 0;
		(void)waitpid(pid, NULL, 0); /* so its locks are free */
		if (!repeat(log_fd, from))
			log_error("start", "cayd could not start; see %s", path);
		return 1;
	}
	(void)setsid();
	(void)close(ready[0]);
	(void)!chdir("/");
	(void)dup2(null_fd, STDIN_FILENO);
	(void)dup2(null_fd, STDOUT_FILENO);
	(void)dup2(log_fd, STDERR_FILENO);
	caller_leave();
	return serve_and_leave(p, lock, ready[1]);
}

static int foreground(struct place *p, int lock)
{
	say(lock, is_kept() ? "kept" : "");
	return serve_and_leave(p, lock, -1);
}

/* Whoever starts us may ignore or block what tells of children, and programs inherit that. */
static void take_signals(void)
{
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)signal(SIGCHLD, SIG_DFL);
}

/* A misspelt name would switch nothing off and prove nothing. */
static int check_without(void)
{
	const char *list = getenv("CAY_WITHOUT");
	char name[64];

	while (list != NULL && *list != '\0') {
		size_t n = strcspn(list, ",");

		(void)snprintf(name, sizeof(name), "%.*s", (int)(n < 63 ? n : 63), list);
		if (n > 0 && !str_eq(name, "all") && !str_eq(name, "newuidmap") &&
			feature_find(name) == FEATURE_COUNT) {
			log_error("start",
				"CAY_WITHOUT names '%s', which is no feature of defs/kernel.def",
				name);
			return -EINVAL;
		}
		list += n;
		list += *list == ',';
	}
	return 0;
}

int main(int argc, char **argv)
{
	bool in_background = false;
	struct place p;
	struct err err = { 0 };
	int lock;

	log_init("cayd");
	for (int i = 1; i < argc; i++) {
		if (str_eq(argv[i], "--background"))
			in_background = true;
		else if (str_eq(argv[i], "--help"))
			usage(0);
		else if (!str_eq(argv[i], "--foreground"))
			usage(64);
	}
	(void)umask(022);
	take_signals();
	if (check_without() < 0)
		return 1;
	if (place_find(&p, &err) < 0) {
		log_err("start", &err);
		return 1;
	}
	lock = take_lock(&p);
	if (lock >= 0 && in_background && is_promised(lock, clock_now_ns())) {
		(void)close(lock);
		lock = -EAGAIN;
	}
	if (lock == -EAGAIN) {
		int rc = wait_for_other(&p, in_background, &lock);

		if (rc == 0 && !in_background)
			log_error("start", "another cayd is running on '%s'", p.run);
		if (rc <= 0)
			return rc == 0 && in_background ? 0 : 1;
	}
	if (lock < 0) {
		log_error("start", "lock '%s/cayd.lock': %s", p.run, strerrordesc_np(-lock));
		return 1;
	}
	return in_background ? background(&p, lock) : foreground(&p, lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cay-spawn - starts keepers for cayd, each in its own control group, and clears up behind them.
 *
 * In root mode this is the one process with root's power that talks to cayd. It takes requests of fixed size with an id of [a-z0-9]{20} and a
 * descriptor, looks at nothing else, allocates nothing, and ends when cayd's end of the socket closes; keepers stay.
 *
 *	cay-spawn MODE [FIRST-SUBUID FIRST-SUBGID]	socket on descriptor 3
 *
 * MODE: root | range | single. In the last two every keeper gets a user namespace: with a subordinate range through newuidmap and newgidmap, or one uid.
 *
 * Invariants: a child is in children[] from its start to the report of its end; an id's groups are removed only when they are empty; the report ENDED comes
 * after that, or after CLEANUP_DEADLINE_MS with dirty set (something is stuck in the kernel). The server may be killed, and the next one start the same sandbox
 * anew, while we do not run: so nothing is done to what bears an id's name without groups_lock() and a look whether it is still what we made (still_meant()).
 */
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/str.h"
#include "prog/cay-spawn/groups.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/raw.h"
#include "sys/spawn_request.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CHILDREN_MAX        16384
#define CLEANUPS_MAX        512
#define CLEANUP_DEADLINE_MS 10000
#define RETRY_MS            20
#define FINISH_MS           10000
#define QUIET_MS            500

enum mode { MODE_ROOT = 0, MODE_RANGE = 1, MODE_SINGLE = 2 };

struct child {
	pid_t pid;
	char id[SPAWN_ID_SIZE];
	uint64_t group; /* groups_number() of the one made for it; 0 = none */
};

struct cleanup_job {
	struct spawn_event report;
	uint64_t group; /* of what ended */
	uint64_t deadline_ns;
};

static struct child children[CHILDREN_MAX];
static size_t n_children;
static struct cleanup_job cleanups[CLEANUPS_MAX];
static size_t n_cleanups;
static struct groups groups;
static enum mode mode;
static uint32_t first_subuid, first_subgid;
static int keeper_fd = -1, template_fd = -1, signal_fd = -1;
static char *keeper_env[16];

static void report(const struct spawn_event *e)
{
	int rc = fdpass_send(SPAWN_FD, e, sizeof(*e), NULL, 0);

	(void)rc; /* when cayd is gone the loop sees it */
}

static struct spawn_event event_for(enum spawn_event_kind kind, const char *id)
{
	struct spawn_event e = { .magic = SPAWN_MAGIC, .version = SPAWN_VERSION, .kind = kind };

	e.uid_map = (uint32_t)mode;
	(void)!str_copy(e.id, sizeof(e.id), id);
	return e;
}

static void build_environment(void)
{
	static const char *const names[] = { "CAY_STATE", "CAY_RUN", "CAY_TAG", "CAY_MODE",
		"CAY_WITHOUT", "CAY_FAULT", "CAY_FAULT_LOG", "CAY_DEBUG", "CAY_ABLATE",
		"CAY_ACCEPT_NO_LIMITS" };
	static char text[ARRAY_SIZE(names)][4200];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);
		int len;

		if (value == NULL)
			continue;
		len = snprintf(text[i], sizeof(text[i]), "%s=%s", names[i], value);
		if (len > 0 && (size_t)len < sizeof(text[i]))
			keeper_env[n++] = text[i];
	}
	keeper_env[n] = NULL;
}

/* Copy what @from holds into an unchangeable file without a name. */
static int seal_copy(int from, const char *name)
{
	cleanup_fd int memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64];
	ssize_t n;
	int fd, rc;

	if (memory < 0)
		return -errno;
	while ((n = sendfile(memory, from, NULL, 1 << 30)) > 0)
		;
	if (n < 0 || fchmod(memory, 0555) < 0)
		return -errno;
	rc = file_seal(memory);
	if (rc < 0)
		return rc;
	/* a descriptor that may write, even a sealed file, would make execve say "text file busy" */
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * The keeper runs from a sealed copy: a payload can make the kernel execute /proc/self/exe of a process that is about to become its program
 * (CVE-2019-5736), and in rootless mode the file on disk belongs to the payload's own user.
 */
static int open_program(const char *dir, const char *name)
{
	cleanup_free char *path = str_dupf("%s/%s", dir, name);
	cleanup_fd int file = open(path, O_RDONLY | O_CLOEXEC);

	return file < 0 ? -errno : seal_copy(file, name);
}

static int open_programs(void)
{
	static char programs[4200];
	char path[4096];
	size_t last = 0;
	int rc = file_own_dir(path, sizeof(path));

	if (rc < 0)
		return rc;
	(void)snprintf(programs, sizeof(programs), "CAY_PROGRAMS=%s", path);
	while (keeper_env[last] != NULL)
		last++;
	keeper_env[last] = programs;
	keeper_env[last + 1] = NULL;
	keeper_fd = open_program(path, "cay-keeper");
	template_fd = open_program(path, "cay-template");
	return keeper_fd < 0 ? keeper_fd : template_fd < 0 ? template_fd : 0;
}

/* --- the child, up to exec --- */

static attr_noreturn void child_fail(int status_fd, int error)
{
	(void)!write(status_fd, &error, sizeof(error));
	_exit(127);
}

static int child_write(const char *path, const char *text)
{
	cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	return write(fd, text, strlen(text)) < 0 ? errno : 0;
}

static int map_single(uid_t uid, gid_t gid)
{
	char line[64];
	int error = child_write("/proc/self/setgroups", "deny");

	(void)snprintf(line, sizeof(line), "0 %u 1\n", uid);
	if (error == 0)
		error = child_write("/proc/self/uid_map", line);
	(void)snprintf(line, sizeof(line), "0 %u 1\n", gid);
	if (error == 0)
		error = child_write("/proc/self/gid_map", line);
	return error;
}

/* What must be able to enter every keeper's namespace stands above them, as the user who made them. */
static bool has_namespace(const struct spawn_request *r)
{
	return mode != MODE_ROOT && r->kind != SPAWN_TEMPLATE && r->kind != SPAWN_JOB_ABOVE;
}

/* Is it a new one, with maps to write? A job @beside a keeper enters the keeper's: only there may it look into the sandbox. */
static bool makes_namespace(const struct spawn_request *r)
{
	return has_namespace(r) && r->beside == 0;
}

/* The user who made a namespace is privileged in it, and may open it. */
static int child_enter_namespace(pid_t pid)
{
	char path[32];
	cleanup_fd int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWUSER) < 0)
		return errno;
	return setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ? errno : 0;
}

/* Unshare, let the parent map (range) or map ourselves (single), become 0 of the new namespace. */
static int child_user_namespace(const struct spawn_request *r, int status_fd, int go_fd)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int error = 0;
	char byte;

	if (!has_namespace(r))
		return 0;
	if (!makes_namespace(r))
		return child_enter_namespace(r->beside);
	if (unshare(CLONE_NEWUSER) < 0)
		return errno;
	if (mode == MODE_SINGLE)
		error = map_single(uid, gid);
	if (error != 0)
		return error;
	if (mode == MODE_RANGE) {
		if (write(status_fd, &error, sizeof(error)) < 0 || read(go_fd, &byte, 1) != 1)
			return EPIPE;
	}
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return errno;
	return 0;
}

static attr_noreturn void child_main(
	const struct spawn_request *r, int socket_fd, int status_fd, int go_fd)
{
	char kind[] = "sandbox", id[SPAWN_ID_SIZE], name[] = "cay-keeper",
	     template[] = "cay-template";
	char *keeper_argv[] = { name, kind, id, NULL }, *template_argv[] = { template, id, NULL };
	bool is_template = r->kind == SPAWN_TEMPLATE;
	sigset_t none;
	int null_fd, error;

	memcpy(id, r->id, sizeof(id));
	if (r->kind == SPAWN_JOB || r->kind == SPAWN_JOB_ABOVE)
		memcpy(kind, "job", sizeof("job"));
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setsid();
	error = child_user_namespace(r, status_fd, go_fd);
	if (error != 0)
		child_fail(status_fd, error);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0)
		child_fail(status_fd, errno);
	/* 3 is our own socket: keep the status pipe, the program and the keeper's socket out of its way */
	if (dup2(socket_fd, SPAWN_FD) < 0 ||
		raw_close_range(SPAWN_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		child_fail(status_fd, errno);
	(void)execveat(is_template ? template_fd : keeper_fd, "",
		is_template ? template_argv : keeper_argv, keeper_env, AT_EMPTY_PATH);
	child_fail(status_fd, errno);
}

/* --- the parent --- */

static int run_mapper(const char *program, pid_t pid, uint32_t own, uint32_t first)
{
	char pid_text[16], own_text[16], first_text[16], name[16], zero[] = "0", one[] = "1",
								   count[] = "65535";
	char *argv[] = { name, pid_text, zero, own_text, one, one, first_text, count, NULL };
	char path[] = "PATH=/usr/bin:/bin:/usr/local/bin";
	char *env[] = { path, NULL };
	pid_t helper;
	int status;

	(void)snprintf(name, sizeof(name), "%s", program);
	(void)snprintf(pid_text, sizeof(pid_text), "%d", pid);
	(void)snprintf(own_text, sizeof(own_text), "%u", own);
	(void)snprintf(first_text, sizeof(first_text), "%u", first);
	helper = fork();
	if (helper < 0)
		return -errno;
	if (helper == 0) {
		(void)raw_close_range(SPAWN_FD, ~0U, CLOSE_RANGE_CLOEXEC);
		(void)execvpe(program, argv, env);
		_exit(127);
	}
	while (waitpid(helper, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPERM;
}

/* The child has unshared: write its maps and let it go on. */
static int map_range(pid_t pid, int status_fd, int go_fd)
{
	int error, rc;

	if (read(status_fd, &error, sizeof(error)) != sizeof(error))
		return -EPIPE;
	if (error != 0)
		return -error;
	rc = run_mapper("newuidmap", pid, geteuid(), first_subuid);
	if (rc == 0)
		rc = run_mapper("newgidmap", pid, getegid(), first_subgid);
	if (rc == 0 && write(go_fd, "", 1) != 1)
		rc = -EPIPE;
	return rc;
}

static pid_t start_child(
	const struct spawn_request *r, int socket_fd, int group_fd, int *status, int *go)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	pid_t pid;

	if (group_fd >= 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (unsigned int)group_fd;
	}
	pid = raw_clone3(&args);
	if ((pid == -EACCES || pid == -EPERM) && group_fd >= 0 && mode != MODE_ROOT) {
		args = (struct clone_args){ .exit_signal = SIGCHLD };
		pid = raw_clone3(
			&args); /* the group exists, but may not be entered from here: go without */
	}
	if (pid == 0) {
		(void)close(status[0]);
		(void)close(go[1]);
		child_main(r, socket_fd, status[1], go[0]);
	}
	return pid;
}

/* Start the keeper; returns its pid once exec has succeeded. Locked. */
static int spawn(const struct spawn_request *r, int socket_fd, uint64_t *ret_group)
{
	int status[2] = { -1, -1 }, go[2] = { -1, -1 };
	cleanup_fd int group_fd = groups_make(&groups, r->id, ret_group);
	int error = 0, rc = 0;
	pid_t pid;

	if (group_fd == -EBUSY)
		return -EBUSY;
	if (pipe2(status, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0) {
		rc = -errno;
		fd_close(&status[0]);
		fd_close(&status[1]);
		return rc;
	}
	pid = start_child(r, socket_fd, group_fd, status, go);
	fd_close(&status[1]);
	fd_close(&go[0]);
	if (pid > 0 && mode == MODE_RANGE && makes_namespace(r))
		rc = map_range(pid, status[0], go[1]);
	fd_close(&go[1]);
	/* end of file = exec has closed the pipe */
	if (pid > 0 && rc == 0 && read(status[0], &error, sizeof(error)) == sizeof(error))
		rc = -error;
	fd_close(&status[0]);
	if (pid > 0 && rc < 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		return rc;
	}
	return pid;
}

/* A keeper or template that was killed could not remove its own. */
static void remove_files(const char *id)
{
	static const char *const endings[] = { "sock", "tpl", "state", "files" };
	const char *run = getenv("CAY_RUN");
	char path[4200];

	for (size_t i = 0; run != NULL && i < ARRAY_SIZE(endings); i++) {
		int n = snprintf(path, sizeof(path), "%s/keepers/%s.%s", run, id, endings[i]);

		if (n > 0 && (size_t)n < sizeof(path))
			(void)unlink(path);
	}
}

/* Without a server there may be another one, which has a cay-spawn of its own. */
static bool server_there(void)
{
	struct pollfd p = { .fd = SPAWN_FD };

	(void)poll(&p, 1, 0);
	return (p.revents & (POLLHUP | POLLERR)) == 0;
}

/* Is what bears the name still what is to be cleared away? Locked. */
static bool still_meant(const struct cleanup_job *c)
{
	return c->group != 0 ? groups_number(&groups, c->report.id) == c->group : server_there();
}

/* Kill, and remove what is empty. @lock: as groups_lock() said. Return: 0 when nothing is left to do. */
static int clean_up(const struct cleanup_job *c, int lock)
{
	if (lock == -EWOULDBLOCK)
		return -EBUSY;
	if (!still_meant(c))
		return 0;
	remove_files(c->report.id);
	return groups_remove(&groups, c->report.id);
}

static void cleanup_finish(size_t i, bool dirty)
{
	cleanups[i].report.dirty = dirty;
	report(&cleanups[i].report);
	cleanups[i] = cleanups[--n_cleanups];
}

/* One attempt at every pending id. */
static void cleanups_run(void)
{
	cleanup_fd int lock = n_cleanups > 0 ? groups_lock(false) : -1;

	for (size_t i = n_cleanups; i-- > 0;) {
		if (clean_up(&cleanups[i], lock) == 0)
			cleanup_finish(i, false);
		else if (clock_now_ns() > cleanups[i].deadline_ns)
			cleanup_finish(i, true);
	}
}

static void cleanup_begin(const struct spawn_event *e, uint64_t group)
{
	struct cleanup_job job = {
		.report = *e,
		.group = group,
		.deadline_ns = clock_now_ns() + CLEANUP_DEADLINE_MS * NS_PER_MS,
	};

	if (n_cleanups == CLEANUPS_MAX) {
		cleanup_fd int lock = groups_lock(true);

		job.report.dirty = clean_up(&job, lock) < 0;
		report(&job.report);
		return;
	}
	cleanups[n_cleanups++] = job;
}

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < n_children; i++) {
			struct child c = children[i];
			struct spawn_event e;

			if (c.pid != pid)
				continue;
			e = event_for(SPAWN_EVENT_ENDED, c.id);
			e.pid = pid;
			e.status = status;
			children[i] = children[--n_children];
			cleanup_begin(&e, c.group);
			break;
		}
	}
}

/* What is left of an earlier keeper of this id goes before a new one comes: its clean-up would kill the new one. */
static void finish_cleanup_of(const char *id)
{
	for (;;) {
		bool pending = false;

		for (size_t i = 0; i < n_cleanups; i++)
			pending |= str_eq(cleanups[i].report.id, id);
		if (!pending)
			return;
		(void)poll(NULL, 0, 2); /* bounded by the deadline of the clean-up */
		cleanups_run();
	}
}

static void handle_start(const struct spawn_request *r, int fd)
{
	struct spawn_event e = event_for(SPAWN_EVENT_STARTED, r->id);
	struct child c = { 0 };
	cleanup_fd int lock = -1;

	finish_cleanup_of(r->id);
	lock = groups_lock(true);
	if (!server_there())
		return;
	if (lock == -EWOULDBLOCK)
		log_error("spawn",
			"a cay-spawn of an earlier server stands still in the midst of its work: going on beside it");
	memcpy(c.id, r->id, SPAWN_ID_SIZE);
	c.pid = n_children == CHILDREN_MAX ? -EAGAIN : fd < 0 ? -EBADF : spawn(r, fd, &c.group);
	if (c.pid > 0) {
		children[n_children++] = c;
		e.pid = c.pid;
	} else {
		e.kind = SPAWN_EVENT_FAILED;
		e.status = -c.pid;
		if (c.group != 0)
			(void)groups_remove(&groups, r->id);
	}
	report(&e);
}

/* What the server does not know anything of but the id: it means what is there now. */
static void handle_cleanup(const struct spawn_request *r)
{
	struct spawn_event e = event_for(SPAWN_EVENT_ENDED, r->id);
	cleanup_fd int lock = groups_lock(true);
	bool there = server_there();
	uint64_t group = groups_number(&groups, r->id);

	fd_close(&lock);
	if (there)
		cleanup_begin(&e, group);
}

static bool request_valid(const struct spawn_request *r, ssize_t n)
{
	return n == (ssize_t)sizeof(*r) && r->magic == SPAWN_MAGIC && r->version == SPAWN_VERSION &&
	       r->beside >= 0 && (r->beside == 0 || r->kind == SPAWN_JOB) &&
	       memchr(r->id, '\0', sizeof(r->id)) != NULL && id_valid(r->id);
}

/*
 * cayd is gone: nobody will start anything again. Jobs and keepers without a sandbox end by themselves, now: clear up behind them, and leave when nothing has
 * ended for a while. Keepers with a sandbox stay.
 */
static attr_noreturn void finish(void)
{
	uint64_t now = clock_now_ns(), deadline = now + FINISH_MS * NS_PER_MS,
		 quiet = now + QUIET_MS * NS_PER_MS;

	while (n_children + n_cleanups > 0 && now < deadline && now < quiet) {
		struct pollfd p = { .fd = signal_fd, .events = POLLIN };
		struct signalfd_siginfo info;
		size_t before = n_children;

		(void)poll(&p, 1, RETRY_MS);
		while (read(signal_fd, &info, sizeof(info)) > 0)
			;
		reap();
		cleanups_run();
		now = clock_now_ns();
		if (n_children != before || n_cleanups > 0)
			quiet = now + QUIET_MS * NS_PER_MS;
	}
	groups_sweep(&groups);
	groups_fini(&groups);
	_exit(0);
}

static void handle_request(void)
{
	struct spawn_request r;
	int fds[1] = { -1 };
	size_t n_fds = 0;
	ssize_t n = fdpass_recv(SPAWN_FD, &r, sizeof(r), fds, 1, &n_fds);
	cleanup_fd int fd = n >= 0 && n_fds == 1 ? fds[0] : -1;

	if (n == 0 || n == -ECONNRESET)
		finish();
	if (n < 0 || !request_valid(&r, n)) {
		log_error("spawn", "refused a malformed request");
		return;
	}
	switch ((enum spawn_kind)r.kind) {
	case SPAWN_SANDBOX:
	case SPAWN_JOB:
	case SPAWN_JOB_ABOVE:
	case SPAWN_TEMPLATE:
		handle_start(&r, fd);
		return;
	case SPAWN_CLEANUP:
		handle_cleanup(&r);
		return;
	}
	log_error("spawn", "refused an unknown request kind");
}

static int signals_open(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	/* a terminal's Ctrl-C ends cayd, and through the socket us */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static attr_noreturn void loop(void)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = SPAWN_FD, .events = POLLIN },
			{ .fd = signal_fd, .events = POLLIN } };
		struct signalfd_siginfo info;

		if (poll(p, 2, n_cleanups > 0 ? RETRY_MS : -1) < 0 && errno != EINTR)
			_exit(1);
		if (p[1].revents != 0) {
			while (read(signal_fd, &info, sizeof(info)) > 0)
				;
			reap();
		}
		if (p[0].revents != 0)
			handle_request();
		cleanups_run();
	}
}

static int parse_arguments(int argc, char **argv)
{
	uint64_t uid, gid;

	if (argc >= 2 && str_eq(argv[1], "root"))
		mode = MODE_ROOT;
	else if (argc >= 2 && str_eq(argv[1], "single"))
		mode = MODE_SINGLE;
	else if (argc >= 4 && str_eq(argv[1], "range"))
		mode = MODE_RANGE;
	else
		return -EINVAL;
	if (mode != MODE_RANGE)
		return 0;
	if (str_to_u64(argv[2], 1, UINT32_MAX, &uid) < 0 ||
		str_to_u64(argv[3], 1, UINT32_MAX, &gid) < 0)
		return -EINVAL;
	first_subuid = (uint32_t)uid;
	first_subgid = (uint32_t)gid;
	return 0;
}

int main(int argc, char **argv)
{
	struct spawn_event ready;
	const char *tag = getenv("CAY_TAG");
	int rc;

	log_init("cay-spawn");
	if (parse_arguments(argc, argv) < 0 || tag == NULL) {
		log_error("spawn", "started by cayd only");
		return 64;
	}
	(void)raw_close_range(SPAWN_FD + 1, ~0U, 0);
	(void)fcntl(SPAWN_FD, F_SETFD, FD_CLOEXEC);
	/* what a dying keeper leaves comes to us: unreaped children would keep its pid namespace from ending */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (mode == MODE_ROOT)
		(void)prctl(
			PR_SET_DUMPABLE, 0); /* rootless: newuidmap must own our /proc entries */
	build_environment();
	rc = open_programs();
	if (rc < 0) {
		log_error("spawn", "no cay-keeper or cay-template beside cay-spawn: %s",
			strerrordesc_np(-rc));
		return 1;
	}
	groups_find(&groups, tag, mode == MODE_ROOT);
	groups_sweep(&groups);
	signal_fd = signals_open();
	if (signal_fd < 0)
		return 1;
	ready = event_for(SPAWN_EVENT_READY, "");
	ready.status = groups.base[0] != '\0' ? SPAWN_CGROUP_V2 : SPAWN_CGROUP_NONE;
	report(&ready);
	loop();
}

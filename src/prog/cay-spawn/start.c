/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-spawn/start.h"
#include "base/log.h"
#include "base/str.h"
#include "sys/file.h"
#include "sys/raw.h"
#include "sys/seed.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct start_mode mode;
static int keeper_fd = -1, template_fd = -1;
static int seeds[2] = { -1, -1 }; /* sockets to those of keepers and of jobs; -1 = there is none */
static char *keeper_env[16];

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
	return mode.kind != START_ROOT && r->kind != SPAWN_TEMPLATE && r->kind != SPAWN_JOB_ABOVE;
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
	if (mode.kind == START_SINGLE)
		error = map_single(uid, gid);
	if (error != 0)
		return error;
	if (mode.kind == START_RANGE) {
		if (write(status_fd, &error, sizeof(error)) < 0 || read(go_fd, &byte, 1) != 1)
			return EPIPE;
	}
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return errno;
	return 0;
}

static bool is_job(const struct spawn_request *r)
{
	return r->kind == SPAWN_JOB || r->kind == SPAWN_JOB_ABOVE;
}

static attr_noreturn void child_main(
	const struct spawn_request *r, int socket_fd, int status_fd, int go_fd)
{
	char kind[] = "sandbox", id[SPAWN_ID_SIZE], name[] = "cay-keeper",
	     template[] = "cay-template", stock[16];
	char *keeper_argv[] = { name, kind, id, NULL },
	     *template_argv[] = { template, id, stock, NULL };
	bool is_template = r->kind == SPAWN_TEMPLATE;
	sigset_t none;
	int null_fd, error;

	memcpy(id, r->id, sizeof(id));
	(void)snprintf(stock, sizeof(stock), "%u", r->stock_mib);
	if (is_job(r))
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
	rc = run_mapper("newuidmap", pid, geteuid(), mode.first_subuid);
	if (rc == 0)
		rc = run_mapper("newgidmap", pid, getegid(), mode.first_subgid);
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
	if ((pid == -EACCES || pid == -EPERM) && group_fd >= 0 && mode.kind != START_ROOT) {
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

/* Return: pid of the program of @r once it has been executed, or -errno. */
static int execute(const struct spawn_request *r, int socket_fd, int group_fd)
{
	int status[2] = { -1, -1 }, go[2] = { -1, -1 };
	int error = 0, rc = 0;
	pid_t pid;

	if (pipe2(status, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0) {
		rc = -errno;
		fd_close(&status[0]);
		fd_close(&status[1]);
		return rc;
	}
	pid = start_child(r, socket_fd, group_fd, status, go);
	fd_close(&status[1]);
	fd_close(&go[0]);
	if (pid > 0 && mode.kind == START_RANGE && makes_namespace(r))
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

/* Socket to the seed of @r's kind, begun if need be; NULL: there is none. */
static int *seed_of(const struct spawn_request *r)
{
	static const struct spawn_request kinds[] = { { .kind = SPAWN_SANDBOX, .id = SEED_NAME },
		{ .kind = SPAWN_JOB, .id = SEED_NAME } };
	int *seed = &seeds[is_job(r)], pair[2];

	/* rootless, a user namespace of its own is made before the program begins */
	if (mode.kind != START_ROOT || r->kind == SPAWN_TEMPLATE)
		return NULL;
	if (*seed < 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
		*seed = pair[0];
		if (execute(&kinds[is_job(r)], pair[1], -1) < 0)
			fd_close(seed);
		(void)close(pair[1]);
	}
	return *seed < 0 ? NULL : seed;
}

int start_program(const struct spawn_request *r, int socket_fd, int group_fd)
{
	int *seed = seed_of(r), pid = -ENOTCONN;

	if (seed != NULL)
		pid = seed_clone(*seed, r->id, socket_fd, group_fd);
	if (pid != -ENOTCONN)
		return pid;
	if (seed != NULL) {
		log_warn("spawn", "the process that is cloned was killed: another one is begun");
		fd_close(seed);
	}
	return execute(r, socket_fd, group_fd);
}

int start_init(const struct start_mode *as)
{
	mode = *as;
	build_environment();
	return open_programs();
}

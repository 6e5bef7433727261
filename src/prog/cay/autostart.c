/* SPDX-License-Identifier: Apache-2.0 */
#include "base/directories.h"
#include "base/str.h"
#include "prog/cay/cli.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SYSTEMD_RUN "/usr/bin/systemd-run"

extern char **environ;

char *cli_socket_path(void)
{
	const char *path = getenv("CAY_SOCKET");
	cleanup_free char *run = NULL;

	if (path != NULL && *path != '\0')
		return str_dup(path);
	run = directories_run(NULL);
	return str_dupf("%s/cayd.sock", run);
}

int cli_program(const char *name, char **ret)
{
	static const char *const places[] = { "", CAY_PROGRAM_DIR "/", "../bin/" };
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return -ENOENT;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash == NULL)
		return -ENOENT;
	*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		cleanup_free char *path = str_dupf("%s/%s%s", self, places[i], name);

		if (access(path, X_OK) == 0) {
			*ret = TAKE_PTR(path);
			return 0;
		}
	}
	return -ENOENT;
}

/* Does systemd manage this user's processes? Then it gives a control group to whoever asks. */
static bool user_has_systemd(void)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	cleanup_free char *socket = str_dupf("%s/systemd/private", run != NULL ? run : "");

	return run != NULL && access(socket, F_OK) == 0 && access(SYSTEMD_RUN, X_OK) == 0;
}

/*
 * How many processes there may be each sandbox says, and the user's slice: a scope would have a sixth or so of the machine's for all of them
 * (DefaultTasksMax).
 */
size_t cli_server_scope(const char *argv[CLI_SCOPE_MAX])
{
	static const char *const scope[] = { SYSTEMD_RUN, "--user", "--scope", "--quiet",
		"--collect", "--no-ask-password", "--property=Delegate=yes",
		"--property=TasksMax=infinity", "--" };

	_Static_assert(ARRAY_SIZE(scope) == CLI_SCOPE_MAX, "room for all of it");
	if (geteuid() == 0 || getenv("CAY_ACCEPT_NO_LIMITS") != NULL || !user_has_systemd())
		return 0;
	memcpy(argv, scope, sizeof(scope));
	return ARRAY_SIZE(scope);
}

/* Starts it with nothing but our standard error's copy in @log; its own background process must not hold our streams. */
static int spawn(const char *path, int log, pid_t *ret)
{
	const char *argv[CLI_SCOPE_MAX + 3] = { 0 };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	size_t n;
	int rc;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawnattr_init(&attr) != 0)
		abort();
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawnattr_setsigdefault(&attr, &all);
	(void)posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	(void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	(void)posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
	(void)posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
	(void)syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
	n = cli_server_scope(argv);
	argv[n++] = path;
	argv[n] = "--background";
	rc = posix_spawn(ret, argv[0], &actions, &attr, (char **)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -rc;
}

/* What it wrote, its last lines: they say why. */
static void quote_log(struct err *err, int log, const char *path, int status)
{
	char text[700];
	off_t end = lseek(log, 0, SEEK_END);
	off_t from = end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0;
	ssize_t n = pread(log, text, sizeof(text) - 1, from);

	for (n = n > 0 ? n : 0; n > 0 && text[n - 1] == '\n';)
		n--;
	text[n] = '\0';
	if (WIFSIGNALED(status))
		(void)err_raise(err, ERR_UNAVAILABLE,
			"the server could not be started: '%s' died of signal %d%s%s", path,
			WTERMSIG(status), n > 0 ? ": " : "", text);
	else
		(void)err_raise(err, ERR_UNAVAILABLE,
			"the server could not be started: '%s' ended with %d%s%s", path,
			WEXITSTATUS(status), n > 0 ? ": " : "", text);
	(void)err_hint(err, 0,
		"cay doctor says what this machine lacks; cayd --foreground shows the server's own words");
}

int cli_start_server(struct err *err)
{
	const char *start = getenv("CAY_START");
	cleanup_free char *path = NULL;
	cleanup_fd int log = -1;
	int status = 0, rc;
	pid_t pid;

	if (start != NULL && str_eq(start, "0"))
		return err_raise(err, ERR_UNAVAILABLE,
			"no server runs, and CAY_START=0 keeps cay from starting one");
	if (cli_program("cayd", &path) < 0)
		return err_hint(err,
			err_raise(err, ERR_UNAVAILABLE,
				"no server runs, and there is no cayd beside this program to start"),
			"start cayd, or set CAY_SOCKET to the socket of one that runs");
	log = memfd_create("cayd-start", MFD_CLOEXEC);
	if (log < 0)
		return err_raise_sys(err, -errno, "make a file for the server's messages");
	rc = spawn(path, log, &pid);
	if (rc < 0)
		return err_raise_sys(err, rc, "start '%s'", path);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return err_raise_sys(err, -errno, "wait for '%s'", path);
	}
	if (status == 0)
		return 0;
	/* Another cay may have been quicker: then ours found the place taken and connecting works. */
	quote_log(err, log, path, status);
	return -EAGAIN;
}

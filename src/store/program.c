/* SPDX-License-Identifier: Apache-2.0 */
#include "store/program.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <sys/wait.h>

/* Nothing of ours but its error output; its own words become the reason. */
int program_run(const char *const *argv, struct err *err)
{
	int out[2], status;
	char text[400] = "";
	size_t n = 0;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0)
		return err_raise_sys(err, -errno, "make a pipe for '%s'", argv[0]);
	pid = fork();
	if (pid == 0) {
		static const char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };

		(void)dup2(out[1], STDOUT_FILENO);
		(void)dup2(out[1], STDERR_FILENO);
		(void)raw_close_range(3, ~0U, 0);
		(void)execve(
			argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
		_exit(127);
	}
	(void)close(out[1]);
	for (;;) {
		char chunk[256];
		ssize_t got = read(out[0], chunk, sizeof(chunk));

		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got && n < sizeof(text) - 1; i++)
			text[n++] = chunk[i] >= ' ' && chunk[i] < 127 ? chunk[i] : ' ';
	}
	(void)close(out[0]);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return err_raise_sys(err, -errno, "run '%s'", argv[0]);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_raise(err, ERR_HOST, "'%s' failed: %s", argv[0], text);
	return 0;
}

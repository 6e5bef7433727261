/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "base/fault.h"

#include <fcntl.h>

/* fault() remembers what it found in the environment, so every case asks in a child of its own. Returns the wait status. */
static int in_child(const char *spec, const char *log, const char *const *names)
{
	int status = 0;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int failures = 0;

		if (spec != NULL)
			(void)setenv("CAY_FAULT", spec, 1);
		if (log != NULL)
			(void)setenv("CAY_FAULT_LOG", log, 1);
		for (; *names != NULL; names++)
			failures += fault(*names) == -EIO;
		_exit(failures);
	}
	(void)waitpid(pid, &status, 0);
	return status;
}

#define PASS(spec, ...) in_child(spec, NULL, (const char *const[]){ __VA_ARGS__, NULL })

TEST(nothing_happens_unless_told)
{
	check_int(PASS(NULL, "a.b", "a.b"), 0);
	check_int(PASS("a.c", "a.b", "a.b"), 0);
	check_int(PASS("a.bb", "a.b"), 0);
	check_int(PASS("a", "a.b"), 0);
	check_int(PASS("", "a.b"), 0);
}

TEST(kills_at_the_first_hit)
{
	check_int(WTERMSIG(PASS("a.b", "x", "a.b")), SIGKILL);
	check_int(WTERMSIG(PASS("a.b=kill", "a.b")), SIGKILL);
}

TEST(kills_at_the_hit_that_was_named)
{
	check_int(PASS("a.b:3", "a.b", "x", "a.b"), 0);
	check_int(WTERMSIG(PASS("a.b:3", "a.b", "x", "a.b", "a.b")), SIGKILL);
}

TEST(fails_once)
{
	check_int(WEXITSTATUS(PASS("a.b=error", "a.b", "a.b", "a.b")), 1);
	check_int(WEXITSTATUS(PASS("a.b:2=error", "a.b", "a.b", "a.b")), 1);
	check_int(WEXITSTATUS(PASS("a.b:4=error", "a.b", "a.b", "a.b")), 0);
}

TEST(fails_from_a_hit_on)
{
	check_int(WEXITSTATUS(PASS("a.b:1+=error", "a.b", "x", "a.b", "a.b")), 3);
	check_int(WEXITSTATUS(PASS("a.b:3+=error,x=error", "a.b", "x", "a.b", "a.b", "a.b")), 3);
}

TEST(several_act_each_for_itself)
{
	check_int(WEXITSTATUS(PASS("a.b=error,c.d:2=error,e", "c.d", "a.b", "c.d", "a.b")), 2);
	check_int(WTERMSIG(PASS("a.b=error,e", "a.b", "e")), SIGKILL);
	check_int(WTERMSIG(PASS("e,a.b=error", "a.b", "e")), SIGKILL);
	check_int(PASS("a.b=error,e", "a", "b"), 0);
}

TEST(names_of_a_list_are_known_by_their_beginning)
{
	(void)setenv("CAY_FAULT", "a.b=error,c.d.e:2,f", 1);
	check(fault_at("a."));
	check(fault_at("c.d"));
	check(fault_at("f"));
	check(!fault_at("b"));
	check(!fault_at("c.d.e:3"));
	(void)unsetenv("CAY_FAULT");
	check(!fault_at(""));
}

TEST(lists_what_it_passed)
{
	char path[] = "/tmp/cay-test-fault-XXXXXX", text[64] = "";
	cleanup_fd int fd = mkostemp(path, O_CLOEXEC);

	check(fd >= 0);
	check_int(in_child(NULL, path, (const char *const[]){ "a.b", "c.d", "a.b", NULL }), 0);
	check_int(pread(fd, text, sizeof(text) - 1, 0), 12);
	check_str(text, "a.b\nc.d\na.b\n");
	(void)unlink(path);
}

TEST(with_a_log_hits_of_all_processes_count)
{
	char path[] = "/tmp/cay-test-fault-XXXXXX", text[64] = "";
	cleanup_fd int fd = mkostemp(path, O_CLOEXEC);
	const char *const names[] = { "a.b", "a.bc", NULL };

	check(fd >= 0);
	check_int(in_child("a.b:3", path, names), 0);
	check_int(in_child("a.b:3", path, names), 0);
	check_int(WTERMSIG(in_child("a.b:3", path, names)), SIGKILL);
	check_int(in_child("a.b:3", path, names), 0);
	check_int(pread(fd, text, sizeof(text) - 1, 0), 36);
	check_str(text, "a.b\na.bc\na.b\na.bc\na.b\n!a.b\na.b\na.bc\n");
	(void)unlink(path);
}

TEST(who_fails_is_in_the_log)
{
	char path[] = "/tmp/cay-test-fault-XXXXXX", text[64] = "";
	cleanup_fd int fd = mkostemp(path, O_CLOEXEC);

	check(fd >= 0);
	check_int(WEXITSTATUS(in_child("a.b:2+=error", path,
			  (const char *const[]){ "a.b", "a.b", "a.b", NULL })),
		2);
	check_int(pread(fd, text, sizeof(text) - 1, 0), 22);
	check_str(text, "a.b\na.b\n!a.b\na.b\n!a.b\n");
	(void)unlink(path);
}

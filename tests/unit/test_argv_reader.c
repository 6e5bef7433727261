/* SPDX-License-Identifier: Apache-2.0 */
#include "events/argv_reader.h"
#include "t.h"

#include <signal.h>
#include <sys/wait.h>

#define LONG_MS 10000

/* What it is to have read of us. */
static void check_own(struct argv_reader *r)
{
	char want[ARGV_READER_MAX], text[ARGV_READER_MAX];
	FILE *file = fopen("/proc/self/cmdline", "re");
	size_t n = file == NULL ? 0 : fread(want, 1, sizeof(want), file);
	bool waited;

	check(n > 0);
	check_int(argv_reader_read(r, getpid(), LONG_MS, text, &waited), (ssize_t)n);
	check(memcmp(text, want, n) == 0);
	(void)fclose(file);
}

TEST(arguments_are_read_by_a_child_which_stays)
{
	struct argv_reader r = ARGV_READER_NONE;
	pid_t child;

	check_own(&r);
	child = r.pid;
	check_own(&r);
	check_int(r.pid, child);
	argv_reader_end(&r);
	check_int(r.socket, -1);
}

TEST(of_one_that_is_gone_there_are_none)
{
	struct argv_reader r = ARGV_READER_NONE;
	char text[ARGV_READER_MAX];
	const pid_t gone = fork();
	bool waited;

	if (gone == 0)
		_exit(0);
	check_int(waitpid(gone, NULL, 0), gone);
	check_int(argv_reader_read(&r, gone, LONG_MS, text, &waited), 0);
	argv_reader_end(&r);
}

/* Stopped, it gets no further, like one that waits for an address space. */
TEST(who_waits_for_too_long_is_ended_and_another_one_made)
{
	struct argv_reader r = ARGV_READER_NONE;
	char text[ARGV_READER_MAX];

	for (size_t i = 0; i < 2 * ARGV_READER_ENDED; i++) {
		bool waited = false;
		pid_t child;

		check_own(&r);
		child = r.pid;
		check_int(kill(child, SIGSTOP), 0);
		check_int(waitpid(child, NULL, WUNTRACED), child);
		check_int(argv_reader_read(&r, getpid(), 1, text, &waited), -ETIMEDOUT);
		check(waited);
		check_int(r.socket, -1);
		/* it is to be gone before the next one is made, of which there are only so many */
		while (waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT) < 0 &&
			errno == EINTR)
			;
	}
	argv_reader_end(&r);
}

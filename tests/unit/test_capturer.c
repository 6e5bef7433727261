/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/capturer.h"
#include "t.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A dumper that has just done what it was asked for when it is told to stop: that is heard first. */
static attr_noreturn void dumper(int keeper, uint32_t stuck)
{
	static struct dump_report looked, gave_up;
	sigset_t term;
	int signal;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)sigemptyset(&term);
	(void)sigaddset(&term, SIGTERM);
	(void)err_raise(&gave_up.err, ERR_TIMEOUT, "told to stop");
	gave_up.let_go = 1;
	gave_up.n_stuck = stuck;
	if (sigwait(&term, &signal) != 0 || send(keeper, &looked, sizeof(looked), 0) < 0 ||
		send(keeper, &gave_up, sizeof(gave_up), 0) < 0)
		_exit(1);
	for (;;)
		(void)pause();
}

static void give_up(uint32_t stuck)
{
	struct capture c = CAPTURE_INIT;
	struct dump_report report;
	struct err err = { 0 };
	sigset_t term;
	int pair[2], numbers;

	(void)sigemptyset(&term);
	(void)sigaddset(&term, SIGTERM);
	check(sigprocmask(SIG_BLOCK, &term, NULL) == 0);
	check(setenv("CAY_FAULT", "live.dump.hang.looked=error", 1) == 0); /* soon */
	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	c.pid = fork();
	if (c.pid == 0)
		dumper(pair[1], stuck);
	c.dumper = pair[0];
	check_int(capture_look(&c, &report, &numbers, &err), -ETIMEDOUT);
	check_int(err.code, ERR_NONE);
	check(capture_give_up(&c, &err) < 0);
	check_int(err.code, ERR_TIMEOUT);
	check_int(capture_end(&c), stuck > 0 ? -EPIPE : 0);
	(void)close(pair[1]);
}

TEST(what_a_dumper_was_about_to_say_does_not_mean_that_it_has_let_go)
{
	give_up(1);
}

TEST(a_dumper_that_has_let_all_go_loses_nobody)
{
	give_up(0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A keeper and a job in one process: what is said waits in the sockets until the other side asks for it. */
#include "t.h"
#include "base/clock.h"
#include "store/instant.h"

#include <sys/stat.h>

#define ID "aaaaaaaaaaaaaaaaaaaa"

struct place {
	char run[32], keepers[48];
	struct instant job;
};

static struct place place_new(void)
{
	struct place p = { .run = "/tmp/cay-instant-XXXXXX", .job = INSTANT_NONE };

	if (mkdtemp(p.run) == NULL)
		abort();
	(void)snprintf(p.keepers, sizeof(p.keepers), "%s/keepers", p.run);
	(void)mkdir(p.keepers, 0700);
	check_int(instant_open(&p.job, p.run, ID), 0);
	return p;
}

static void place_end(struct place *p)
{
	instant_close(&p->job);
	check_int(rmdir(p->keepers), 0); /* nothing is left in it */
	(void)rmdir(p->run);
}

/* A try that comes to its end. */
static void capture_and_keep(struct place *p)
{
	int keeper = instant_join(p->run, ID);
	uint64_t begun_ns = clock_now_ns(), at_ns = 0;

	check(keeper >= 0);
	check_int(instant_begin(keeper), 0);
	check_int(instant_keep(keeper), 0);
	check_int(instant_await(&p->job), 0);
	check_int(instant_done(&p->job), 1);
	check(instant_captured(keeper, &at_ns));
	check(at_ns >= begun_ns && at_ns <= clock_now_ns());
	(void)close(keeper);
}

TEST(what_is_captured_is_kept)
{
	struct place p = place_new();

	capture_and_keep(&p);
	place_end(&p);
}

TEST(a_try_that_is_given_up_before_the_moment_is_none)
{
	struct place p = place_new();
	int first = instant_join(p.run, ID), second = instant_join(p.run, ID);

	(void)close(first);
	check_int(instant_begin(second), 0);
	check_int(instant_await(&p.job), 0);
	(void)close(second);
	place_end(&p);
}

TEST(a_try_that_is_given_up_behind_it_is_made_again)
{
	struct place p = place_new();
	int keeper = instant_join(p.run, ID);

	check_int(instant_begin(keeper), 0);
	check_int(instant_await(&p.job), 0);
	(void)close(keeper);
	check_int(instant_done(&p.job), 0);
	capture_and_keep(&p);
	place_end(&p);
}

TEST(who_lets_go_before_all_is_captured_keeps_nothing)
{
	struct place p = place_new();
	int keeper = instant_join(p.run, ID);

	check_int(instant_begin(keeper), 0);
	check_int(instant_keep(keeper), 0);
	check_int(instant_await(&p.job), 0);
	/* killed, perhaps: the processes go on, and change what is still being captured */
	(void)close(keeper);
	check_int(instant_done(&p.job), 0);
	place_end(&p);
}

TEST(what_is_said_to_a_job_that_has_given_up_is_no_error)
{
	struct place p = place_new();
	int known = instant_join(p.run, ID), unknown;

	check_int(instant_begin(known), 0);
	check_int(instant_await(&p.job), 0);
	unknown = instant_join(p.run, ID);
	instant_close(&p.job);
	check_int(instant_keep(known), 0);
	check_int(instant_begin(unknown), 0);
	check_int(instant_keep(unknown), 0);
	check(!instant_captured(known, NULL));
	check(!instant_captured(unknown, NULL));
	(void)close(known);
	(void)close(unknown);
	place_end(&p);
}

TEST(a_job_that_gives_up_has_captured_nothing)
{
	struct place p = place_new();
	int keeper = instant_join(p.run, ID);

	check_int(instant_begin(keeper), 0);
	check_int(instant_await(&p.job), 0);
	instant_close(&p.job);
	check(!instant_captured(keeper, NULL));
	check_int(instant_join(p.run, ID), -ENOENT);
	(void)close(keeper);
	place_end(&p);
}

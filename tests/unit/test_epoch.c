/* SPDX-License-Identifier: Apache-2.0 */
/* The order of an epoch, written down by holders and steps that do nothing else. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "checkpoint/epoch.h"
#include "t.h"

struct record {
	struct buf said;
	const char *fails; /* this one does, with... */
	enum err_code code;
	unsigned int times; /* ...as often as that */
};

static int say(void *of, struct err *err, const char *what)
{
	struct record *r = of;

	buf_fmt(&r->said, "%s%s", r->said.n > 0 ? " " : "", what);
	if (r->fails == NULL || strcmp(r->fails, what) != 0 || r->times == 0)
		return 0;
	r->times--;
	return err_raise(err, r->code, "%s fails", what);
}

#define VERB(holder, verb) \
	static int holder##_##verb(void *of, struct err *err) \
	{ \
		return say(of, err, #holder "." #verb); \
	}
#define NOTE(holder, verb) \
	static void holder##_##verb(void *of) \
	{ \
		(void)say(of, NULL, #holder "." #verb); \
	}
#define HOLDER(holder) \
	VERB(holder, stop) \
	NOTE(holder, save) \
	NOTE(holder, go) \
	VERB(holder, keep) \
	VERB(holder, fork) \
	VERB(holder, load)

HOLDER(a)
HOLDER(b)
NOTE(c, save)
VERB(all, freeze)
VERB(all, capture)
NOTE(all, release)
NOTE(all, wait)

static const struct holder holders[] = {
	{ "a", a_stop, a_save, a_go, a_keep, a_fork, a_load },
	{ "b", b_stop, b_save, b_go, b_keep, b_fork, b_load },
	{ .name = "c", .save = c_save },
};
static const struct epoch_steps steps = { all_freeze, all_capture, all_release, all_wait };
static const struct epoch_steps captured_beside = {
	.freeze = all_freeze, .release = all_release, .wait = all_wait
};
static const struct epoch_steps nothing_runs = { .wait = all_wait };

typedef int verb_fn(const struct epoch *e, struct err *err);

/* What was said, and how it ended. Static. */
static struct err err;
static uint64_t patience_ns;

static const char *run(verb_fn *verb, const struct epoch_steps *how, const char *fails,
	enum err_code code, unsigned int times)
{
	static struct record r;
	const struct epoch e = { holders, ARRAY_SIZE(holders), how, &r, "do without", patience_ns };
	int rc;

	err = (struct err){ 0 };

	buf_free(&r.said);
	r = (struct record){ .said = BUF_INIT(4096), .fails = fails, .code = code, .times = times };
	rc = verb(&e, &err);
	check_int(rc < 0, err.code != ERR_NONE);
	if (rc < 0) {
		check_int(err.code, code);
		buf_fmt(&r.said, " -> %s", err_code_name(err.code));
	}
	return buf_cstr(&r.said);
}

#define STOPPED "a.stop b.stop all.freeze"
#define GONE    "all.release b.go a.go"
#define AGAIN   STOPPED " b.go a.go all.wait "

TEST(stop_what_goes_out_freeze_capture_all_let_go)
{
	check_str(run(epoch_take, &steps, NULL, 0, 0),
		STOPPED " all.capture a.save b.save c.save " GONE);
}

TEST(what_the_freeze_has_begun_to_capture_is_waited_for_by_the_release)
{
	check_str(run(epoch_take, &captured_beside, NULL, 0, 0),
		STOPPED " a.save b.save c.save " GONE);
}

TEST(what_ends_is_not_let_go)
{
	check_str(run(epoch_stop, &steps, NULL, 0, 0), STOPPED " all.capture a.save b.save c.save");
}

TEST(where_nothing_runs_there_is_nothing_to_freeze)
{
	check_str(run(epoch_take, &nothing_runs, NULL, 0, 0),
		"a.stop b.stop a.save b.save c.save b.go a.go");
}

TEST(what_fails_leaves_all_as_it_was)
{
	check_str(run(epoch_take, &steps, "a.stop", ERR_UNAVAILABLE, 1), "a.stop -> unavailable");
	check_str(run(epoch_take, &steps, "b.stop", ERR_UNAVAILABLE, 1),
		"a.stop b.stop a.go -> unavailable");
	check_str(run(epoch_take, &steps, "all.freeze", ERR_UNSUPPORTED, 1),
		STOPPED " b.go a.go -> unsupported");
	check_str(run(epoch_take, &steps, "all.capture", ERR_DISK_FULL, 1),
		STOPPED " all.capture " GONE " -> disk_full");
}

TEST(who_is_busy_is_asked_again_with_nothing_stopped_meanwhile)
{
	check_str(run(epoch_take, &steps, "all.freeze", ERR_BUSY, 2),
		AGAIN AGAIN STOPPED " all.capture a.save b.save c.save " GONE);
	check_str(run(epoch_stop, &steps, "all.freeze", ERR_BUSY, EPOCH_TRIES),
		AGAIN AGAIN AGAIN AGAIN AGAIN AGAIN AGAIN STOPPED " b.go a.go -> busy");
	check_str(run(epoch_take, &steps, "all.capture", ERR_BUSY, 1),
		STOPPED " all.capture " GONE " -> busy");
}

/* Who reads of it cannot know by the message that it was not refused at the first look. */
TEST(who_was_busy_each_time_is_said_to_have_been)
{
	(void)run(epoch_take, &steps, "all.freeze", ERR_BUSY, EPOCH_TRIES - 1);
	check_str(err.hint, "");
	(void)run(epoch_take, &steps, "all.freeze", ERR_UNSUPPORTED, 1);
	check_str(err.hint, "");
	(void)run(epoch_take, &steps, "all.freeze", ERR_BUSY, EPOCH_TRIES);
	check(str_starts(err.hint, "tried 8 times in "));
	check(str_ends(err.hint, "try again, or do without"));
}

/* A process that does not stand still costs all of the sandbox the whole of each try. */
TEST(where_patience_is_over_there_is_no_further_try)
{
	patience_ns = 1;
	check_str(run(epoch_stop, &steps, "all.freeze", ERR_BUSY, EPOCH_TRIES),
		STOPPED " b.go a.go -> busy");
	check(str_starts(err.hint, "tried 1 time in "));
	patience_ns = 3600 * NS_PER_S;
	check_str(run(epoch_take, &steps, "all.freeze", ERR_BUSY, 1),
		AGAIN STOPPED " all.capture a.save b.save c.save " GONE);
	patience_ns = 0;
}

TEST(saved_in_order_loaded_in_reverse)
{
	check_str(run(epoch_keep, &steps, NULL, 0, 0), "a.keep b.keep");
	check_str(run(epoch_keep, &steps, "a.keep", ERR_DISK_FULL, 1), "a.keep -> disk_full");
	check_str(run(epoch_fork, &steps, NULL, 0, 0), "b.fork a.fork");
	check_str(run(epoch_load, &steps, NULL, 0, 0), "b.load a.load");
	check_str(run(epoch_load, &steps, "b.load", ERR_DISK_FULL, 1), "b.load -> disk_full");
}

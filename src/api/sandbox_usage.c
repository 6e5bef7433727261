/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/sandbox_usage.c - what a sandbox consumed, over all the times that it ran.
 *
 * While it runs its keeper counts (sandbox/meter.h, the cgroup); when it stops the last count is added to the totals in its document. A run whose keeper died before it could
 * say anything is missing from the totals, and they say so (`incomplete`). What could not be counted in one of these times is null in all of them.
 */
#include "api/sandbox_parts.h"

static const char *const sums[] = { "running_ms", "cpu_us", "output_bytes", "oom_kills",
	"forks_refused", "memory_samples", "memory_gb_seconds" };
static const char *const peaks[] = { "memory_peak_bytes", "memory_gap_ms" };

static void set_sum(json_t *to, const json_t *a, const json_t *b, const char *member)
{
	const json_t *x = json_object_get(a, member), *y = json_object_get(b, member);
	json_t *sum;

	if (json_is_null(x) || json_is_null(y))
		sum = json_null();
	else if (json_is_real(x) || json_is_real(y))
		sum = json_real(json_number_value(x) + json_number_value(y));
	else
		sum = json_integer(json_integer_value(x) + json_integer_value(y));
	(void)json_object_set_new(to, member, sum);
}

static void set_peak(json_t *to, const json_t *a, const json_t *b, const char *member)
{
	json_t *x = json_object_get(a, member), *y = json_object_get(b, member);

	(void)json_object_set(to, member,
		json_integer_value(x) > json_integer_value(y) ? x
		: y != NULL                                   ? y
							      : x);
}

/* The totals of two stretches of time; either may be NULL. */
static json_t *add_up(const json_t *kept, const json_t *now)
{
	json_t *all = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(sums); i++)
		set_sum(all, kept, now, sums[i]);
	for (size_t i = 0; i < ARRAY_SIZE(peaks); i++)
		set_peak(all, kept, now, peaks[i]);
	(void)json_object_set_new(
		all, "incomplete", json_boolean(json_is_true(json_object_get(kept, "incomplete"))));
	return all;
}

/* What the keeper has counted; NULL with @err set (which may be NULL) when it does not answer. */
static json_t *ask_keeper(struct sandbox *sb, struct err *err)
{
	struct framecall call;
	json_t *now = NULL;

	framelink_call_begin(&sb->keeper->link, &call, json_pack("{s:s}", "verb", "usage"));
	return framelink_call_end(&sb->keeper->link, &call, clock_now_ns() + CALL_NS, &now, err) < 0
		       ? NULL
		       : now;
}

json_t *sandbox_usage_read(struct sandbox *sb)
{
	bool there = sb->keeper != NULL && !sb->keeper->link.dead;

	return there ? ask_keeper(sb, NULL) : NULL;
}

void sandbox_usage_add(struct sandbox *sb, json_t *run)
{
	json_t *all = add_up(json_object_get(sb->doc, "usage"), run);

	if (run == NULL)
		(void)json_object_set_new(all, "incomplete", json_true());
	json_decref(run);
	(void)json_object_set_new(sb->doc, "usage", all);
}

void sandbox_usage_keep(struct sandbox *sb)
{
	sandbox_usage_add(sb, sandbox_usage_read(sb));
}

json_t *sandbox_usage_now(struct sandbox *sb, struct err *err)
{
	bool live =
		sb->keeper != NULL && (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED);
	json_t *now = live ? ask_keeper(sb, err) : NULL, *all;

	if (live && now == NULL)
		return NULL;
	all = add_up(json_object_get(sb->doc, "usage"), now);
	(void)json_object_update_missing(all, now);
	json_decref(now);
	(void)json_object_set_new(all, "sandbox", json_string(sb->id));
	(void)json_object_set_new(all, "live", json_boolean(live));
	return all;
}

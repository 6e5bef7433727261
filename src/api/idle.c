/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/idle.c - see the header, and docs/design/0011.
 *
 *   window opens: processor time and traffic are read -> T goes by without a request, a client, a step -> they are read again:
 *     the processes worked or something passed the gateway -> a new window
 *     else                                                 -> suspended; where that is refused, again after a while, each time a longer one
 *
 * Invariants
 *  (1) nobody who has called sandbox_wake() finds its sandbox suspended by the policy before sandbox_rest(): `users` is looked at with the lock held;
 *  (2) windows are in memory only: a new server opens new ones for what its catalogue says.
 */
#include "api/idle.h"
#include "api/sandbox_parts.h"
#include "api/suspend.h"
#include "base/log.h"
#include "base/str.h"

#define WORKS          100 /* a hundredth of one processor over the window is work */
#define BACKOFF_NS     NS_PER_S
#define BACKOFF_MAX_NS (3600 * NS_PER_S)

/* --- being wanted --- */

static bool is_asleep(const struct sandbox *sb)
{
	const char *by = json_string_value(json_object_get(sb->doc, "suspended_by"));

	return sb->state == SANDBOX_SUSPENDED && by != NULL && str_eq(by, "idle");
}

void sandbox_stir(struct sandbox *sb)
{
	sb->idle.active_ns = clock_now_ns();
}

static int bring_back(struct sandbox *sb, struct err *err)
{
	int rc = sandbox_lock(sb, err);

	if (rc < 0)
		return rc;
	/* another caller may have been first */
	if (is_asleep(sb))
		rc = sandbox_resume(sb, err);
	sandbox_unlock(sb);
	return rc;
}

int sandbox_wake(struct sandbox *sb, struct err *err)
{
	int rc = 0;

	sb->idle.users++;
	sandbox_stir(sb);
	while (sb->idle.suspending)
		(void)waiters_wait(&sb->changed, 0);
	if (is_asleep(sb))
		rc = bring_back(sb, err);
	if (rc < 0)
		sandbox_rest(sb);
	return rc;
}

void sandbox_rest(struct sandbox *sb)
{
	sb->idle.users--;
	sandbox_stir(sb);
}

/* --- windows --- */

static uint64_t limit_ns(const struct sandbox *sb)
{
	return (uint64_t)json_integer_value(json_object_get(sb->doc, "idle_ms")) * NS_PER_MS;
}

static bool may_sleep(const struct sandbox *sb)
{
	return sb->state == SANDBOX_RUNNING && sb->keeper != NULL && !sb->gone &&
	       sb->idle.users == 0 && sb->run == RUN_NONE && limit_ns(sb) != 0 &&
	       json_array_size(sb->steps_due) == 0 && !sb->srv->stopping;
}

static bool is_due(const struct sandbox *sb, uint64_t now)
{
	const struct idleness *i = &sb->idle;

	if (sb->locked || i->looking || !may_sleep(sb))
		return false;
	return i->window_ns <= i->active_ns || i->window_ns == 0 ||
	       (now >= i->window_ns + limit_ns(sb) && now >= i->retry_ns);
}

static int look(struct sandbox *sb, struct idle_reading *r, struct err *err)
{
	json_t *usage = sandbox_usage_now(sb, err), *cpu = json_object_get(usage, "cpu_us");
	int rc = usage == NULL ? -EIO : 0;

	if (rc == 0 && !json_is_integer(cpu))
		rc = err_raise(err, ERR_UNSUPPORTED,
			"processor time cannot be counted here: whether sandbox '%s' works is not known",
			sb->name);
	r->cpu_us = (uint64_t)json_integer_value(cpu);
	json_decref(usage);
	return rc == 0 ? gateway_traffic(sb, &r->traffic, err) : rc;
}

static bool has_worked(const struct idleness *i, const struct idle_reading *r, uint64_t now)
{
	uint64_t window_us = (now - i->window_ns) / 1000;

	return r->cpu_us - i->begun.cpu_us > window_us / WORKS || r->traffic != i->begun.traffic;
}

static void cannot(struct sandbox *sb, const struct err *why)
{
	struct idleness *i = &sb->idle;

	i->backoff_ns = i->backoff_ns == 0 ? BACKOFF_NS : 2 * i->backoff_ns;
	if (i->backoff_ns > BACKOFF_MAX_NS)
		i->backoff_ns = BACKOFF_MAX_NS;
	i->retry_ns = clock_now_ns() + i->backoff_ns;
	if (!i->told)
		(void)server_event(sb->srv, sb, EVENT_IDLE_REFUSED, NULL,
			json_pack("{s:o}", "error", err_to_json(why)));
	i->told = true;
}

/* Locked. */
static int put_to_sleep(struct sandbox *sb, struct err *err)
{
	int rc;

	sb->idle.suspending = true;
	rc = sandbox_suspend(sb, "idle", err);
	sb->idle.suspending = false;
	if (rc == 0) {
		sb->idle.told = false;
		sb->idle.backoff_ns = sb->idle.retry_ns = 0;
	}
	return rc;
}

static void idle_look(struct sandbox *sb)
{
	struct idleness *i = &sb->idle;
	uint64_t now = clock_now_ns();
	struct idle_reading reading = { 0 };
	struct err err = { 0 };
	int rc = look(sb, &reading, &err);

	/* its keeper or gateway is just ending: there is a next time */
	if (rc < 0 && err.code != ERR_UNSUPPORTED)
		return;
	if (rc == 0 && (i->window_ns <= i->active_ns || has_worked(i, &reading, now))) {
		i->window_ns = now;
		i->begun = reading;
		return;
	}
	/* it may have been wanted while the answers came */
	if (rc == 0 && !sb->locked && may_sleep(sb) && i->active_ns < i->window_ns &&
		sandbox_lock(sb, &err) == 0) {
		rc = put_to_sleep(sb, &err);
		sandbox_unlock(sb);
	}
	if (rc < 0)
		cannot(sb, &err);
}

static void idle_main(void *arg)
{
	struct sandbox *sb = arg;
	struct server *srv = sb->srv;

	idle_look(sb);
	sb->idle.looking = false;
	sandbox_unref(sb);
	server_idle(srv);
}

void idle_settle(struct server *srv)
{
	uint64_t now = clock_now_ns();

	if (!srv->ready || srv->stopping)
		return;
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (!is_due(sb, now))
			continue;
		sb->idle.looking = true;
		server_busy(srv);
		fiber_start(idle_main, sandbox_ref(sb));
	}
}

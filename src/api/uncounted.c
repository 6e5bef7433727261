/* SPDX-License-Identifier: Apache-2.0 */
#include "api/uncounted.h"
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/proctext.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY    "/proc/meminfo"
#define ZONES     "/proc/zoneinfo"
#define TEXT_MAX  (4U << 20) /* of zones some 150 bytes for each processor in each */
#define LOOK_NS   NS_PER_S
#define ANSWER_NS (2 * NS_PER_S) /* a keeper that is busy for longer is asked the next time */
#define SHARE     32             /* of the machine's memory, by which it has to grow */
#define AGAIN_NS  (4 * NS_PER_S) /* and four times as long, twice */
#define AGAIN_MAX (64 * NS_PER_S)
#define REST_NS \
	(8 * NS_PER_MS) /* for each that was asked, until all are asked again: some twenty times what that costs where nothing is looked at one by one */
#define REST_TIMES \
	20 /* as long as what was looked at one by one took of a processor, and no longer than AGAIN_MAX */

/* Each processor keeps pages that were freed for itself, up to an eighth of all between them: who takes those takes none that was called free. */
static uint64_t kept_free(const char *zoneinfo)
{
	static const char key[] = " count:";
	uint64_t pages = 0;

	for (const char *p = zoneinfo; (p = strstr(p, key)) != NULL;)
		pages += strtoull(p += sizeof(key) - 1, NULL, 10);
	return pages * (uint64_t)getpagesize();
}

uint64_t uncounted_of(const char *meminfo, const char *zoneinfo, uint64_t *total)
{
	/* programs', files', and what the kernel has that is counted, or is given back */
	static const char *const others[] = { "MemFree", "Buffers", "Cached", "SwapCached",
		"AnonPages", "SReclaimable", "PageTables", "KernelStack", "Percpu", "Hugetlb" };
	uint64_t left = proc_number(meminfo, "MemTotal", 10, 0);
	const uint64_t kept = kept_free(zoneinfo) >> 10;

	*total = left << 10;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		const uint64_t n = proc_number(meminfo, others[i], 10, 0);

		left -= n < left ? n : left;
	}
	return (left - (kept < left ? kept : left)) << 10;
}

bool uncounted_has_grown(struct uncounted *u, uint64_t bytes, uint64_t total)
{
	const uint64_t bound = u->bound != 0 ? u->bound : total / SHARE;

	u->quiet = bytes < u->quiet ? bytes : u->quiet;
	return bytes - u->quiet > bound;
}

void uncounted_asked(struct uncounted *u, bool settled, uint64_t now_ns)
{
	u->wait_ns = !settled ? 0 : u->wait_ns == 0 ? AGAIN_NS : 4 * u->wait_ns;
	if (u->wait_ns > AGAIN_MAX)
		u->wait_ns = 0;
	/* who has begun to look has more to say, also when nothing has grown since */
	u->again_ns = !settled ? now_ns : u->wait_ns == 0 ? 0 : now_ns + u->wait_ns;
	u->quiet = settled ? u->seen : u->quiet;
}

void uncounted_init(struct uncounted *u, const char *bound)
{
	*u = (struct uncounted){ 0 };
	if (bound != NULL && str_to_u64(bound, 1, UINT64_MAX, &u->bound) < 0)
		log_warn("memory", "CAY_UNCOUNTED is no number of bytes: '%s'", bound);
}

static bool runs(const struct sandbox *sb)
{
	return sb->keeper != NULL && !sb->keeper->link.dead &&
	       (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED);
}

static bool any_runs(struct server *srv)
{
	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (runs(sb) || sb->awaited)
			return true;
	}
	return false;
}

/** struct round - all keepers are asked. */
struct round {
	size_t asked;
	uint64_t spent_ns; /* of processors, by the keepers */
	bool settled;      /* none holds too much, and all have answered */
};

static void ask(struct sandbox *sb, const void *arg)
{
	struct round *r = *(struct round *const *)arg;
	json_t *answer = NULL;
	struct err err;
	int rc;

	if (sb->awaited && !sb->estranged) { /* it has not said what it holds */
		r->asked++;
		r->settled = false;
		return;
	}
	if (!runs(sb))
		return;
	r->asked++;
	rc = framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "uncounted"),
		clock_now_ns() + ANSWER_NS, &answer, &err);
	if (rc == 0 && json_integer_value(json_object_get(answer, "uncounted_bytes")) > 0)
		log_debug("memory", "programs of sandbox '%s' hold %lld bytes uncounted", sb->id,
			json_integer_value(json_object_get(answer, "uncounted_bytes")));
	r->spent_ns += (uint64_t)json_integer_value(json_object_get(answer, "spent_ns"));
	/* those of before know nothing of it */
	if ((rc < 0 && err.code == ERR_TIMEOUT) ||
		(rc == 0 && !json_is_true(json_object_get(answer, "settled"))))
		r->settled = false;
	json_decref(answer);
}

static void ask_all(void *arg)
{
	struct server *srv = arg;
	struct uncounted *u = &srv->uncounted;
	const uint64_t began_ns = clock_now_ns();
	struct round round = { .settled = true }, *r = &round;
	uint64_t rest_ns;

	sandbox_for_all(srv, ask, &r);
	rest_ns = REST_TIMES * round.spent_ns;
	rest_ns = rest_ns < AGAIN_MAX ? rest_ns : AGAIN_MAX;
	rest_ns = rest_ns > round.asked * REST_NS ? rest_ns : round.asked * REST_NS;
	u->due_ns = began_ns + (rest_ns > LOOK_NS ? rest_ns : LOOK_NS);
	uncounted_asked(u, round.settled, clock_now_ns());
	u->asking = false;
}

void uncounted_settle(struct server *srv)
{
	struct uncounted *u = &srv->uncounted;
	cleanup_buf struct buf memory = BUF_INIT(TEXT_MAX), zones = BUF_INIT(TEXT_MAX);
	uint64_t total;

	if (clock_now_ns() < u->due_ns || u->asking || !srv->ready || srv->stopping ||
		!any_runs(srv))
		return;
	u->due_ns = clock_now_ns() + LOOK_NS;
	if (file_read_at(AT_FDCWD, MEMORY, &memory) < 0)
		return;
	(void)!file_read_at(AT_FDCWD, ZONES, &zones); /* some containers do not show it */
	u->seen = uncounted_of(buf_cstr(&memory), buf_cstr(&zones), &total);
	if (uncounted_has_grown(u, u->seen, total))
		u->wait_ns = 0;
	else if (u->again_ns == 0 || clock_now_ns() < u->again_ns)
		return;
	u->asking = true;
	fiber_start(ask_all, srv);
}

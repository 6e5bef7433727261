/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/epoch.h"
#include "base/clock.h"

/* The first @n, the last one first. */
static void let_go(const struct epoch *e, size_t n)
{
	while (n-- > 0) {
		if (e->holders[n].go != NULL)
			e->holders[n].go(e->of);
	}
}

static int stop_holders(const struct epoch *e, struct err *err)
{
	for (size_t i = 0; i < e->n_holders; i++) {
		int rc = e->holders[i].stop != NULL ? e->holders[i].stop(e->of, err) : 0;

		if (rc < 0) {
			let_go(e, i);
			return rc;
		}
	}
	return 0;
}

static void save_holders(const struct epoch *e)
{
	for (size_t i = 0; i < e->n_holders; i++) {
		if (e->holders[i].save != NULL)
			e->holders[i].save(e->of);
	}
}

/* The message alone reads as if it could never be: @err is what stood in the way the last time. */
static int busy_each_time(
	const struct epoch *e, unsigned int tries, uint64_t spent_ns, struct err *err)
{
	if (err->hint[0] != '\0')
		return -EBUSY;
	return err_hint(err, -EBUSY,
		"tried %u time%s in %.1f s, and each time the programs had something under way that passes: try again%s%s",
		tries, tries == 1 ? "" : "s", (double)spent_ns / (double)NS_PER_S,
		e->instead != NULL ? ", or " : "", e->instead != NULL ? e->instead : "");
}

/* What goes out is stopped anew for each try: between two of them the sandbox is as if nobody had asked. */
static int stop_all(const struct epoch *e, struct err *err)
{
	const uint64_t begun_ns = clock_now_ns();

	for (unsigned int tries = 1;; tries++) {
		struct err why = { 0 };
		uint64_t spent_ns;
		bool last;
		int rc = stop_holders(e, err);

		if (rc < 0 || e->steps->freeze == NULL)
			return rc;
		rc = e->steps->freeze(e->of, &why);
		if (rc == 0)
			return 0;
		let_go(e, e->n_holders);
		spent_ns = clock_now_ns() - begun_ns;
		last = tries == EPOCH_TRIES || (e->patience_ns != 0 && spent_ns >= e->patience_ns);
		if (why.code != ERR_BUSY || last) {
			*err = why;
			return why.code == ERR_BUSY ? busy_each_time(e, tries, spent_ns, err) : rc;
		}
		e->steps->wait(e->of);
	}
}

int epoch_stop(const struct epoch *e, struct err *err)
{
	int rc = stop_all(e, err);

	if (rc < 0)
		return rc;
	rc = e->steps->capture != NULL ? e->steps->capture(e->of, err) : 0;
	if (rc == 0)
		save_holders(e);
	else
		epoch_go(e);
	return rc;
}

void epoch_go(const struct epoch *e)
{
	if (e->steps->release != NULL)
		e->steps->release(e->of);
	let_go(e, e->n_holders);
}

int epoch_take(const struct epoch *e, struct err *err)
{
	int rc = epoch_stop(e, err);

	if (rc == 0)
		epoch_go(e);
	return rc;
}

int epoch_keep(const struct epoch *e, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < e->n_holders; i++) {
		if (e->holders[i].keep != NULL)
			rc = e->holders[i].keep(e->of, err);
	}
	return rc;
}

int epoch_fork(const struct epoch *e, struct err *err)
{
	int rc = 0;

	for (size_t i = e->n_holders; rc == 0 && i-- > 0;) {
		if (e->holders[i].fork != NULL)
			rc = e->holders[i].fork(e->of, err);
	}
	return rc;
}

int epoch_load(const struct epoch *e, struct err *err)
{
	int rc = 0;

	for (size_t i = e->n_holders; rc == 0 && i-- > 0;) {
		if (e->holders[i].load != NULL)
			rc = e->holders[i].load(e->of, err);
	}
	return rc;
}

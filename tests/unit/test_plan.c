/* SPDX-License-Identifier: Apache-2.0 */
/* In which order processes are made again, and by whom: those that a subreaper has taken in. The rest: tests/checkpoint/objects/tree.c, reapers.c. */
#include "checkpoint/plan.h"
#include "t.h"

#include <stdlib.h>
#include <string.h>

/* The pids of a tree, by their use. */
enum { REAPER = 3, INNER = 4, LEADER = 5, GONE = 7, ADOPTED = 8, OTHER = 9, ALSO_GONE = 10 };

struct made {
	struct plan_process *list;
	uint32_t n;
	struct err err;
	int rc;
};

static struct plan_input process(int32_t pid, int32_t parent, int32_t session)
{
	return (struct plan_input){
		.pid = pid, .parent = parent, .session = session, .group = session
	};
}

static struct made order(const struct plan_input *in, uint32_t n)
{
	static const int32_t taken[] = { REAPER, INNER, LEADER, GONE, ADOPTED, OTHER, ALSO_GONE };
	int32_t unused[2];
	struct made m = { 0 };

	m.rc = plan_order(in, n, taken, ARRAY_SIZE(taken), &m.list, &m.n, unused, &m.err);
	return m;
}

#define ORDER(...) \
	order((const struct plan_input[]){ __VA_ARGS__ }, \
		sizeof((const struct plan_input[]){ __VA_ARGS__ }) / sizeof(struct plan_input))

static const struct plan_process *by_pid(const struct made *m, int32_t pid)
{
	for (uint32_t i = 0; i < m->n; i++) {
		if (m->list[i].pid == pid)
			return &m->list[i];
	}
	check(false);
	return NULL;
}

static const struct plan_process *creator(const struct made *m, int32_t pid)
{
	const struct plan_process *p = by_pid(m, pid);

	check(p != NULL && p->parent < m->n);
	return &m->list[p->parent];
}

/* Whoever is made stands behind who makes it. */
static void check_order(const struct made *m)
{
	check_int(m->rc, 0);
	for (uint32_t i = 0; i < m->n; i++)
		check(m->list[i].parent == IMAGE_NONE || m->list[i].parent < i);
}

TEST(who_is_adopted_from_an_ended_session)
{
	struct made m = ORDER(process(REAPER, 0, REAPER), process(ADOPTED, REAPER, GONE));
	const struct plan_process *helper;

	check_order(&m);
	helper = creator(&m, ADOPTED);
	check_int(helper->pid, GONE);
	check_int(helper->flags, PLAN_HELPER | PLAN_LEADER | PLAN_LATE);
	check_int(creator(&m, GONE)->pid, REAPER);
	check_int(by_pid(&m, REAPER)->flags, PLAN_LEADER | PLAN_ADOPTS);
	free(m.list);
}

TEST(who_is_adopted_from_a_session_whose_leader_lives)
{
	struct made m = ORDER(process(REAPER, 0, REAPER), process(LEADER, REAPER, LEADER),
		process(ADOPTED, REAPER, LEADER));
	const struct plan_process *helper;

	check_order(&m);
	helper = creator(&m, ADOPTED);
	check_int(helper->flags, PLAN_HELPER | PLAN_LATE);
	check_int(creator(&m, helper->pid)->pid, LEADER);
	check_int(by_pid(&m, REAPER)->flags, PLAN_LEADER | PLAN_ADOPTS);
	free(m.list);
}

TEST(an_orphan_of_the_same_session_is_released_first)
{
	/* whichever is looked at first */
	struct made m = ORDER(process(OTHER, 1, GONE), process(REAPER, 0, REAPER),
		process(ADOPTED, REAPER, GONE));
	const struct plan_process *helper;

	check_order(&m);
	helper = creator(&m, OTHER);
	check_int(helper->flags, PLAN_HELPER);
	check_int(creator(&m, helper->pid)->pid, GONE);
	check_int(creator(&m, ADOPTED)->pid, GONE);
	free(m.list);
}

TEST(a_child_from_before_its_parents_session_is_not_adopted)
{
	struct made m = ORDER(process(REAPER, 0, REAPER), process(LEADER, REAPER, LEADER),
		process(ADOPTED, LEADER, REAPER));

	check_order(&m);
	check_int(m.n, 3);
	check_int(by_pid(&m, ADOPTED)->flags, PLAN_OLD_SESSION);
	check_int(by_pid(&m, LEADER)->flags, PLAN_LEADER);
	free(m.list);
}

TEST(two_that_adopt_from_one_ended_session_are_refused)
{
	struct made m = ORDER(process(REAPER, 0, REAPER), process(INNER, REAPER, INNER),
		process(ADOPTED, REAPER, GONE), process(OTHER, INNER, GONE));

	check(m.rc < 0 && m.list == NULL);
	check(strstr(m.err.msg, "nobody can put it into session 7 again") != NULL);
}

TEST(another_that_adopts_in_between_is_refused)
{
	struct made m = ORDER(process(REAPER, 0, REAPER), process(INNER, REAPER, INNER),
		process(OTHER, INNER, ALSO_GONE), process(LEADER, INNER, LEADER),
		process(ADOPTED, REAPER, LEADER));

	check(m.rc < 0 && m.list == NULL);
	check(strstr(m.err.msg, "process 8: nobody can put it into session 5 again") != NULL);
}

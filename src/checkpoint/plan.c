/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/plan.h"
#include "checkpoint/plan_rehearsal.h"

#include <stdlib.h>

#define PID_LAST 32768 /* below the smallest pid_max */

/* One process or helper, before it has its place in the order. */
struct node {
	struct plan_process out;
	int32_t session;
	uint32_t creator; /* index of a node, or IMAGE_NONE */
	uint32_t adopter; /* of a late helper: who becomes its children's parent */
	bool placed;
	uint32_t place;
};

struct planner {
	const struct plan_input *in;
	uint32_t n_in;
	struct node *nodes;
	uint32_t n;
	const int32_t *taken;
	size_t n_taken;
	int32_t last_free;
};

static bool is_taken(const struct planner *p, int32_t pid)
{
	size_t low = 0, high = p->n_taken;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (p->taken[middle] == pid)
			return true;
		if (p->taken[middle] < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* From the top: what is used lies mostly at the bottom. */
static int32_t free_pid(struct planner *p)
{
	do
		p->last_free--;
	while (p->last_free > 1 && is_taken(p, p->last_free));
	return p->last_free;
}

static uint32_t find(const struct planner *p, int32_t pid)
{
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->nodes[i].out.pid == pid)
			return i;
	}
	return IMAGE_NONE;
}

static uint32_t add_helper(
	struct planner *p, int32_t pid, uint32_t flags, uint32_t creator, uint32_t leaf)
{
	struct node *node = &p->nodes[p->n];

	*node = (struct node){ .creator = creator };
	node->out = (struct plan_process){
		.pid = pid, .flags = flags | PLAN_HELPER, .leaf = leaf, .image = IMAGE_NONE
	};
	node->session = (flags & PLAN_LEADER) != 0 ? pid
			: creator == IMAGE_NONE    ? 0
						   : p->nodes[creator].session;
	return p->n++;
}

static void add_inputs(struct planner *p)
{
	for (uint32_t i = 0; i < p->n_in; i++) {
		const struct plan_input *in = &p->in[i];
		struct node *node = &p->nodes[p->n++];

		*node = (struct node){ .session = in->session, .creator = IMAGE_NONE };
		node->out = (struct plan_process){ .pid = in->pid,
			.leaf = in->leaf,
			.status = in->status,
			.image = in->zombie ? IMAGE_NONE : in->image,
			.flags = (in->zombie ? PLAN_ZOMBIE : 0U) |
				 (in->session == in->pid ? PLAN_LEADER : 0U) |
				 (in->no_terminal ? PLAN_NO_TERMINAL : 0U) |
				 (in->stopped ? PLAN_STOPPED : 0U) | (in->alone ? PLAN_ALONE : 0U) |
				 in->signal << PLAN_SIGNAL,
			.terminal = in->terminal,
			.foreground = in->foreground,
			.base = in->base,
			.stash_start = in->stash_start,
			.stash_end = in->stash_end };
	}
}

/* The leader of @session; a helper in its name when it is dead. */
static uint32_t session_leader(struct planner *p, int32_t session, uint32_t leaf)
{
	uint32_t leader = find(p, session);

	return leader != IMAGE_NONE ? leader
				    : add_helper(p, session, PLAN_LEADER, IMAGE_NONE, leaf);
}

/* A child of PID 1: somebody of its session makes it and ends. */
static uint32_t orphan_creator(struct planner *p, const struct plan_input *in)
{
	uint32_t leader;

	if (in->session == in->pid)
		return add_helper(p, free_pid(p), 0, IMAGE_NONE, in->leaf);
	leader = session_leader(p, in->session, in->leaf);
	if ((p->nodes[leader].out.flags & (PLAN_HELPER | PLAN_LATE)) == PLAN_HELPER)
		return leader;
	return add_helper(p, free_pid(p), 0, leader, in->leaf);
}

static int choose_creator(struct planner *p, uint32_t i, struct err *err)
{
	const struct plan_input *in = &p->in[i];

	if (in->parent == 0)
		return in->session == in->pid
			       ? 0
			       : err_raise(err, ERR_UNSUPPORTED,
					 "process %d: started from outside, but in the session of process %d",
					 in->pid, in->session);
	if (in->parent == 1)
		return 0; /* choose_for_orphan() */
	p->nodes[i].creator = find(p, in->parent);
	return p->nodes[i].creator != IMAGE_NONE
		       ? 0
		       : err_raise(err, ERR_UNSUPPORTED, "process %d: its parent %d is not there",
				 in->pid, in->parent);
}

/* When the sessions of those that subreapers have taken are there. */
static void choose_for_orphan(struct planner *p, uint32_t i)
{
	if (p->in[i].parent == 1)
		p->nodes[i].creator = orphan_creator(p, &p->in[i]);
}

/* The session that node @i is born into when it is cloned before its creator's setsid(). */
static int32_t session_before(const struct planner *p, uint32_t i)
{
	const struct node *creator =
		p->nodes[i].creator == IMAGE_NONE ? NULL : &p->nodes[p->nodes[i].creator];

	return creator == NULL || creator->creator == IMAGE_NONE
		       ? 0
		       : p->nodes[creator->creator].session;
}

/*
 * No parent has children in a session that neither it nor who made it was ever in, but a subreaper that has taken them. Somebody of the session makes @i and ends late: a child of the leader,
 * or who stands for it when it is dead, a child of the subreaper then.
 */
static void adopt(struct planner *p, uint32_t i)
{
	uint32_t adopter = p->nodes[i].creator, leaf = p->in[i].leaf, helper,
		 leader = find(p, p->nodes[i].session);

	if (leader == IMAGE_NONE)
		helper = add_helper(p, p->nodes[i].session, PLAN_LEADER | PLAN_LATE, adopter, leaf);
	else if ((p->nodes[leader].out.flags & PLAN_LATE) != 0)
		helper = leader;
	else
		helper = add_helper(p, free_pid(p), PLAN_LATE, leader, leaf);
	if (helper != leader)
		p->nodes[helper].adopter = adopter;
	p->nodes[adopter].out.flags |= PLAN_ADOPTS;
	p->nodes[i].creator = helper;
}

static void choose_session(struct planner *p, uint32_t i)
{
	struct node *node = &p->nodes[i];

	if (node->creator == IMAGE_NONE || (node->out.flags & PLAN_LEADER) != 0 ||
		node->session == p->nodes[node->creator].session)
		return;
	if ((p->nodes[node->creator].out.flags & PLAN_LEADER) != 0 &&
		session_before(p, i) == node->session)
		node->out.flags |= PLAN_OLD_SESSION;
	else
		adopt(p, i);
}

/* Who takes the children of @helper when it ends: the next above it that takes any. */
static uint32_t taker(const struct planner *p, uint32_t helper)
{
	uint32_t i = p->nodes[helper].creator;

	for (uint32_t steps = 0; steps < p->n && i != IMAGE_NONE; steps++) {
		if ((p->nodes[i].out.flags & PLAN_ADOPTS) != 0)
			return i;
		i = p->nodes[i].creator;
	}
	return IMAGE_NONE;
}

/* Is it the one that has them? */
static int check_adopted(const struct planner *p, uint32_t i, struct err *err)
{
	uint32_t creator = p->nodes[i].creator, parent = find(p, p->in[i].parent);

	if (creator == IMAGE_NONE || (p->nodes[creator].out.flags & PLAN_LATE) == 0 ||
		(p->nodes[creator].adopter == parent && taker(p, creator) == parent))
		return 0;
	return err_raise(err, ERR_UNSUPPORTED,
		"process %d: nobody can put it into session %d again, its parent %d is in another",
		p->nodes[i].out.pid, p->nodes[i].session, p->in[i].parent);
}

static int choose_group(struct planner *p, uint32_t i, struct err *err)
{
	const struct plan_input *in = &p->in[i];
	uint32_t first, leader;

	if (in->session == in->pid)
		return 0;
	if (in->group == in->pid) {
		p->nodes[i].out.flags |= PLAN_GROUP;
		return 0;
	}
	p->nodes[i].out.group = in->group;
	first = find(p, in->group);
	if (first == IMAGE_NONE) {
		leader = session_leader(p, in->session, in->leaf);
		(void)add_helper(p, in->group, PLAN_GROUP, leader, in->leaf);
	} else if (first < p->n_in && p->in[first].group != in->group) {
		return err_raise(err, ERR_UNSUPPORTED,
			"process %d: nobody can put it into group %d again, which process %d has left",
			in->pid, in->group, in->group);
	}
	return 0;
}

/* Creators first, each followed by nothing in particular: only the order matters. */
static uint32_t place(struct planner *p, uint32_t i, struct plan_process *out, uint32_t n)
{
	struct node *node = &p->nodes[i];

	if (node->placed)
		return n;
	node->placed = true; /* a cycle of parents cannot come from a kernel, and ends here */
	if (node->creator != IMAGE_NONE)
		n = place(p, node->creator, out, n);
	node->out.parent = node->creator == IMAGE_NONE ? IMAGE_NONE : p->nodes[node->creator].place;
	node->place = n;
	out[n] = node->out;
	return n + 1;
}

static int refuse_place(int32_t pid, const char *why, struct err *err)
{
	return err_raise(err, ERR_UNSUPPORTED,
		"process %d: its place among the others cannot be made again: %s", pid, why);
}

/* What the rules above did not foresee is found here, while all still run. */
static int rehearse(
	const struct planner *p, const struct plan_process *out, uint32_t n, struct err *err)
{
	struct plan_place *places = calloc((size_t)n + 1, sizeof(*places));
	const char *wrong;
	uint32_t who;
	int rc = 0;

	if (places == NULL)
		abort();
	wrong = plan_rehearse(out, n, places, &who);
	if (wrong != NULL)
		rc = refuse_place(out[who].pid, wrong, err);
	for (uint32_t i = 0; rc == 0 && i < p->n_in; i++) {
		const struct plan_input *in = &p->in[i];
		const struct plan_place *at = &places[p->nodes[i].place];

		if (at->parent != in->parent)
			rc = refuse_place(in->pid, "it would have another parent", err);
		else if (at->session != in->session || at->group != in->group)
			rc = refuse_place(in->pid, "it would be in another session or group", err);
	}
	free(places);
	return rc;
}

int plan_order(const struct plan_input *in, uint32_t n, const int32_t *taken, size_t n_taken,
	struct plan_process **ret, uint32_t *ret_n, int32_t ret_free[2], struct err *err)
{
	struct planner p = {
		.in = in, .n_in = n, .taken = taken, .n_taken = n_taken, .last_free = PID_LAST
	};
	uint32_t placed = 0;
	int rc = 0;

	/* at most a session's, a group's and an orphan's helper for each */
	p.nodes = calloc((size_t)n * 4 + 1, sizeof(*p.nodes));
	*ret = calloc((size_t)n * 4 + 1, sizeof(**ret));
	if (p.nodes == NULL || *ret == NULL)
		abort();
	add_inputs(&p);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = choose_creator(&p, i, err);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		choose_session(&p, i);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		choose_for_orphan(&p, i);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = check_adopted(&p, i, err);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = choose_group(&p, i, err);
	for (uint32_t i = 0; i < p.n; i++)
		placed = place(&p, i, *ret, placed);
	if (rc == 0)
		rc = rehearse(&p, *ret, placed, err);
	*ret_n = placed;
	ret_free[0] = free_pid(&p);
	ret_free[1] = free_pid(&p);
	free(p.nodes);
	if (rc < 0) {
		free(*ret);
		*ret = NULL;
	}
	return rc;
}

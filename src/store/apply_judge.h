/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/apply_judge.h - the changes of an apply, judged against the host as it is now: conflicts, what something outside would execute or obey, what a person should know.
 *
 * Of each directory: plan_judge_begin(), plan_judge() for each change, plan_judge_end().
 */
#ifndef CAY_STORE_APPLY_JUDGE_H
#define CAY_STORE_APPLY_JUDGE_H

#include "base/clock.h"
#include "store/apply_part.h"
#include "store/apply_stage.h"
#include "store/changes.h"
#include "store/job.h"
#include "store/stack.h"

/** struct plan - an apply: what is to be done (applyjob.c), and what is to be said of it. */
struct plan {
	struct job *job;
	struct changes changes;
	json_t *conflicts, *executables, *skipped, *steps, *targets;
	json_t *opened, *closed; /* steps before and behind all of these: applyjob.c */
	size_t n_kept; /* so many of @opened, the first ones, open directories that stay */
	json_t *programs; /* executables that will be other ones: who runs them outside runs what the sandbox wrote */
	json_t *renamed; /* directories that the sandbox renamed, and will lack the content of once the host has renamed them */
	const char *sandbox;
	uint64_t since_ns;
	struct apply_caller who;
	const json_t
		*applied; /* what earlier applies of this sandbox put in place: apply_recall() */
	json_t *successors; /* of the tree at hand, by origin: where they put what had been copied up from there */
	/* the tree at hand */
	size_t tree;
	const char *target;
	int source; /* what the sandbox saw below its changes, when that is another directory than @target; -1 also when it is gone */
	bool elsewhere;                    /* it is another one */
	char place[PATH_MAX];              /* of @target, by which names are judged (danger.h) */
	char above[PATH_MAX];              /* what lost_by_rename() looked at last, */
	bool above_dangles, above_renamed; /* and what it found */
	struct stack a, b;
	json_t *untold; /* what brings something and was not found dangerous: [path in hex, is it a directory, a program] */
	struct apply_part part; /* what is brought of the changes */
	json_t *copied;  /* rootless: new files that were copied up from the host, wherever from */
	size_t n_vacant; /* rootless: files of the host whose place the sandbox took or emptied */
	size_t n_copied_left, n_vacant_left; /* as many more are in what is not brought */
	json_t *vacated; /* rootless, by target: so many places are vacant by applies, and what was copied up from there is not brought yet */
};

/** plan_judge_begin() - of the tree at hand, whose stacks are open. */
void plan_judge_begin(struct plan *p);

/** plan_judge() - one change of it that is brought: fills the lists of @p. */
void plan_judge(struct plan *p, const struct change *c);

/** plan_leave() - one that is not. */
void plan_leave(struct plan *p, const struct change *c);

/**
 * plan_judge_end() - what only all changes together tell, and the end of plan_judge_begin().
 * @whole: all of them have been judged; else nothing more is told.
 * Return: 0, or negative with @err set.
 */
int plan_judge_end(struct plan *p, bool whole, struct err *err) attr_must_use;

/** plan_note() - add @path of the tree at hand to one of the lists. @reason: or NULL. */
void plan_note(json_t *list, const struct plan *p, const char *path, const char *reason);

/**
 * plan_mode() - the mode that what @c brings has on the host, where it gets no access list of the sandbox's: the bits of the group are the most that the list's users may, and no right of the group's.
 * @left_out: may it have had another list inside than it has on the host then?
 */
mode_t plan_mode(const struct plan *p, const struct change *c, bool *left_out);

/** plan_sets_mode() - does the change bring another mode (plan_mode()), and nothing else that can be applied? */
bool plan_sets_mode(const struct plan *p, const struct change *c);

/** plan_can_apply() - is it a file, link or directory? */
bool plan_can_apply(const struct found *f);

/** change_can_apply() - by what it is alone: does it bring, replace or remove something that plan_can_apply(), or another mode? */
bool change_can_apply(const struct change *c);

/** plan_origin() - handle of the host's file that @f was copied up from; "" when there is none. Free it. */
char *plan_origin(const struct plan *p, const struct found *f);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/diffjob.c - the job `diff`. */
#include "base/fault.h"
#include "base/str.h"
#include "store/apply_judge.h"
#include "store/changes.h"
#include "store/verbs.h"

struct one_tree {
	struct changes *changes;
	const char *target;
	struct stack a, b;
	json_int_t *applicable; /* counts those that an apply would bring */
};

static int on_change(const struct change *change, void *arg)
{
	struct one_tree *t = arg;
	int rc = changes_add(t->changes, change, t->target, &t->a, &t->b);

	*t->applicable += rc == 0 && change_can_apply(change);
	return rc;
}

static int open_tree(struct job *job, const json_t *asked, struct changes *changes,
	struct one_tree *t, struct err *err)
{
	int rc;

	t->changes = changes;
	t->target = job_text(asked, "target", err);
	if (t->target == NULL)
		return -EINVAL;
	if (!str_path_clean(t->target))
		return err_raise(
			err, ERR_INVALID, "target '%s' is no clean absolute path", t->target);
	rc = stack_open(&t->a, &job->store, json_object_get(asked, "a"), err);
	return rc == 0 ? stack_open(&t->b, &job->store, json_object_get(asked, "b"), err) : rc;
}

/* All of them before the first is compared: until then what they name may not move. */
static int diff_trees(
	struct job *job, struct changes *changes, json_int_t *applicable, struct err *err)
{
	const json_t *trees = json_object_get(job->request, "trees"), *asked;
	cleanup_free struct one_tree *all = calloc(json_array_size(trees), sizeof(*all));
	size_t i, n = json_array_size(trees);
	int rc = 0;

	if (all == NULL)
		abort();
	json_array_foreach (trees, i, asked) {
		all[i].applicable = applicable;
		if (rc == 0)
			rc = open_tree(job, asked, changes, &all[i], err);
	}
	if (rc == 0)
		rc = job_opened(job, err);
	for (i = 0; rc == 0 && i < n; i++)
		rc = diff_run(&(const struct diff){ .a = &all[i].a,
				      .b = &all[i].b,
				      .change = on_change,
				      .arg = &all[i] },
			err);
	for (i = 0; i < n; i++) {
		stack_close(&all[i].a);
		stack_close(&all[i].b);
	}
	return rc;
}

int store_diff(struct job *job, json_t **ok, struct err *err)
{
	cleanup(changes_free) struct changes changes = CHANGES_INIT;
	const json_t *trees = json_object_get(job->request, "trees");
	cleanup_fd int scratch = -1;
	json_int_t n, applicable = 0;
	int rc = job_number(job->request, "limit", CHANGES_DEFAULT, &changes.limit, err);

	if (rc == 0 && (!json_is_array(trees) || json_array_size(trees) == 0))
		return err_raise(err, ERR_INVALID, "member 'trees' is missing or empty");
	changes.want_text = job_flag(job->request, "text", false);
	if (changes.want_text)
		changes.scratch = scratch = store_dir(&job->store, "tmp");
	changes.hash = job_flag(job->request, "hash", true);
	(void)fault("store.diff.begun");
	if (rc == 0)
		rc = diff_trees(job, &changes, &applicable, err);
	if (rc < 0)
		return rc;
	(void)fault("store.diff.compared");
	changes_pair_renames(&changes);
	rc = changes_send(&changes, job, &n);
	if (rc < 0)
		return err_raise_sys(err, rc, "send the changes");
	*ok = json_pack("{s:I, s:I, s:b}", "n", n, "applicable", applicable, "truncated",
		changes.truncated);
	return 0;
}

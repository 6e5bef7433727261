/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/diffjob.c - the job `diff`. */
#include "base/fault.h"
#include "base/str.h"
#include "store/changes.h"
#include "store/verbs.h"

struct one_tree {
	struct changes *changes;
	const char *target;
	struct stack a, b;
};

static int on_change(const struct change *change, void *arg)
{
	struct one_tree *t = arg;

	return changes_add(t->changes, change, t->target, &t->a, &t->b);
}

static int diff_tree(struct job *job, const json_t *asked, struct changes *changes, struct err *err)
{
	struct one_tree t = { .changes = changes };
	const struct diff diff = { .a = &t.a, .b = &t.b, .change = on_change, .arg = &t };
	int rc;

	t.target = job_text(asked, "target", err);
	if (t.target == NULL)
		return -EINVAL;
	if (!str_path_clean(t.target))
		return err_raise(
			err, ERR_INVALID, "target '%s' is no clean absolute path", t.target);
	rc = stack_open(&t.a, &job->store, json_object_get(asked, "a"), err);
	if (rc == 0)
		rc = stack_open(&t.b, &job->store, json_object_get(asked, "b"), err);
	if (rc == 0)
		rc = diff_run(&diff, err);
	stack_close(&t.a);
	stack_close(&t.b);
	return rc;
}

int store_diff(struct job *job, json_t **ok, struct err *err)
{
	cleanup(changes_free) struct changes changes = CHANGES_INIT;
	const json_t *trees = json_object_get(job->request, "trees"), *t;
	cleanup_fd int scratch = -1;
	json_int_t n;
	size_t i;
	int rc = job_number(job->request, "limit", CHANGES_DEFAULT, &changes.limit, err);

	if (rc == 0 && (!json_is_array(trees) || json_array_size(trees) == 0))
		return err_raise(err, ERR_INVALID, "member 'trees' is missing or empty");
	changes.want_text = job_flag(job->request, "text", false);
	if (changes.want_text)
		changes.scratch = scratch = store_dir(&job->store, "tmp");
	changes.hash = job_flag(job->request, "hash", true);
	(void)fault("store.diff.begun");
	json_array_foreach (trees, i, t) {
		if (rc == 0)
			rc = diff_tree(job, t, &changes, err);
	}
	if (rc < 0)
		return rc;
	(void)fault("store.diff.compared");
	changes_pair_renames(&changes);
	rc = changes_send(&changes, job, &n);
	if (rc < 0)
		return err_raise_sys(err, rc, "send the changes");
	*ok = json_pack("{s:I, s:b}", "n", n, "truncated", changes.truncated);
	return 0;
}

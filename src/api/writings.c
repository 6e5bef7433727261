/* SPDX-License-Identifier: Apache-2.0 */
#include "api/writings.h"
#include "base/log.h"

#define END_NS  (5 * NS_PER_S)  /* a job whose server has left it ends by itself */
#define KILL_NS (15 * NS_PER_S) /* longer than cay-spawn tries */

int writing_allowed(const struct sandbox *sb, struct err *err)
{
	if (sb->state != SANDBOX_RUNNING || sb->keeper == NULL)
		return err_raise(err, ERR_STATE,
			"sandbox '%s' is %s: files can only be put into a running one", sb->name,
			sandbox_state_name(sb->state));
	if (sb->unwritable > 0)
		return err_raise(err, ERR_BUSY,
			"sandbox '%s' is being ended or suspended: files can only be put into a running one",
			sb->name);
	return 0;
}

void writing_begin(struct writing *w, struct sandbox *sb, struct job *job)
{
	*w = (struct writing){ .sb = sandbox_ref(sb), .job = job };
	list_append(&sb->writings, &w->node);
}

bool writing_end(struct writing *w)
{
	struct sandbox *sb = w->sb;

	if (sb == NULL)
		return false;
	/* whoever cut it looks at the job until that has ended */
	while (w->cut && !w->over)
		(void)waiters_wait(&sb->changed, 0);
	list_remove(&w->node);
	w->sb = NULL;
	sandbox_unref(sb);
	return w->cut;
}

int writing_was_cut(const struct sandbox *sb, struct err *err)
{
	return err_raise(err, ERR_STATE,
		"sandbox '%s' was stopped, suspended, rewound or removed while files were put into it: they are not all there",
		sb->name);
}

/* One that has answered is done. */
static void cut(struct writing *w)
{
	if (w->cut || job_ended(w->job))
		return;
	w->cut = true;
	framelink_abort(job_link(w->job));
	stream_abort(&job_link(w->job)->s);
}

static bool await_exit(struct job *job, uint64_t deadline)
{
	while (!job_reaped(job) && waiters_wait(&job_link(job)->progress, deadline) == 0)
		;
	return job_reaped(job);
}

static void finish(struct writing *w)
{
	if (!await_exit(w->job, clock_now_ns() + END_NS)) {
		job_kill(w->job);
		if (!await_exit(w->job, clock_now_ns() + KILL_NS))
			log_error("files", "a job that writes into sandbox '%s' does not end",
				w->sb->name);
	}
	w->over = true;
	waiters_wake(&w->sb->changed);
}

static struct writing *next_cut(struct sandbox *sb)
{
	list_for_each (&sb->writings, node, next) {
		struct writing *w = list_entry(node, struct writing, node);

		if (w->cut && !w->over)
			return w;
	}
	return NULL;
}

void writings_stop(struct sandbox *sb)
{
	struct writing *w;

	sb->unwritable++;
	list_for_each (&sb->writings, node, next)
		cut(list_entry(node, struct writing, node));
	while ((w = next_cut(sb)) != NULL)
		finish(w);
}

void writings_allow(struct sandbox *sb)
{
	sb->unwritable--;
}

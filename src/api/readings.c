/* SPDX-License-Identifier: Apache-2.0 */
#include "api/readings.h"
#include "base/str.h"

/* Nothing is where it belongs while one seals, or when nothing came of it: both are over soon, or it is an error. */
static int await_files(struct sandbox *sb, struct err *err)
{
	int rc = 0;

	while (rc == 0 && !sb->gone && (sb->sealing || sb->stranded[0] != '\0')) {
		if (sb->sealing)
			(void)waiters_wait(&sb->changed, 0); /* its jobs have deadlines */
		else
			rc = sandbox_check_files(sb, err);
	}
	if (rc == 0 && (sb->gone || sb->state == SANDBOX_REMOVING))
		rc = err_raise(err, ERR_NOT_FOUND, "sandbox '%s' was removed meanwhile", sb->name);
	return rc;
}

static void hold_layer(struct reading *r, json_t *layer)
{
	(void)json_array_append(r->layers, layer);
	index_making(r->sb->srv, MAKING_LAYER, json_string_value(layer));
}

int reading_begin(struct reading *r, struct sandbox *sb, struct err *err)
{
	int rc = await_files(sb, err);
	json_t *layer;
	size_t i;

	if (rc < 0)
		return rc;
	*r = (struct reading){ .sb = sandbox_ref(sb),
		.layers = json_array(),
		.opening = true,
		.live = sandbox_live(sb) != NULL };
	json_array_foreach (json_object_get(sb->doc, "layers"), i, layer)
		hold_layer(r, layer);
	json_array_foreach (json_object_get(sb->doc, "base_layers"), i, layer)
		hold_layer(r, layer);
	list_append(&sb->readings, &r->node);
	sb->opening++;
	return 0;
}

void reading_started(struct reading *r, struct job *job)
{
	if (r->sb == NULL)
		return;
	r->job = job;
	if (r->cut)
		framelink_abort(job_link(job));
}

void reading_opened(struct reading *r)
{
	if (!r->opening)
		return;
	r->opening = false;
	r->sb->opening--;
	waiters_wake(&r->sb->changed);
}

int reading_end(struct reading *r, int rc, struct err *err)
{
	struct sandbox *sb = r->sb;
	json_t *layer;
	size_t i;

	if (sb == NULL)
		return rc;
	reading_opened(r);
	list_remove(&r->node);
	json_array_foreach (r->layers, i, layer)
		index_made(sb->srv, MAKING_LAYER, json_string_value(layer));
	layers_forget(sb->srv, r->layers);
	json_decref(r->layers);
	if (rc < 0 && r->cut)
		rc = err_raise(err, ERR_STATE,
			"the files of sandbox '%s' went elsewhere while they were read: it was removed, rewound or captured",
			sb->name);
	sandbox_unref(sb);
	r->sb = NULL;
	return rc;
}

/* @opening: only those that have not opened all yet. */
static void cut(struct sandbox *sb, bool opening)
{
	list_for_each (&sb->readings, node, next) {
		struct reading *r = list_entry(node, struct reading, node);

		if (!r->live || r->cut || (opening && !r->opening))
			continue;
		r->cut = true;
		if (r->job != NULL)
			framelink_abort(job_link(r->job));
	}
}

void readings_cut(struct sandbox *sb)
{
	cut(sb, false);
}

void seal_begin(struct sandbox *sb)
{
	uint64_t deadline = clock_now_ns() + CALL_NS;

	while (sb->opening > 0) {
		if (waiters_wait(&sb->changed, deadline) < 0)
			cut(sb, true);
	}
	sb->sealing = true;
}

void seal_end(struct sandbox *sb)
{
	json_t *top = json_array_get(json_object_get(sb->doc, "layers"), 0);

	/* what they have open as the live directory may be this one by now */
	list_for_each (&sb->readings, node, next) {
		struct reading *r = list_entry(node, struct reading, node);

		if (top != NULL && r->live)
			hold_layer(r, top);
	}
	sb->sealing = false;
	waiters_wake(&sb->changed);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/identity.h"
#include "base/log.h"
#include "base/str.h"

#include <fcntl.h>
#include <signal.h>

#define HOOK_NS (10 * NS_PER_S)

void identity_choose(struct sandbox *sb, const json_t *config, bool keep)
{
	json_t *old = json_object_get(config, "generation");

	sb->another = !keep;
	if (!keep)
		(void)json_object_set_new(sb->doc, "generation", json_string(id_new().s));
	else if (old != NULL)
		(void)json_object_set(sb->doc, "generation", old);
	else /* it had none, and is to stay what it is */
		(void)json_object_del(sb->doc, "generation");
}

void identity_mounts(const struct sandbox *sb, json_t *list)
{
	json_t *generation = json_object_get(sb->doc, "generation");

	if (generation != NULL)
		(void)json_array_append_new(
			list, json_pack("{s:o, s:s, s:s}", "text",
				      json_sprintf("%s\n", json_string_value(generation)), "target",
				      IDENTITY_FILE, "mode", "ro"));
}

/* --- who wants to be told --- */

static const char *variable(const struct sandbox *sb, const json_t *request, const char *name)
{
	const char *own = json_string_value(json_object_get(json_object_get(request, "env"), name));

	return own != NULL
		       ? own
		       : json_string_value(json_object_get(json_object_get(sb->doc, "env"), name));
}

int identity_note(const struct sandbox *sb, json_t *doc, const json_t *request, struct err *err)
{
	const char *hook = variable(sb, request, "CAY_FORK_HOOK"),
		   *sig = variable(sb, request, "CAY_FORK_SIGNAL");
	uint64_t number;

	if (hook != NULL && hook[0] != '\0')
		(void)json_object_set_new(doc, "fork_hook", json_string(hook));
	if (sig == NULL || sig[0] == '\0')
		return 0;
	if (str_to_u64(sig, 1, (uint64_t)SIGRTMAX, &number) < 0)
		return err_raise(err, ERR_INVALID,
			"CAY_FORK_SIGNAL '%s': the number of a signal is wanted", sig);
	(void)json_object_set_new(doc, "fork_signal", json_integer((json_int_t)number));
	return 0;
}

/* --- telling --- */

/* One hook to its end, as the user of the program that asked for it. Return: the exec, or NULL. */
static struct exec *start_hook(struct sandbox *sb, const struct exec *of, struct err *err)
{
	json_t *request = json_pack("{s:[O],s:O,s:I,s:{s:s,s:s}}", "argv",
		json_object_get(of->doc, "fork_hook"), "user", json_object_get(of->doc, "user"),
		"timeout_ms", (json_int_t)(HOOK_NS / NS_PER_MS), "env", "CAY_FORK_HOOK", "",
		"CAY_EXEC", of->id);
	struct exec *e = request != NULL ? exec_new(sb, request, err) : NULL;
	int rc = e != NULL ? exec_begin(e, request, err) : -EINVAL;

	json_decref(request);
	if (rc == 0)
		return e;
	exec_unref(e);
	return NULL;
}

static void run_hook(struct sandbox *sb, const struct exec *of)
{
	uint64_t deadline = clock_now_ns() + HOOK_NS;
	struct err err = { 0 };
	struct exec *e = start_hook(sb, of, &err);

	if (e == NULL) {
		log_warn("fork", "hook of sandbox '%s': %s", sb->name, err.msg);
		return;
	}
	while (!e->ended && waiters_wait(&e->changed, deadline) == 0)
		;
	exec_unref(e);
}

static void send_signal(struct sandbox *sb, const struct exec *e)
{
	struct err err = { 0 };

	if (framelink_call(&sb->keeper->link,
		    json_pack("{s:s,s:i,s:O}", "verb", "signal", "channel", e->channel, "signal",
			    json_object_get(e->doc, "fork_signal")),
		    clock_now_ns() + CALL_NS, NULL, &err) < 0)
		log_warn("fork", "signal in sandbox '%s': %s", sb->name, err.msg);
}

/* @each for the running execs that have @member; it may wait. */
static void for_those_with(struct sandbox *sb, const char *member,
	void (*each)(struct sandbox *sb, const struct exec *e))
{
	json_t *ids = json_array(), *id;
	size_t i;

	list_for_each (&sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (json_object_get(e->doc, member) != NULL)
			(void)json_array_append_new(ids, json_string(e->id));
	}
	json_array_foreach (ids, i, id) {
		struct exec *e = exec_by_id(sb, json_string_value(id));

		if (e == NULL || !e->started || e->ended)
			continue;
		(void)exec_ref(e);
		each(sb, e);
		exec_unref(e);
	}
	json_decref(ids);
}

void identity_tell(struct sandbox *sb)
{
	if (sb->keeper == NULL)
		return;
	for_those_with(sb, "fork_hook", run_hook);
	for_those_with(sb, "fork_signal", send_signal);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* api/sandbox_usage.c - what a sandbox consumed, over all the times that it ran. */
#include "api/sandbox_parts.h"

/* Counters of a sandbox that ran several times add up; those that are no sums take the last value. */
void sandbox_usage_keep(struct sandbox *sb, const json_t *now)
{
	json_t *kept = json_object_get(sb->doc, "usage");
	json_int_t running_ms = (json_int_t)((clock_now_ns() - sb->running_since_ns) / NS_PER_MS);

	if (kept == NULL) {
		kept = json_object();
		(void)json_object_set_new(sb->doc, "usage", kept);
	}
	(void)json_object_set_new(kept, "running_ms",
		json_integer(json_integer_value(json_object_get(kept, "running_ms")) + running_ms));
	(void)json_object_set_new(kept, "cpu_us",
		json_integer(json_integer_value(json_object_get(kept, "cpu_us")) +
			     json_integer_value(json_object_get(now, "cpu_us"))));
	(void)json_object_set_new(kept, "output_bytes",
		json_integer(json_integer_value(json_object_get(kept, "output_bytes")) +
			     json_integer_value(json_object_get(now, "output_bytes"))));
	if (json_integer_value(json_object_get(now, "memory_peak_bytes")) >
		json_integer_value(json_object_get(kept, "memory_peak_bytes")))
		(void)json_object_set(
			kept, "memory_peak_bytes", json_object_get(now, "memory_peak_bytes"));
}

json_t *sandbox_usage_now(struct sandbox *sb, struct err *err)
{
	json_t *kept = json_object_get(sb->doc, "usage"), *now = NULL, *out;
	json_int_t running = json_integer_value(json_object_get(kept, "running_ms"));
	bool live =
		sb->keeper != NULL && (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED);

	if (live && framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "usage"),
			    clock_now_ns() + CALL_NS, &now, err) < 0)
		return NULL;
	out = now != NULL ? now : json_object();
	(void)json_object_set_new(out, "cpu_us",
		json_integer(json_integer_value(json_object_get(out, "cpu_us")) +
			     json_integer_value(json_object_get(kept, "cpu_us"))));
	(void)json_object_set_new(out, "output_bytes",
		json_integer(json_integer_value(json_object_get(out, "output_bytes")) +
			     json_integer_value(json_object_get(kept, "output_bytes"))));
	if (live)
		running += (json_int_t)((clock_now_ns() - sb->running_since_ns) / NS_PER_MS);
	else
		(void)json_object_set(
			out, "memory_peak_bytes", json_object_get(kept, "memory_peak_bytes"));
	(void)json_object_set_new(out, "running_ms", json_integer(running));
	(void)json_object_set_new(out, "sandbox", json_string(sb->id));
	(void)json_object_set_new(out, "live", json_boolean(live));
	return out;
}

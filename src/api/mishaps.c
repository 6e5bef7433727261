/* SPDX-License-Identifier: Apache-2.0 */
#include "api/mishaps.h"
#include "base/attr.h"
#include "base/str.h"
#include "gateway/address.h"
#include "policy/policy.h"

#include <stdlib.h>

#define HOSTS_MAX 1000
#define TOLD_MAX  20

void mishaps_init(struct mishaps *m)
{
	*m = (struct mishaps){ .denied = json_object(), .failed = json_object() };
}

void mishaps_reset(struct mishaps *m)
{
	json_object_clear(m->denied);
	json_object_clear(m->failed);
}

void mishaps_clear(struct mishaps *m)
{
	json_decref(m->denied);
	json_decref(m->failed);
}

/* The protocol of what leaves by no rule: datagrams, packets and sockets for them; NULL: of all else. */
static const char *outlaw(const json_t *data)
{
	const char *what = json_string_value(json_object_get(data, "what"));

	if (what == NULL ||
		!(str_eq(what, "datagram") || str_eq(what, "packet") || str_eq(what, "socket")))
		return NULL;
	return json_string_value(json_object_get(data, "protocol"));
}

/* @reason: NULL leaves it out. */
static void count(json_t *counts, const json_t *data, json_int_t n, const char *reason)
{
	const char *protocol = outlaw(data);
	const char *type = json_string_value(json_object_get(data, "type"));
	const char *host = json_string_value(json_object_get(data, "host"));
	json_int_t port = json_integer_value(json_object_get(data, "port"));
	cleanup_free char *key = NULL;
	json_t *entry;

	if (host == NULL)
		return;
	key = str_dupf("%s:%lld/%s/%s", host, port, protocol != NULL ? protocol : "",
		type != NULL ? type : "");
	entry = json_object_get(counts, key);
	if (entry == NULL && json_object_size(counts) >= HOSTS_MAX)
		return;
	n += json_integer_value(json_object_get(entry, "count"));
	(void)json_object_set_new(counts, key,
		json_pack("{s:s, s:I, s:I, s:s*, s:s*, s:s*}", "host", host, "port", port, "count",
			n, "protocol", protocol, "type", type, "reason", reason));
}

void mishaps_take(struct mishaps *m, enum event_type type, const json_t *data)
{
	const char *outcome = json_string_value(json_object_get(data, "outcome"));

	/* a name that was denied is told only while nobody came as far as a port of it */
	if (type == EVENT_NET_DENIED)
		count(m->denied, data, json_integer_value(json_object_get(data, "count")), NULL);
	else if (type == EVENT_NET_EXCHANGE && outcome != NULL && str_eq(outcome, "failed"))
		count(m->failed, data, 1, json_string_value(json_object_get(data, "reason")));
	else if (type == EVENT_NET_CONNECTION && json_object_get(data, "error") != NULL)
		count(m->failed, data, 1, json_string_value(json_object_get(data, "error")));
}

static int by_count(const void *a, const void *b)
{
	json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "count"));
	json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "count"));

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Does a rule of @document let something through to @host, named as it is? */
static bool names_host(const json_t *document, const char *host)
{
	const json_t *rule, *one;
	size_t i, k;

	json_array_foreach (json_object_get(document, "rules"), i, rule) {
		const json_t *match = json_object_get(rule, "match"),
			     *hosts = json_object_get(match, "host");
		const char *action = json_string_value(json_object_get(rule, "action"));

		if (!str_eq(action, "allow") || json_object_get(match, "transport") != NULL)
			continue;
		if (json_is_string(hosts) && str_eq(json_string_value(hosts), host))
			return true;
		json_array_foreach (hosts, k, one)
			if (str_eq(json_string_value(one), host))
				return true;
	}
	return false;
}

/* What was denied is told with what its rule must say (private), or with the name of a preset that could allow it: of names and the ports of the web. */
static void add_remedy(json_t *entry)
{
	const char *host = json_string_value(json_object_get(entry, "host")), *name;
	json_int_t port = json_integer_value(json_object_get(entry, "port"));
	struct in6_addr address;

	if (json_object_get(entry, "protocol") != NULL || json_object_get(entry, "type") != NULL)
		return;
	if (address_parse(host, &address) == 0 && address_forbidden(&address) != NULL)
		(void)json_object_set_new(entry, "private", json_true());
	if (port != 0 && port != 80 && port != 443)
		return;
	for (size_t i = 0; (name = policy_preset_name(i)) != NULL; i++) {
		json_t *document = json_loads(policy_preset(name), 0, NULL);
		bool named = names_host(document, host);

		json_decref(document);
		if (named) {
			(void)json_object_set_new(entry, "preset", json_string(name));
			return;
		}
	}
}

json_t *mishaps_told(const json_t *counts)
{
	json_t *sorted[HOSTS_MAX], *list = json_array(), *entry;
	const char *key;
	size_t n = 0;

	json_object_foreach ((json_t *)(uintptr_t)counts, key, entry)
		sorted[n++] = entry;
	qsort(sorted, n, sizeof(sorted[0]), by_count);
	for (size_t i = 0; i < n && i < TOLD_MAX; i++) {
		if (json_object_get(sorted[i], "reason") == NULL) /* denied, not failed */
			add_remedy(sorted[i]);
		(void)json_array_append(list, sorted[i]);
	}
	return list;
}

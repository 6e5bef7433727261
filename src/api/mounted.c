/* SPDX-License-Identifier: Apache-2.0 */
#include "api/mounted.h"
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"
#include "sys/mount.h"
#include "sys/mountinfo.h"

#define PLACES_MAX 100

int mounted_init(struct mounted *m)
{
	m->watch = mount_watch();
	return m->watch < 0 ? m->watch : 0;
}

static int add_point(void *ctx, const struct mountinfo *m)
{
	(void)json_array_append_new(ctx, json_string(m->point)); /* not where it is no text */
	return 0;
}

static const json_t *points(struct mounted *m)
{
	json_t *now;
	int rc;

	if (!mount_changed(m->watch) && m->points != NULL)
		return m->points;
	now = json_array();
	rc = mountinfo_each("/proc/self/mountinfo", add_point, now);
	if (rc < 0)
		log_warn("mounts", "read the table of mounts: %s", strerrordesc_np(-rc));
	json_decref(m->points);
	m->points = now;
	return now;
}

/* Is it shown by a mount of its own? */
static bool is_source(const json_t *mounts, const char *place)
{
	const json_t *m;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)mounts, i, m) {
		if (str_eq(json_string_value(json_object_get(m, "source")), place))
			return true;
	}
	return false;
}

static bool is_listed(const json_t *list, const char *place)
{
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, one) {
		if (str_eq(json_string_value(one), place))
			return true;
	}
	return false;
}

static void add_below(const json_t *all, const json_t *mounts, const char *source, json_t *places)
{
	const json_t *point;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)all, i, point) {
		const char *place = json_string_value(point);

		if (!str_eq(place, source) && str_path_under(place, source) &&
			json_array_size(places) < PLACES_MAX && !is_source(mounts, place) &&
			!is_listed(places, place))
			(void)json_array_append(places, (json_t *)(uintptr_t)point);
	}
}

json_t *mounted_in_host(struct server *srv)
{
	static const char *const parts[] = { "/usr", "/etc", "/var", "/opt", "/bin", "/sbin",
		"/lib", "/lib32", "/lib64", "/libx32" };
	const json_t *all = points(&srv->mounted), *point;
	json_t *places = json_array();
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)all, i, point) {
		for (size_t j = 0; j < ARRAY_SIZE(parts); j++) {
			if (str_path_under(json_string_value(point), parts[j]))
				(void)json_array_append(places, (json_t *)(uintptr_t)point);
		}
	}
	return places;
}

json_t *mounted_not_shown(struct server *srv, const json_t *mounts)
{
	const json_t *all, *m;
	json_t *places;
	size_t i;

	/* rootless a mount is cloned with all that is below it, and no overlay can be had over that */
	if (srv->rootless || json_array_size(mounts) == 0)
		return NULL;
	all = points(&srv->mounted);
	places = json_array();
	json_array_foreach ((json_t *)(uintptr_t)mounts, i, m)
		add_below(all, mounts, json_string_value(json_object_get(m, "source")), places);
	if (json_array_size(places) > 0)
		return places;
	json_decref(places);
	return NULL;
}

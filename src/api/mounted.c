/* SPDX-License-Identifier: Apache-2.0 */
#include "api/mounted.h"
#include "api/server.h"
#include "base/log.h"
#include "base/str.h"
#include "sys/mount.h"
#include "sys/mountinfo.h"

#include <fcntl.h>

#define PLACES_MAX 100

int mounted_init(struct mounted *m)
{
	m->watch = mount_watch();
	return m->watch < 0 ? m->watch : 0;
}

/* Does it answer at once, whatever happens to other machines and programs? */
static bool is_near(const char *type)
{
	static const char *const types[] = { "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs",
		"tmpfs" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (str_eq(type, types[i]))
			return true;
	}
	return false;
}

static int add_point(void *ctx, const struct mountinfo *point)
{
	struct mounted *m = ctx;
	json_t *name = json_string(point->point); /* NULL where it is no text */

	(void)json_array_append(m->points, name);
	if (!is_near(point->type))
		(void)json_array_append(m->distant, name);
	json_decref(name);
	return 0;
}

static const json_t *points(struct mounted *m)
{
	int rc;

	if (!mount_changed(m->watch) && m->points != NULL)
		return m->points;
	json_decref(m->points);
	json_decref(m->distant);
	json_decref(TAKE_PTR(m->in_host));
	m->points = json_array();
	m->distant = json_array();
	rc = mountinfo_each("/proc/self/mountinfo", add_point, m);
	if (rc < 0)
		log_warn("mounts", "read the table of mounts: %s", strerrordesc_np(-rc));
	return m->points;
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

static bool is_in_host_image(const char *place)
{
	static const char *const parts[] = { "/usr", "/etc", "/var", "/opt", "/bin", "/sbin",
		"/lib", "/lib32", "/lib64", "/libx32" };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (str_path_under(place, parts[i]))
			return true;
	}
	return false;
}

/* Cut @place behind the first directory that we may not search: below it nobody inside finds anything either. Return: was there one? */
static bool cut_unreachable(const json_t *distant, char *place)
{
	for (char *end = strchr(place + 1, '/'); end != NULL; end = strchr(end + 1, '/')) {
		*end = '\0';
		if (is_listed(distant, place)) { /* to ask it could take for ever */
			*end = '/';
			return false;
		}
		if (faccessat(AT_FDCWD, place, X_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == EACCES)
			return true;
		*end = '/';
	}
	return false;
}

/*
 * Of what nobody can reach (containers' layers in /var/lib/docker) it is enough that there is something: what is above it is put together. Who mounts there, and how often, is nothing to us.
 */
static json_t *look_in_host(const struct mounted *m)
{
	json_t *places = json_array(), *unreachable = json_object();
	const json_t *point;
	size_t i;

	json_array_foreach (m->points, i, point) {
		cleanup_free char *place = str_dup(json_string_value(point));

		if (!is_in_host_image(place))
			continue;
		if (cut_unreachable(m->distant, place))
			(void)json_object_set_new(unreachable, place, json_true());
		else
			(void)json_array_append_new(places, json_string(place));
	}
	return json_pack("{s:o,s:o}", "places", places, "unreachable", unreachable);
}

json_t *mounted_in_host(struct server *srv)
{
	struct mounted *m = &srv->mounted;

	(void)points(m);
	if (m->in_host == NULL)
		m->in_host = look_in_host(m);
	return json_incref(m->in_host);
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

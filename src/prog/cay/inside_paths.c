/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/inside_paths.h"
#include "base/str.h"
#include "prog/cay/mount_spec.h"

#include <limits.h>

/* The copy-on-write mounts of @sandbox, or the one at @only: a new array. */
static json_t *find_mounts(const json_t *sandbox, const char *only)
{
	json_t *found = json_array(), *m;
	size_t i;

	json_array_foreach (json_object_get(sandbox, "mounts"), i, m) {
		if (str_eq(cli_string(m, "mode", ""), "cow") &&
			(only == NULL || str_eq(cli_string(m, "target", ""), only)))
			(void)json_array_append(found, m);
	}
	return found;
}

/* Is @path a place inside that changes may be at, in or below @mounts? */
static bool is_inside(const json_t *mounts, const char *path)
{
	json_t *m;
	size_t i;

	json_array_foreach (mounts, i, m) {
		const char *target = cli_string(m, "target", "/");

		if (str_path_under(path, target) || str_path_under(target, path))
			return true;
	}
	return false;
}

/* The mount in whose source @path of this machine is, the nearest one; or that is below @path. NULL when there is none. */
static const json_t *mount_of(const json_t *mounts, const char *path)
{
	const json_t *best = NULL;
	size_t i, longest = 0;
	json_t *m;

	json_array_foreach (mounts, i, m) {
		const char *source = cli_string(m, "source", "/");

		if (str_path_under(path, source) && strlen(source) >= longest) {
			longest = strlen(source);
			best = m;
		} else if (best == NULL && str_path_under(source, path)) {
			best = m;
		}
	}
	return best;
}

/* @path of this machine, which is in the source of @m or above it, as the sandbox has it. */
static char *across(const json_t *m, const char *path)
{
	const char *source = cli_string(m, "source", "/");

	return str_dupf("%s%s", cli_string(m, "target", "/"),
		str_path_under(path, source) ? path + strlen(source) : "");
}

static int refuse(struct cli *cli, const char *path)
{
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_USAGE,
			"'%s': the current directory is in none of the sandbox's copy-on-write mounts, of which it has more than one, or none",
			path),
		"name it as cay diff shows it, or one of them with --target DIR");
}

static int one_path(
	struct cli *cli, const json_t *mounts, const char *cwd, const char *path, json_t *ret)
{
	const json_t *m, *only = json_array_size(mounts) == 1 ? json_array_get(mounts, 0) : NULL;
	char whole[PATH_MAX];
	cleanup_free char *inside = NULL;

	if (path_absolute(cwd, path, whole) < 0)
		return err_raise(&cli->err, ERR_USAGE, "'%s': no usable path", path);
	m = path[0] == '/' && is_inside(mounts, whole) ? NULL : mount_of(mounts, whole);
	if (m == NULL && path[0] != '/') {
		if (only == NULL)
			return refuse(cli, path);
		if (path_absolute(cli_string(only, "target", "/"), path, whole) < 0)
			return err_raise(&cli->err, ERR_USAGE, "'%s': no usable path", path);
	}
	inside = m != NULL ? across(m, whole) : str_dup(whole);
	if (json_array_append_new(ret, json_string(inside)) < 0)
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_USAGE, "'%s': not valid UTF-8", path),
			"name the directory that it is in");
	return 0;
}

int inside_paths(
	struct cli *cli, const char *name, char *const *paths, const char *only, json_t **ret)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s", name), *cwd = getcwd(NULL, 0);
	cleanup_json json_t *sandbox = NULL, *mounts = NULL, *found = json_array();
	int rc = cli_get(cli, target, &sandbox);

	if (rc == 0)
		mounts = find_mounts(sandbox, only);
	for (; rc == 0 && *paths != NULL; paths++)
		rc = one_path(cli, mounts, cwd, *paths, found);
	if (rc == 0)
		*ret = json_incref(found);
	return rc;
}

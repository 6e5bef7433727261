/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/spec.h"
#include "base/str.h"
#include "store/layer.h"

static const char *const profile_names[PROFILE_COUNT] = { "default", "strict", "debug" };

static int want_string(
	const json_t *o, const char *key, const char *otherwise, const char **ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_string(v))
		*ret = json_string_value(v);
	else if (v == NULL && otherwise != NULL)
		*ret = otherwise;
	else
		return err_raise(err, ERR_INVALID, "specification: '%s' is not a string", key);
	return 0;
}

static int want_number(
	const json_t *o, const char *key, uint64_t max, uint64_t *ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);

	*ret = 0;
	if (v == NULL || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		(uint64_t)json_integer_value(v) > max)
		return err_raise(err, ERR_INVALID,
			"specification: '%s' is not a number from 0 to %lu", key, max);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int parse_profile(const json_t *o, enum spec_profile *ret, struct err *err)
{
	const char *name;
	int rc = want_string(o, "profile", "default", &name, err);

	if (rc < 0)
		return rc;
	for (unsigned int i = 0; i < PROFILE_COUNT; i++) {
		if (str_eq(name, profile_names[i])) {
			*ret = (enum spec_profile)i;
			return 0;
		}
	}
	return err_raise(err, ERR_INVALID, "specification: no profile '%s'", name);
}

/* A list of absolute paths, or NULL. @ret: released by the caller in any case. */
static int spec_layers_parse(const json_t *list, struct spec_layers *ret, struct err *err)
{
	size_t n = json_array_size(list);

	if (list == NULL || json_is_null(list))
		return 0;
	if (!json_is_array(list) || n > SPEC_LOWER_MAX)
		return err_raise(err, ERR_INVALID,
			"specification: 'lower' is not a list of at most %d", SPEC_LOWER_MAX);
	ret->dirs = xalloc((n + 1) * sizeof(char *));
	for (size_t i = 0; i < n; i++) {
		const char *dir = json_string_value(json_array_get(list, i));

		if (dir == NULL || !str_path_clean(dir))
			return err_raise(err, ERR_INVALID,
				"specification: layer %zu is not an absolute path", i);
		ret->dirs[ret->n++] = str_dup(dir);
	}
	return 0;
}

static int parse_mount(const json_t *o, struct spec_mount *m, unsigned int *tree, struct err *err)
{
	const char *source = NULL, *text, *target, *mode;
	int rc = want_string(o, "text", "", &text, err);
	bool is_text = rc == 0 && text[0] != '\0';

	if (rc == 0 && !is_text)
		rc = want_string(o, "source", NULL, &source, err);

	if (rc == 0)
		rc = want_string(o, "target", NULL, &target, err);
	if (rc == 0)
		rc = want_string(o, "mode", is_text ? "ro" : "cow", &mode, err);
	if (rc < 0)
		return rc;
	if ((!is_text && !str_path_clean(source)) || !str_path_clean(target) || str_eq(target, "/"))
		return err_raise(err, ERR_INVALID, "mount '%s:%s': not clean absolute paths",
			is_text ? "" : source, target);
	if (is_text && !str_eq(mode, "ro"))
		return err_raise(err, ERR_INVALID, "mount at '%s': a text is read-only", target);
	if (str_path_under(target, "/proc") || str_path_under(target, "/sys") ||
		str_path_under(target, "/dev"))
		return err_raise(err, ERR_INVALID,
			"mount at '%s': the sandbox's own /proc, /sys and /dev stay", target);
	m->exposed = json_is_true(json_object_get(o, "exposed"));
	m->source = is_text ? NULL : str_dup(source);
	m->text = is_text ? str_dup(text) : NULL;
	m->target = str_dup(target);
	if (str_eq(mode, "cow") && *tree + 1 == LAYER_TREES)
		return err_raise(err, ERR_INVALID,
			"specification: more than %d mounts copy-on-write", LAYER_TREES - 1);
	if (str_eq(mode, "cow")) {
		m->mode = MOUNT_COW;
		m->tree = ++*tree;
	} else if (str_eq(mode, "ro")) {
		m->mode = MOUNT_RO;
	} else if (str_eq(mode, "rw")) {
		m->mode = MOUNT_RW;
	} else {
		return err_raise(err, ERR_INVALID, "mount at '%s': no mode '%s'", target, mode);
	}
	return spec_layers_parse(json_object_get(o, "lower"), &m->lower, err);
}

static int parse_mounts(const json_t *list, struct spec *spec, struct err *err)
{
	size_t n = json_array_size(list);
	unsigned int tree = 0;

	if (list == NULL)
		return 0;
	if (!json_is_array(list) || n > SPEC_MOUNTS_MAX)
		return err_raise(
			err, ERR_INVALID, "specification: more than %d mounts", SPEC_MOUNTS_MAX);
	spec->mounts = xalloc((n + 1) * sizeof(*spec->mounts));
	for (size_t i = 0; i < n; i++) {
		int rc;

		spec->n_mounts++;
		rc = parse_mount(json_array_get(list, i), &spec->mounts[i], &tree, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int parse_limits(const json_t *o, struct spec *spec, struct err *err)
{
	int rc = want_number(o, "memory_bytes", 1ULL << 50, &spec->limits.memory_bytes, err);

	if (rc == 0)
		rc = want_number(o, "pids", 1 << 22, &spec->limits.pids, err);
	if (rc == 0)
		rc = want_number(o, "cpu_millis", 1 << 22, &spec->limits.cpu_millis, err);
	if (rc == 0)
		rc = want_number(o, "disk_bytes", 1ULL << 50, &spec->disk_bytes, err);
	if (rc == 0)
		rc = want_number(o, "files", 1 << 20, &spec->files, err);
	return rc;
}

int spec_ports_parse(const json_t *list, struct spec_ports *ret, struct err *err)
{
	json_int_t before = -1;
	size_t i;
	json_t *pair;

	ret->n = 0;
	if (json_array_size(list) > SPEC_PORTS_MAX)
		return err_raise(err, ERR_INVALID, "more than %d ranges of ports", SPEC_PORTS_MAX);
	json_array_foreach (list, i, pair) {
		json_int_t first = json_integer_value(json_array_get(pair, 0));
		json_int_t last = json_integer_value(json_array_get(pair, 1));

		if (first < 1 || first <= before || last < first || last > UINT16_MAX)
			return err_raise(err, ERR_INVALID, "the ranges of ports are malformed");
		ret->ranges[ret->n++] = (struct nft_range){ (uint16_t)first, (uint16_t)last };
		before = last + 1;
	}
	return 0;
}

int spec_parse(const json_t *json, struct spec *spec, struct err *err)
{
	const char *id, *hostname, *image;
	uint64_t slot;
	int rc;

	if (!json_is_object(json))
		return err_raise(err, ERR_INVALID, "specification: not an object");
	rc = want_string(json, "id", NULL, &id, err);
	if (rc == 0)
		rc = want_string(json, "hostname", "cay", &hostname, err);
	if (rc == 0)
		rc = want_string(json, "image", "host", &image, err);
	if (rc == 0)
		rc = want_number(json, "slot", UINT32_MAX, &slot, err);
	if (rc == 0)
		rc = parse_profile(json, &spec->profile, err);
	if (rc < 0)
		return rc;
	if (!id_valid(id) || (!str_eq(image, "host") && !id_valid(image)))
		return err_raise(
			err, ERR_INVALID, "specification: sandbox or image id is malformed");
	if (str_copy(spec->id, sizeof(spec->id), id) < 0 ||
		str_copy(spec->hostname, sizeof(spec->hostname), hostname) < 0)
		return err_raise(err, ERR_INVALID, "specification: host name is too long");
	spec->image = str_dup(image);
	spec->slot = (uint32_t)slot;
	rc = spec_layers_parse(json_object_get(json, "lower"), &spec->lower, err);
	if (rc == 0)
		rc = parse_mounts(json_object_get(json, "mounts"), spec, err);
	if (rc == 0)
		rc = parse_limits(json_object_get(json, "limits"), spec, err);
	if (rc == 0)
		rc = spec_ports_parse(json_object_get(json, "ports"), &spec->ports, err);
	return rc;
}

struct spec_layers spec_layers_copy(const struct spec_layers *l)
{
	struct spec_layers copy = { .dirs = xalloc((l->n + 1) * sizeof(char *)) };

	for (size_t i = 0; i < l->n; i++)
		copy.dirs[copy.n++] = str_dup(l->dirs[i]);
	return copy;
}

void spec_layers_fini(struct spec_layers *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->dirs[i]);
	free(l->dirs);
	*l = (struct spec_layers){ 0 };
}

bool spec_layers_equal(const struct spec_layers *a, const struct spec_layers *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		if (!str_eq(a->dirs[i], b->dirs[i]))
			return false;
	}
	return true;
}

void spec_fini(struct spec *spec)
{
	for (size_t i = 0; i < spec->n_mounts; i++) {
		free(spec->mounts[i].source);
		free(spec->mounts[i].text);
		free(spec->mounts[i].target);
		spec_layers_fini(&spec->mounts[i].lower);
	}
	free(spec->mounts);
	spec_layers_fini(&spec->lower);
	free(spec->image);
	*spec = (struct spec){ 0 };
}

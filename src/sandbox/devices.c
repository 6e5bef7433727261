/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/devices.h"
#include "base/str.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define TAKEN_MAX 1024

/* --- what is wanted --- */

static struct device_place *find(const struct devices *d, const char *path)
{
	for (size_t i = 0; i < d->n_places; i++) {
		if (str_eq(d->places[i].path, path))
			return &d->places[i];
	}
	return NULL;
}

/* The innermost of @places that has @path. */
static const char *innermost(const json_t *places, const char *path)
{
	const char *best = NULL;
	const json_t *one;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)places, i, one) {
		const char *place = json_string_value(one);

		if (place != NULL && place[0] == '/' && str_path_under(path, place) &&
			(best == NULL || strlen(place) > strlen(best)))
			best = place;
	}
	return best;
}

static void add_file(struct devices *d, const char *place, const char *path, unsigned int number)
{
	struct device_place *p = find(d, place);

	if (p == NULL && d->n_places == HELD_MAX)
		return;
	if (p == NULL) {
		p = &d->places[d->n_places++];
		*p = (struct device_place){ .path = str_dup(place), .files = json_array() };
	}
	path += strlen(place);
	while (*path == '/')
		path++;
	(void)json_array_append_new(
		p->files, json_pack("{s:s,s:I}", "path", path, "number", (json_int_t)number));
	if (number > p->last)
		p->last = number;
	if (number > d->up_to)
		d->up_to = number;
}

void devices_want(struct devices *d, const json_t *places, const json_t *listed)
{
	const json_t *one;
	size_t i;

	if (d->places == NULL)
		d->places = xalloc(HELD_MAX * sizeof(*d->places));
	json_array_foreach ((json_t *)(uintptr_t)listed, i, one) {
		const char *path = json_string_value(json_array_get(one, 1));
		dev_t device = (dev_t)json_integer_value(json_array_get(one, 2));
		const char *place = path != NULL ? innermost(places, path) : NULL;

		if (place != NULL && device != 0 && major(device) == 0)
			add_file(d, place, path, minor(device));
	}
}

bool devices_want_any(const struct devices *d, const char *place)
{
	return find(d, place) != NULL;
}

/* --- numbers --- */

static int number_of(int mount, unsigned int *ret)
{
	struct stat st;

	if (fstat(mount, &st) < 0)
		return -errno;
	*ret = minor(st.st_dev);
	return 0;
}

/* @held: becomes ours, also on failure. */
static int keep(struct devices *d, int held, unsigned int number)
{
	if (d->n == TAKEN_MAX) {
		(void)close(held);
		return -E2BIG;
	}
	if (d->taken == NULL)
		d->taken = xalloc(TAKEN_MAX * sizeof(*d->taken));
	d->taken[d->n++] = (struct placeholder){ held, number };
	return 0;
}

/* What holds its mount is not who made it: that one's end is the end of a namespace, for which the kernel waits (some 30 microseconds), and giving is to be quick. */
static int make_placeholder(void)
{
	static const char *const no_options[] = { NULL };
	cleanup_fd int mount = mount_fs_new("ramfs", no_options, 0);
	int held = mount < 0 ? mount : openat(mount, ".", O_PATH | O_CLOEXEC);

	return mount >= 0 && held < 0 ? -errno : held;
}

int devices_take(struct devices *d)
{
	unsigned int number;
	int rc;

	do {
		cleanup_fd int held = make_placeholder();

		rc = held < 0 ? held : number_of(held, &number);
		if (rc == 0 && number <= d->up_to)
			rc = keep(d, TAKE_FD(held), number);
	} while (rc == 0 && number <= d->up_to);
	return rc;
}

static bool is_taken(const struct devices *d, unsigned int number)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->taken[i].number == number)
			return true;
	}
	return false;
}

static void free_number(struct devices *d, unsigned int number)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->taken[i].number != number)
			continue;
		(void)close(d->taken[i].held);
		d->taken[i] = d->taken[--d->n];
		return;
	}
}

int devices_claim(struct devices *d, const char *place, unsigned int own, bool *ret_free)
{
	struct device_place *p = find(d, place);
	int rc;

	*ret_free = true;
	/* what is remembered is not of this overlay: nobody would know it again */
	if (p == NULL || own > p->last) {
		if (p != NULL)
			p->own = 0;
		return 0;
	}
	rc = devices_take(d);
	*ret_free = is_taken(d, own);
	p->own = *ret_free ? own : 0;
	return rc;
}

bool devices_kept(const struct devices *d, const char *place)
{
	const struct device_place *p = find(d, place);

	return p != NULL && p->own != 0;
}

/* --- giving --- */

static bool is_wanted(const struct devices *d, unsigned int number)
{
	const json_t *file;
	size_t j;

	for (size_t i = 0; i < d->n_places; i++) {
		if (d->places[i].own == number)
			return true;
		json_array_foreach (d->places[i].files, j, file) {
			if (json_integer_value(json_object_get(file, "number")) ==
				(json_int_t)number)
				return true;
		}
	}
	return false;
}

/* One that no file is remembered by lies between those that are: which it was does not matter. */
static void free_between(struct devices *d, const struct device_place *p)
{
	for (size_t i = 0; i < d->n; i++) {
		unsigned int number = d->taken[i].number;

		if (number > p->own && number < p->last && !is_wanted(d, number)) {
			free_number(d, number);
			return;
		}
	}
}

void devices_give(struct devices *d, const char *place, unsigned int try)
{
	struct device_place *p = find(d, place);
	const json_t *file;
	size_t i;

	/* what has come free since would be the lowest */
	if (p == NULL || p->own == 0 || devices_take(d) < 0)
		return;
	json_array_foreach (p->files, i, file)
		free_number(d, (unsigned int)json_integer_value(json_object_get(file, "number")));
	if (try % 2 == 1)
		free_between(d, p);
	/* last, because it is used first */
	free_number(d, p->own);
}

static bool files_are_right(const struct device_place *p, int mount)
{
	const json_t *file;
	size_t i;

	json_array_foreach (p->files, i, file) {
		cleanup_fd int fd =
			raw_openat2(mount, json_string_value(json_object_get(file, "path")),
				O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
		unsigned int number;

		if (fd >= 0 && number_of(fd, &number) == 0 &&
			json_integer_value(json_object_get(file, "number")) != (json_int_t)number)
			return false;
	}
	return true;
}

bool devices_right(struct devices *d, const char *place, int mount)
{
	struct device_place *p = find(d, place);
	unsigned int number;
	int copy;

	if (p == NULL || p->own == 0 || number_of(mount, &number) < 0)
		return true;
	p->right = number == p->own && files_are_right(p, mount);
	if (p->right || number == p->own)
		return p->right;
	copy = fcntl(mount, F_DUPFD_CLOEXEC, 3);
	return copy < 0 || keep(d, copy, number) < 0;
}

bool devices_all_right(const struct devices *d)
{
	for (size_t i = 0; i < d->n_places; i++) {
		if (!d->places[i].right)
			return false;
	}
	return d->n_places > 0;
}

void devices_fini(struct devices *d)
{
	for (size_t i = 0; i < d->n; i++)
		(void)close(d->taken[i].held);
	free(d->taken);
	for (size_t i = 0; i < d->n_places; i++) {
		free(d->places[i].path);
		json_decref(d->places[i].files);
	}
	free(d->places);
	*d = (struct devices){ 0 };
}

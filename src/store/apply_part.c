/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/apply_part.c - see the header.
 *
 * What is not named stays only if what it consists of stays. An upper has what was written in it whole, but a directory that the sandbox renamed shows the host's at its old name: who brings what
 * became of the old name, and not what is at the new one, would take away the only place of what is in it. (Files are copied up as a whole when they are renamed. What they came from
 * may go; that it went by an apply has to be remembered, or a later one would call it a conflict.)
 */
#include "store/apply_part.h"
#include "base/str.h"
#include "store/apply.h"
#include "store/apply_judge.h"
#include "store/origin.h"

#include <sys/stat.h>

/* "/" has no name of its own behind the last slash. */
static const char *key_of(const char *path)
{
	return str_eq(path, "/") ? "" : path;
}

int apply_part_init(struct apply_part *part, const json_t *paths, struct err *err)
{
	const json_t *one;
	size_t i;

	if (paths == NULL)
		return 0;
	part->named = json_object();
	part->above = json_object();
	if (!json_is_array(paths) || json_array_size(paths) == 0)
		return err_raise(err, ERR_INVALID, "member 'paths' is empty, or no array");
	json_array_foreach (paths, i, one) {
		const char *path = json_string_value(one);
		cleanup_free char *above = NULL;

		if (path == NULL || !str_path_clean(path))
			return err_raise(
				err, ERR_INVALID, "member 'paths' has what is no clean path");
		(void)json_object_set_new(part->named, key_of(path), json_false());
		above = str_dup(path);
		for (char *slash; (slash = strrchr(above, '/')) != NULL; *slash = '\0')
			(void)json_object_set_new(part->above,
				slash == above ? "" : (*slash = '\0', above), json_true());
	}
	return 0;
}

void apply_part_free(struct apply_part *part)
{
	json_decref(part->named);
	json_decref(part->above);
	json_decref(part->shown);
	json_decref(part->origins);
	json_decref(part->taken);
	json_decref(part->left_at);
	free(part->dir);
}

void apply_part_begin(struct apply_part *part, const char *at)
{
	part->at = at;
	json_decref(part->shown);
	part->shown = json_object();
	json_decref(part->origins);
	part->origins = json_object();
	if (part->taken == NULL)
		part->taken = json_array();
	if (part->left_at == NULL)
		part->left_at = json_object();
	free(TAKE_PTR(part->dir));
}

/* @path of the tree at hand as the sandbox has it; free() it. */
static char *inside(const struct apply_part *part, const char *path)
{
	return str_dupf("%s/%s", key_of(part->at), path);
}

/* Every name above counts, so that none of several that mean the same is called idle. */
static bool is_named(struct apply_part *part, char *path)
{
	bool named = false;

	for (;;) {
		char *slash = strrchr(path, '/');

		if (json_object_get(part->named, path) != NULL) {
			(void)json_object_set_new(part->named, path, json_true());
			named = true;
		}
		if (slash == NULL)
			return named;
		*slash = '\0';
	}
}

bool apply_part_names(struct apply_part *part, const char *path)
{
	cleanup_free char *whole = part->named != NULL ? inside(part, path) : NULL;

	return whole == NULL || is_named(part, whole);
}

bool apply_part_has(struct apply_part *part, const struct change *c)
{
	cleanup_free char *whole = NULL;

	if (apply_part_names(part, c->path))
		return true;
	whole = inside(part, c->path);
	return c->after->kind == FOUND_DIR && c->before->kind != FOUND_DIR &&
	       json_object_get(part->above, whole) != NULL;
}

bool apply_part_is_whole(const struct apply_part *part, const char *path)
{
	cleanup_free char *whole = inside(part, path);

	return json_object_get(part->left_at, whole) == NULL;
}

static void note_left(struct apply_part *part, const char *path)
{
	cleanup_free char *at = inside(part, path);
	char *slash;

	part->left++;
	while (json_object_get(part->left_at, at) == NULL) {
		(void)json_object_set_new_nocheck(part->left_at, at, json_true());
		slash = strrchr(at, '/');
		if (slash == NULL)
			break;
		*slash = '\0';
	}
}

static void key_of_inode(ino_t ino, char key[24])
{
	(void)snprintf(key, 24, "%llu", (unsigned long long)ino);
}

static void note_shown(struct apply_part *part, ino_t ino, const char *path)
{
	cleanup_free char *whole = inside(part, path);
	char key[24];

	key_of_inode(ino, key);
	str_utf8_tidy(whole);
	if (json_object_get(part->shown, key) == NULL)
		(void)json_object_set_new(part->shown, key, json_string(whole));
}

/* The inode of the host's directory that holds @path; 0 when it has none. Changes of one directory come one after the other. */
static ino_t host_parent(const struct plan *p, struct apply_part *part, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash != NULL ? (size_t)(slash - path) : 0;
	char name[NAME_MAX + 1];
	cleanup_fd int dir = -1;
	struct stat st;

	if (part->dir != NULL && strlen(part->dir) == n && memcmp(part->dir, path, n) == 0)
		return part->dir_ino;
	free(part->dir);
	part->dir = str_dupf("%.*s", (int)n, path);
	dir = apply_parent(p->b.layers[0].root, path, name);
	part->dir_ino = dir >= 0 && fstat(dir, &st) == 0 ? st.st_ino : 0;
	return part->dir_ino;
}

/* The host's part of the directory @m as the sandbox shows it; 0 when it has none. */
static ino_t base_of(const struct plan *p, const struct merged *m)
{
	struct stat st;

	return m != NULL && m->n > 0 && m->parts[m->n - 1].layer == p->a.n - 1 &&
			       fstat(m->parts[m->n - 1].fd, &st) == 0
		       ? st.st_ino
		       : 0;
}

static void note_origin(const struct plan *p, struct apply_part *part, const struct change *c)
{
	struct origin o;
	struct stat st;
	char key[24];
	const char *name;
	int dir;
	ssize_t n;

	if (c->after->kind == FOUND_NONE || c->after->layer == p->a.n - 1)
		return;
	dir = found_at(c->after, &name);
	n = origin_first(p->job->store.pool, p->a.xattr, dir, name, p->a.n, &o);
	if (n > 0 && origin_stat(p->a.layers[p->a.n - 1].root, &o, (size_t)n, &st) == 1) {
		cleanup_free char *text = origin_text(&o, (size_t)n);

		key_of_inode(st.st_ino, key);
		if (json_object_get(part->origins, key) == NULL)
			(void)json_object_set_new(part->origins, key, json_array());
		(void)json_array_append_new(json_object_get(part->origins, key), json_string(text));
	}
}

void apply_part_leave(struct plan *p, const struct change *c)
{
	struct apply_part *part = &p->part;
	const struct found *a = c->after;
	ino_t base = base_of(p, c->parent);

	note_left(part, c->path);
	/* in a directory that the sandbox renamed, or below it: what comes into the host's appears there */
	if (base != 0 && base != host_parent(p, part, c->path))
		note_shown(part, base, c->path);
	if (a->kind == FOUND_FILE && a->layer == p->a.n - 1)
		note_shown(part, a->st.st_ino, c->path);
	base = a->kind == FOUND_DIR ? base_of(p, &a->merged) : 0;
	if (base != 0 && (c->before->kind != FOUND_DIR || c->before->st.st_ino != base))
		note_shown(part, base, c->path);
	note_origin(p, part, c);
}

/* Where the sandbox still shows what @step of the tree at hand changes, or makes something in; NULL: nowhere. */
static const char *still_shown(const struct plan *p, const json_t *step, const char *path)
{
	const json_t *shown = p->part.shown;
	char key[24], name[NAME_MAX + 1];
	cleanup_fd int parent = -1;
	const char *where;
	struct stat st;

	key_of_inode((ino_t)json_integer_value(json_object_get(step, "old")), key);
	where = json_string_value(json_object_get(shown, key));
	if (where != NULL || !str_eq(json_string_value(json_object_get(step, "op")), "add"))
		return where;
	parent = apply_parent(p->b.layers[0].root, path, name);
	if (parent < 0 || fstat(parent, &st) < 0)
		return NULL;
	key_of_inode(st.st_ino, key);
	return json_string_value(json_object_get(shown, key));
}

static void note_taken(struct apply_part *part, const json_t *step)
{
	const char *op = json_string_value(json_object_get(step, "op"));
	char key[24];

	key_of_inode((ino_t)json_integer_value(json_object_get(step, "old")), key);
	if (str_eq(op, "remove") || str_eq(op, "replace"))
		(void)json_array_extend(part->taken, json_object_get(part->origins, key));
}

void apply_part_end(struct plan *p)
{
	json_t *step;
	size_t i;

	if (json_object_size(p->part.shown) + json_object_size(p->part.origins) == 0)
		return;
	json_array_foreach (p->steps, i, step) {
		cleanup_free char *path = apply_bytes(json_object_get(step, "path"));
		const char *where = NULL;

		if ((size_t)json_integer_value(json_object_get(step, "tree")) != p->tree)
			continue;
		where = still_shown(p, step, path);
		if (where != NULL) {
			cleanup_free char *why = str_dupf(
				"a directory that the sandbox renamed shows it: '%s' has to be named, too",
				where);

			plan_note(p->conflicts, p, path, why);
		}
		note_taken(&p->part, step);
	}
}

int apply_part_check(const struct apply_part *part, struct err *err)
{
	const char *path;
	json_t *has;

	json_object_foreach (part->named, path, has) {
		if (!json_is_true(has))
			return err_raise(err, ERR_INVALID, "nothing changed at or below '%s'",
				path[0] != '\0' ? path : "/");
	}
	return 0;
}

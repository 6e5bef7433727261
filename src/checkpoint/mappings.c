/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/mappings.h"
#include "sys/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64U << 20)
#define FIRST    256 /* mappings that there is room for at first */

static void add(struct mappings *m, const struct proc_map *map)
{
	if (m->n == m->room) {
		m->room = m->room == 0 ? FIRST : m->room * 2;
		m->list = realloc(m->list, m->room * sizeof(*m->list));
		if (m->list == NULL)
			abort();
	}
	m->list[m->n++] = *map;
}

/* "[anon_shmem:NAME]": memory without a name in any file system, which its program has called so (PR_SET_VMA_ANON_NAME, from Linux 6.2 on). It may be a memory file; what is one is called so. */
static void call_by_kind(struct mappings *m, struct proc_map *map)
{
	static const char named[] = "[anon_shmem:";
	const size_t n = sizeof(named) - 1;
	char *name;

	if (map->name_size <= n || memcmp(map->name, named, n) != 0)
		return;
	if (asprintf(&name, "/memfd:%.*s (deleted)", (int)(map->name_size - n - 1), map->name + n) <
		0)
		abort();
	map->name = mappings_name(m, name);
	map->name_size = strlen(name);
}

int mappings_read(int dirfd, const char *path, struct mappings *ret)
{
	const char *at, *end;
	struct proc_map map;
	int rc, more = 0;

	ret->text = (struct buf)BUF_INIT(TEXT_MAX);
	rc = file_read_at(dirfd, path, &ret->text);
	at = buf_cstr(&ret->text);
	end = at + ret->text.n;
	while (rc == 0 && (more = proc_map_next(&at, end, &map)) > 0) {
		call_by_kind(ret, &map);
		add(ret, &map);
	}
	return rc < 0 ? rc : more;
}

const char *mappings_name(struct mappings *m, char *name)
{
	char **all = realloc(m->names, (m->n_names + 1) * sizeof(*all));

	if (all == NULL)
		abort();
	m->names = all;
	all[m->n_names++] = name;
	return name;
}

void mappings_fini(struct mappings *m)
{
	for (size_t i = 0; i < m->n_names; i++)
		free(m->names[i]);
	free(m->names);
	free(m->list);
	buf_free(&m->text);
	*m = (struct mappings){ 0 };
}

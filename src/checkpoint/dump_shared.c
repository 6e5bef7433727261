/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_shared.c - shared memory that is in no file system under a name: who maps which part of it. Each object's bytes are copied once, from whoever maps them, by rising
 * offsets; so nobody may map only what lies behind a part that no one maps.
 */
#include "base/str.h"
#include "checkpoint/dump.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static uint64_t device_of(const struct proc_map *m)
{
	return makedev(m->major, m->minor);
}

static bool is_anonymous(const struct proc_map *m)
{
	static const char name[] = "/dev/zero" DUMP_GONE;

	return m->name_size == sizeof(name) - 1 && memcmp(m->name, name, m->name_size) == 0 &&
	       !m->literal;
}

bool dump_is_shared_memory(const struct proc_map *m)
{
	return m->shared && (is_anonymous(m) || dump_is_gone_file(m));
}

static const struct dump_known *known_memory(const struct dump *d, const struct proc_map *m)
{
	for (size_t i = 0; i < d->n_known; i++) {
		if (d->known[i].device == device_of(m) && d->known[i].inode == m->inode)
			return &d->known[i];
	}
	return NULL;
}

uint32_t dump_shared_open(const struct dump *d, const struct proc_map *m)
{
	const struct dump_known *known = known_memory(d, m);

	return known != NULL ? known->index : dump_gone_open(d, m);
}

/* --- while they run --- */

void dump_shared_see(struct dump *d, pid_t host, const struct mappings *maps)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->list[i];

		if (dump_is_shared_memory(m))
			(void)!shared_memories_see(&d->shared, device_of(m), m->inode, host,
				m->start, m->offset, m->end - m->start);
	}
}

/* Only what no descriptor refers to, by its name; else what is copied ahead would be read once more. */
void dump_shared_guess(struct dump *d, pid_t host, const struct mappings *maps)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->list[i];

		if (m->shared && is_anonymous(m))
			shared_memories_guess(&d->shared, device_of(m), m->inode, host, m->start,
				m->offset, m->end - m->start);
	}
}

/* --- all that stands still --- */

static void add_piece(struct dump *d, const struct dump_process *p, const struct proc_map *m)
{
	struct dump_piece piece = { .device = device_of(m),
		.inode = m->inode,
		.offset = m->offset,
		.length = m->end - m->start,
		.address = m->start,
		.process = (uint32_t)(p - d->processes) };

	buf_add(&d->pieces, &piece, sizeof(piece));
}

/* Of one object by rising offsets, of one offset the longest first. */
static int compare(const void *left, const void *right)
{
	const struct dump_piece *a = left, *b = right;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	if (a->inode != b->inode)
		return a->inode < b->inode ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->length != b->length)
		return a->length > b->length ? -1 : 1;
	return (a->process > b->process) - (a->process < b->process);
}

static const struct dump_piece *pieces(const struct dump *d, size_t *ret_n)
{
	*ret_n = d->pieces.n / sizeof(struct dump_piece);
	return (const struct dump_piece *)(const void *)d->pieces.p;
}

static int list_pieces(struct dump *d)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct dump_process *p = &d->processes[i];

		for (size_t j = 0; j < p->maps.n; j++) {
			const struct proc_map *m = &p->maps.list[j];

			/* what a descriptor refers to was read through it, and may be smaller than its mapping */
			if (dump_is_shared_memory(m) && dump_shared_open(d, m) == IMAGE_NONE)
				add_piece(d, p, m);
		}
	}
	if (buf_failed(&d->pieces))
		return -E2BIG;
	if (d->pieces.n > 0)
		qsort(d->pieces.p, d->pieces.n / sizeof(struct dump_piece),
			sizeof(struct dump_piece), compare);
	return 0;
}

static bool are_of_one(const struct dump_piece *a, const struct dump_piece *b)
{
	return a->device == b->device && a->inode == b->inode;
}

int dump_shared_check(struct dump *d, struct err *err)
{
	const struct dump_piece *all;
	int rc = list_pieces(d);
	uint64_t have = 0;
	size_t n;

	if (rc < 0)
		return err_raise_sys(err, rc, "list the shared memory of the processes");
	all = pieces(d, &n);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const struct dump_piece *piece = all + i;

		if (i == 0 || !are_of_one(piece, piece - 1))
			have = 0;
		if (piece->offset > have)
			rc = dump_refuse(d->processes + piece->process, err,
				"it maps a part of shared memory at %llx, and nobody maps what lies before it",
				(unsigned long long)piece->address);
		if (rc < 0 && dump_note(d, err))
			rc = 0;
		/* of each object once */
		have = piece->offset > have                   ? UINT64_MAX
		       : piece->offset + piece->length > have ? piece->offset + piece->length
							      : have;
	}
	return rc;
}

int dump_shared_copy(struct dump *d, struct err *err)
{
	size_t n;
	const struct dump_piece *all = pieces(d, &n);

	for (size_t i = 0; i < n; i++) {
		const struct dump_process *p = d->processes + all[i].process;
		int rc = shared_memories_add(&d->shared, all[i].device, all[i].inode,
			p->tracee.host, all[i].address, all[i].offset, all[i].length);

		if (rc < 0)
			return err_raise_sys(err, rc, "look at the memory of process %d (%s)",
				p->tracee.inner, p->name);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_flags.c - what madvise(2), mlock(2) and mmap(2) have set for a mapping. Only smaps tells it, which looks at each page: so it is read from the twin, after the
 * release, where a twin knows. fork() gives it no locks and none of the mappings of MADV_DONTFORK: where there are locks, or pages that the twin has not, the process itself is
 * asked while it stands still; and a mapping that a twin has not got is one of these.
 */
#include "checkpoint/dump.h"
#include "sys/file.h"

#define SMAPS_MAX (256U << 20)

static const struct {
	char name[3];
	uint32_t flag;
} known[] = {
	{ "dc", REGION_DONTFORK },
	{ "wf", REGION_WIPEONFORK },
	{ "hg", REGION_HUGEPAGE },
	{ "nh", REGION_NOHUGEPAGE },
	{ "dd", REGION_DONTDUMP },
	{ "sr", REGION_SEQUENTIAL },
	{ "rr", REGION_RANDOM },
	{ "lo", REGION_LOCKED },
	{ "nr", REGION_NORESERVE },
	{ "gd", REGION_GROWS_DOWN },
	{ "dp", REGION_DROPPABLE },
};

int dump_flags_read(struct dump_process *p, struct tracee *from)
{
	int rc;

	if (p->smaps.n > 0)
		return 0;
	p->smaps = (struct buf)BUF_INIT(SMAPS_MAX);
	rc = file_read_at(from->proc, "smaps", &p->smaps);
	p->smap_at = buf_cstr(&p->smaps);
	p->smaps_of_twin = from == &p->twin;
	return rc;
}

uint32_t dump_flags(struct dump_process *p, const struct proc_map *m, bool *may_write)
{
	const char *end = buf_cstr(&p->smaps) + p->smaps.n;
	uint32_t flags = 0;
	int rc = 1;

	while (rc > 0 && p->smap.end <= m->start)
		rc = proc_smap_next(&p->smap_at, end, &p->smap);
	*may_write = m->writable;
	if (rc <= 0 || p->smap.start > m->start)
		return p->smaps_of_twin ? REGION_DONTFORK : 0;
	*may_write = proc_smap_has(&p->smap, "mw");
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (proc_smap_has(&p->smap, known[i].name))
			flags |= known[i].flag;
	}
	return flags;
}

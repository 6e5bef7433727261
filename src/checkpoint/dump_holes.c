/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_holes.c - which pages of shared memory there are. Whoever reads another, through a mapping of whoever's, makes one: on the account of the sandbox, or on ours.
 *
 * What is open here (memory files; what the template lends) its file system tells about. Of the rest, rootless, the page tables tell of those pages that somebody has used and
 * has not given up since: enough to have room for them ahead. mincore(2) tells of all, but it is a call of the process itself, and takes what is swapped out for a hole.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/pagemap.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>

#define SCAN_BATCH 512U
#define ENTRIES    4096U
#define TABLE_MOST (1ULL << 30) /* of a mapping whose pages are looked at one by one */
#define SMAPS_MAX  (256U << 20)

/* Memory that belongs to no mount is all on one device: ours too. */
static void note_kernels_device(struct dump *d)
{
	cleanup_fd int fd = memfd_create("device", MFD_CLOEXEC);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0)
		d->memory_devices[d->n_memory_devices++] = st.st_dev;
}

bool dump_is_in_memory(const struct dump *d, uint64_t device)
{
	for (size_t i = 0; i < d->n_memory_devices; i++) {
		if (d->memory_devices[i] == device)
			return true;
	}
	return false;
}

/* --- while they run --- */

static int scan(int pagemap, uint64_t start, uint64_t end, uint64_t offset, struct page_set *into)
{
	struct page_region found[SCAN_BATCH];
	struct pm_scan_arg arg = { .size = sizeof(arg),
		.start = start,
		.end = end,
		.vec = (uint64_t)(uintptr_t)found,
		.vec_len = SCAN_BATCH,
		.category_mask = PAGE_IS_PRESENT,
		.return_mask = PAGE_IS_PRESENT };

	while (arg.start < end) {
		int n = ioctl(pagemap, PAGEMAP_SCAN, &arg);

		if (n < 0)
			return -errno;
		for (int i = 0; i < n; i++)
			page_set_add(into, found[i].start - start + offset,
				found[i].end - start + offset);
		if (arg.walk_end <= arg.start)
			break;
		arg.start = arg.walk_end;
	}
	return 0;
}

static void read_table(
	int pagemap, uint64_t start, uint64_t end, uint64_t offset, struct page_set *into)
{
	static uint64_t entries[ENTRIES];

	for (uint64_t at = start; at < end && end - start <= TABLE_MOST;) {
		ssize_t n = pread(pagemap, entries, sizeof(entries),
			(off_t)(at / IMAGE_PAGE * sizeof(*entries)));

		if (n <= 0)
			break;
		for (size_t i = 0; i < (size_t)n / sizeof(*entries) && at < end;
			i++, at += IMAGE_PAGE) {
			uint64_t to = at - start + offset;

			if ((entries[i] & ENTRY_PRESENT) != 0)
				page_set_add(into, to, to + IMAGE_PAGE);
		}
	}
}

void dump_holes_known(struct dump *d, pid_t host, const struct mappings *maps)
{
	bool list = !feature_withheld(FEATURE_PAGEMAP_SCAN);
	cleanup_fd int pagemap = -1;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/pagemap", host);
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->list[i];
		struct shared_memory *memory =
			dump_is_shared_memory(m) ? shared_memories_find(&d->shared,
							   makedev(m->major, m->minor), m->inode)
						 : NULL;

		if (memory == NULL || memory->is_lent)
			continue;
		if (!dump_is_in_memory(
			    d, memory->device)) { /* on disk it has no pages to be made */
			page_set_add(&memory->there, m->offset, m->offset + (m->end - m->start));
			continue;
		}
		if (pagemap < 0)
			pagemap = open(path, O_RDONLY | O_CLOEXEC);
		/* before Linux 6.7 nobody lists them */
		if (!list || scan(pagemap, m->start, m->end, m->offset, &memory->there) == -ENOTTY)
			read_table(pagemap, m->start, m->end, m->offset, &memory->there);
	}
}

/* --- while all stands still --- */

/* Where the mapping begins that has @address. */
static uint64_t start_of(const struct dump_process *p, uint64_t address)
{
	for (size_t i = 0; i < p->maps.n; i++) {
		if (p->maps.list[i].start <= address && address < p->maps.list[i].end)
			return p->maps.list[i].start;
	}
	return 0;
}

/* Is something swapped out of what is mapped at @address? Nothing, where nothing at all is. */
static bool may_be_out(const struct dump_process *p, uint64_t address)
{
	cleanup_buf struct buf text = BUF_INIT(SMAPS_MAX);
	struct sysinfo machine;
	char begin[24];
	const char *at;

	if (sysinfo(&machine) == 0 && machine.totalswap == machine.freeswap)
		return false;
	(void)snprintf(begin, sizeof(begin), "\n%08llx-", (unsigned long long)start_of(p, address));
	if (file_read_at(p->tracee.proc, "smaps", &text) < 0)
		return true;
	at = strstr(buf_cstr(&text), begin);
	return at == NULL || proc_number(at + 1, "Swap", 10, 1) != 0;
}

bool dump_holes_add(const unsigned char *vector, size_t n, uint64_t offset, struct page_set *into)
{
	bool all = true;

	for (size_t i = 0; i < n; i++) {
		uint64_t at = offset + i * IMAGE_PAGE;

		if ((vector[i] & 1) != 0)
			page_set_add(into, at, at + IMAGE_PAGE);
		else
			all = false;
	}
	return all;
}

/* The process itself: keep_present. */
static int ask(void *data, uint64_t device, pid_t host, uint64_t address, uint64_t offset,
	uint64_t length, struct page_set *into)
{
	static unsigned char vector[TRACEE_RESULTS];
	struct dump *d = data;
	struct dump_process *p = dump_by_host_pid(d, host);
	int rc = p == NULL || p->tracee.zombie || !dump_is_in_memory(d, device)
			 ? -ENOENT
			 : tracee_scratch(&p->tracee);
	bool all = true;

	for (uint64_t at = 0; rc == 0 && at < length;) {
		uint64_t left = (length - at + IMAGE_PAGE - 1) / IMAGE_PAGE,
			 n = left < sizeof(vector) ? left : sizeof(vector);

		rc = (int)TRACEE_CALL(&p->tracee, 0, SYS_mincore, address + at, n * IMAGE_PAGE,
			p->tracee.scratch);
		if (rc == 0)
			rc = tracee_read(&p->tracee, p->tracee.scratch, vector, n);
		if (rc == 0)
			all = dump_holes_add(vector, n, offset + at, into) && all;
		at += n * IMAGE_PAGE;
	}
	return rc == 0 && !all && may_be_out(p, address) ? -EAGAIN : rc;
}

void dump_holes_begin(struct dump *d)
{
	if (d->n_memory_devices > 0)
		return;
	d->shared.present = ask;
	d->shared.data = d;
	note_kernels_device(d);
	dump_tmpfs_devices(d);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/pull.c - see the header. Slots are memory that coders have too: only bytes are taken from there; of what a coder says, which page of its chunk is zeros.
 */
#include "prog/cay-template/lazy.h"
#include "prog/cay-template/page_runs.h"

#define FDS_FIRST 200 /* above what a template has of its own */

struct pull pull;

static uint64_t next_room = WINDOW_PULL;

bool pull_fds_fit(uint32_t n_fds)
{
	return n_fds >= 4 && n_fds % 2 == 0 && n_fds <= PULL_FDS_MAX;
}

void *pull_room(uint64_t bytes)
{
	uint64_t at = next_room, length = (bytes + BARE_PAGE) & ~(BARE_PAGE - 1);

	if (length > WINDOW_STASH - at ||
		bare_map(at, length, 3, 2 | 0x4000 /* PRIVATE | NORESERVE */) < 0)
		return NULL;
	next_room = at + length;
	return (void *)at;
}

static long keep(int fd)
{
	return CALL3(__NR_fcntl, fd, 1030 /* F_DUPFD_CLOEXEC */, FDS_FIRST);
}

static long keep_all(const int *fds, uint32_t n_fds)
{
	long rc = pull.requests = (int)keep(fds[0]);

	if (rc >= 0)
		rc = pull.slots = (int)keep(fds[1]);
	pull.n = (n_fds - 2) / 2;
	for (uint32_t i = 0; rc >= 0 && i < pull.n; i++) {
		rc = pull.pipes[i] = (int)keep(fds[2 + 2 * i]);
		if (rc >= 0)
			rc = pull.credits[i] = (int)keep(fds[3 + 2 * i]);
	}
	return rc < 0 ? rc : 0;
}

/* @raw: the lengths. */
static long add_up(const uint32_t *raw, uint64_t pages)
{
	uint64_t *at = pull_room((pull.n_chunks + 1ULL) * sizeof(*at));

	pull.state = pull_room(pull.n_chunks);
	pull.first = pull_room(pull.n_chunks);
	if (at == NULL || pull.state == NULL || pull.first == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < pull.n_chunks; i++) {
		if (raw[i] == 0 || raw[i] > TEMPLATE_SLOT_SIZE)
			return -EINVAL;
		at[i + 1] = at[i] + raw[i];
	}
	pull.chunk_at = at;
	return at[pull.n_chunks] == pages ? 0 : -EINVAL;
}

static long read_lengths(int fd, uint64_t pages)
{
	struct {
		uint64_t head[6];
		uint64_t size;
		uint64_t rest[11];
	} st; /* struct stat */
	long rc = CALL2(__NR_fstat, fd, &st);

	if (rc < 0)
		return rc;
	pull.n_chunks = (uint32_t)(st.size / sizeof(uint32_t));
	if (st.size % sizeof(uint32_t) != 0 || st.size > 1U << 30)
		return -EINVAL;
	if (st.size == 0)
		return add_up(NULL, pages);
	rc = CALL6(__NR_mmap, WINDOW_CHUNKS, st.size, 1,
		2 | 0x100000 /* PRIVATE | FIXED_NOREPLACE */, fd, 0);
	if (rc < 0)
		return rc;
	rc = add_up((const uint32_t *)WINDOW_CHUNKS, pages);
	(void)CALL2(__NR_munmap, WINDOW_CHUNKS, st.size);
	return rc;
}

/* What is in descriptions lies between the memory of processes. @list: so many mappings. */
static bool is_in(const struct plan_map *const *list, uint32_t n, uint64_t at)
{
	for (uint32_t i = 0; i < n; i++) {
		if (at >= list[i]->address && at - list[i]->address < list[i]->length)
			return true;
	}
	return false;
}

static long find_contents(void)
{
	const struct plan_map **list = pull_room((plan->n_maps + 1ULL) * sizeof(*list)),
			      *m = plan_maps();
	uint8_t *found = pull_room(plan->n_copies);
	uint32_t n = 0;

	if (list == NULL || found == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < plan->n_maps; i++) {
		if (m[i].content != 0)
			list[n++] = &m[i];
	}
	for (uint32_t i = 0; n > 0 && i < plan->n_copies; i++)
		found[i] = is_in(list, n, plan_copies()[i].to);
	pull.content = found;
	return 0;
}

/* Nearly sorted: runs of a mapping follow each other. */
static void sort(uint32_t *list, uint32_t n)
{
	const struct plan_copy *c = plan_copies();

	for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
		for (uint32_t i = gap; i < n; i++) {
			uint32_t moved = list[i], j = i;

			for (; j >= gap && c[list[j - gap]].to > c[moved].to; j -= gap)
				list[j] = list[j - gap];
			list[j] = moved;
		}
	}
}

static long sort_copies(void)
{
	const struct plan_copy *c = plan_copies();
	uint64_t *at = pull_room((plan->n_copies + 1ULL) * sizeof(*at));
	uint32_t *sorted = pull_room((plan->n_copies + 1ULL) * sizeof(*sorted));

	if (at == NULL || sorted == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < plan->n_copies; i++) {
		at[i + 1] = at[i] + c[i].length;
		if (pull.content[i] != 0)
			continue;
		if (c[i].length % BARE_PAGE != 0 || c[i].to % BARE_PAGE != 0)
			return -EINVAL;
		sorted[pull.n_sorted++] = i;
	}
	sort(sorted, pull.n_sorted);
	pull.copy_at = at;
	pull.sorted = sorted;
	return 0;
}

long pull_begin(int chunks, const int *fds, uint32_t n_fds, uint64_t pages)
{
	long rc = keep_all(fds, n_fds);

	if (rc == 0)
		rc = read_lengths(chunks, pages);
	if (rc == 0)
		rc = find_contents();
	if (rc == 0)
		rc = sort_copies();
	pull.on = rc == 0;
	return rc;
}

static uint64_t slots_size(void)
{
	return (uint64_t)pull.n * TEMPLATE_PAGE_SLOTS * TEMPLATE_SLOT_SIZE;
}

long pull_map(void)
{
	long rc = CALL6(__NR_mmap, WINDOW_COPY, slots_size(), 1,
		1 | 0x100000 /* SHARED | FIXED_NOREPLACE */, pull.slots, 0);

	return rc < 0 ? rc : 0;
}

void pull_unmap(void)
{
	(void)CALL2(__NR_munmap, WINDOW_COPY, slots_size());
}

/* The last of @n ascending numbers that is not above @value, which is not below the first. */
static uint32_t last_up_to(const uint64_t *list, uint32_t n, uint64_t value)
{
	uint32_t low = 0, high = n;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (list[middle] <= value)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* How many of the sorted copies begin at @at or before. */
static uint32_t count_up_to(uint64_t at)
{
	const struct plan_copy *c = plan_copies();
	uint32_t low = 0, high = pull.n_sorted;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (c[pull.sorted[middle]].to <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The copy that has the page at @at of a process' stash, by its place among the sorted. Return: %PULL_NONE: none has. */
static uint32_t find_copy(uint64_t at)
{
	const struct plan_copy *c = plan_copies();
	uint32_t n = count_up_to(at);

	if (n == 0 || at - c[pull.sorted[n - 1]].to >= c[pull.sorted[n - 1]].length)
		return PULL_NONE;
	return pull.sorted[n - 1];
}

uint64_t pull_next_page(uint64_t at, uint64_t end)
{
	uint32_t next = count_up_to(at);

	if (at >= end || find_copy(at) != PULL_NONE)
		return at < end ? at : end;
	if (next == pull.n_sorted || plan_copies()[pull.sorted[next]].to >= end)
		return end;
	return plan_copies()[pull.sorted[next]].to;
}

uint32_t pull_chunk_of(uint64_t at)
{
	uint32_t copy = find_copy(at);

	if (copy == PULL_NONE)
		return PULL_NONE;
	return last_up_to(
		pull.chunk_at, pull.n_chunks, pull.copy_at[copy] + (at - plan_copies()[copy].to));
}

uint64_t pull_place(uint64_t at)
{
	uint32_t copy = find_copy(at);

	return copy == PULL_NONE ? 0 : plan_copies()[copy].from + (at - plan_copies()[copy].to);
}

/* --- what is taken before anything runs --- */

static bool is_of(const struct plan_process *p, uint64_t at)
{
	return p->image != IMAGE_NONE && at >= p->stash_start && at < p->stash_end;
}

static void want_first(const struct template_first *place)
{
	const struct plan_process *p = plan_processes(), *end = p + plan->n_processes;

	while (p < end && p->pid != place->pid)
		p++;
	for (uint32_t i = 0; p < end && i < pull.n_sorted; i++) {
		const struct plan_copy *c = &plan_copies()[pull.sorted[i]];

		if (is_of(p, c->to) && place->address - c->from < c->length)
			pull.first[pull_chunk_of(c->to + (place->address - c->from))] = 1;
	}
}

/* All that it has, whoever else has some of these chunks. */
static void want_all(const struct plan_process *p)
{
	const struct plan_copy *c = plan_copies();

	for (uint32_t i = 0; i < pull.n_sorted; i++) {
		uint64_t at = pull.copy_at[pull.sorted[i]], n = c[pull.sorted[i]].length;

		if (n == 0 || !is_of(p, c[pull.sorted[i]].to))
			continue;
		for (uint32_t chunk = last_up_to(pull.chunk_at, pull.n_chunks, at);
			chunk < pull.n_chunks && pull.chunk_at[chunk] < at + n; chunk++)
			pull.first[chunk] = 1;
	}
}

long pull_first(int places)
{
	struct template_first list[TEMPLATE_FIRST_MAX];
	const struct plan_process *p = plan_processes();
	long n = CALL4(__NR_pread64, places, list, sizeof(list), 0);

	for (long i = 0; i < n / (long)sizeof(*list); i++)
		want_first(&list[i]);
	for (uint32_t i = 0; i < plan->n_processes; i++) {
		if (!lazy_serves(&p[i]))
			want_all(&p[i]);
	}
	return n < 0 ? n : 0;
}

/* --- chunks --- */

bool pull_may_ask(void)
{
	return pull.asked - pull.taken < (uint64_t)pull.n * TEMPLATE_PAGE_SLOTS;
}

static long request(uint32_t number)
{
	long rc = CALL3(__NR_write, pull.requests, &number, sizeof(number));

	return rc == (long)sizeof(number) ? 0 : rc < 0 ? rc : -EIO;
}

long pull_ask(uint32_t chunk)
{
	long rc = request(chunk);

	if (rc < 0)
		return rc;
	pull.state[chunk] = PULL_ASKED;
	pull.queue[pull.asked++ % PULL_ASKED_MAX] = chunk;
	return 0;
}

int pull_pipe(void)
{
	return pull.asked == pull.taken ? -1 : pull.pipes[pull.taken % pull.n];
}

/* The chunk that is taken next. */
static uint32_t pull_next(void)
{
	return pull.queue[pull.taken % PULL_ASKED_MAX];
}

/* @n bytes of the stream from @at on, of which the first is at @from (0 = zeros). */
static void give(uint64_t at, uint64_t from, uint64_t n, void (*each)(const struct pull_part *part))
{
	uint32_t i = last_up_to(pull.copy_at, plan->n_copies, at);

	while (n > 0) {
		uint64_t into = at - pull.copy_at[i], left = pull.copy_at[i + 1] - at;
		struct pull_part part = { plan_copies()[i].to + into, from, left < n ? left : n,
			pull.content[i] != 0 };

		if (left == 0) { /* an empty copy */
			i++;
			continue;
		}
		each(&part);
		at += part.length;
		n -= part.length;
		from += from != 0 ? part.length : 0;
		i++;
	}
}

static void give_all(
	uint32_t chunk, const struct template_pages *m, void (*each)(const struct pull_part *part))
{
	uint64_t from = WINDOW_COPY + m->slot * TEMPLATE_SLOT_SIZE;

	for (uint64_t done = 0, end; done < m->raw; done = end) {
		bool there;

		end = page_run_end(m, done, &there);
		give(pull.chunk_at[chunk] + done, there ? from : 0, end - done, each);
		from += there ? end - done : 0;
	}
}

long pull_take(void (*each)(const struct pull_part *part))
{
	struct template_pages m;
	uint32_t chunk = pull_next(), coder = (uint32_t)(pull.taken % pull.n);
	long rc = bare_read_all(pull.pipes[coder], &m, sizeof(m));

	if (rc < 0)
		return rc;
	if (m.slot == TEMPLATE_DAMAGED)
		return PULL_DAMAGED;
	if (m.slot >= (uint64_t)pull.n * TEMPLATE_PAGE_SLOTS ||
		m.raw != pull.chunk_at[chunk + 1] - pull.chunk_at[chunk])
		return -EINVAL;
	pull.taken++;
	give_all(chunk, &m, each);
	/* not before all of it is there */
	pull.state[chunk] = PULL_IN;
	rc = CALL3(__NR_write, pull.credits[coder], &m, 1);
	return rc == 1 ? (long)chunk : rc < 0 ? rc : -EIO;
}

void pull_parts(uint32_t chunk, void (*each)(const struct pull_part *part))
{
	give(pull.chunk_at[chunk], 0, pull.chunk_at[chunk + 1] - pull.chunk_at[chunk], each);
}

/* --- in the template --- */

static void put(const struct pull_part *part)
{
	if (part->from != 0)
		(void)memcpy((void *)part->to, (const void *)part->from, part->length);
}

static bool taking_first;

static void put_content(const struct pull_part *part)
{
	if (part->content || taking_first)
		put(part);
}

/* Does it have bytes of anything but the memory of a process? */
static bool has_content(uint32_t chunk)
{
	uint64_t end = pull.chunk_at[chunk + 1];

	for (uint32_t i = last_up_to(pull.copy_at, plan->n_copies, pull.chunk_at[chunk]);
		i < plan->n_copies && pull.copy_at[i] < end; i++) {
		if (pull.content[i] != 0)
			return true;
	}
	return false;
}

static long take_one(bool all)
{
	taking_first = pull.first[pull_next()] != 0;
	return pull_take(all ? put : put_content);
}

static bool is_wanted(uint32_t chunk, bool all)
{
	return all || pull.first[chunk] != 0 || has_content(chunk);
}

/* One is asked for when there is a slot for it; the disk need not wait for that. */
static long announce(bool all)
{
	long rc = 0;

	for (uint32_t i = 0; rc == 0 && i < pull.n_chunks; i++)
		rc = is_wanted(i, all) ? request(i | TEMPLATE_AHEAD) : 0;
	return rc;
}

static long take_chunks(bool all)
{
	long rc = announce(all);

	for (uint32_t i = 0; rc >= 0 && (i < pull.n_chunks || pull_pipe() >= 0);) {
		if (i < pull.n_chunks && !is_wanted(i, all))
			i++;
		else if (i < pull.n_chunks && pull_may_ask())
			rc = pull_ask(i++);
		else
			rc = take_one(all);
	}
	return rc < 0 ? rc : 0;
}

long pull_contents(bool all)
{
	long rc = pull_map();

	if (rc < 0)
		return rc;
	rc = take_chunks(all);
	pull_unmap();
	for (uint32_t i = 0; i < pull.n_chunks; i++)
		pull.state[i] = pull.first[i] != 0 ? PULL_IN : PULL_OUT;
	return rc;
}

void pull_forget(void)
{
	(void)CALL2(__NR_munmap, WINDOW_PULL, next_room - WINDOW_PULL);
}

void pull_end(void)
{
	if (!pull.on)
		return;
	pull.on = false;
	(void)CALL1(__NR_close, pull.requests);
	(void)CALL1(__NR_close, pull.slots);
	for (uint32_t i = 0; i < pull.n; i++) {
		(void)CALL1(__NR_close, pull.pipes[i]);
		(void)CALL1(__NR_close, pull.credits[i]);
	}
}

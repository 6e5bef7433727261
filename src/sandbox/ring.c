/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/ring.h"
#include "base/ablate.h"

#include <string.h>

#define RING_MIN          4096
#define RING_SEGMENTS_MIN 16

void ring_init(struct ring *r, size_t max)
{
	size_t size = RING_MIN;

	if (ablated("ring_bound"))
		max = (size_t)1 << 30;
	while (size < max)
		size *= 2;
	*r = (struct ring){ .max = size };
}

void ring_fini(struct ring *r)
{
	free(r->bytes);
	free(r->segments);
	*r = (struct ring){ .max = r->max };
}

static void copy_in(struct ring *r, uint64_t offset, const char *from, size_t n)
{
	size_t at = (size_t)(offset & (r->cap - 1)), head = r->cap - at < n ? r->cap - at : n;

	memcpy(r->bytes + at, from, head);
	memcpy(r->bytes, from + head, n - head);
}

static void grow(struct ring *r, size_t want)
{
	struct ring bigger = *r;

	bigger.cap = r->cap != 0 ? r->cap : RING_MIN;
	while (bigger.cap < want && bigger.cap < r->max)
		bigger.cap *= 2;
	if (bigger.cap == r->cap)
		return;
	bigger.bytes = xalloc(bigger.cap);
	for (uint64_t at = r->start; at < r->end;) {
		size_t n = r->cap - (size_t)(at & (r->cap - 1));

		if (n > r->end - at)
			n = (size_t)(r->end - at);
		copy_in(&bigger, at, r->bytes + (at & (r->cap - 1)), n);
		at += n;
	}
	free(r->bytes);
	*r = bigger;
}

static struct ring_segment *segment_at(const struct ring *r, size_t i)
{
	return &r->segments[(r->first + i) & (r->segments_cap - 1)];
}

static void drop_before(struct ring *r, uint64_t offset)
{
	if (offset > r->start)
		r->start = offset;
	while (r->n_segments > 0 && segment_at(r, 0)->end <= r->start) {
		r->first = (r->first + 1) & (r->segments_cap - 1);
		r->n_segments--;
	}
}

/* Output that changes stream at every byte must not need more memory for segments than for itself. */
static void make_segment_room(struct ring *r)
{
	size_t cap = r->segments_cap != 0 ? r->segments_cap * 2 : RING_SEGMENTS_MIN;
	struct ring_segment *bigger;

	if (r->n_segments < r->segments_cap)
		return;
	if (cap * sizeof(*bigger) > r->max) {
		drop_before(r, segment_at(r, 0)->end);
		return;
	}
	bigger = xalloc(cap * sizeof(*bigger));
	for (size_t i = 0; i < r->n_segments; i++)
		bigger[i] = *segment_at(r, i);
	free(r->segments);
	r->segments = bigger;
	r->segments_cap = cap;
	r->first = 0;
}

static void add_segment(struct ring *r, enum ring_stream stream, uint64_t end)
{
	struct ring_segment *last = r->n_segments > 0 ? segment_at(r, r->n_segments - 1) : NULL;

	if (last != NULL && last->stream == stream) {
		last->end = end;
		return;
	}
	make_segment_room(r);
	r->n_segments++;
	*segment_at(r, r->n_segments - 1) = (struct ring_segment){ .end = end, .stream = stream };
}

void ring_add(struct ring *r, enum ring_stream stream, const void *bytes, size_t n)
{
	const char *p = bytes;
	size_t held = (size_t)(r->end - r->start);

	if (n == 0)
		return;
	grow(r, held + n);
	add_segment(r, stream, r->end + n);
	if (n > r->cap) {
		p += n - r->cap;
		r->end += n - r->cap;
		n = r->cap;
	}
	if (r->end + n > r->cap)
		drop_before(r, r->end + n - r->cap);
	copy_in(r, r->end, p, n);
	r->end += n;
}

size_t ring_space(const struct ring *r, uint64_t keep)
{
	uint64_t held = keep < r->end ? r->end - keep : 0;

	return held >= r->max ? 0 : r->max - (size_t)held;
}

size_t ring_read(const struct ring *r, uint64_t offset, size_t max, enum ring_stream *ret_stream,
	const char **ret_bytes)
{
	size_t low = 0, high = r->n_segments, at, n;

	if (offset < r->start || offset >= r->end)
		return 0;
	while (low < high) { /* first segment that ends behind @offset */
		size_t middle = low + (high - low) / 2;

		if (segment_at(r, middle)->end <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	at = (size_t)(offset & (r->cap - 1));
	n = (size_t)(segment_at(r, low)->end - offset);
	if (n > r->cap - at)
		n = r->cap - at;
	if (n > max)
		n = max;
	*ret_stream = segment_at(r, low)->stream;
	*ret_bytes = r->bytes + at;
	return n;
}

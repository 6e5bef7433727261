/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/old_output.h"

void old_output_until(struct old_output *o, uint64_t until)
{
	if (o->known)
		return;
	o->known = true;
	o->until = until;
}

size_t old_output_put(struct old_output *o, bool second, uint64_t offset, const char *p, size_t n,
	struct buf *out)
{
	struct termquery *query = &o->sinks[second].query;
	size_t before = out->n + query->n, old = 0;

	if (o->sinks[second].answered && offset < o->until)
		old = o->until - offset < n ? (size_t)(o->until - offset) : n;
	termquery_strip(query, p, old, out);
	if (old < n) {
		termquery_end(query, out);
		buf_add(out, p + old, n - old);
	}
	return before + n - out->n - query->n;
}

void old_output_end(struct old_output *o, uint64_t offset)
{
	o->known = offset > 0 || (o->known && o->until == 0);
	if (o->until > offset)
		o->until = offset;
}

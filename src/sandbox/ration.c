/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/ration.h"

/* Who asks again has done before what it was granted. */
static void has_done(struct ration *r, int32_t thread)
{
	for (uint32_t i = 0; i < r->n_grants; i++) {
		if (r->grants[i].thread == thread)
			r->grants[i].thread = 0;
	}
}

/* What is seen has been done; what may be on its way is counted twice rather than not at all. */
static void look(struct ration *r, const struct ration_view *view)
{
	uint32_t n = 0;

	r->granted = 0;
	for (uint32_t i = 0; i < r->n_grants; i++) {
		const struct ration_grant g = r->grants[i];

		if (g.thread == 0 || !view->on_its_way(view->ctx, g.thread))
			continue;
		r->grants[n++] = g;
		r->granted += g.n;
	}
	r->n_grants = n;
	/* behind the others: who is done before it is looked is seen */
	r->counted = view->count(view->ctx);
	r->known = r->counted != UINT64_MAX;
}

static bool fits(const struct ration *r, uint32_t n, uint64_t max)
{
	return r->known && r->n_grants < RATION_GRANTS && r->counted <= max &&
	       r->granted + n <= max - r->counted;
}

/* Nothing is ever given back, so it does not matter whose it is. */
static bool take_for_ever(struct ration *r, uint32_t n, uint64_t max)
{
	if (r->counted + n > max)
		return false;
	r->counted += n;
	return true;
}

/* Return: is there room for @n? */
static bool make_room(struct ration *r, uint32_t n, uint64_t max, const struct ration_view *view)
{
	if (fits(r, n, max))
		return true;
	if (view->no_look || view->now_ns < r->full_until_ns)
		return false;
	look(r, view);
	if (fits(r, n, max))
		return true;
	r->full_until_ns = view->now_ns + view->rest_ns;
	return false;
}

bool ration_take(
	struct ration *r, int32_t thread, uint32_t n, uint64_t max, const struct ration_view *view)
{
	if (view->count == NULL)
		return take_for_ever(r, n, max);
	has_done(r, thread);
	if (!make_room(r, n, max, view))
		return false;
	r->grants[r->n_grants++] = (struct ration_grant){ thread, n };
	r->granted += n;
	return true;
}

void ration_give_back(struct ration *r, uint32_t n)
{
	r->counted -= n;
}

void ration_add(struct ration *r, uint32_t n)
{
	r->counted += n;
}

uint32_t ration_sockets(uint64_t memory, uint64_t queue)
{
	uint64_t n = memory == 0 || queue == 0 ? RATION_SOCKETS_MAX : memory / 8 / (2 * queue);

	if (n < RATION_SOCKETS_MIN)
		return RATION_SOCKETS_MIN;
	return n > RATION_SOCKETS_MAX ? RATION_SOCKETS_MAX : (uint32_t)n;
}

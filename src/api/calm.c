/* SPDX-License-Identifier: Apache-2.0 */
#include "api/calm.h"

void calm_changed(struct calm *c, uint64_t now_ns, bool lost)
{
	c->changed_ns = now_ns;
	if (!lost)
		return;
	c->quiet_ns = c->quiet_ns == 0 ? CALM_MIN_NS : 2 * c->quiet_ns;
	if (c->quiet_ns > CALM_MAX_NS)
		c->quiet_ns = CALM_MAX_NS;
}

void calm_used(struct calm *c)
{
	c->quiet_ns -= c->quiet_ns / 4;
	if (c->quiet_ns < CALM_MIN_NS / 16)
		c->quiet_ns = 0;
}

uint64_t calm_left_ns(const struct calm *c, uint64_t now_ns)
{
	uint64_t until = c->changed_ns + c->quiet_ns;

	return c->quiet_ns >= CALM_MIN_NS && until > now_ns ? until - now_ns : 0;
}

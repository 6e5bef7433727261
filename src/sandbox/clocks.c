/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/clocks.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/boot.h"

static uint64_t number(const json_t *then, const char *member)
{
	json_int_t n = json_integer_value(json_object_get(then, member));

	return n > 0 ? (uint64_t)n : 0;
}

static uint64_t missing(uint64_t then, uint64_t now)
{
	return then > now ? then - now : 0;
}

json_t *clocks_save(const struct clocks *ahead)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	json_t *o = json_pack("{s:s,s:I,s:I,s:I,s:I}", "boot", boot_id(&text), "monotonic_ns",
		(json_int_t)(clock_now_ns() + ahead->monotonic_ns), "boottime_ns",
		(json_int_t)(clock_boot_ns() + ahead->boottime_ns), "monotonic_ahead_ns",
		(json_int_t)ahead->monotonic_ns, "boottime_ahead_ns",
		(json_int_t)ahead->boottime_ns);

	if (o == NULL)
		abort();
	return o;
}

void clocks_load(const json_t *then, struct clocks *ret)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	uint64_t monotonic = number(then, "monotonic_ns"), boottime = number(then, "boottime_ns");
	const struct clocks were = { number(then, "monotonic_ahead_ns"),
		number(then, "boottime_ahead_ns") };
	const char *boot = json_string_value(json_object_get(then, "boot"));
	uint64_t now = clock_now_ns(), boot_now = clock_boot_ns();

	/* to whoever moves between time namespaces the machine's clocks step back without a start of it */
	if (boot != NULL && str_eq(boot, boot_id(&text)) && now + were.monotonic_ns >= monotonic &&
		boot_now + were.boottime_ns >= boottime)
		*ret = were;
	else
		*ret = (struct clocks){ missing(monotonic, now), missing(boottime, boot_now) };
}

uint64_t clocks_back_ns(const json_t *then)
{
	uint64_t monotonic = missing(number(then, "monotonic_ns"), clock_now_ns()),
		 boottime = missing(number(then, "boottime_ns"), clock_boot_ns());

	return monotonic > boottime ? monotonic : boottime;
}

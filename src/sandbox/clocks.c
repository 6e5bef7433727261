/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/clocks.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/boot.h"

static int64_t number(const json_t *then, const char *member)
{
	return json_integer_value(json_object_get(then, member));
}

/* What a clock said; 0 = it is not known. */
static int64_t said(const json_t *then, const char *member)
{
	int64_t n = number(then, member);

	return n > 0 ? n : 0;
}

static int64_t now_ns(void)
{
	return (int64_t)clock_now_ns();
}

static int64_t boot_now_ns(void)
{
	return (int64_t)clock_boot_ns();
}

static int64_t missing(int64_t then, int64_t now)
{
	return then > now ? then - now : 0;
}

json_t *clocks_save(const struct clocks *ahead)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	json_t *o = json_pack("{s:s,s:I,s:I,s:I,s:I}", "boot", boot_id(&text), "monotonic_ns",
		(json_int_t)(now_ns() + ahead->monotonic_ns), "boottime_ns",
		(json_int_t)(boot_now_ns() + ahead->boottime_ns), "monotonic_ahead_ns",
		(json_int_t)ahead->monotonic_ns, "boottime_ahead_ns",
		(json_int_t)ahead->boottime_ns);

	if (o == NULL)
		abort();
	return o;
}

void clocks_load(const json_t *then, bool stood, struct clocks *ret)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	const int64_t monotonic = said(then, "monotonic_ns"), boottime = said(then, "boottime_ns"),
		      now = now_ns(), boot_now = boot_now_ns();
	const struct clocks were = { number(then, "monotonic_ahead_ns"),
		number(then, "boottime_ahead_ns") };
	const char *boot = json_string_value(json_object_get(then, "boot"));

	/* to whoever moves between time namespaces the machine's clocks step back without a start of it */
	if (boot != NULL && str_eq(boot, boot_id(&text)) && now + were.monotonic_ns >= monotonic &&
		boot_now + were.boottime_ns >= boottime)
		*ret = were;
	else
		*ret = (struct clocks){ missing(monotonic, now), missing(boottime, boot_now) };
	if (stood && monotonic != 0)
		ret->monotonic_ns = monotonic - now;
}

uint64_t clocks_back_ns(const json_t *then)
{
	int64_t monotonic = missing(said(then, "monotonic_ns"), now_ns()),
		boottime = missing(said(then, "boottime_ns"), boot_now_ns());

	return (uint64_t)(monotonic > boottime ? monotonic : boottime);
}

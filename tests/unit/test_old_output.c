/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "base/str.h"
#include "prog/cay/old_output.h"

#define ASKS "<\033[6n>"

static struct buf out[2] = { { .max = 1 << 20 }, { .max = 1 << 20 } };

/* What comes of ASKS, which begins at @offset. */
static const char *put(struct old_output *o, uint64_t offset)
{
	buf_reset(&out[0]);
	(void)old_output_put(o, false, offset, ASKS, strlen(ASKS), &out[0]);
	return buf_cstr(&out[0]);
}

TEST(what_is_old_is_not_asked_again)
{
	struct old_output o = { .sinks[0].answered = true };

	old_output_until(&o, strlen(ASKS));
	old_output_until(&o, UINT64_MAX); /* it was said */
	check_str(put(&o, 0), "<>");
	check_str(put(&o, strlen(ASKS)), ASKS);
}

TEST(a_connection_that_brought_nothing_leaves_it_to_the_next_to_say_what_is_old)
{
	struct old_output o = { .sinks[0].answered = true };

	old_output_end(&o, 0);
	old_output_until(&o, UINT64_MAX);
	old_output_end(&o, 0);
	old_output_until(&o, strlen(ASKS));
	check_str(put(&o, 0), "<>");
	check_str(put(&o, strlen(ASKS)), ASKS);
}

TEST(what_was_said_to_be_new_stays_so_though_it_did_not_come)
{
	struct old_output o = { .sinks[0].answered = true };

	old_output_until(&o, 0);
	old_output_end(&o, 0);
	old_output_until(&o, strlen(ASKS));
	check_str(put(&o, 0), ASKS);
}

TEST(what_comes_behind_the_first_output_is_new)
{
	struct old_output o = { .sinks[0].answered = true };

	check_str(put(&o, 0), ASKS);
	old_output_end(&o, strlen(ASKS));
	old_output_until(&o, UINT64_MAX);
	check_str(put(&o, strlen(ASKS)), ASKS);
}

TEST(each_sink_is_looked_at_by_itself)
{
	for (size_t terminal = 0; terminal < 2; terminal++) {
		struct old_output o = { 0 };

		o.sinks[terminal].answered = true;
		buf_reset(&out[0]);
		buf_reset(&out[1]);
		old_output_until(&o, UINT64_MAX);
		/* in the middle of the one comes the other */
		check_int(old_output_put(&o, false, 0, ASKS, 3, &out[0]), 0);
		check_int(old_output_put(&o, true, 3, ASKS, strlen(ASKS), &out[1]),
			terminal == 1 ? strlen(ASKS) - 2 : 0);
		check_int(old_output_put(
				  &o, false, 3 + strlen(ASKS), &ASKS[3], strlen(ASKS) - 3, &out[0]),
			terminal == 0 ? strlen(ASKS) - 2 : 0);
		for (size_t i = 0; i < 2; i++)
			check_str(buf_cstr(&out[i]), i == terminal ? "<>" : ASKS);
	}
}

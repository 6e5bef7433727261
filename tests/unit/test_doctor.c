/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/doctor.h"
#include "sys/feature.h"
#include "t.h"

static json_t *report(const char *state)
{
	json_t *r = NULL;

	check_int(doctor_report(&r, state, getuid()), 0);
	return r;
}

static json_t *find(json_t *r, const char *id)
{
	json_t *c;
	size_t i;

	json_array_foreach (json_object_get(r, "checks"), i, c) {
		if (strcmp(json_string_value(json_object_get(c, "id")), id) == 0)
			return c;
	}
	return NULL;
}

static bool filled(json_t *c, const char *member)
{
	const char *s = json_string_value(json_object_get(c, member));

	return s != NULL && s[0] != '\0';
}

TEST(every_check_says_what_it_found_and_each_failed_one_how_to_get_it)
{
	json_t *r = report("/tmp"), *c;
	size_t i;

	json_array_foreach (json_object_get(r, "checks"), i, c) {
		bool ok = json_is_true(json_object_get(c, "ok"));

		check(filled(c, "id") && filled(c, "level") && filled(c, "what"));
		check(filled(c, "found"));
		check_int(filled(c, "fix"), !ok);
		check_int(filled(c, "lost"), !ok);
		check(find(r, json_string_value(json_object_get(c, "id"))) ==
			c); /* ids are unique */
	}
	check(i >= 40);
	json_decref(r);
}

TEST(a_missing_required_feature_makes_the_report_not_ok)
{
	json_t *r;

	check(setenv("CAY_WITHOUT", "overlay", 1) == 0);
	feature_forget();
	r = report("/tmp");
	check(json_is_false(json_object_get(r, "ok")));
	check(json_is_false(json_object_get(find(r, "overlay"), "ok")));
	check_str(json_string_value(json_object_get(find(r, "overlay"), "level")), "required");
	check_str(json_string_value(json_array_get(json_object_get(r, "withheld"), 0)), "overlay");
	json_decref(r);
	check(unsetenv("CAY_WITHOUT") == 0);
	feature_forget();
}

TEST(a_missing_optional_feature_leaves_it_as_it_was)
{
	json_t *with = report("/tmp"), *without;

	check(setenv("CAY_WITHOUT", "all", 1) == 0);
	feature_forget();
	without = report("/tmp");
	check_int(json_is_true(json_object_get(with, "ok")),
		json_is_true(json_object_get(without, "ok")));
	check(json_is_false(json_object_get(find(without, "statmount"), "ok")));
	json_decref(with);
	json_decref(without);
	check(unsetenv("CAY_WITHOUT") == 0);
	feature_forget();
}

TEST(a_state_directory_that_does_not_exist_yet_is_judged_by_its_parent)
{
	json_t *r = report("/tmp/cay-no-such/a/b");
	const char *found = json_string_value(json_object_get(find(r, "state_space"), "found"));

	check(found != NULL && strncmp(found, "/tmp:", 5) == 0);
	check_str(json_string_value(json_object_get(r, "state")), "/tmp/cay-no-such/a/b");
	json_decref(r);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/feature.h"
#include "t.h"

TEST(every_cell_of_the_table_is_filled)
{
	for (enum feature f = 0; f < FEATURE_COUNT; f++) {
		const struct feature_info *info = feature_info(f);

		check(info->id != NULL && info->id[0] != '\0');
		check(info->what != NULL && info->what[0] != '\0');
		check(info->lost != NULL && info->lost[0] != '\0');
		check(info->fix != NULL && info->fix[0] != '\0');
		check(info->since >= 300 && info->since < 2000);
		check_int(feature_find(info->id), f);
	}
}

TEST(an_unknown_id_is_not_found)
{
	check_int(feature_find("no_such_feature"), FEATURE_COUNT);
	check_int(feature_find(""), FEATURE_COUNT);
}

TEST(a_number_outside_the_table_is_a_bug)
{
	check_aborts((void)feature_has(FEATURE_COUNT));
	check_aborts((void)feature_info(FEATURE_COUNT));
}

TEST(named_features_are_withheld_and_others_are_not)
{
	feature_forget();
	check(setenv("CAY_WITHOUT", "memfd_noexec,seccomp", 1) == 0);
	check(feature_withheld(FEATURE_MEMFD_NOEXEC));
	check(feature_withheld(FEATURE_SECCOMP));
	check(!feature_withheld(FEATURE_OVERLAY));
	check(!feature_has(FEATURE_MEMFD_NOEXEC));
	check(!feature_has(FEATURE_SECCOMP));
	check(setenv("CAY_WITHOUT", "memfd_noexe,seccomps,,", 1) == 0);
	check(!feature_withheld(FEATURE_MEMFD_NOEXEC));
	check(!feature_withheld(FEATURE_SECCOMP));
	check(unsetenv("CAY_WITHOUT") == 0);
}

TEST(a_result_is_kept_until_forgotten)
{
	feature_forget();
	check(setenv("CAY_WITHOUT", "seccomp", 1) == 0);
	check(!feature_has(FEATURE_SECCOMP));
	check(unsetenv("CAY_WITHOUT") == 0);
	check(!feature_has(FEATURE_SECCOMP));
	feature_forget();
	check(feature_has(FEATURE_SECCOMP));
}

TEST(all_withholds_what_is_newer_than_the_floor_and_nothing_that_is_required)
{
	int withheld = 0;

	feature_forget();
	check(setenv("CAY_WITHOUT", "all", 1) == 0);
	for (enum feature f = 0; f < FEATURE_COUNT; f++) {
		const struct feature_info *info = feature_info(f);

		check_int(feature_withheld(f), info->since > 601);
		check(!feature_withheld(f) || info->level != FEATURE_LEVEL_REQUIRED);
		withheld += feature_withheld(f);
	}
	check(withheld >= 8);
	check(feature_landlock_abi() <= 2);
	check(unsetenv("CAY_WITHOUT") == 0);
	feature_forget();
}

TEST(procfs_cannot_be_id_mapped)
{
	int rc = feature_idmap_works("/proc");

	check(rc != 1); /* 0 as root, -EPERM for others: never a false yes */
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/doctor.h"
#include "sys/feature.h"
#include "t.h"

#include <sys/stat.h>

static json_t *report(const char *state)
{
	json_t *r = NULL;

	check_int(doctor_report(&r, state, getuid(), false), 0);
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

static const char *const fixes[] = {
#define FEATURE(NAME, id, probe, cost, since, level, what, lost, fix)    fix,
#define SETTING(NAME, id, file, compare, number, level, what, lost, fix) fix,
#define CHECK(NAME, id, level, what, lost, fix)                          fix,
#include "kernel.def"
#undef FEATURE
#undef SETTING
#undef CHECK
};

/* The file that @fix writes anew, up to its end or what follows; "" when it writes none. */
static void written(const char *fix, char *name, size_t size)
{
	const char *at = strstr(fix, "> /");

	(void)snprintf(name, size, "%.*s", at != NULL ? (int)strcspn(at + 2, " ;)") : 0,
		at != NULL ? at + 2 : "");
}

TEST(no_fix_writes_over_another_ones_file)
{
	char one[200], other[200];
	int some = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fixes); i++) {
		written(fixes[i], one, sizeof(one));
		some += one[0] != '\0';
		for (size_t j = i + 1; one[0] != '\0' && j < ARRAY_SIZE(fixes); j++) {
			written(fixes[j], other, sizeof(other));
			check(strcmp(one, other) != 0);
		}
	}
	check(some >= 4);
}

static const struct doctor_group no_group = { .pids = DOCTOR_UNREAD };

TEST(limits_that_are_too_low_are_raised_and_no_others)
{
	static const char *const names[DOCTOR_LIMITS] = { "kernel.pid_max", "kernel.threads-max",
		"fs.file-max", "user.max_user_namespaces", "user.max_mnt_namespaces",
		"net.core.bpf_jit_limit" };

	for (unsigned int low = 0; low < 1U << DOCTOR_LIMITS; low++) {
		uint64_t values[DOCTOR_LIMITS];
		struct finding f = { 0 };

		for (unsigned int i = 0; i < DOCTOR_LIMITS; i++)
			values[i] = (low >> i & 1) != 0 ? 60 : UINT64_MAX / 2;
		doctor_limits(values, &no_group, &f);
		check_int(f.ok, low == 0);
		check_int(f.fix[0] == '\0', low == 0);
		for (unsigned int i = 0; i < DOCTOR_LIMITS; i++)
			check_int(strstr(f.fix, names[i]) != NULL, low >> i & 1);
	}
}

TEST(a_limit_that_is_raised_suffices)
{
	uint64_t values[DOCTOR_LIMITS] = { 1, 1, 1, 1, 1, 1 };
	struct finding f = { 0 }, again = { 0 };
	const char *at;

	doctor_limits(values, &no_group, &f);
	at = f.fix;
	for (unsigned int i = 0; i < DOCTOR_LIMITS; i++) {
		at = strchr(at, '=');
		check(at != NULL && sscanf(at++, "=%lu", &values[i]) == 1);
	}
	doctor_limits(values, &no_group, &again);
	check(again.ok);
}

TEST(a_limit_that_nobody_could_read_is_not_judged)
{
	uint64_t values[DOCTOR_LIMITS] = { DOCTOR_UNREAD, 1 << 20, DOCTOR_UNREAD, 1 << 20, 1 << 20,
		DOCTOR_UNREAD };
	struct finding f = { 0 };

	doctor_limits(values, &no_group, &f);
	check(f.ok);
	check(strstr(f.found, "pid_max") == NULL && strstr(f.found, "threads-max") != NULL);
}

/* A tenth of 24 GiB in kibibytes, as the kernel sets it: one sandbox of 2 GiB opens as many. */
TEST(files_that_one_sandbox_can_take_are_too_few)
{
	uint64_t values[DOCTOR_LIMITS] = { 1 << 22, 1 << 20, 2466177, 1 << 20, 1 << 20, 1 << 30 };
	struct finding f = { 0 };

	doctor_limits(values, &no_group, &f);
	check(!f.ok);
	check(strstr(f.found, "one sandbox can take") != NULL);
	check(strcmp(f.fix, "sysctl -w fs.file-max=9223372036854775807") == 0);
	values[2] = 12 << 20;
	doctor_limits(values, &no_group, &f);
	check(f.ok);
}

static uint64_t ample[DOCTOR_LIMITS] = { 1 << 22, 1 << 20, 12 << 20, 1 << 20, 1 << 20, 1 << 30 };

TEST(a_group_that_lets_sandboxes_have_few_processes_is_named_with_whom_to_ask)
{
	struct doctor_group group = { .pids = 60,
		.path = "/sys/fs/cgroup/user.slice/user-7.slice" };
	struct finding f = { 0 };

	doctor_limits(ample, &group, &f);
	check(!f.ok);
	check(strstr(f.found, "user-7.slice = 60: room for 10 sandboxes") != NULL);
	check_str(f.fix, "systemctl set-property user-7.slice TasksMax=infinity");
	(void)snprintf(group.path, sizeof(group.path),
		"/sys/fs/cgroup/user.slice/user-7.slice/user@7.service");
	doctor_limits(ample, &group, &f);
	check_str(f.fix, "systemctl set-property user@7.service TasksMax=infinity");
	(void)snprintf(group.path, sizeof(group.path),
		"/sys/fs/cgroup/user.slice/user-7.slice/user@7.service/app.slice/cayd.service");
	doctor_limits(ample, &group, &f);
	check_str(f.fix, "systemctl --user set-property cayd.service TasksMax=infinity");
	(void)snprintf(group.path, sizeof(group.path), "/sys/fs/cgroup");
	doctor_limits(ample, &group, &f);
	check_str(f.fix, "echo max > /sys/fs/cgroup/pids.max");
	group.pids = 1 << 20;
	doctor_limits(ample, &group, &f);
	check(f.ok);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	check(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

TEST(the_least_limit_of_a_group_and_those_above_it_counts)
{
	char top[] = "/tmp/cay-test-XXXXXX", path[64];
	struct doctor_group group;

	check(mkdtemp(top) != NULL);
	(void)snprintf(path, sizeof(path), "%s/a", top);
	check(mkdir(path, 0700) == 0);
	(void)snprintf(path, sizeof(path), "%s/pids.max", top);
	put(path, "70\n");
	(void)snprintf(path, sizeof(path), "%s/a/pids.max", top);
	put(path, "max\n");
	(void)snprintf(path, sizeof(path), "%s/a/b", top); /* one that is not there yet */
	doctor_group_find(&group, path);
	check_int(group.pids, 70);
	check_str(group.path, top);
	(void)snprintf(path, sizeof(path), "%s/a/pids.max", top);
	put(path, "60\n");
	(void)snprintf(path, sizeof(path), "%s/a", top);
	doctor_group_find(&group, path);
	check_int(group.pids, 60);
	check_str(group.path, path);
	doctor_group_find(&group, "/tmp");
	check(group.pids == DOCTOR_UNREAD);
	(void)snprintf(path, sizeof(path), "exec rm -r %s", top);
	check_int(system(path), 0);
}

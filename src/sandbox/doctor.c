/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/doctor.h"
#include "base/str.h"
#include "sandbox/filters.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/utsname.h>

struct row {
	const char *id;
	enum feature_level level;
	const char *what, *lost, *fix;
};

enum compare { AT_LEAST, AT_MOST, EQUAL };

static const struct {
	struct row row;
	const char *path;
	enum compare compare;
	uint64_t number;
} settings[] = {
#define SETTING(NAME, wire, file, cmp, want, lvl, why, without, remedy) \
	{ .row = { wire, FEATURE_LEVEL_##lvl, why, without, remedy }, \
		.path = "/proc/sys/" file, \
		.compare = (cmp), \
		.number = (want) },
#include "kernel.def"
#undef SETTING
};

static const struct row checks[DOCTOR_CHECK_COUNT] = {
#define CHECK(NAME, wire, lvl, why, without, remedy) \
	[DOCTOR_##NAME] = { wire, FEATURE_LEVEL_##lvl, why, without, remedy },
#include "kernel.def"
#undef CHECK
};

void finding_set(struct finding *f, bool ok, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(f->found, sizeof(f->found), fmt, ap);
	va_end(ap);
	f->ok = ok;
}

static const char *level_name(enum feature_level level)
{
	static const char *const names[] = { [FEATURE_LEVEL_REQUIRED] = "required",
		[FEATURE_LEVEL_RECOMMENDED] = "recommended",
		[FEATURE_LEVEL_INFO] = "info" };

	return names[level];
}

/* Texts come from the table and from the kernel; jansson refuses what is not UTF-8, so found text is made so. */
static json_t *text(const char *s)
{
	json_t *j = json_string(s);

	return j != NULL ? j : json_string("(not text)");
}

static int add_row(json_t *list, bool *ok, const struct row *row, const struct finding *f)
{
	json_t *check = json_pack("{ss sb ss ss so}", "id", row->id, "ok", f->ok, "level",
		level_name(row->level), "what", row->what, "found", text(f->found));

	if (check == NULL)
		return -ENOMEM;
	if (!f->ok) {
		(void)json_object_set_new(check, "lost", text(row->lost));
		(void)json_object_set_new(
			check, "fix", text(f->fix[0] != '\0' ? f->fix : row->fix));
		*ok = *ok && row->level != FEATURE_LEVEL_REQUIRED;
	}
	return json_array_append_new(list, check) < 0 ? -ENOMEM : 0;
}

/* Features that only one mode needs say so instead of failing in the other. */
static bool other_mode(const struct doctor *d, enum feature f)
{
	if (f == FEATURE_IDMAPPED_MOUNTS)
		return !d->root;
	return f == FEATURE_OVERLAY_IN_USERNS && d->root;
}

static void find_inherited(struct finding *f, uint32_t n)
{
	finding_set(f, false,
		"does not work here: all that is started here begins under %u system call filter%s of whoever starts it",
		n, n == 1 ? "" : "s");
	(void)snprintf(f->fix, sizeof(f->fix), "%s",
		"start the server under no system call filter: in a systemd unit without SystemCallFilter=, SystemCallArchitectures=, Restrict…=, LockPersonality=, MemoryDenyWriteExecute= and Protect…=, in a container with an unconfined profile (docker: --security-opt seccomp=unconfined)");
}

static int add_feature(json_t *list, bool *ok, const struct doctor *d, enum feature feature)
{
	const struct feature_info *info = feature_info(feature);
	struct row row = { info->id, info->level, info->what, info->lost, info->fix };
	struct finding f = { 0 };

	if (feature_withheld(feature))
		finding_set(&f, false, "switched off by CAY_WITHOUT");
	else if (feature_has(feature))
		finding_set(&f, true, "works");
	else if (feature == FEATURE_PROGRAM_FILTERS && d->root && filter_inherited() > 0)
		find_inherited(&f, filter_inherited());
	else
		finding_set(&f, other_mode(d, feature), "does not work here%s",
			other_mode(d, feature) ? " and is not needed in this mode" : "");
	if (feature == FEATURE_LANDLOCK && f.ok)
		finding_set(&f, true, "works, ABI %d", feature_landlock_abi());
	return add_row(list, ok, &row, &f);
}

static bool compare_holds(enum compare compare, uint64_t have, uint64_t want)
{
	switch (compare) {
	case AT_LEAST:
		return have >= want;
	case AT_MOST:
		return have <= want;
	case EQUAL:
		return have == want;
	}
	return false;
}

static int add_setting(json_t *list, bool *ok, size_t i)
{
	static const char *const signs[] = { [AT_LEAST] = ">=", [AT_MOST] = "<=", [EQUAL] = "=" };
	struct finding f = { 0 };
	uint64_t have;
	int rc = file_read_u64_at(AT_FDCWD, settings[i].path, &have);

	if (rc == -ENOENT)
		finding_set(&f, true, "this kernel has no such switch");
	else if (rc < 0)
		finding_set(&f, true, "not readable: %s", strerror(-rc));
	else
		finding_set(&f, compare_holds(settings[i].compare, have, settings[i].number),
			"%s is %lu (wanted: %s %lu)", settings[i].path, have,
			signs[settings[i].compare], settings[i].number);
	return add_row(list, ok, &settings[i].row, &f);
}

static int add_check(json_t *list, bool *ok, const struct doctor *d, enum doctor_check check)
{
	struct finding f = { 0 };

	doctor_check(check, d, &f);
	return add_row(list, ok, &checks[check], &f);
}

static int add_all(json_t *list, bool *ok, const struct doctor *d)
{
	int rc = 0;

	for (enum doctor_check c = 0; rc == 0 && c < DOCTOR_CHECK_COUNT; c++)
		rc = add_check(list, ok, d, c);
	for (enum feature f = 0; rc == 0 && f < FEATURE_COUNT; f++)
		rc = add_feature(list, ok, d, f);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(settings); i++)
		rc = add_setting(list, ok, i);
	return rc;
}

/* Longest existing part of @state. */
static char *existing_parent(const char *state)
{
	char *path = str_dup(state);

	while (access(path, F_OK) < 0) {
		char *slash = strrchr(path, '/');

		if (slash == NULL || slash == path) {
			free(path);
			return str_dup("/");
		}
		*slash = '\0';
	}
	return path;
}

/* Root of the machine, not root of a container's or user's namespace: its map is the identity over all ids. */
static bool is_root(void)
{
	cleanup_buf struct buf map = BUF_INIT(65536);
	unsigned long inside, outside, count;

	if (geteuid() != 0 || file_read_at(AT_FDCWD, "/proc/self/uid_map", &map) < 0)
		return false;
	return sscanf(buf_cstr(&map), "%lu %lu %lu", &inside, &outside, &count) == 3 &&
	       inside == 0 && outside == 0 && count == UINT32_MAX;
}

static const char *mode_name(const struct doctor *d)
{
	struct finding f = { 0 };

	if (d->root)
		return "root";
	doctor_check(DOCTOR_SUBIDS, d, &f);
	return f.ok ? "rootless" : "rootless-single-uid";
}

static json_t *withheld(void)
{
	json_t *list = json_array();

	for (enum feature f = 0; f < FEATURE_COUNT; f++) {
		if (feature_withheld(f))
			(void)json_array_append_new(list, json_string(feature_info(f)->id));
	}
	return list;
}

/* Where root mode and rootless mode must differ. */
static json_t *modes(void)
{
	static const char *const rows[][3] = {
#define MODE(what, root, rootless) { what, root, rootless },
#include "modes.def"
#undef MODE
	};
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		(void)json_array_append_new(
			list, json_pack("{s:s, s:s, s:s}", "what", rows[i][0], "root", rows[i][1],
				      "rootless", rows[i][2]));
	return list;
}

int doctor_report(json_t **ret, const char *state, uid_t user, bool served)
{
	cleanup_free char *existing = existing_parent(state);
	struct doctor d = { .state = existing, .served = served, .root = is_root(), .user = user };
	struct utsname un = { 0 };
	json_t *list = json_array(), *report;
	bool ok = true;
	int rc = list == NULL ? -ENOMEM : add_all(list, &ok, &d);

	(void)uname(&un);
	if (rc < 0) {
		json_decref(list);
		return rc;
	}
	report = json_pack("{ss sb so so so so so}", "mode", mode_name(&d), "ok", ok, "kernel",
		text(un.release), "state", text(state), "withheld", withheld(), "checks", list,
		"modes", modes());
	if (report == NULL)
		return -ENOMEM;
	*ret = report;
	return 0;
}

/* An ordinary user's jobs are root of his server's namespace, whose map says who that is outside. */
static uid_t user_outside(void)
{
	cleanup_buf struct buf map = BUF_INIT(65536);
	unsigned int inside, outside;

	if (file_read_at(AT_FDCWD, "/proc/self/uid_map", &map) < 0 ||
		sscanf(buf_cstr(&map), "%u %u", &inside, &outside) != 2 || inside != getuid())
		return getuid();
	return outside;
}

int doctor_verb(struct job *job, json_t **ok, struct err *err)
{
	const char *state = job_text(job->request, "state", err);
	int rc;

	if (state == NULL)
		return -EINVAL;
	rc = doctor_report(ok, state, user_outside(), true);
	return rc < 0 ? err_raise_sys(err, rc, "look at this machine") : 0;
}

int doctor_main(const char *state)
{
	json_t *report = NULL;
	int rc = doctor_report(&report, state, getuid(), false);

	if (rc == 0 && (json_dumpf(report, stdout, JSON_INDENT(2)) < 0 || putchar('\n') < 0))
		rc = -EIO;
	if (rc < 0)
		fprintf(stderr, "doctor: %s\n", strerror(-rc));
	json_decref(report);
	return rc < 0 ? 125 : 0;
}

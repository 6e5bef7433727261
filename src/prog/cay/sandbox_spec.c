/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/sandbox_spec.h"
#include "base/credential.h"
#include "base/directories.h"
#include "base/str.h"
#include "io/terminal.h"
#include "prog/cay/git_worktree.h"
#include "prog/cay/mount_spec.h"
#include "prog/cay/policy_text.h"
#include "prog/cay/text.h"

#include <sys/stat.h>

#define IDLE_MAX_MS 31536000000ULL /* a year */
#define SHOWN_MAX   8              /* places that a warning names */

/* Adds "key=value" to @object. */
static int add_pair(struct cli *cli, enum cli_flag flag, const char *text, json_t *object)
{
	const char *equals = strchr(text, '=');
	cleanup_free char *key = NULL;

	if (equals == NULL || equals == text)
		return cli_refuse_value(cli, flag, text, "KEY=VALUE is wanted");
	key = str_dupf("%.*s", (int)(equals - text), text);
	if (json_object_set_new(object, key, json_string(equals + 1)) < 0)
		return cli_refuse_value(cli, flag, text, "not valid UTF-8");
	return 0;
}

/* "0.5" or "2": thousandths. */
static int parse_cpus(const char *s, uint64_t *ret)
{
	uint64_t whole = 0, part = 0, scale = 100;
	const char *p = s;

	for (; *p >= '0' && *p <= '9' && whole < 10000; p++)
		whole = whole * 10 + (uint64_t)(*p - '0');
	if (*p == '.') {
		for (p++; *p >= '0' && *p <= '9' && scale > 0; p++, scale /= 10)
			part += scale * (uint64_t)(*p - '0');
	}
	if (p == s || *p != '\0' || whole + part == 0)
		return -EINVAL;
	*ret = whole * 1000 + part;
	return 0;
}

static int add_limits(struct cli *cli, json_t *spec)
{
	static const struct {
		enum cli_flag flag;
		const char *member, *why;
	} rows[] = { { FLAG_MEMORY, "memory_bytes", "a size is wanted, for example 512M" },
		{ FLAG_DISK, "disk_bytes", "a size is wanted, for example 2G" },
		{ FLAG_PIDS, "pids", "a number is wanted" },
		{ FLAG_INODES, "inodes", "a number is wanted" },
		{ FLAG_CPUS, "cpu_millis", "a number of processors is wanted, for example 1.5" } };
	json_t *limits = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *text = cli_args_value(&cli->args, rows[i].flag);
		uint64_t v;
		int rc;

		if (text == NULL)
			continue;
		if (rows[i].flag == FLAG_PIDS || rows[i].flag == FLAG_INODES)
			rc = str_to_u64(text, 1, INT32_MAX, &v);
		else if (rows[i].flag == FLAG_CPUS)
			rc = parse_cpus(text, &v);
		else
			rc = str_to_size(text, &v);
		if (rc < 0 || v > INT64_MAX)
			return cli_refuse_value(cli, rows[i].flag, text, rows[i].why);
		if (limits == NULL) {
			limits = json_object();
			(void)json_object_set_new(spec, "limits", limits);
		}
		(void)json_object_set_new(limits, rows[i].member, json_integer((json_int_t)v));
	}
	return 0;
}

static int check_directory(struct cli *cli, const char *what, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_raise(&cli->err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DENIED,
			"%s '%s': %s", what, path, strerrordesc_np(errno));
	if (!S_ISDIR(st.st_mode))
		return err_raise(
			&cli->err, ERR_INVALID, "%s '%s': that is no directory", what, path);
	return 0;
}

/* The server follows no link on the way to a source: what it leads to now is asked for. */
static int find_real(struct cli *cli, const char *what, const char *path, char ret[PATH_MAX])
{
	int rc = check_directory(cli, what, path);

	if (rc == 0 && realpath(path, ret) == NULL)
		rc = err_raise_sys(&cli->err, -errno, "%s '%s'", what, path);
	return rc;
}

static int add_mount(json_t *spec, const char *source, const char *target, const char *mode)
{
	json_t *mounts = json_object_get(spec, "mounts");

	if (mounts == NULL) {
		mounts = json_array();
		(void)json_object_set_new(spec, "mounts", mounts);
	}
	return json_array_append_new(mounts,
		json_pack("{s:s, s:s, s:s}", "source", source, "target", target, "mode", mode));
}

static int add_mounts(struct cli *cli, json_t *spec, const char *cwd)
{
	const char *text;

	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_MOUNT, &pos)) != NULL;) {
		struct mount_spec m;
		char source[PATH_MAX];
		int rc = mount_spec_parse(text, cwd, &m, &cli->err);

		if (rc == 0)
			rc = find_real(cli, "--mount", m.source, source);
		if (rc < 0)
			return rc;
		if (str_eq(m.mode, "rw"))
			(void)dprintf(STDERR_FILENO,
				"cay: warning: a rw mount: what the command writes to '%s' is written to this machine, at once\n",
				source);
		if (add_mount(spec, source, m.target, m.mode) < 0)
			return cli_refuse_value(cli, FLAG_MOUNT, text, "not valid UTF-8");
	}
	return 0;
}

/* What is named through a link lies at that name inside: a mount, which has a source and a target. */
static int expose(json_t *spec, const char *path, const char *real)
{
	json_t *list = json_object_get(spec, "expose");

	if (!str_eq(path, real)) {
		json_t *mounts = add_mount(spec, real, path, "ro") < 0
					 ? NULL
					 : json_object_get(spec, "mounts");

		return json_object_set_new(json_array_get(mounts, json_array_size(mounts) - 1),
			"exposed", json_true());
	}
	if (list == NULL) {
		list = json_array();
		(void)json_object_set_new(spec, "expose", list);
	}
	return json_array_append_new(list, json_string(path));
}

static int add_exposed(struct cli *cli, json_t *spec, const char *cwd)
{
	const char *text;

	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_EXPOSE, &pos)) != NULL;) {
		char path[PATH_MAX], real[PATH_MAX];
		const char *what;
		int rc;

		if (path_absolute(cwd, text, path) < 0)
			return cli_refuse_value(cli, FLAG_EXPOSE, text, "no usable path");
		what = credential_exposed(path);
		if (what != NULL)
			return err_hint(&cli->err,
				err_raise(&cli->err, ERR_DENIED, "--expose '%s': %s lie there",
					path, what),
				"expose the directory of the program alone; --env KEY hands in one value");
		rc = find_real(cli, "--expose", path, real);
		if (rc < 0)
			return rc;
		if (expose(spec, path, real) < 0)
			return cli_refuse_value(cli, FLAG_EXPOSE, text, "not valid UTF-8");
	}
	return 0;
}

/* Is some --mount at @cwd, so that the directory itself is not laid there? */
static bool mounted_by_hand(const json_t *spec, const char *cwd)
{
	json_t *m;
	size_t i;

	json_array_foreach (json_object_get(spec, "mounts"), i, m) {
		if (str_eq(cli_string(m, "target", ""), cwd))
			return true;
	}
	return false;
}

/* A directory of the machine itself, not of a project. It is in the host image already; laid there again it would show what the image hides. */
static bool of_the_machine(const char *path)
{
	static const char *const whole[] = { "/", "/home", "/usr", "/var", "/var/lib", "/opt",
		"/srv" };
	static const char *const below[] = { "/etc", "/run", "/boot", "/dev", "/proc", "/sys" };

	for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
		if (str_eq(path, whole[i]))
			return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
		if (str_path_under(path, below[i]))
			return true;
	}
	return false;
}

/* Of a git worktree the repository too, or git inside finds none. */
static int add_repository(struct cli *cli, json_t *spec, const char *cwd)
{
	cleanup_free char *home = directories_home();
	char path[PATH_MAX];

	if (!git_worktree_repository(cwd, path) || mounted_by_hand(spec, path) ||
		of_the_machine(path) || credential_at(path) != NULL ||
		(home != NULL && str_path_under(home, path)))
		return 0;
	return add_mount(spec, path, path, "cow") < 0
		       ? err_raise(&cli->err, ERR_INVALID,
				 "the name of the repository is not valid UTF-8")
		       : 0;
}

/* The current directory copy-on-write at its own path, and as a label, by which diff and apply find the run. */
static int add_cwd(struct cli *cli, json_t *spec, const char *cwd, char **ret_cwd)
{
	cleanup_free char *home = directories_home();
	const char *what;
	json_t *labels = json_object_get(spec, "labels");
	bool left_out = cli_args_has(&cli->args, FLAG_NO_CWD);

	if (cwd == NULL && left_out)
		return 0;
	if (cwd == NULL)
		return cli_no_cwd(cli, "go to one that is there, or leave it out with --no-cwd");
	if (strlen(cwd) <= LAST_RUN_CWD_MAX) {
		if (labels == NULL)
			(void)json_object_set_new(spec, "labels", labels = json_object());
		(void)json_object_set_new(labels, "cay.run.cwd", json_string(cwd));
	}
	if (left_out || of_the_machine(cwd) || !str_eq(cli_string(spec, "image", "host"), "host"))
		return 0;
	if (mounted_by_hand(spec, cwd)) {
		*ret_cwd = str_dup(cwd);
		return 0;
	}
	what = credential_at(cwd);
	if (what != NULL || (home != NULL && str_path_under(home, cwd)))
		return err_hint(&cli->err,
			err_raise(&cli->err, ERR_DENIED, "the current directory '%s' %s%s", cwd,
				what != NULL ? "shows " : "is or holds your home directory",
				what != NULL ? what : ""),
			"go to a project's directory, or leave it out with --no-cwd");
	if (add_mount(spec, cwd, cwd, "cow") < 0)
		return err_raise(
			&cli->err, ERR_INVALID, "the current directory's name is not valid UTF-8");
	*ret_cwd = str_dup(cwd);
	return add_repository(cli, spec, cwd);
}

int settings_spec_add(struct cli *cli, json_t *spec)
{
	const char *checkpoint = cli_args_value(&cli->args, FLAG_CHECKPOINT),
		   *idle = cli_args_value(&cli->args, FLAG_IDLE);
	uint64_t idle_ms = 0;

	if (checkpoint != NULL && !str_eq(checkpoint, "each-exec") && !str_eq(checkpoint, "none"))
		return cli_refuse_value(
			cli, FLAG_CHECKPOINT, checkpoint, "each-exec or none is wanted");
	if (checkpoint != NULL)
		(void)json_object_set_new(spec, "checkpoint", json_string(checkpoint));
	if (idle != NULL && !str_eq(idle, "off") &&
		(str_to_duration(idle, &idle_ms) < 0 || idle_ms == 0 || idle_ms > IDLE_MAX_MS))
		return cli_refuse_value(
			cli, FLAG_IDLE, idle, "a duration is wanted, for example 10m, or off");
	if (idle != NULL)
		(void)json_object_set_new(spec, "idle_ms", json_integer((json_int_t)idle_ms));
	return 0;
}

static int add_words(struct cli *cli, json_t *spec)
{
	const char *name = cli_args_value(&cli->args, FLAG_NAME), *text,
		   *profile = cli_args_value(&cli->args, FLAG_PROFILE);
	json_t *labels = NULL;
	int rc;

	if (cli->args.n_positional > 0 &&
		json_object_set_new(spec, "image", json_string(cli->args.positional[0])) < 0)
		return err_raise(&cli->err, ERR_USAGE, "image '%s': not valid UTF-8",
			cli->args.positional[0]);
	if (name != NULL)
		(void)json_object_set_new(spec, "name", json_string(name));
	if (profile != NULL)
		(void)json_object_set_new(spec, "profile", json_string(profile));
	rc = settings_spec_add(cli, spec);
	if (rc < 0)
		return rc;
	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_LABEL, &pos)) != NULL;) {
		if (labels == NULL)
			(void)json_object_set_new(spec, "labels", labels = json_object());
		rc = add_pair(cli, FLAG_LABEL, text, labels);
		if (rc < 0)
			return rc;
	}
	return add_limits(cli, spec);
}

static int add_policy(struct cli *cli, json_t *spec, const char *what)
{
	json_t *text;
	int rc = policy_text(cli, what, &text);

	return rc < 0 ? rc : json_object_set_new(spec, "policy", text);
}

static int add_network(struct cli *cli, json_t *spec)
{
	const char *policy = cli_args_value(&cli->args, FLAG_POLICY), *text;
	json_t *list = json_array();

	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_ALLOW, &pos)) != NULL;) {
		if (json_array_append_new(list, json_string(text)) < 0) {
			json_decref(list);
			return cli_refuse_value(cli, FLAG_ALLOW, text, "not valid UTF-8");
		}
	}
	if (json_array_size(list) > 0)
		(void)json_object_set(spec, "allow", list);
	json_decref(list);
	return policy != NULL ? add_policy(cli, spec, policy) : 0;
}

static int add_env(struct cli *cli, json_t *spec)
{
	json_t *env = json_object();
	int rc = env_spec_add(cli, env);

	if (json_object_size(env) > 0)
		(void)json_object_set(spec, "env", env);
	json_decref(env);
	return rc;
}

void image_missing_explain(struct cli *cli)
{
	if (cli->err.code != ERR_NOT_FOUND || cli->args.n_positional == 0 ||
		cli->err.hint[0] != '\0')
		return;
	(void)err_hint(&cli->err, 0,
		"cay image ls lists the images; the name of a sandbox is given with --name %s",
		cli->args.positional[0]);
}

int sandbox_spec_make(struct cli *cli, json_t **ret, char **ret_cwd)
{
	cleanup_json json_t *spec = json_object();
	cleanup_free char *cwd = getcwd(NULL, 0);
	int rc;

	if (ret_cwd != NULL)
		*ret_cwd = NULL;
	rc = add_words(cli, spec);
	if (rc == 0)
		rc = add_mounts(cli, spec, cwd);
	if (rc == 0)
		rc = add_exposed(cli, spec, cwd);
	if (rc == 0)
		rc = add_network(cli, spec);
	/* the environment of a run is its command's */
	if (rc == 0 && ret_cwd == NULL)
		rc = add_env(cli, spec);
	if (rc == 0 && ret_cwd != NULL)
		rc = add_cwd(cli, spec, cwd, ret_cwd);
	if (rc == 0)
		*ret = json_incref(spec);
	return rc;
}

static void warn_not_shown(struct buf *out, const json_t *box, const char *end)
{
	const json_t *places = json_object_get(box, "not_shown"), *place;
	size_t n = json_array_size(places), i;

	if (n == 0)
		return;
	buf_fmt(out, "cay: warning: %s",
		n == 1 ? "another file system is mounted there, and its place is empty inside:"
		       : "other file systems are mounted there, and their places are empty inside:");
	json_array_foreach (places, i, place) {
		if (i == SHOWN_MAX)
			break;
		buf_str(out, i == 0 ? " '" : ", '");
		text_escape(out, json_string_value(place));
		buf_char(out, '\'');
	}
	if (n > SHOWN_MAX)
		buf_fmt(out, " and %zu more", n - SHOWN_MAX);
	buf_str(out, end);
}

static void warn_not_held(struct buf *out, const json_t *box, const char *end)
{
	static const struct {
		const char *name, *word;
	} limits[] = { { "memory_bytes", "memory" }, { "pids", "processes" },
		{ "cpu_millis", "processors" } };
	const json_t *names = json_object_get(box, "limits_not_held"), *name;
	size_t i;

	if (json_array_size(names) == 0)
		return;
	buf_str(out, "cay: warning: no control group here holds what was asked for:");
	json_array_foreach (names, i, name) {
		for (size_t k = 0; k < ARRAY_SIZE(limits); k++) {
			if (str_eq(json_string_value(name), limits[k].name))
				buf_fmt(out, "%s %s", i == 0 ? "" : ",", limits[k].word);
		}
	}
	buf_fmt(out, " (cay doctor)%s", end);
}

static void warn_without_effect(struct buf *out, const json_t *box, const char *end)
{
	const json_t *names = json_object_get(box, "settings_without_effect"), *name;
	size_t i;

	if (json_array_size(names) == 0)
		return;
	buf_str(out,
		"cay: warning: without a control group nothing can be frozen, so this does nothing:");
	json_array_foreach (names, i, name) {
		buf_str(out, i == 0 ? " " : ", ");
		buf_str(out, str_eq(json_string_value(name), "idle_ms") ? "--idle"
									: "--checkpoint each-exec");
	}
	buf_fmt(out, " (cay doctor)%s", end);
}

void sandbox_warnings(struct buf *out, const json_t *box, const char *end)
{
	warn_not_shown(out, box, end);
	warn_not_held(out, box, end);
	warn_without_effect(out, box, end);
}

void sandbox_warn(const json_t *box)
{
	struct buf warning = BUF_INIT(1U << 20);

	sandbox_warnings(&warning, box, "\n");
	(void)!write(STDERR_FILENO, warning.p, warning.n);
	buf_free(&warning);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "io/terminal.h"
#include "prog/cay/mount_spec.h"
#include "prog/cay/sandbox_spec.h"

#include <limits.h>

/* Is mount @m at the path that its source has outside, if only through links? */
static bool at_its_path(const json_t *m)
{
	const char *source = cli_string(m, "source", ""), *target = cli_string(m, "target", "/");
	cleanup_free char *real = str_eq(source, target) ? NULL : realpath(target, NULL);

	return str_eq(source, target) || (real != NULL && str_eq(source, real));
}

bool spec_brings(const json_t *spec, const char *dir)
{
	json_t *v;
	size_t i;

	json_array_foreach (json_object_get(spec, "expose"), i, v) {
		if (str_path_under(dir, json_string_value(v)))
			return true;
	}
	json_array_foreach (json_object_get(spec, "mounts"), i, v) {
		if (str_path_under(dir, cli_string(v, "target", "/")) && at_its_path(v))
			return true;
	}
	return false;
}

/* The entries of the caller's PATH that were brought in, before the usual ones; an exposed tool is found by its name then. */
static void add_path(const json_t *spec, json_t *env)
{
	const char *path = getenv("PATH");
	struct buf out = BUF_INIT(65536);

	for (const char *p = path != NULL ? path : ""; *p != '\0';) {
		size_t n = strcspn(p, ":");
		cleanup_free char *dir = str_dupf("%.*s", (int)n, p);

		if (str_path_clean(dir) && spec_brings(spec, dir))
			buf_fmt(&out, "%s:", dir);
		p += n;
		p += *p == ':';
	}
	if (out.n > 0) {
		buf_str(&out, STANDARD_PATH);
		(void)json_object_set_new(env, "PATH", json_string(buf_cstr(&out)));
	}
	buf_free(&out);
}

static void add_callers(const json_t *spec, bool tty, json_t *env)
{
	static const char *const kept[] = { "LANG", "TZ", "TERM", "COLORTERM" };

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		const char *value = getenv(kept[i]);

		/* What is no UTF-8 is left out. */
		if (value != NULL && (tty || i < 2))
			(void)json_object_set_new(env, kept[i], json_string(value));
	}
	if (spec != NULL)
		add_path(spec, env);
}

int env_spec_add(struct cli *cli, json_t *env)
{
	const char *text;

	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_ENV, &pos)) != NULL;) {
		const char *equals = strchr(text, '='), *value;
		cleanup_free char *key = NULL;

		key = str_dupf(
			"%.*s", equals != NULL ? (int)(equals - text) : (int)strlen(text), text);
		value = equals != NULL ? equals + 1 : getenv(key);
		if (*key == '\0')
			return err_raise(
				&cli->err, ERR_USAGE, "--env '%s': KEY=VALUE is wanted", text);
		if (value == NULL)
			return err_raise(
				&cli->err, ERR_USAGE, "--env %s: it is not set here either", text);
		if (json_object_set_new(env, key, json_string(value)) < 0)
			return err_raise(&cli->err, ERR_USAGE, "--env %s: not valid UTF-8", key);
	}
	return 0;
}

static int add_size(struct cli *cli, json_t *exec, enum cli_flag flag, const char *member)
{
	const char *text = cli_args_value(&cli->args, flag);
	uint64_t bytes;

	if (text == NULL)
		return 0;
	if (str_to_size(text, &bytes) < 0 || bytes == 0 || bytes > INT64_MAX)
		return cli_refuse_value(
			cli, flag, text, "a size is wanted, for example 512K, 64M, 2G");
	(void)json_object_set_new(exec, member, json_integer((json_int_t)bytes));
	return 0;
}

static int add_options(struct cli *cli, json_t *exec, const char *cwd)
{
	const char *user = cli_args_value(&cli->args, FLAG_USER),
		   *dir = cli_args_value(&cli->args, FLAG_CWD),
		   *timeout = cli_args_value(&cli->args, FLAG_TIMEOUT);
	char path[PATH_MAX];
	uint64_t ms;

	if (user != NULL)
		(void)json_object_set_new(exec, "user", json_string(user));
	if (dir != NULL) {
		if (path_absolute(cwd != NULL ? cwd : "/", dir, path) < 0)
			return err_raise(&cli->err, ERR_USAGE, "--cwd '%s': no usable path", dir);
		cwd = path;
	}
	if (cwd != NULL)
		(void)json_object_set_new(exec, "cwd", json_string(cwd));
	if (add_size(cli, exec, FLAG_KEEP_OUTPUT, "spill_bytes") < 0 ||
		add_size(cli, exec, FLAG_OUTPUT_RING, "ring_bytes") < 0)
		return -EINVAL;
	if (timeout == NULL)
		return 0;
	if (str_to_duration(timeout, &ms) < 0 || ms == 0 || ms > INT32_MAX * 1000ULL)
		return err_raise(&cli->err, ERR_USAGE,
			"--timeout '%s': a duration is wanted, for example 30s", timeout);
	(void)json_object_set_new(exec, "timeout_ms", json_integer((json_int_t)ms));
	return 0;
}

int exec_spec_make(struct cli *cli, char *const *command, const json_t *spec, const char *cwd,
	bool input, bool tty, json_t **ret)
{
	cleanup_json json_t *exec = json_object();
	json_t *argv = json_array(), *env = json_object();
	uint16_t rows, columns;
	int rc;

	(void)json_object_set_new(exec, "argv", argv);
	for (size_t i = 0; command[i] != NULL; i++) {
		if (json_array_append_new(argv, json_string(command[i])) < 0)
			return err_raise(
				&cli->err, ERR_INVALID, "argument %zu is not valid UTF-8", i);
	}
	(void)json_object_set_new(exec, "env", env);
	add_callers(spec, tty, env);
	rc = env_spec_add(cli, env);
	if (rc == 0)
		rc = add_options(cli, exec, cwd);
	if (rc < 0)
		return rc;
	if (input || tty)
		(void)json_object_set_new(exec, "stdin", json_true());
	if (tty) {
		terminal_size(STDIN_FILENO, &rows, &columns);
		(void)json_object_set_new(
			exec, "tty", json_pack("{s:i, s:i}", "rows", rows, "columns", columns));
	}
	*ret = json_incref(exec);
	return 0;
}

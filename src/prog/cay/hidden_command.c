/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay/hidden_command.c - why a command was not found inside that this machine has: what the kernel needs to execute it is hidden. That is the file, what it is a link to, or the
 * program that its first line names, which may be a link again.
 */
#include "prog/cay/hidden_command.h"
#include "base/credential.h"
#include "base/directories.h"
#include "base/str.h"
#include "prog/cay/sandbox_spec.h"

#include <fcntl.h>
#include <sys/stat.h>

#define NEEDED_MAX 4
#define LINE_MAX   256 /* the kernel reads no more */

/* Where the caller's PATH has @name; NULL when nowhere. Free with free(). */
static char *find_on_path(const char *name)
{
	const char *path = getenv("PATH");
	struct stat st;

	if (strchr(name, '/') != NULL)
		return name[0] == '/' && access(name, X_OK) == 0 ? str_dup(name) : NULL;
	for (const char *p = path != NULL ? path : ""; *p != '\0';) {
		size_t n = strcspn(p, ":");
		cleanup_free char *full = str_dupf("%.*s/%s", (int)n, p, name);

		if (p[0] == '/' && stat(full, &st) == 0 && S_ISREG(st.st_mode) &&
			access(full, X_OK) == 0)
			return TAKE_PTR(full);
		p += n;
		p += *p == ':';
	}
	return NULL;
}

/* The directory that holds a program and what it needs: above a "bin" unless that is a home's or may not be exposed, else its own. */
static char *place_of(const char *program)
{
	const char *slash = strrchr(program, '/');
	cleanup_free char *dir = str_dupf("%.*s", (int)(slash - program), program);

	if (str_ends(dir, "/bin") && !str_ends(dir, "/.local/bin")) {
		cleanup_free char *above = str_dupf("%.*s", (int)(strlen(dir) - 4), dir);
		cleanup_free char *home = directories_home();

		if (strchr(above + (*above != '\0'), '/') != NULL &&
			credential_exposed(above) == NULL &&
			(home == NULL || !str_path_under(home, above)))
			return TAKE_PTR(above);
	}
	return TAKE_PTR(dir);
}

/* A place whose programs the host image shows, as every image has its own there: what is not found was not hidden, and to expose it would lay this machine's over them. */
static bool of_the_image(const char *program)
{
	static const char *const places[] = { "/usr/bin", "/usr/sbin", "/bin", "/sbin" };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (str_path_under(program, places[i]))
			return true;
	}
	return false;
}

/* May others read it, and all above it? Of what they may not the host image shows nothing. */
static bool is_everybodys(const char *path)
{
	struct stat st;

	for (const char *p = path; (p = strchr(p + 1, '/')) != NULL;) {
		cleanup_free char *above = str_dupf("%.*s", (int)(p - path), path);

		if (stat(above, &st) < 0 || (st.st_mode & S_IROTH) == 0)
			return false;
	}
	return stat(path, &st) == 0 && (st.st_mode & S_IROTH) != 0;
}

static bool shown_by_host(const char *path)
{
	bool top = false, lib = !str_path_under(path, "/var/lib");

#define HOST_TOP(s)   top |= str_path_under(path, "/" s);
#define HOST_LIB(s)   lib |= str_path_under(path, "/var/lib/" s);
#define HOST_EMPTY(s) top &= !str_path_under(path, s);
#define HOST_HIDE(s)  top &= !str_path_under(path, s);
#define HOST_FILES(s) top &= !str_path_under(path, s);
#define HOST_DIR(s)
#define HOST_SCAN(s)
#define HOST_SHOW(s)
#define HOST_MADE(s)
#include "host-image.def"
	return top && lib && is_everybodys(path);
}

static bool is_host(const json_t *sandbox)
{
	return sandbox != NULL && str_eq(cli_string(sandbox, "image", "host"), "host");
}

static bool is_shown(const json_t *sandbox, const char *path)
{
	return spec_brings(sandbox, path) || (is_host(sandbox) && shown_by_host(path));
}

/* The program that the first line of @path names; NULL = none. */
static char *interpreter(const char *path)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char line[LINE_MAX + 1], *at = line + 2;
	ssize_t n = fd < 0 ? -1 : read(fd, line, LINE_MAX);

	if (n < 3 || memcmp(line, "#!", 2) != 0)
		return NULL;
	line[n] = '\0';
	at += strspn(at, " \t");
	at[strcspn(at, " \t\n")] = '\0';
	return str_path_clean(at) ? str_dup(at) : NULL;
}

/* What is there of it, in the order in which the kernel comes to it: by twos, as it is named and as it is. */
static void find_needed(const char *program, char *ret[NEEDED_MAX])
{
	char *by = interpreter(program);

	ret[0] = str_dup(program);
	ret[1] = realpath(program, NULL);
	ret[3] = by != NULL ? realpath(by, NULL) : NULL;
	ret[2] = ret[3] != NULL ? TAKE_PTR(by) : NULL;
	free(by);
}

/* Every place once. */
static void add_places(const json_t *sandbox, char *const needed[NEEDED_MAX], struct buf *out)
{
	char *places[NEEDED_MAX] = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < NEEDED_MAX; i++) {
		bool known = needed[i] == NULL || is_shown(sandbox, needed[i]);

		for (size_t j = 0; j < n && !known; j++)
			known = str_path_under(needed[i], places[j]);
		if (known)
			continue;
		places[n] = place_of(needed[i]);
		buf_fmt(out, "%s--expose %s", n > 0 ? " " : "", places[n]);
		n++;
	}
	while (n > 0)
		free(places[--n]);
}

static bool on_standard_path(const char *program)
{
	cleanup_free char *dir = str_dupf("%.*s", (int)(strrchr(program, '/') - program), program);
	size_t n = strlen(dir);

	for (const char *p = STANDARD_PATH; p != NULL; p = strchr(p, ':')) {
		p += *p == ':';
		if (strncmp(p, dir, n) == 0 && (p[n] == ':' || p[n] == '\0'))
			return true;
	}
	return false;
}

static bool says_path(const struct cli *cli)
{
	const char *text;

	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_ENV, &pos)) != NULL;) {
		if (str_eq(text, "PATH") || str_starts(text, "PATH="))
			return true;
	}
	return false;
}

/* All of it is there, in a directory of the caller's PATH that the one inside does not have. */
static void explain_path(struct cli *cli, const char *name, const char *program)
{
	if (strchr(name, '/') != NULL || on_standard_path(program) || says_path(cli))
		return;
	json_decref(TAKE_PTR(cli->error));
	(void)err_hint(&cli->err,
		err_raise(&cli->err, ERR_CMD_NOT_FOUND,
			"command '%s' not found in the sandbox: '%s' is there, but not on the PATH",
			name, program),
		"-e PATH takes yours along; or give the whole path");
}

static void explain(struct cli *cli, const char *name, const json_t *sandbox, bool can_expose,
	char *const needed[NEEDED_MAX])
{
	static const char *const relation[] = { "is", "leads to", "is run by", "is run by" };
	struct buf places = BUF_INIT(65536);
	size_t hidden = 0;

	while (hidden < NEEDED_MAX && (needed[hidden] == NULL || is_shown(sandbox, needed[hidden])))
		hidden++;
	if (hidden == NEEDED_MAX) {
		explain_path(cli, name, needed[0]);
		return;
	}
	json_decref(TAKE_PTR(cli->error));
	(void)err_raise(&cli->err, ERR_CMD_HIDDEN,
		"'%s' %s '%s' here, in a place that the sandbox hides", name, relation[hidden],
		needed[hidden]);
	if (credential_place(needed[hidden]) != NULL)
		return;
	add_places(sandbox, needed, &places);
	(void)err_hint(&cli->err, 0, "%s%s%s",
		can_expose ? "" : "exposing is said when a sandbox is made: cay create ",
		buf_cstr(&places), can_expose ? " shows it inside, read-only" : "");
	buf_free(&places);
}

/* The sandbox of an exec or attach; NULL when it cannot be had. What is wrong already stays so. */
static json_t *sandbox_of(struct cli *cli)
{
	struct err err = cli->err;
	json_t *error = TAKE_PTR(cli->error), *beside = TAKE_PTR(cli->beside), *box = NULL;
	cleanup_free char *target = cli_target("/v1/sandboxes/%s", cli->args.positional[0]);

	if (cli_get(cli, target, &box) < 0)
		box = NULL;
	cli_forgive(cli);
	cli->err = err;
	cli->error = error;
	cli->beside = beside;
	return box;
}

void hidden_command_explain(struct cli *cli, const char *name, const json_t *made, bool can_expose)
{
	cleanup_free char *found = find_on_path(name);
	cleanup_json json_t *asked = found == NULL || can_expose ? NULL : sandbox_of(cli);
	const json_t *sandbox = can_expose ? made : asked;
	char *needed[NEEDED_MAX];

	if (found == NULL || (of_the_image(found) && !is_host(sandbox)))
		return;
	find_needed(found, needed);
	explain(cli, name, sandbox, can_expose, needed);
	for (size_t i = 0; i < NEEDED_MAX; i++)
		free(needed[i]);
}

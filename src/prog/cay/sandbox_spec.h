/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/sandbox_spec.h - the request bodies of run, create and exec, made from the command line. */
#ifndef CAY_PROG_SANDBOX_SPEC_H
#define CAY_PROG_SANDBOX_SPEC_H

#include "prog/cay/cli.h"

#define STANDARD_PATH \
	"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" /* inside, unless it is said otherwise */

/**
 * sandbox_spec_make() - the SandboxCreate object of run or create: name, image, profile, labels, limits, mounts, exposed places.
 * @cli:  arguments; @cli->err is filled on failure.
 * @ret:  owned by the caller.
 * @ret_cwd: set to the current directory when it is mounted at its own path, else NULL; free(). NULL: never mount it (create).
 *
 * Return: 0 or negative. Bad values, places of credentials and missing directories are refused before anything is asked of the server.
 */
int sandbox_spec_make(struct cli *cli, json_t **ret, char **ret_cwd) attr_must_use;

/** image_missing_explain() - when create failed because there is no such image: a name that was meant for the sandbox goes with --name. */
void image_missing_explain(struct cli *cli);

/**
 * exec_spec_make() - the ExecCreate object of run or exec.
 * @command: NULL-terminated. @spec: SandboxCreate whose mounts and exposed places say which parts of the caller's PATH exist inside;
 *           NULL for exec. @cwd: working directory when --cwd says none; NULL leaves it to the server.
 * @input, @tty: what the command's standard streams are.
 */
int exec_spec_make(struct cli *cli, char *const *command, const json_t *spec, const char *cwd,
	bool input, bool tty, json_t **ret) attr_must_use;

/** settings_spec_add() - what the flags say of what cay does with a sandbox by itself, as members of SandboxCreate and Settings. Return: 0, or negative with @cli->err set. */
int settings_spec_add(struct cli *cli, json_t *spec) attr_must_use;

/** env_spec_add() - what --env says into @env: KEY=VALUE, or KEY with the caller's own value. Return: 0, or negative with @cli->err set. */
int env_spec_add(struct cli *cli, json_t *env) attr_must_use;

/** spec_brings() - does @dir of the caller exist inside, at the same path, because @spec (SandboxCreate or Sandbox; NULL allowed) mounts or exposes it? */
bool spec_brings(const json_t *spec, const char *dir);

/**
 * sandbox_warnings() - append a warning, and @end, when @box (an API object) has places in its mounts that are empty inside and not on the machine, and one when it was asked for limits that
 * nothing holds, or has settings that do nothing; nothing when it has none of them.
 */
void sandbox_warnings(struct buf *out, const json_t *box, const char *end);

/** sandbox_warn() - sandbox_warnings() to standard error. */
void sandbox_warn(const json_t *box);

#endif

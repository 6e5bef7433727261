/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/cmd.h - the commands; main() has the table. Each returns an exit status, or negative with @cli->err filled. */
#ifndef CAY_PROG_CMD_H
#define CAY_PROG_CMD_H

#include "prog/cay/cli.h"

/** cmd_apply() - cay apply. */
int cmd_apply(struct cli *cli);
/** cmd_attach() - cay attach. */
int cmd_attach(struct cli *cli);
/** cmd_completion() - cay completion. */
int cmd_completion(struct cli *cli);
/** cmd_cp() - cay cp. */
int cmd_cp(struct cli *cli);
/** cmd_create() - cay create. */
int cmd_create(struct cli *cli);
/** cmd_diff() - cay diff. */
int cmd_diff(struct cli *cli);
/** cmd_doctor() - cay doctor. */
int cmd_doctor(struct cli *cli);
/** cmd_events() - cay events. */
int cmd_events(struct cli *cli);
/** cmd_net() - cay net. */
int cmd_net(struct cli *cli);
/** cmd_events_verify() - cay events verify. */
int cmd_events_verify(struct cli *cli);
/** cmd_events_retention() - cay events retention. */
int cmd_events_retention(struct cli *cli);
/** cmd_exec() - cay exec. */
int cmd_exec(struct cli *cli);
/** cmd_fork() - cay fork. */
int cmd_fork(struct cli *cli);
/** cmd_help() - cay help. */
int cmd_help(struct cli *cli);
/** cmd_image_import() - cay image import. */
int cmd_image_import(struct cli *cli);
/** cmd_image_ls() - cay image ls. */
int cmd_image_ls(struct cli *cli);
/** cmd_image_rm() - cay image rm. */
int cmd_image_rm(struct cli *cli);
/** cmd_info() - cay info. */
int cmd_info(struct cli *cli);
/** cmd_kill() - cay kill. */
int cmd_kill(struct cli *cli);
/** cmd_logs() - cay logs. */
int cmd_logs(struct cli *cli);
/** cmd_mail_ls() - cay mail ls. */
int cmd_mail_ls(struct cli *cli);
/** cmd_mail_show() - cay mail show. */
int cmd_mail_show(struct cli *cli);
/** cmd_move() - cay pause, suspend, resume, start, stop. */
int cmd_move(struct cli *cli);
/** cmd_policy_check() - cay policy check. */
int cmd_policy_check(struct cli *cli);
/** cmd_policy_explain() - cay policy explain. */
int cmd_policy_explain(struct cli *cli);
/** cmd_policy_presets() - cay policy presets. */
int cmd_policy_presets(struct cli *cli);
/** cmd_policy_set() - cay policy set. */
int cmd_policy_set(struct cli *cli);
/** cmd_policy_show() - cay policy show. */
int cmd_policy_show(struct cli *cli);
/** cmd_prune() - cay prune. */
int cmd_prune(struct cli *cli);
/** cmd_ps() - cay ps. */
int cmd_ps(struct cli *cli);
/** cmd_steps() - cay steps. */
int cmd_steps(struct cli *cli);

/** cmd_set() - cay set. */
int cmd_set(struct cli *cli);

/** put_exec_status() - append how an exec ended, "exited 0", "oom"; @otherwise while it has not (@status is null). */
void put_exec_status(struct buf *cell, const json_t *status, const char *otherwise);

/** cmd_rewind() - cay rewind. */
int cmd_rewind(struct cli *cli);
/** cmd_rm() - cay rm. */
int cmd_rm(struct cli *cli);
/** cmd_run() - cay run. */
int cmd_run(struct cli *cli);
/** cmd_secret_ls() - cay secret ls. */
int cmd_secret_ls(struct cli *cli);
/** cmd_secret_rm() - cay secret rm. */
int cmd_secret_rm(struct cli *cli);
/** cmd_secret_set() - cay secret set. */
int cmd_secret_set(struct cli *cli);
/** cmd_shutdown() - cay shutdown. */
int cmd_shutdown(struct cli *cli);
/** cmd_snapshot() - cay snapshot. */
int cmd_snapshot(struct cli *cli);
/** cmd_snapshots() - cay snapshots. */
int cmd_snapshots(struct cli *cli);
/** cmd_storage() - cay storage init, cay storage info. */
int cmd_storage(struct cli *cli);
/** cmd_usage() - cay usage. */
int cmd_usage(struct cli *cli);
/** cmd_verify() - cay verify. */
int cmd_verify(struct cli *cli);
/** cmd_version() - cay version. */
int cmd_version(struct cli *cli);

#endif

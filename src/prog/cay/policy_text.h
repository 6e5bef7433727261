/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/policy_text.h - what people name when they name a policy. */
#ifndef CAY_PROG_POLICY_TEXT_H
#define CAY_PROG_POLICY_TEXT_H

#include "prog/cay/cli.h"

/**
 * policy_text() - the text of the file @what, or a document that names the preset @what when there is no such file.
 * @ret: a new JSON string. Return: 0, or negative with @cli->err filled.
 */
int policy_text(struct cli *cli, const char *what, json_t **ret) attr_must_use;

#endif

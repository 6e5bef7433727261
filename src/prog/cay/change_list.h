/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/change_list.h - the changes of a diff as a table for people. */
#ifndef CAY_PROG_CHANGE_LIST_H
#define CAY_PROG_CHANGE_LIST_H

#include "prog/cay/cli.h"

/** change_list_print() - append the table of @changes (an array of Change) and a summary line to @out. */
void change_list_print(const struct cli *cli, struct buf *out, const json_t *changes);

#endif

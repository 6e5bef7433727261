/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/listing.h - a list that the API answers with, shown as a table. */
#ifndef CAY_PROG_LISTING_H
#define CAY_PROG_LISTING_H

#include "prog/cay/cli.h"

/** struct listing - what a row of such a table is made of. */
struct listing {
	const char *member; /* of the answer: the array */
	const char *header; /* as table_init() wants it */
	void (*row)(
		struct table *t, const json_t *item, int64_t now_s); /* adds the cells of one row */
	const char *
		by; /* number by which the parameter `before` has the list in parts; NULL: it comes whole */
};

/**
 * listing_show() - ask for @target, and print the table; with --json the answer as it came, with --quiet a name (or id) a line.
 * Return: exit status, or negative with @cli->err filled.
 */
int listing_show(struct cli *cli, const char *target, const struct listing *l) attr_must_use;

#endif

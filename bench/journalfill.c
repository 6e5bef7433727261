/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journalfill DIRECTORY EVENTS SANDBOXES - write a journal as a server would that has run for long: that many events, in chains of equal length one after the other, as many
 * short runs leave them. bench/journal starts a server on it and says what it needs.
 */
#include "base/id.h"
#include "base/str.h"
#include "events/journal.h"

static void add(struct journal *j, const char *sandbox, uint64_t i)
{
	struct event e = { .type = i % 2 == 0 ? EVENT_PROCESS_STARTED : EVENT_PROCESS_EXEC,
		.sandbox = sandbox,
		.epoch = 1,
		.exec = sandbox,
		.cause = json_pack("{s:I}", "pid", (json_int_t)(1000 + i % 30000)),
		.data = json_pack("{s:I,s:[ssss]}", "pid", (json_int_t)(1000 + i % 30000), "argv",
			"/usr/bin/gcc", "-c", "-O2", "some_file.c") };

	(void)journal_add(j, &e);
}

int main(int argc, char **argv)
{
	uint64_t events, sandboxes;
	struct journal *j;
	struct err err;

	if (argc != 4 || str_to_u64(argv[2], 1, UINT32_MAX, &events) < 0 ||
		str_to_u64(argv[3], 1, events, &sandboxes) < 0) {
		(void)fputs("usage: journalfill DIRECTORY EVENTS SANDBOXES\n", stderr);
		return 64;
	}
	if (journal_open(argv[1], &j, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (uint64_t box = 0; box < sandboxes; box++) {
		struct id id = id_new();

		for (uint64_t i = 0; i < events / sandboxes; i++)
			add(j, id.s, i);
		if (journal_flush(j) < 0)
			return 1;
	}
	journal_close(j);
	return 0;
}

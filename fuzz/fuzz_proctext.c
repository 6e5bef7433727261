/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/proctext.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size, *before = at;
	char *text = malloc(size + 1);
	struct proc_map map;
	struct proc_smap smap;
	struct proc_stat stat;
	struct proc_lock lock;
	uint64_t numbers[4];

	while (proc_map_next(&at, end, &map) > 0) {
		MUST(at > before && at <= end);
		MUST(map.start < map.end);
		MUST(map.name >= before && map.name + map.name_size <= at);
		before = at;
	}
	at = before = (const char *)data;
	while (proc_smap_next(&at, end, &smap) > 0) {
		MUST(at > before && at <= end);
		MUST(smap.flags >= before && smap.flags + smap.flags_size <= at);
		(void)proc_smap_has(&smap, "wf");
		before = at;
	}
	MUST(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	(void)!proc_stat_parse(text, &stat);
	MUST(proc_numbers(text, "Uid", 10, numbers, 4) <= 4);
	(void)proc_number(text, "flags", 8, 0);
	if (proc_value(text, "Name") != NULL)
		MUST(proc_value(text, "Name") <= text + size);
	for (const char *line = text, *last = line; proc_lock_next(&line, &lock) > 0; last = line)
		MUST(line > last && line <= text + size);
	free(text);
	return 0;
}

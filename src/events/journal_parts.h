/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: events/journal_parts.h - the opened journal, for journal.c, chain_check.c and retention.c. */
#ifndef CAY_EVENTS_JOURNAL_PARTS_H
#define CAY_EVENTS_JOURNAL_PARTS_H

#include "events/active.h"
#include "events/anchors.h"

/** struct sealed - a segment that is no longer written. */
struct sealed {
	uint32_t number; /* of its file */
	struct segment_index index;
};

/** struct loss - of one chain: events for which there was no room, since what waits can not be written. */
struct loss {
	char sandbox[ID_LEN + 1]; /* "" = the instance */
	uint64_t epoch;           /* of the last of them */
	uint64_t n;
};

struct journal {
	int dir;
	int fd;              /* segment that is written */
	uint32_t segment;    /* its number */
	uint32_t written;    /* bytes of it on disk */
	struct buf pending;  /* not written yet */
	struct loss *losses; /* not told yet: nothing is added before that is */
	size_t n_losses;
	uint64_t written_n;    /* all events up to this one are */
	struct active active;  /* what is in it, @pending included */
	struct sealed *sealed; /* oldest first, n without gaps */
	size_t n_sealed;
	uint64_t sealed_bytes;
	struct anchors anchors;
	bool anchors_changed; /* since they were on disk: nothing is dropped before they are */
	struct journal_keep keep;
	uint64_t seal_ns; /* not tried again before then */
	bool unsealed;    /* the last try failed, and that was told */
	int read_fd;      /* segment read last, */
	uint32_t read_segment;
};

/** journal_seal() - end the segment that is written and begin the next. Return: 0 or -errno: then it is written on. */
int journal_seal(struct journal *j) attr_must_use;

/** segment_name() - "000001.jsonl", "000001.index". */
void segment_name(uint32_t number, const char *suffix, char name[32]);

#endif

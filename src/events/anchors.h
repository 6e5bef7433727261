/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/anchors.h - where chains begin whose first events were retired, in the file anchors.json of the journal's directory.
 *
 * Written, synced and renamed into place before the events go, so that no chain ever begins without either its first event or its anchor. Only chains that go on
 * have one. The file also tells up to which n events were retired: segments below that which are still there were being removed.
 */
#ifndef CAY_EVENTS_ANCHORS_H
#define CAY_EVENTS_ANCHORS_H

#include "events/journal.h"

/** struct anchors - zero-initialise; anchors_free() releases. */
struct anchors {
	uint64_t retired_n; /* last n that is no longer there; 0 = all are */
	json_t *chains; /* sandbox ("" = the instance) -> {"seq","hash","time"} of its last retired event */
};

/** anchors_load() - read the file in @dir; none is fine. Return: 0, %-EBADMSG when it is damaged, -errno. */
int anchors_load(struct anchors *a, int dir) attr_must_use;

/** anchors_save() - write the file, all or nothing, synced. Return: 0 or -errno. */
int anchors_save(const struct anchors *a, int dir) attr_must_use;

/** anchors_find() - the anchor of @sandbox. @ret_time_ns: wall time at which it was set, may be NULL. Return: is there one? */
bool anchors_find(const struct anchors *a, const char *sandbox, struct journal_head *ret,
	uint64_t *ret_time_ns);

/** anchors_set() - the chain of @sandbox begins behind @head from @time_ns (wall) on; with @head NULL it has no anchor any more. */
void anchors_set(
	struct anchors *a, const char *sandbox, const struct journal_head *head, uint64_t time_ns);

/** anchors_free() - release. */
void anchors_free(struct anchors *a);

#endif

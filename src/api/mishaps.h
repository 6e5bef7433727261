/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/mishaps.h - what a run tells at its end of connections that came to nothing: how often which host and port was denied, and which could not be reached and why.
 *
 * Context: the server's loop; nothing waits.
 */
#ifndef CAY_API_MISHAPS_H
#define CAY_API_MISHAPS_H

#include <jansson.h>

#include "events/journal.h"

struct mishaps {
	json_t *denied; /* {"host:port": {"host","port","count"}} */
	json_t *failed; /* the same, with the last "reason" */
};

/** mishaps_init() - none so far. mishaps_clear() frees what they hold. */
void mishaps_init(struct mishaps *m);

/** mishaps_reset() - forget them: the sandbox starts again. */
void mishaps_reset(struct mishaps *m);

/** mishaps_clear() - free. */
void mishaps_clear(struct mishaps *m);

/** mishaps_take() - count @data of a gateway's event of @type, if it is of one. */
void mishaps_take(struct mishaps *m, enum event_type type, const json_t *data);

/** mishaps_told() - an array of @counts (denied or failed), most often first, at most 20; of what was denied with the `preset` that could allow it, if there is one, and `private` where it is an address that only a rule with private: true allows. A new reference. */
json_t *mishaps_told(const json_t *counts);

#endif

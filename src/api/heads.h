/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/heads.h - the heads of the journal's chains in the catalogue.
 *
 * They follow the journal at a distance, never ahead of what it was given; but a durable commit syncs them with all else that the catalogue has, and the journal is synced only with
 * a whole segment. So behind a power cut they may lead past its end, as they do where somebody has cut it off. Either is told once, in the chain itself (events.cut), whose head
 * leads on from there: what is missing is never forgotten.
 */
#ifndef CAY_API_HEADS_H
#define CAY_API_HEADS_H

#include "api/server.h"

/** heads_write() - write those that have changed, and what of the catalogue waits for that. Failure is tried again with the next ones. */
void heads_write(struct server *srv);

/** heads_settle() - after a start, before any other event: chains that end before their heads get an event that says so. Cheap when there is none. */
void heads_settle(struct server *srv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/telling.h - events that follow from a commit, told once whoever dies when.
 *
 * What the catalogue takes survives at once, an event only with the next flush of the journal. So the document that is written announces the event (member `telling`: what there is to
 * tell, and the last event of its chain before it): a server that finds an announcement in the catalogue looks whether the journal has the event behind that, and tells it if not. What
 * is removed leaves a document that holds nothing else in its row, until its event is in the journal.
 */
#ifndef CAY_API_TELLING_H
#define CAY_API_TELLING_H

#include "api/server.h"

/** struct telling - an event that is to be announced; all borrowed. */
struct telling {
	enum event_type type;
	const char *sandbox; /* id: whose chain; NULL = the instance's */
	uint64_t epoch;
	const char *exec; /* id or NULL */
	uint64_t time_ns; /* wall; 0 = now */
	uint64_t after;   /* seq of the last event of that chain before it; 0 = the last one now */
	json_t *data; /* object or NULL; what tells events of one type in a chain apart: telling.c, is_it() */
};

/** telling_announce() - @doc, which is about to be written, announces @t, behind what it announces already. */
void telling_announce(struct server *srv, json_t *doc, const struct telling *t);

/** telling_again() - after a start: what @doc, read from the catalogue, announces and the journal has not is told. Return: whether it announced anything: behind a flush of the journal it need not any more (telling_done()). */
bool telling_again(struct server *srv, const json_t *doc);

/** telling_done() - @doc announces nothing; its next change writes that. Return: whether it did. */
bool telling_done(json_t *doc);

/** telling_bury() - row @id of @table is of something that is removed, and announces @t from now on. In a transaction; behind its commit telling_buried() follows. Return: 0 or an error. */
int telling_bury(struct server *srv, enum catalogue_table table, const char *id,
	const struct telling *t, struct err *err) attr_must_use;

/** telling_buried() - row @id of @table is such a one: it goes when its event is in the journal. @doc: as it was loaded, for telling_settle(); NULL = the event has just been told. Borrowed. */
void telling_buried(struct server *srv, enum catalogue_table table, const char *id, json_t *doc);

/** telling_is_buried() - is @doc that of such a row? */
bool telling_is_buried(const json_t *doc);

/** telling_settle() - after a start: tell what the rows of removed things announce and the journal has not. */
void telling_settle(struct server *srv);

/** telling_fill() - what @doc, read from the catalogue, announces of @type without data has @data (stolen): who wrote it has that in its other members. */
void telling_fill(json_t *doc, enum event_type type, json_t *data);

/** telling_sweep() - in a transaction, behind a flush of the journal: rows of removed things go. Return: 0 or an error. */
int telling_sweep(struct server *srv) attr_must_use;

/** telling_swept() - behind its commit. */
void telling_swept(struct server *srv);

#endif

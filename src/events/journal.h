/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: events/journal.h - the one log of everything: JSON lines in segments, hash-chained per sandbox.
 *
 * A line is {"cause","data","epoch","exec","member","n","sandbox","seq","time","type"} as canonical JSON (members sorted, no spaces, UTF-8 as it is, lower-case
 * escapes), and "hash" behind them. n counts all events of the instance from 1 without gaps, seq those of one sandbox.
 * hash = SHA-256 of the 32 bytes of the sandbox's hash before (zeros at first) and the line without its hash member; in hex. The catalogue keeps a head {seq, hash}
 * per sandbox, never ahead of the journal, so that a journal that was cut
 * short is found.
 *
 * One writer. An event that was appended survives kill -9 of the writer once journal_flush() has returned. Old events may be retired (struct journal_keep); a chain whose beginning
 * was retired then begins behind its anchor: number and hash of the last event that is gone.
 */
#ifndef CAY_EVENTS_JOURNAL_H
#define CAY_EVENTS_JOURNAL_H

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"

#include <jansson.h>

enum event_type {
#define EVENT(name, wire, version, members, when) EVENT_##name,
#include "events.def"
#undef EVENT
	EVENT_TYPE_COUNT
};

/** struct event - what the caller knows; the journal adds n, seq and hash. */
struct event {
	enum event_type type;
	const char *sandbox; /* id, or NULL for the instance itself */
	uint64_t epoch;
	uint64_t time_ns; /* wall; 0 = now */
	const char *exec; /* id or NULL */
	json_t *cause;    /* object or NULL; stolen */
	json_t *data;     /* object or NULL; stolen */
};

/** struct journal_head - last event of a chain. */
struct journal_head {
	uint64_t seq;
	unsigned char hash[32];
};

struct journal;

/** event_type_name() - wire name; static. */
const char *event_type_name(enum event_type type);

/** event_type_parse() - by wire name; %EVENT_KEEPER when unknown. */
enum event_type event_type_parse(const char *name);

/**
 * journal_open() - open directory @path, read all segments, build the index.
 * A last line without its end (the machine died while writing) is cut off.
 *
 * Return: 0, or -errno with @err set.
 */
int journal_open(const char *path, struct journal **ret, struct err *err);

/** journal_close() - write out and close; NULL is allowed. */
void journal_close(struct journal *j);

/**
 * journal_add() - append an event. It is not yet written: journal_flush().
 *
 * Return: its n; 0 when too much waits to be written (a full disk): then its chain has an events.lost, with their number, as soon as the rest was written.
 */
uint64_t journal_add(struct journal *j, struct event *e);

/** journal_flush() - write what was added. Return: 0 or -errno; after an error everything later fails too (disk full is retried). */
int journal_flush(struct journal *j);

/** journal_is_full() - may the next event be lost, so that whoever can keep it should? */
bool journal_is_full(const struct journal *j);

/** journal_written() - n of the last event that is known to be written; 0 when there is none. */
uint64_t journal_written(const struct journal *j);

/** journal_last() - n of the last event; 0 when there is none. */
uint64_t journal_last(const struct journal *j);

/** journal_last_seq() - seq of the last event of @sandbox; 0 when there is none. */
uint64_t journal_last_seq(const struct journal *j, const char *sandbox);

/** journal_chain_last() - last event of a chain, wherever it lies. Return: false when there is no such chain. */
bool journal_chain_last(const struct journal *j, const char *sandbox, struct journal_head *ret);

/** journal_first() - n (@sandbox NULL) or seq of the oldest event that is kept, or of the next one when none is; 0 for a sandbox that has no events. */
uint64_t journal_first(const struct journal *j, const char *sandbox);

/**
 * journal_locate() - n of the event @at.
 * @sandbox: NULL: @at is a global n; else @at is a seq of that sandbox ("" = the instance).
 *
 * Return: 0; -ENOENT when there is none (yet); -ESTALE when it was retired.
 */
int journal_locate(
	const struct journal *j, const char *sandbox, uint64_t at, uint64_t *ret_n) attr_must_use;

/** journal_read() - append the line of one event, with its newline, to @out. Arguments and return as journal_locate(), or another -errno. */
int journal_read(
	struct journal *j, const char *sandbox, uint64_t at, struct buf *out) attr_must_use;

/** journal_each_chain() - call @fn for every chain that has events, for some more than once; "" is the instance's. */
void journal_each_chain(
	const struct journal *j, void (*fn)(void *ctx, const char *sandbox), void *ctx);

/* --- checking --- */

/** struct journal_check - a chain's check, under way or done. */
struct journal_check {
	char sandbox[ID_LEN + 1];
	struct journal_head expected; /* the catalogue's; seq 0 = not known */
	bool anchored;                /* its beginning was retired: */
	struct journal_head anchor;   /* the last event that is gone, */
	uint64_t anchor_time_ns;      /* since when */
	uint64_t retired_n;           /* the last event of all that was gone when the check began */
	uint64_t events;              /* records that were checked */
	struct journal_head head;     /* the last of them, or the anchor */
	uint64_t cut,
		cut_seq; /* events that a restart of the machine may have taken (events.cut), and the event that says so first */
	uint64_t bad_n, bad_seq; /* first bad record; 0 when unknown or none */
	char reason[200];        /* "" when all is well */
};

/**
 * journal_check_begin() - be about to read a sandbox's events again from disk and check seq and chain.
 * @sandbox: "" = the instance.
 * @expected: head from the catalogue: the chain must pass through it; NULL = not known.
 */
void journal_check_begin(struct journal *j, const char *sandbox,
	const struct journal_head *expected, struct journal_check *c);

/**
 * journal_check_step() - check the next @max events.
 * Return: 1 when there are more; 0 at the end (look at @c->reason); -errno with @err set when it could not be read, %ERR_BUSY when events were retired meanwhile.
 */
int journal_check_step(struct journal *j, struct journal_check *c, size_t max, struct err *err);

/* --- retention --- */

#define JOURNAL_SEGMENT_MIN (64U << 10)
#define JOURNAL_SEGMENT_MAX (1U << 30)

/** struct journal_keep - how much is kept; 0 = no such rule. Ages are since the last event of a segment. */
struct journal_keep {
	uint64_t max_bytes;
	uint64_t max_age_ns;
	uint64_t
		removed_age_ns; /* of segments that hold only events of removed sandboxes (and the instance's) */
	uint64_t
		segment_bytes; /* size of a segment, JOURNAL_SEGMENT_MIN..MAX: what is retired at once */
};

#define JOURNAL_KEEP_DEFAULT \
	{ \
		.max_bytes = 1U << 30, .segment_bytes = 32U << 20 \
	}

/** journal_keep() - what is in force; borrowed. */
const struct journal_keep *journal_keep(const struct journal *j);

/** journal_keep_set() - from now on, and after the next start. Retires nothing by itself. Return: 0 or -errno. */
int journal_keep_set(struct journal *j, const struct journal_keep *keep) attr_must_use;

/** journal_keep_load() - what was set before the last start. Return: 0, %-EBADMSG, -errno. */
int journal_keep_load(struct journal *j) attr_must_use;

/** journal_alive_fn - does this sandbox exist? */
typedef bool journal_alive_fn(void *ctx, const char *sandbox);

/** struct journal_retire - what the caller knows, and what was done. */
struct journal_retire {
	journal_alive_fn *alive;
	void (*forget)(
		void *ctx, const char *sandbox); /* the last event of a removed sandbox is gone */
	void (*forgotten)(
		void *ctx); /* that was all of one segment, which is still there; or NULL */
	void *ctx;
	uint32_t segments; /* that were retired: */
	uint64_t first_n, last_n, bytes;
	const char *reason; /* of the last one: "bytes", "age", "removed" */
};

/** journal_retire() - let the oldest segments go, as far as the rules say. @now_ns: wall. Return: 0 or -errno; then what @r tells is gone all the same. */
int journal_retire(struct journal *j, uint64_t now_ns, struct journal_retire *r) attr_must_use;

/** journal_dirty() - has any chain grown since journal_heads_written()? */
bool journal_dirty(const struct journal *j);

/**
 * journal_dirty_heads() - call @fn for every chain that has grown since journal_heads_written().
 * Meant for writing the heads to the catalogue now and then, after journal_flush().
 */
void journal_dirty_heads(struct journal *j,
	void (*fn)(void *ctx, const char *sandbox, const struct journal_head *head), void *ctx);

/** journal_heads_written() - what journal_dirty_heads() told just now is in the catalogue. */
void journal_heads_written(struct journal *j);

#endif

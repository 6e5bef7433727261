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
 * One writer. An event that was appended survives kill -9 of the writer once journal_flush() has returned.
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

/** journal_add() - append an event. Return: its n. It is not yet written: journal_flush(). */
uint64_t journal_add(struct journal *j, struct event *e);

/** journal_flush() - write what was added. Return: 0 or -errno; after an error everything later fails too (disk full is retried). */
int journal_flush(struct journal *j);

/** journal_last() - n of the last event; 0 when there is none. */
uint64_t journal_last(const struct journal *j);

/** journal_last_seq() - seq of the last event of @sandbox; 0 when there is none. */
uint64_t journal_last_seq(const struct journal *j, const char *sandbox);

/**
 * journal_read() - append the line of one event, with its newline, to @out.
 * @sandbox: NULL: @at is a global n; else @at is a seq of that sandbox.
 *
 * Return: 0, -ENOENT when there is none, -errno.
 */
int journal_read(
	struct journal *j, const char *sandbox, uint64_t at, struct buf *out) attr_must_use;

/** struct journal_check - result of journal_verify(). */
struct journal_check {
	uint64_t events;         /* records of the sandbox that were checked */
	uint64_t bad_n, bad_seq; /* first bad record; 0 when unknown or none */
	char reason[200];        /* "" when all is well */
	struct journal_head head;
};

/**
 * journal_verify() - read a sandbox's events again from disk and check seq and chain.
 * @expected: head from the catalogue: the chain must pass through it; NULL = not known.
 *
 * Return: 0 (look at @ret->reason), or -errno with @err set when it could not be read.
 */
int journal_verify(struct journal *j, const char *sandbox, const struct journal_head *expected,
	struct journal_check *ret, struct err *err);

/** journal_dirty() - has any chain grown since journal_dirty_heads()? */
bool journal_dirty(const struct journal *j);

/**
 * journal_dirty_heads() - call @fn for every chain that has grown since the last call.
 * Meant for writing the heads to the catalogue now and then, after journal_flush().
 */
void journal_dirty_heads(struct journal *j,
	void (*fn)(void *ctx, const char *sandbox, const struct journal_head *head), void *ctx);

#endif

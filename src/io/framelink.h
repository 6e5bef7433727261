/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/framelink.h - a stream of frames (codec/frame) on the loop, and calls over it: a REQUEST with an id and its REPLY.
 *
 * Used with keepers and jobs. Frames other than REPLY go to the owner's on_frame in the order in which they came.
 */
#ifndef CAY_IO_FRAMELINK_H
#define CAY_IO_FRAMELINK_H

#include "base/err.h"
#include "codec/frame.h"
#include "io/stream.h"

#include <jansson.h>

/** struct framecall - one request under way; lives in the caller's memory until it is done. */
struct framecall {
	struct list node;
	uint64_t id;
	bool done;
	json_t *ok;     /* the reply's "ok", owned; NULL on failure */
	struct err err; /* set on failure */
	int rc;
	struct waiters waiters;
};

struct framelink {
	struct stream s;
	struct list calls;
	uint64_t next_id;
	bool dead;   /* the peer has gone or has sent garbage */
	bool pieces; /* it takes a request that is larger than a frame: {"id","pieces"}, and STDIN frames with its text */
	void (*on_frame)(struct framelink *l, const struct frame *f); /* on the loop */
	void (*on_dead)(struct framelink *l); /* once, on the loop; all calls have failed before */
	const char *peer;                     /* for messages, e.g. "keeper"; static */
	struct waiters progress;              /* woken whenever a frame came or the link died */
};

/** framelink_open() - speak frames over the socket @fd (taken over). Set on_frame, on_dead and peer before. Return: 0 or -errno. */
int framelink_open(struct framelink *l, uv_loop_t *loop, int fd) attr_must_use;

/** framelink_send() - send one frame. */
void framelink_send(
	struct framelink *l, enum frame_type type, uint16_t channel, const void *p, size_t n);

/** framelink_call_begin() - send @request (stolen; gets its "id"). Finish with framelink_call_end(). */
void framelink_call_begin(struct framelink *l, struct framecall *call, json_t *request);

/**
 * framelink_call_end() - wait for the reply.
 * @deadline_ns: 0 = as long as the peer is there.
 * @ret_ok: set to the reply's "ok" (owned by the caller), or pass NULL.
 *
 * Return: 0, or -errno with @err set: what the peer said, ERR_UNAVAILABLE when it is gone, ERR_TIMEOUT. Context: fiber; waits.
 */
int framelink_call_end(struct framelink *l, struct framecall *call, uint64_t deadline_ns,
	json_t **ret_ok, struct err *err) attr_must_use;

/** framelink_call_answered() - wait for the reply, and leave the call as it is. Return: has it come? Context: fiber; waits. */
bool framelink_call_answered(struct framecall *call, uint64_t deadline_ns) attr_must_use;

/** framelink_call() - both in one. */
int framelink_call(struct framelink *l, json_t *request, uint64_t deadline_ns, json_t **ret_ok,
	struct err *err) attr_must_use;

/**
 * framelink_await() - wait for a frame that is @it without the loop: nothing else of this thread happens. All frames that come up to there stay where they are, for framelink_deliver().
 * Context: blocks, until the peer is gone at the latest.
 */
void framelink_await(struct framelink *l, bool (*it)(const struct frame *f));

/**
 * frame_json() - the JSON of a frame of somebody who may have been taken over, or is of another version. A new reference.
 * Return: NULL when it is none, repeats a member, or is nested deeper than anything that is said between our programs.
 */
json_t *frame_json(const struct frame *f);

/** framelink_deliver() - deal with all frames that framelink_await() has left. Not from within on_frame. */
void framelink_deliver(struct framelink *l);

/** framelink_abort() - act as if the peer had gone: all calls fail. */
void framelink_abort(struct framelink *l);

/** framelink_close() - close; @closed is called when the memory may go. */
void framelink_close(struct framelink *l, void (*closed)(struct stream *s));

/** err_from_json() - fill @err from {"code","message","hint","member","errno"}. Return: a negative errno. */
int err_from_json(const json_t *error, struct err *err);

/** err_to_json() - {"code","message","hint"[,"member"][,"errno"]}, a new reference. */
json_t *err_to_json(const struct err *err);

#endif

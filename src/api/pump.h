/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: api/pump.h - joins a client's upgraded stream with a keeper's connection.
 *
 * Frames of the exec's channel go to the client as channel 0, the client's STDIN, RESIZE, SIGNAL and WINDOW go to the keeper. Flow control is the keeper's and the client's own (WINDOW in
 * both directions); what is queued here is bounded by the window that the attach asks for, and a client that ignores the windows of its STDIN is not read until the command has
 * taken what it sent: the keeper would drop a connection that overruns it.
 *
 * Nothing is lost when this server ends, wanted or not: what the client sent and we had read is with the keeper before we go, the keeper holds what the client has not acknowledged, and
 * the client comes back to the next server with the offset that it has, learns how much of its input arrived, and sends the rest again.
 */
#ifndef CAY_API_PUMP_H
#define CAY_API_PUMP_H

#include "api/server.h"

#define PUMP_WINDOW (512U << 10)

struct pump {
	struct list node;      /* of the server's pumps, while it runs */
	struct exec_sink sink; /* run: frames come over the keeper's main connection */
	struct framelink link; /* attach: over one of our own */
	struct server *srv;
	struct stream *client;
	struct framelink *keeper; /* where the client's frames go */
	const struct exec *exec;
	unsigned int
		rewinds; /* of the exec, when we joined it: what its keeper says behind the next one is of a time that was taken back */
	uint64_t reached; /* offset of the output behind what the client was sent */
	uint16_t channel;
	size_t input_open; /* bytes of STDIN that the command has not taken yet */
	bool status_sent;
	bool cork_status; /* run: the status waits for the summary, which comes at once in most cases */
	bool broken;      /* the keeper's side is over */
	bool waits;       /* its client does not know yet what it follows */
	struct buf early; /* what came meanwhile: no more than the window */
};

/** pump_init() - for @e, which the caller holds, and a client; over the keeper's main connection @main, or over @link, which the caller opens, when it is NULL. */
void pump_init(struct pump *p, struct exec *e, struct stream *client, struct framelink *main);

/** pump_attach_request() - the keeper's `attach` for it: held for who comes back. A new reference. */
json_t *pump_attach_request(const struct pump *p, uint64_t from);

/**
 * pump_run() - carry frames.
 * Return: 0 the status was sent; -EPIPE the client left; -EIO the keeper did; -ESHUTDOWN this server ends: all that was read of the client is with the keeper.
 * Context: waits.
 */
int pump_run(struct pump *p);

/** pump_let_go() - its client knows what it follows: what came before goes to it, and the rest as it comes. */
void pump_let_go(struct pump *p);

/** pump_was_rewound() - has the exec gone back to an earlier instant since we joined it, or is about to? */
bool pump_was_rewound(const struct pump *p);

/**
 * pump_send_offset() - tell a client that has output up to @reached, and comes back to an exec that was rewound, where its output goes on now: a piece of output without a byte,
 * from whose offset whoever reads it counts on. Nothing where it lacks some of what was before.
 */
void pump_send_offset(struct stream *client, const struct exec *e, uint64_t reached);

/** pump_send_end() - tell a client, which has output up to @reached of an exec that has ended and gets no more of it, what it misses, and the status. */
void pump_send_end(struct stream *client, const struct exec *e, uint64_t reached);

/** pump_send_object() - the same as JSON (stolen). */
void pump_send_object(struct stream *client, enum frame_type type, json_t *object);

/** pump_send_input() - tell the client how much input arrived, and how much of the output somebody was sent before: from the keeper's answer @ok to an attach. */
void pump_send_input(struct stream *client, const json_t *ok);

/** struct saved_reader - who is sent what was saved of an exec's output. */
struct saved_reader {
	struct stream *client;
	stream_patience_fn *patience;
	const void *ctx;  /* of @patience */
	uint64_t reached; /* offset of the output behind what it was sent */
};

/** pump_patience() - stream_patience_fn of a client that can come back: of the struct server @ctx. */
enum stream_patience pump_patience(const void *ctx);

/** pump_saved() - exec_frame_fn: to the struct saved_reader @ctx, waiting while that is slow. Return: 0, -errno; -ETIMEDOUT: it is waited for no longer. */
int pump_saved(void *ctx, enum frame_type type, const void *payload, size_t n);

/** pumps_wake() - let all of them see that the server ends. */
void pumps_wake(struct server *srv);

#endif

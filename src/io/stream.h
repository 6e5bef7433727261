/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/stream.h - a connected unix socket on the loop: bytes in, bytes out, both bounded.
 *
 * Reading stops while more than %STREAM_IN_HIGH bytes wait to be consumed. Writing never waits by itself: who produces much calls stream_drain().
 */
#ifndef CAY_IO_STREAM_H
#define CAY_IO_STREAM_H

#include "base/buf.h"
#include "base/clock.h"
#include "io/fiber.h"

#define STREAM_IN_HIGH (4U << 20)

struct stream {
	uv_pipe_t pipe;
	struct buf in; /* received, not consumed */
	bool eof;      /* no more input will come */
	bool reading;
	bool held; /* stream_hold() */
	bool closing;
	bool corked;
	bool blocking;       /* stream_block() */
	struct buf gathered; /* what is written while corked */
	int error;           /* -errno of the first failed write; later ones are ignored */
	size_t queued;       /* bytes handed to stream_write() that the kernel has not taken */
	struct waiters readable, writable;
	void (*on_data)(
		struct stream *s); /* called on the loop when bytes or the end came, or NULL */
	void (*on_closed)(struct stream *s);
	void *ctx; /* the owner's */
};

/** stream_open() - take over the connected socket @fd (owned by the stream, also on failure). Return: 0 or -errno. */
int stream_open(struct stream *s, uv_loop_t *loop, int fd) attr_must_use;

/** stream_accept() - accept a connection of @listener. Return: 0 or -errno; then nothing is left open. */
int stream_accept(struct stream *s, uv_stream_t *listener) attr_must_use;

/**
 * stream_fill() - wait for more input.
 * Return: 1 when bytes came, 0 at the end, -ETIMEDOUT. Context: inside a fiber; waits.
 */
int stream_fill(struct stream *s, uint64_t deadline_ns) attr_must_use;

/** stream_consume() - drop @n bytes of input and read on if reading had stopped, unless it is held. */
void stream_consume(struct stream *s, size_t n);

/** stream_hold() - stop reading until it is let go again, whatever is consumed meanwhile. */
void stream_hold(struct stream *s, bool hold);

/** stream_write() - send bytes (copied when the kernel does not take them at once). Failures show in @s->error. */
void stream_write(struct stream *s, const void *p, size_t n);

/** stream_cork() - gather what is written, or (false) send what was gathered, in one piece: the peer wakes up once. */
void stream_cork(struct stream *s, bool cork);

/** stream_block() - from now on writes wait in the kernel, and with them the whole thread, or (false) no longer. Nothing may be queued, corked or closing. */
void stream_block(struct stream *s, bool block);

/** stream_fill_now() - wait for more input without the loop: nothing else of this thread happens. Nobody is told of it. Return: 1 when bytes came, 0 at the end, -errno. Context: blocks. */
int stream_fill_now(struct stream *s) attr_must_use;

/** stream_drain() - wait until at most @limit bytes are queued. Return: 0, -EPIPE and other -errno, -ETIMEDOUT. Context: fiber; waits. */
int stream_drain(struct stream *s, size_t limit, uint64_t deadline_ns) attr_must_use;

/* How long a peer is waited for that takes nothing, where that counts. */
#define STREAM_STALL_NS (2 * NS_PER_S)

/** enum stream_patience - how long a peer is waited for that reads slowly, or not at all now. */
enum stream_patience {
	STREAM_WAITS,       /* for as long as it is there */
	STREAM_WAITS_TAKEN, /* while it takes something */
	STREAM_WAITS_NOT
};

typedef enum stream_patience stream_patience_fn(const void *ctx);

/**
 * stream_drain_slowly() - the same without a deadline.
 * @patience: asked with @ctx whenever the peer took something, when somebody woke @s->writable, and every %STREAM_STALL_NS.
 * Return: 0, -EPIPE and other -errno, -ETIMEDOUT: the peer is there, and waited for no longer. Context: fiber; waits.
 */
int stream_drain_slowly(struct stream *s, size_t limit, stream_patience_fn *patience,
	const void *ctx) attr_must_use;

/**
 * stream_finish() - say that nothing more will be sent, and read on (and forget) until the peer is done too.
 * Closing with unread input would reset the connection under a peer that still reads. Context: fiber; waits, at most until @deadline_ns.
 */
void stream_finish(struct stream *s, uint64_t deadline_ns);

/** stream_abort() - the peer finds the connection at its end now, whatever is queued: that is thrown away. */
void stream_abort(struct stream *s);

/** stream_close() - send what is queued (5 seconds at most), close, then call @closed on the loop; only then may the memory go. */
void stream_close(struct stream *s, void (*closed)(struct stream *s));

/** stream_hung_up() - has the peer closed, not only said that it sends nothing more? Also when the loop has not heard of it yet. */
bool stream_hung_up(const struct stream *s);

/** stream_has_left() - will nobody read what is sent? A peer that only said that it sends nothing more waits for our answer. */
bool stream_has_left(const struct stream *s);

/** stream_peer() - uid, gid and pid of the other end. Return: 0 or -errno. */
int stream_peer(const struct stream *s, uid_t *uid, gid_t *gid, pid_t *pid) attr_must_use;

/** stream_peer_groups() - supplementary groups of the other end, when it connected: *@ret_n of them in *@ret (free()). Return: 0 or -errno. */
int stream_peer_groups(const struct stream *s, gid_t **ret, size_t *ret_n) attr_must_use;

#endif

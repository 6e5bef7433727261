/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/http1.h - HTTP/1.1 over a wire, as server or as client: one exchange after the other. */
#ifndef CAY_GATEWAY_HTTP1_H
#define CAY_GATEWAY_HTTP1_H

#include "base/buf.h"
#include "gateway/channel.h"
#include "gateway/wire.h"

#define WEBSOCKET_KEY_SIZE 24 /* base64 of 16 bytes */

struct http1 {
	struct channel ch;
	struct wire *w; /* borrowed */
	bool server;
	struct buf in; /* received; used up to @at */
	size_t at;
	struct buf out; /* to be sent with the next flush */
	struct http_body_reader reader;
	struct buf trailer_text;
	bool peer_closes;   /* it said so */
	bool we_close;      /* we said so, or must */
	bool asked_head;    /* the request was HEAD */
	bool asked_upgrade; /* the request asked for a WebSocket */
	bool chunks;        /* the body that is being sent is chunked */
	bool old_client;    /* HTTP/1.0 */
	bool broken;        /* by channel_abort(): the owner must reset the connection */
	bool sending;       /* a message was begun and has not ended */
};

/** http1_init() - @w stays the caller's. */
void http1_init(struct http1 *h, struct wire *w, bool server);

/** http1_fini() - release the buffers. */
void http1_fini(struct http1 *h);

/**
 * http1_wait() - wait for the first byte of the next message; gives memory back meanwhile.
 * Return: 1; 0 at the end; -errno; -ETIMEDOUT. Context: fiber; waits.
 */
int http1_wait(struct http1 *h, uint64_t deadline_ns) attr_must_use;

/** http1_reusable() - have both messages ended in a way that lets another exchange follow? */
bool http1_reusable(const struct http1 *h);

/** http1_raw() - bytes received behind the head, for an upgraded connection; consumed by the call. Views into @h->in. */
size_t http1_raw(struct http1 *h, char **ret);

#endif

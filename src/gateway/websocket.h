/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/websocket.h - WebSocket between two HTTP/1 connections that have agreed on it: frame by frame, read and written anew, counted. */
#ifndef CAY_GATEWAY_WEBSOCKET_H
#define CAY_GATEWAY_WEBSOCKET_H

#include "gateway/exchange.h"
#include "gateway/http1.h"

/** websocket_agreed() - does the answer of @x, a 101, agree to its request's key (RFC 6455 4.2.2)? */
bool websocket_agreed(const struct exchange *x);

/** websocket_relay() - until both sides are done or one breaks the protocol. Fills @x->ws_*. Context: fiber; waits. */
void websocket_relay(struct exchange *x, struct http1 *front, struct http1 *back);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* gateway/serve.c - the way of an accepted connection into the HTTP side. */
#include "gateway/conn.h"

void conn_serve_http(struct conn *c)
{
	conn_denied(c, "connection", "this gateway does not look into HTTP");
	conn_reset(c);
}

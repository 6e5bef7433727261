/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: api/requester.h - who asked for what a fiber does: the other end of its connection, as the kernel knows it. Told in the `cause` of events of what somebody has to answer for. */
#ifndef CAY_API_REQUESTER_H
#define CAY_API_REQUESTER_H

#include "events/journal.h"
#include "io/http_server.h"

/** struct requester - of one request; on the stack of its fiber. */
struct requester {
	uid_t uid;
	pid_t pid;
	bool looked;      /* for its name */
	char command[64]; /* what the process calls itself; empty: nobody knows */
};

/** requester_begin() - from here on this fiber works for the other end of @conn. */
void requester_begin(struct requester *requester, const struct http_conn *conn);

/** requester_end() - no longer; in the same fiber. */
void requester_end(void);

/** requester_cause() - {"uid","pid","command"?} for an event of @type, where this fiber works for somebody and the type is told so; NULL otherwise. New reference. */
json_t *requester_cause(enum event_type type);

#endif

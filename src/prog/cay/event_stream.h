/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/event_stream.h - reading the event log, of everything or of one sandbox, as lines for people or as JSON. */
#ifndef CAY_PROG_CAY_EVENT_STREAM_H
#define CAY_PROG_CAY_EVENT_STREAM_H

#include "prog/cay/cli.h"

/** event_put_fn - append what people see of event @e to @out, with its newline; nothing when it is not shown. */
typedef void event_put_fn(const struct cli *cli, struct buf *out, const json_t *e);

/** event_shown_fn - is this event type (wire name) shown? */
typedef bool event_shown_fn(const char *type);

/**
 * event_stream() - print the events that the command line asks for (the first positional argument, --from, --until, --follow, --json).
 * @put: for people. @shown: NULL: all. Return: 0, or negative with @cli->err filled.
 */
int event_stream(struct cli *cli, event_put_fn *put, event_shown_fn *shown);

#endif

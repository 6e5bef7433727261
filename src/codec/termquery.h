/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/termquery.h - takes out of a terminal's output what the terminal would answer.
 *
 * Programs ask a terminal what it is, where its cursor is, which colours it has, and it answers as if the answer had been typed. Output that is shown a second time asks a second
 * time, and nobody expects that answer: an editor takes it for text. Taken out are: device attributes and status, cursor position (CSI c, n), modes (CSI $p), version, keyboard,
 * window and sixel reports (CSI >q, ?u, ?m, ?S, t, x and their like), colours and selections (OSC … ?), DCS +q and $q, pictures that only ask (APC G … a=q), DECID (ESC Z) and ENQ. All
 * else stays as it is, byte by byte.
 * Source: ECMA-48 for the form of control sequences; XTerm Control Sequences (ctlseqs) and the kitty protocols for which of them are answered.
 */
#ifndef CAY_CODEC_TERMQUERY_H
#define CAY_CODEC_TERMQUERY_H

#include "base/buf.h"

#define TERMQUERY_MAX 4096 /* bytes of a sequence; a longer one counts as no question */

/** struct termquery - begins as zeros. */
struct termquery {
	bool skips; /* within a question whose end has not come */
	size_t n;   /* of a sequence whose end has not come, */
	char held[TERMQUERY_MAX];
};

/** termquery_strip() - add the next @n bytes at @p to @out, without questions. A sequence that is not complete is held. */
void termquery_strip(struct termquery *t, const char *p, size_t n, struct buf *out);

/** termquery_end() - add what is held to @out: what comes next is not to be looked at. */
void termquery_end(struct termquery *t, struct buf *out);

#endif

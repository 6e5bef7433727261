/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/wsframe.h"

#include <string.h>

void wsframe_mask(const unsigned char mask[4], uint64_t at, unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] ^= mask[(at + i) & 3];
}

static bool is_control(enum wsframe_op op)
{
	return op >= WSFRAME_CLOSE;
}

static bool is_known(unsigned int op)
{
	return op <= WSFRAME_BINARY || (op >= WSFRAME_CLOSE && op <= WSFRAME_PONG);
}

/* Size of a head that begins with these two bytes. */
static size_t head_size(const unsigned char *p)
{
	unsigned int length = p[1] & 0x7f;

	return 2U + (length == 126 ? 2U : 0U) + (length == 127 ? 8U : 0U) +
	       ((p[1] & 0x80) != 0 ? 4U : 0U);
}

static uint64_t big_endian(const unsigned char *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

static int check(const struct wsframe_reader *r, const struct wsframe *f)
{
	if (f->masked != r->from_client)
		return -EBADMSG;
	if (is_control(f->op))
		return f->fin && f->size <= WSFRAME_CONTROL_MAX ? 0 : -EBADMSG;
	return (f->op == WSFRAME_CONTINUATION) == r->in_message ? 0 : -EBADMSG;
}

static int parse_head(struct wsframe_reader *r)
{
	const unsigned char *p = r->head;
	unsigned int length = p[1] & 0x7f;
	size_t extra = length == 126 ? 2 : length == 127 ? 8 : 0;

	if ((p[0] & 0x70) != 0 || !is_known(p[0] & 0x0f))
		return -EBADMSG;
	r->f = (struct wsframe){ .op = (enum wsframe_op)(p[0] & 0x0f),
		.fin = (p[0] & 0x80) != 0,
		.masked = (p[1] & 0x80) != 0,
		.size = extra > 0 ? big_endian(p + 2, extra) : length };
	if ((extra == 2 && r->f.size < 126) ||
		(extra == 8 && (r->f.size <= UINT16_MAX || r->f.size > INT64_MAX)))
		return -EBADMSG;
	if (r->f.masked)
		memcpy(r->f.mask, p + 2 + extra, 4);
	return check(r, &r->f);
}

static int take_head(struct wsframe_reader *r, const unsigned char *p, size_t n, size_t *ret_used)
{
	int rc;

	while (r->head_n < 2 || r->head_n < head_size(r->head)) {
		if (*ret_used == n)
			return WSFRAME_NOTHING;
		r->head[r->head_n++] = p[(*ret_used)++];
	}
	rc = parse_head(r);
	if (rc < 0)
		return rc;
	r->head_n = 0;
	r->at = 0;
	r->in_payload = true;
	if (!is_control(r->f.op))
		r->in_message = !r->f.fin;
	return WSFRAME_BEGIN;
}

int wsframe_next(
	struct wsframe_reader *r, unsigned char *p, size_t n, size_t *ret_used, size_t *ret_piece_n)
{
	uint64_t left;

	*ret_used = *ret_piece_n = 0;
	if (!r->in_payload)
		return take_head(r, p, n, ret_used);
	left = r->f.size - r->at;
	if (left == 0) {
		r->in_payload = false;
		return WSFRAME_END;
	}
	if (n == 0)
		return WSFRAME_NOTHING;
	*ret_piece_n = *ret_used = n < left ? n : (size_t)left;
	if (r->f.masked)
		wsframe_mask(r->f.mask, r->at, p, *ret_used);
	r->at += *ret_used;
	return WSFRAME_PIECE;
}

size_t wsframe_head(const struct wsframe *f, unsigned char out[WSFRAME_HEAD_MAX])
{
	size_t used = 2, extra = f->size < 126 ? 0 : f->size <= UINT16_MAX ? 2 : 8;

	out[0] = (unsigned char)((f->fin ? 0x80 : 0) | (unsigned int)f->op);
	out[1] = (unsigned char)((f->masked ? 0x80 : 0) | (extra == 0          ? f->size
								  : extra == 2 ? 126
									       : 127));
	for (size_t i = 0; i < extra; i++)
		out[used++] = (unsigned char)(f->size >> (8 * (extra - 1 - i)));
	if (f->masked) {
		memcpy(out + used, f->mask, 4);
		used += 4;
	}
	return used;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder is a row of stages, one for each coding, the one that was applied last first; what comes out of one goes into the next, the last one's into the sink. */
#include "gateway/body.h"

#include <brotli/decode.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#define STEP          16384U
#define CODINGS_MAX   4
#define INFLATE_BYTES (64U << 10)
#define WINDOW_LOG    23 /* zstd: 8 MiB, as RFC 8878 asks of HTTP */

enum coding { IDENTITY, GZIP, DEFLATE, BROTLI, ZSTANDARD };

struct stage {
	struct body_decoder *of;
	struct stage *next; /* NULL: the sink is */
	enum coding coding;
	bool begun;
	bool whole; /* its end has come */
	size_t out; /* bytes that came out */
	z_stream z;
	BrotliDecoderState *br;
	ZSTD_DCtx *zstd;
};

struct body_decoder {
	struct stage stages[CODINGS_MAX];
	size_t n, max;
	body_sink *sink;
	void *ctx;
};

static int feed(struct stage *s, const char *p, size_t n);

/* @n bytes came out of @s. */
static int give(struct stage *s, const char *p, size_t n)
{
	size_t left = s->of->max - s->out, part = n < left ? n : left;
	int rc = 0;

	s->out += part;
	if (part > 0)
		rc = s->next != NULL ? feed(s->next, p, part) : s->of->sink(s->of->ctx, p, part);
	return rc == 0 && part < n ? -EMSGSIZE : rc;
}

/* Under the name deflate raw streams are sent as well as zlib's format; none that is written by an encoder begins as the other does, and one that is made to is read as zlib's. */
static int begin_inflate(struct stage *s, const char *p)
{
	unsigned char head = (unsigned char)*p;
	bool zlib = (head & 0x0f) == 8 && head >> 4 <= 7;
	int window = s->coding == GZIP ? MAX_WBITS + 16 : zlib ? MAX_WBITS : -MAX_WBITS;

	s->begun = true;
	return inflateInit2(&s->z, window) == Z_OK ? 0 : -ENOMEM;
}

static int feed_inflate(struct stage *s, const char *p, size_t n)
{
	char out[STEP];
	int rc = s->begun ? 0 : begin_inflate(s, p), z = Z_OK;

	s->z.next_in = (Bytef *)(uintptr_t)p;
	s->z.avail_in = (uInt)n;
	while (rc == 0 && (s->z.avail_in > 0 || s->z.avail_out == 0)) {
		if (s->whole && s->coding == DEFLATE)
			return 0;
		if (s->whole && s->z.avail_in == 0)
			return 0;
		if (s->whole) /* gzip members may follow one another */
			rc = inflateReset(&s->z) == Z_OK ? 0 : -EBADMSG;
		s->whole = false;
		s->z.next_out = (Bytef *)out;
		s->z.avail_out = sizeof(out);
		z = inflate(&s->z, Z_NO_FLUSH);
		s->whole = z == Z_STREAM_END;
		if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR)
			rc = -EBADMSG;
		if (s->z.avail_out < sizeof(out)) {
			int given = give(s, out, sizeof(out) - s->z.avail_out);

			rc = given < 0 ? given : rc;
		}
	}
	return rc;
}

static int feed_br(struct stage *s, const char *p, size_t n)
{
	const uint8_t *in = (const uint8_t *)p;
	BrotliDecoderResult got = BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT;
	char out[STEP];
	int rc = 0;

	if (s->br == NULL)
		s->br = BrotliDecoderCreateInstance(NULL, NULL, NULL);
	if (s->br == NULL)
		return -ENOMEM;
	while (rc == 0 && !s->whole && got == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT) {
		uint8_t *to = (uint8_t *)out;
		size_t left = sizeof(out);

		got = BrotliDecoderDecompressStream(s->br, &n, &in, &left, &to, NULL);
		rc = give(s, out, sizeof(out) - left);
		s->whole = got == BROTLI_DECODER_RESULT_SUCCESS;
		if (rc == 0 && got == BROTLI_DECODER_RESULT_ERROR)
			rc = -EBADMSG;
	}
	return rc;
}

static int feed_zstd(struct stage *s, const char *p, size_t n)
{
	ZSTD_inBuffer in = { p, n, 0 };
	char out[STEP];
	int rc = 0;

	if (s->zstd == NULL) {
		s->zstd = ZSTD_createDCtx();
		if (s->zstd == NULL)
			return -ENOMEM;
		(void)ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, WINDOW_LOG);
	}
	for (bool more = true; rc == 0 && more;) {
		ZSTD_outBuffer to = { out, sizeof(out), 0 };
		size_t got = ZSTD_decompressStream(s->zstd, &to, &in);

		if (ZSTD_isError(got))
			return -EBADMSG;
		s->whole = got == 0;
		rc = give(s, out, to.pos);
		more = in.pos < in.size || (got != 0 && to.pos == sizeof(out));
	}
	return rc;
}

static int feed(struct stage *s, const char *p, size_t n)
{
	if (n == 0)
		return 0;
	switch (s->coding) {
	case IDENTITY:
		return give(s, p, n);
	case GZIP:
	case DEFLATE:
		return feed_inflate(s, p, n);
	case BROTLI:
		return feed_br(s, p, n);
	case ZSTANDARD:
		return feed_zstd(s, p, n);
	}
	return -EOPNOTSUPP;
}

static int coding_of(struct policy_text name, enum coding *ret)
{
	static const struct {
		const char *name;
		enum coding coding;
	} known[] = { { "identity", IDENTITY }, { "gzip", GZIP }, { "x-gzip", GZIP },
		{ "deflate", DEFLATE }, { "br", BROTLI }, { "zstd", ZSTANDARD } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (name.n == strlen(known[i].name) &&
			strncasecmp(name.p, known[i].name, name.n) == 0) {
			*ret = known[i].coding;
			return 0;
		}
	}
	return -EOPNOTSUPP;
}

/* The last word of the list @t, cut off. */
static struct policy_text last_word(struct policy_text *t)
{
	size_t end = t->n, from;

	while (end > 0 && strchr(" \t,", t->p[end - 1]) != NULL)
		end--;
	for (from = end; from > 0 && strchr(" \t,", t->p[from - 1]) == NULL;)
		from--;
	t->n = from;
	return (struct policy_text){ t->p + from, end - from };
}

size_t body_window(struct policy_text coding)
{
	struct policy_text word;
	size_t bytes = 0;
	enum coding one;

	while ((word = last_word(&coding)).n > 0) {
		if (coding_of(word, &one) < 0 || one == BROTLI || one == ZSTANDARD)
			return BODY_WINDOW_MAX;
		bytes += one != IDENTITY ? INFLATE_BYTES : 0;
	}
	return bytes < BODY_WINDOW_MAX ? bytes : BODY_WINDOW_MAX;
}

struct body_decoder *body_decoder_new(
	struct policy_text coding, size_t max, body_sink *sink, void *ctx)
{
	struct body_decoder *d = xnew(struct body_decoder);
	struct policy_text word;
	size_t large = 0;
	int rc = 0;

	d->max = max;
	d->sink = sink;
	d->ctx = ctx;
	while (rc == 0 && (word = last_word(&coding)).n > 0) {
		struct stage *s = &d->stages[d->n];

		rc = d->n++ == CODINGS_MAX ? -EOPNOTSUPP : coding_of(word, &s->coding);
		large += rc == 0 && (s->coding == BROTLI || s->coding == ZSTANDARD);
	}
	if (rc < 0 || large > 1) { /* each has a window of its own: BODY_WINDOW_MAX is for one */
		free(d);
		return NULL;
	}
	if (d->n == 0)
		d->n = 1; /* identity */
	for (size_t i = 0; i < d->n; i++) {
		d->stages[i].of = d;
		d->stages[i].next = i + 1 < d->n ? &d->stages[i + 1] : NULL;
	}
	return d;
}

int body_decoder_feed(struct body_decoder *d, const void *p, size_t n)
{
	const char *at = p;
	int rc = 0;

	while (rc == 0 && n > 0) {
		size_t part = n < UINT32_MAX / 2 ? n : UINT32_MAX / 2;

		rc = feed(&d->stages[0], at, part);
		at += part;
		n -= part;
	}
	return rc;
}

int body_decoder_end(struct body_decoder *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->stages[i].coding != IDENTITY && !d->stages[i].whole)
			return -EBADMSG;
	return 0;
}

void body_decoder_free(struct body_decoder *d)
{
	if (d == NULL)
		return;
	for (size_t i = 0; i < d->n; i++) {
		if (d->stages[i].begun)
			(void)inflateEnd(&d->stages[i].z);
		BrotliDecoderDestroyInstance(d->stages[i].br);
		(void)ZSTD_freeDCtx(d->stages[i].zstd);
	}
	free(d);
}

/* ---- at once ---------------------------------------------------------------------------------------------------------------- */

static int append(void *ctx, const char *p, size_t n)
{
	buf_add(ctx, p, n);
	return buf_failed(ctx) ? -EMSGSIZE : 0;
}

int body_decode(struct policy_text coding, const void *p, size_t n, bool partial, struct buf *out)
{
	struct body_decoder *d = body_decoder_new(coding, out->max - out->n, append, out);
	int rc;

	if (d == NULL)
		return -EOPNOTSUPP;
	rc = body_decoder_feed(d, p, n);
	if (rc == 0 && !partial)
		rc = body_decoder_end(d);
	body_decoder_free(d);
	return rc;
}

json_t *body_json(struct policy_text coding, const void *p, size_t n, size_t max)
{
	struct buf plain = BUF_INIT(max);
	json_t *value = NULL;

	if (body_decode(coding, p, n, false, &plain) == 0)
		value = json_loadb(
			buf_cstr(&plain), plain.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	buf_free(&plain);
	return value;
}

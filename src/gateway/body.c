/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/body.h"

#include <brotli/decode.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#define STEP        16384U
#define CODINGS_MAX 4
#define WINDOW_LOG  23 /* zstd: 8 MiB, as RFC 8878 asks of HTTP */

/* Space for the next step of output; NULL when the limit is reached. */
static char *room(struct buf *out, size_t *ret_n)
{
	size_t left = out->max - out->n;

	*ret_n = left < STEP ? left : STEP;
	return left > 0 ? buf_room(out, *ret_n) : NULL;
}

static int inflate_with(int window, const void *p, size_t n, bool partial, struct buf *out)
{
	z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n };
	int rc = inflateInit2(&z, window) == Z_OK ? Z_OK : Z_MEM_ERROR, result = -EBADMSG;

	while (rc == Z_OK) {
		size_t size;

		z.next_out = (Bytef *)room(out, &size);
		if (z.next_out == NULL) {
			result = -EMSGSIZE;
			break;
		}
		z.avail_out = (uInt)size;
		rc = inflate(&z, Z_NO_FLUSH);
		buf_grown(out, size - z.avail_out);
		if (rc == Z_STREAM_END && z.avail_in > 0 && window > MAX_WBITS)
			rc = inflateReset(&z); /* gzip members may follow one another */
		else if (rc == Z_BUF_ERROR && partial && z.avail_in == 0)
			rc = Z_STREAM_END;
	}
	(void)inflateEnd(&z);
	return rc == Z_STREAM_END ? 0 : result;
}

static int decode_gzip(const void *p, size_t n, bool partial, struct buf *out)
{
	return inflate_with(MAX_WBITS + 16, p, n, partial, out);
}

/* Servers send raw deflate as well as zlib's format under this name. */
static int decode_deflate(const void *p, size_t n, bool partial, struct buf *out)
{
	const unsigned char *head = p;
	bool zlib = n >= 2 && (head[0] & 0x0f) == 8 && (head[0] << 8 | head[1]) % 31 == 0;

	return inflate_with(zlib ? MAX_WBITS : -MAX_WBITS, p, n, partial, out);
}

static int decode_br(const void *p, size_t n, bool partial, struct buf *out)
{
	BrotliDecoderState *s = BrotliDecoderCreateInstance(NULL, NULL, NULL);
	const uint8_t *in = p;
	int result = -EBADMSG;

	while (s != NULL) {
		size_t size, left;
		uint8_t *to = (uint8_t *)room(out, &size);
		BrotliDecoderResult rc;

		if (to == NULL) {
			result = -EMSGSIZE;
			break;
		}
		left = size;
		rc = BrotliDecoderDecompressStream(s, &n, &in, &left, &to, NULL);
		buf_grown(out, size - left);
		if (rc == BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT)
			continue;
		if (rc == BROTLI_DECODER_RESULT_SUCCESS ||
			(rc == BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT && partial))
			result = 0;
		break;
	}
	BrotliDecoderDestroyInstance(s);
	return result;
}

static int decode_zstd(const void *p, size_t n, bool partial, struct buf *out)
{
	ZSTD_DCtx *z = ZSTD_createDCtx();
	ZSTD_inBuffer in = { p, n, 0 };
	size_t rc = 1;
	int result = -EBADMSG;

	if (z != NULL)
		(void)ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG);
	while (z != NULL) {
		ZSTD_outBuffer to = { 0 };

		to.dst = room(out, &to.size);
		if (to.dst == NULL) {
			result = -EMSGSIZE;
			break;
		}
		rc = ZSTD_decompressStream(z, &to, &in);
		buf_grown(out, to.pos);
		if (ZSTD_isError(rc))
			break;
		if (in.pos == in.size && to.pos < to.size) {
			result = rc == 0 || partial ? 0 : -EBADMSG;
			break;
		}
	}
	(void)ZSTD_freeDCtx(z);
	return result;
}

static int copy_plain(const void *p, size_t n, attr_unused bool partial, struct buf *out)
{
	buf_add(out, p, n);
	return buf_failed(out) ? -EMSGSIZE : 0;
}

typedef int decoder(const void *p, size_t n, bool partial, struct buf *out);

static decoder *decoder_of(struct policy_text name)
{
	static const struct {
		const char *name;
		decoder *decode;
	} known[] = { { "identity", copy_plain }, { "gzip", decode_gzip },
		{ "x-gzip", decode_gzip }, { "deflate", decode_deflate }, { "br", decode_br },
		{ "zstd", decode_zstd } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (name.n == strlen(known[i].name) &&
			strncasecmp(name.p, known[i].name, name.n) == 0)
			return known[i].decode;
	}
	return NULL;
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

int body_decode(struct policy_text coding, const void *p, size_t n, bool partial, struct buf *out)
{
	struct buf between = BUF_INIT(out->max);
	int rc = 0;

	if (n > UINT32_MAX / 2)
		return -EMSGSIZE;
	for (int i = 0;; i++) { /* the one that was applied last comes off first */
		struct policy_text word = last_word(&coding);
		decoder *decode = word.n > 0 ? decoder_of(word) : copy_plain;

		if (word.n == 0 && i > 0)
			break;
		if (decode == NULL || i == CODINGS_MAX) {
			rc = -EOPNOTSUPP;
			break;
		}
		buf_free(&between);
		between = *out;
		*out = (struct buf)BUF_INIT(between.max);
		rc = decode(i == 0 ? p : buf_cstr(&between), i == 0 ? n : between.n, partial, out);
		if (rc < 0 || word.n == 0)
			break;
	}
	buf_free(&between);
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

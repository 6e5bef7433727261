/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-import/unzip.h"
#include "prog/cay-import/import_hash.h"

#include "base/ablate.h"
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define IN_SIZE    (128U << 10)
#define WINDOW_LOG 27 /* 128 MiB: what zstd itself allows without being asked */

enum format { FORMAT_PLAIN, FORMAT_GZIP, FORMAT_ZSTD };

struct unzip {
	struct blob blob;
	uint64_t at;    /* stored bytes taken so far */
	uint64_t total; /* decompressed bytes given so far */
	uint64_t limit_bytes;
	enum format format;
	bool ended;   /* nothing more comes out */
	bool between; /* between two gzip members or zstd frames */
	struct import_hash *stored, *plain;
	z_stream gzip;
	ZSTD_DStream *zstd;
	size_t in_at, in_n; /* not yet decompressed: in[in_at..in_n] */
	unsigned char in[IN_SIZE];
};

static int refill(struct unzip *u, struct err *err)
{
	uint64_t left = u->blob.size - u->at;
	size_t want = left < IN_SIZE ? (size_t)left : IN_SIZE;
	ssize_t n;

	if (u->in_at < u->in_n || want == 0)
		return 0;
	do {
		n = pread(u->blob.fd, u->in, want, (off_t)(u->blob.offset + u->at));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_raise_sys(err, -errno, "read the archive");
	if (n == 0)
		return err_raise(err, ERR_CORRUPT, "the archive became shorter while it was read");
	import_hash_add(u->stored, u->in, (size_t)n);
	u->at += (uint64_t)n;
	u->in_at = 0;
	u->in_n = (size_t)n;
	return 0;
}

static int start(struct unzip *u, struct err *err)
{
	int rc = refill(u, err);

	if (rc < 0)
		return rc;
	if (u->in_n >= 2 && u->in[0] == 0x1F && u->in[1] == 0x8B) {
		u->format = FORMAT_GZIP;
		/* 16: gzip only, with its header and checksum. */
		if (inflateInit2(&u->gzip, 15 + 16) != Z_OK)
			return err_raise(err, ERR_INTERNAL, "gzip cannot start");
	} else if (u->in_n >= 4 && memcmp(u->in, "\x28\xB5\x2F\xFD", 4) == 0) {
		u->format = FORMAT_ZSTD;
		u->zstd = ZSTD_createDStream();
		if (u->zstd == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(
					       u->zstd, ZSTD_d_windowLogMax, WINDOW_LOG)))
			return err_raise(err, ERR_INTERNAL, "zstd cannot start");
	}
	return 0;
}

struct unzip *unzip_open(
	const struct blob *blob, uint64_t limit_bytes, bool sha512, struct err *err)
{
	struct unzip *u = xnew(struct unzip);

	u->blob = *blob;
	u->limit_bytes = limit_bytes;
	u->stored = import_hash_new(sha512);
	u->plain = import_hash_new(sha512);
	if (start(u, err) == 0)
		return u;
	unzip_close(u);
	return NULL;
}

void unzip_close(struct unzip *u)
{
	if (u == NULL)
		return;
	import_hash_free(u->stored);
	import_hash_free(u->plain);
	if (u->format == FORMAT_GZIP)
		(void)inflateEnd(&u->gzip);
	(void)ZSTD_freeDStream(u->zstd);
	free(u);
}

bool unzip_compressed(const struct unzip *u)
{
	return u->format != FORMAT_PLAIN;
}

static int bad(const struct unzip *u, struct err *err, const char *how)
{
	return err_raise(err, ERR_CORRUPT, "the %s data of the archive is %s, near byte %llu",
		u->format == FORMAT_GZIP ? "gzip" : "zstd", how, (unsigned long long)u->at);
}

/* Behind the last member only zero padding may stand: tape-like writers fill their last block. */
static int padding(struct unzip *u, struct err *err)
{
	for (;;) {
		int rc = refill(u, err);

		if (rc < 0)
			return rc;
		if (u->in_at == u->in_n)
			break;
		for (; u->in_at < u->in_n; u->in_at++)
			if (u->in[u->in_at] != 0)
				return bad(u, err, "followed by something else");
	}
	u->ended = true;
	return 0;
}

static ssize_t step_gzip(struct unzip *u, unsigned char *out, size_t n, struct err *err)
{
	int rc;

	if (u->between) {
		if (u->in[u->in_at] != 0x1F)
			return padding(u, err);
		(void)inflateReset(&u->gzip);
		u->between = false;
	}
	u->gzip.next_in = u->in + u->in_at;
	u->gzip.avail_in = (unsigned int)(u->in_n - u->in_at);
	u->gzip.next_out = out;
	u->gzip.avail_out = (unsigned int)n;
	rc = inflate(&u->gzip, Z_NO_FLUSH);
	u->in_at = u->in_n - u->gzip.avail_in;
	if (rc == Z_STREAM_END)
		u->between = true;
	else if (rc != Z_OK && rc != Z_BUF_ERROR)
		return bad(u, err, "damaged");
	return (ssize_t)(n - u->gzip.avail_out);
}

static ssize_t step_zstd(struct unzip *u, unsigned char *out, size_t n, struct err *err)
{
	ZSTD_inBuffer in = { u->in + u->in_at, u->in_n - u->in_at, 0 };
	ZSTD_outBuffer to = { out, n, 0 };
	size_t rc = ZSTD_decompressStream(u->zstd, &to, &in);

	u->in_at += in.pos;
	if (ZSTD_isError(rc))
		return bad(u, err, "damaged");
	u->between = rc == 0;
	return (ssize_t)to.pos;
}

static ssize_t step_plain(struct unzip *u, unsigned char *out, size_t n)
{
	size_t have = u->in_n - u->in_at, step = have < n ? have : n;

	memcpy(out, u->in + u->in_at, step);
	u->in_at += step;
	return (ssize_t)step;
}

static ssize_t step(struct unzip *u, unsigned char *out, size_t n, struct err *err)
{
	int rc = refill(u, err);

	if (rc < 0)
		return rc;
	if (u->in_at == u->in_n && (u->format == FORMAT_PLAIN || u->between)) {
		u->ended = true;
		return 0;
	}
	if (u->in_at == u->in_n && u->format == FORMAT_GZIP)
		return bad(u, err, "cut off");
	switch (u->format) {
	case FORMAT_GZIP:
		return step_gzip(u, out, n, err);
	case FORMAT_ZSTD: {
		/* With no input left, zstd may still hold output; when none comes the frame is cut off. */
		bool dry = u->in_at == u->in_n;
		ssize_t got = step_zstd(u, out, n, err);

		return got == 0 && dry && !u->between ? bad(u, err, "cut off") : got;
	}
	case FORMAT_PLAIN:
	default:
		return step_plain(u, out, n);
	}
}

static int account(struct unzip *u, size_t n, struct err *err)
{
	u->total += n;
	if (ablated("archive_caps"))
		return 0;
	if (u->total > u->limit_bytes)
		return err_hint(err,
			err_raise(err, ERR_HOSTILE_ARCHIVE,
				"the archive holds more than %llu bytes",
				(unsigned long long)u->limit_bytes),
			"raise limit_bytes of the import (cay image import --limit-bytes) if the archive is honest");
	if (u->total > UNZIP_RATIO_FROM && u->total / UNZIP_RATIO_MAX > u->at)
		return err_hint(err,
			err_raise(err, ERR_HOSTILE_ARCHIVE,
				"the archive decompresses to more than %d times its size",
				UNZIP_RATIO_MAX),
			"decompress it first if it is honest");
	return 0;
}

ssize_t unzip_read(void *context, void *bytes, size_t n, struct err *err)
{
	struct unzip *u = context;
	size_t done = 0;

	while (done < n && !u->ended) {
		ssize_t got = step(u, (unsigned char *)bytes + done, n - done, err);
		int rc;

		if (got < 0)
			return got;
		rc = account(u, (size_t)got, err);
		if (rc < 0)
			return rc;
		done += (size_t)got;
	}
	if (unzip_compressed(u)) /* else it is the other digest */
		import_hash_add(u->plain, bytes, done);
	return (ssize_t)done;
}

int unzip_drain(struct unzip *u, struct err *err)
{
	char waste[32768];
	ssize_t n;

	do {
		n = unzip_read(u, waste, sizeof(waste), err);
	} while (n > 0);
	return (int)n;
}

void unzip_digests(struct unzip *u, char stored[REFERENCE_DIGEST_MAX + 1],
	char plain[REFERENCE_DIGEST_MAX + 1])
{
	import_hash_text(u->stored, stored, REFERENCE_DIGEST_MAX + 1);
	if (unzip_compressed(u))
		import_hash_text(u->plain, plain, REFERENCE_DIGEST_MAX + 1);
	else
		memcpy(plain, stored, REFERENCE_DIGEST_MAX + 1);
}

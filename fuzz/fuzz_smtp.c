/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/smtp.h"
#include "fuzz/fuzz.h"

/* What is said and kept does not depend on how the bytes arrive. */
static void talk(const uint8_t *data, size_t size, size_t piece, struct buf *said)
{
	struct smtp s;
	size_t at = 0;

	smtp_init(&s, "mx", true, false);
	smtp_greet(&s, said);
	while (at < size) {
		size_t used = 0, n = size - at < piece ? size - at : piece;
		enum smtp_step step = smtp_feed(&s, (const char *)data + at, n, &used, said);

		MUST(used <= n && (step != SMTP_MORE || used == n));
		at += used;
		if (step == SMTP_MESSAGE) {
			MUST(s.n_recipients > 0 && !s.oversize);
			buf_add(said, s.message.p, s.message.n);
			smtp_accept(&s, "x", said);
		} else if (step == SMTP_STARTTLS) {
			smtp_secured(&s);
		} else if (step == SMTP_QUIT) {
			break;
		}
	}
	smtp_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = BUF_INIT(1 << 24), pieces = BUF_INIT(1 << 24);

	talk(data, size, size + 1, &whole);
	talk(data, size, size > 0 ? data[0] % 9 + 1 : 1, &pieces);
	MUST(whole.n == pieces.n && memcmp(whole.p, pieces.p, whole.n) == 0);
	buf_free(&whole);
	buf_free(&pieces);
	return 0;
}

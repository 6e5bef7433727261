/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/base64.h"
#include "t.h"

#include <string.h>

TEST(the_vectors_of_rfc_4648)
{
	static const char *const pairs[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
		{ "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" }, { "\xfb\xff", "+/8=" } };

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		cleanup_free char *text = base64_encode(pairs[i][0], strlen(pairs[i][0]));
		cleanup_buf struct buf out = BUF_INIT(100);

		check_str(text, pairs[i][1]);
		check_int(base64_decode(text, strlen(text), &out), 0);
		check_str(buf_cstr(&out), pairs[i][0]);
	}
}

TEST(other_spellings_are_refused)
{
	static const char *const texts[] = { "Zg",
		"Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9v", "Zm9v\n", "Zm-_",
		"=Zm9" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		cleanup_buf struct buf out = BUF_INIT(100);

		if (base64_decode(texts[i], strlen(texts[i]), &out) == 0)
			t_fail("'%s' was taken", texts[i]);
	}
}

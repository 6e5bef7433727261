/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "store/digest.h"

#include <string.h>

static void check_digest(const unsigned char digest[DIGEST_SIZE], const char *want)
{
	char text[DIGEST_TEXT_SIZE];

	digest_text(digest, text);
	check_str(text, want);
}

TEST(sha256_of_fips_180)
{
	unsigned char digest[DIGEST_SIZE];

	digest_bytes("", 0, digest);
	check_digest(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	digest_bytes("abc", 3, digest);
	check_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* RFC 4231, test case 1, whose 20-byte key is padded with zeros to a block anyway. */
TEST(hmac_of_rfc_4231)
{
	unsigned char key[DIGEST_SIZE] = { 0 }, digest[DIGEST_SIZE];

	memset(key, 0x0b, 20);
	digest_hmac(key, "Hi There", 8, digest);
	check_digest(digest, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

TEST(file_from_its_start)
{
	unsigned char digest[DIGEST_SIZE];
	FILE *f = tmpfile();

	check(f != NULL);
	(void)fputs("abc", f);
	(void)fflush(f);
	check_int(digest_file(fileno(f), digest), 0);
	check_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	(void)fclose(f);
	check_int(digest_file(-1, digest), -EBADF);
}

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
	check_int(digest_file(fileno(f), 3, digest), 0);
	check_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	check_int(digest_file(fileno(f), UINT64_MAX, digest), 0);
	check_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	/* terabytes of holes that came since */
	check_int(ftruncate(fileno(f), (off_t)1 << 43), 0);
	check_int(digest_file(fileno(f), 3, digest), 0);
	check_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	(void)fclose(f);
	check_int(digest_file(-1, 3, digest), -EBADF);
}

/* The same bytes, stored in another way, are the same; each place of a byte is another content, and so is each size. */
TEST(data_is_told_by_content_alone)
{
	static char zeros[3 << 16];
	unsigned char hole[DIGEST_SIZE], stored[DIGEST_SIZE], other[DIGEST_SIZE];
	FILE *a = tmpfile(), *b = tmpfile();
	int fa, fb;

	check(a != NULL && b != NULL);
	fa = fileno(a);
	fb = fileno(b);
	check_int(ftruncate(fa, sizeof(zeros)), 0);
	check_int(pwrite(fb, zeros, sizeof(zeros), 0), (int)sizeof(zeros));
	check_int(pwrite(fa, "x", 1, 70000), 1);
	check_int(pwrite(fb, "x", 1, 70000), 1);
	check_int(digest_data(fa, hole), 0);
	check_int(digest_data(fb, stored), 0);
	check(memcmp(hole, stored, sizeof(hole)) == 0);
	check_int(ftruncate(fa, sizeof(zeros) + 1), 0);
	check_int(digest_data(fa, other), 0);
	check(memcmp(other, hole, sizeof(other)) != 0);
	check_int(pwrite(fb, "\0x", 2, 70000), 2);
	check_int(digest_data(fb, other), 0);
	check(memcmp(other, stored, sizeof(other)) != 0);
	(void)fclose(a);
	(void)fclose(b);
	check_int(digest_data(-1, other), -EBADF);
}

/* One call makes such a file, and reading all of it would take centuries. */
TEST(data_costs_what_is_stored)
{
	unsigned char digest[DIGEST_SIZE];
	FILE *f = tmpfile();

	check(f != NULL);
	check_int(ftruncate(fileno(f), 1LL << 42), 0);
	check_int(pwrite(fileno(f), "x", 1, 1LL << 41), 1);
	check_int(digest_data(fileno(f), digest), 0);
	(void)fclose(f);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and signatures of AWS's own documentation: IAM User Guide and "Authenticating Requests" of the S3 API reference. */
#include "gateway/sigv4.h"
#include "t.h"

#define SECRET_IAM "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define SECRET_S3  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define NOBODY     "0000000000000000000000000000000000000000000000000000000000000000"
#define EMPTY      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define S3_SIGNED(names) \
	"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=" names \
	",Signature=" NOBODY

static struct head request(
	const char *method, const char *host, const char *path, const char *query)
{
	struct head h = { .method = text_of(method),
		.authority = text_of(host),
		.path = text_of(path),
		.has_query = query != NULL };

	if (query != NULL)
		h.query = text_of(query);
	return h;
}

static void field(struct head *h, const char *name, const char *value)
{
	check_int(head_add(h, name, text_of(value)), 0);
}

static void makes(const struct head *h, const char *hash, const char *secret, const char *want)
{
	struct arena arena = ARENA_INIT(65536);
	char got[SIGV4_HEX + 1];
	const char *why = NULL;
	struct sigv4 s;

	check_int(sigv4_find(h, &arena, &s, &why), 0);
	check_int(sigv4_make(h, &s, hash, secret, got), 0);
	check_str(got, want);
	arena_free(&arena);
}

TEST(the_hash_of_a_body_that_the_head_does_not_say)
{
	struct head h =
		request("GET", "iam.amazonaws.com", "/", "Version=2010-05-08&Action=ListUsers");
	struct arena arena = ARENA_INIT(65536);

	field(&h, "content-type", "application/x-www-form-urlencoded; charset=utf-8");
	field(&h, "x-amz-date", "20150830T123600Z");
	field(&h, "authorization",
		"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=" NOBODY);
	check(sigv4_wants_body(&h, &arena));
	makes(&h, EMPTY, SECRET_IAM,
		"5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7");
	arena_free(&arena);
}

TEST(a_get_of_s3)
{
	struct head h = request("GET", "examplebucket.s3.amazonaws.com", "/test.txt", NULL);

	field(&h, "range", "bytes=0-9");
	field(&h, "x-amz-content-sha256", EMPTY);
	field(&h, "x-amz-date", "20130524T000000Z");
	field(&h, "authorization", S3_SIGNED("host;range;x-amz-content-sha256;x-amz-date"));
	makes(&h, EMPTY, SECRET_S3,
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(a_put_of_s3_with_a_payload_hash_and_a_name_that_needs_escapes)
{
	struct head h = request("PUT", "examplebucket.s3.amazonaws.com", "/test$file.text", NULL);

	field(&h, "date", "Fri, 24 May 2013 00:00:00 GMT");
	field(&h, "x-amz-date", "20130524T000000Z");
	field(&h, "x-amz-storage-class", "REDUCED_REDUNDANCY");
	field(&h, "x-amz-content-sha256",
		"44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
	field(&h, "authorization",
		S3_SIGNED("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class"));
	makes(&h, "not looked at", SECRET_S3,
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(a_query_without_values)
{
	struct head h = request("GET", "examplebucket.s3.amazonaws.com", "/", "lifecycle");

	field(&h, "x-amz-date", "20130524T000000Z");
	field(&h, "x-amz-content-sha256", EMPTY);
	field(&h, "authorization", S3_SIGNED("host;x-amz-content-sha256;x-amz-date"));
	makes(&h, EMPTY, SECRET_S3,
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(parameters_in_order)
{
	struct head h =
		request("GET", "examplebucket.s3.amazonaws.com", "/", "prefix=J&max-keys=2");

	field(&h, "x-amz-date", "20130524T000000Z");
	field(&h, "x-amz-content-sha256", EMPTY);
	field(&h, "authorization", S3_SIGNED("host;x-amz-content-sha256;x-amz-date"));
	makes(&h, EMPTY, SECRET_S3,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(a_presigned_url)
{
	struct head h = request("GET", "examplebucket.s3.amazonaws.com", "/test.txt",
		"X-Amz-Algorithm=AWS4-HMAC-SHA256"
		"&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=" NOBODY);

	makes(&h, EMPTY, SECRET_S3,
		"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

static int found(const char *authorization, const char *payload, const char **ret_why)
{
	struct head h = request("GET", "a.example", "/", NULL);
	struct arena arena = ARENA_INIT(65536);
	struct sigv4 s;
	int rc;

	field(&h, "x-amz-date", "20130524T000000Z");
	if (payload != NULL)
		field(&h, "x-amz-content-sha256", payload);
	field(&h, "authorization", authorization);
	rc = sigv4_find(&h, &arena, &s, ret_why);
	arena_free(&arena);
	return rc;
}

TEST(what_is_no_signature_and_what_cannot_be_made_anew)
{
	const char *why = NULL;

	check_int(found("Bearer x", NULL, &why), -ENOENT);
	check_int(found("AWS4-HMAC-SHA256 Credential=a/b", NULL, &why), -EINVAL);
	check_int(found("AWS4-HMAC-SHA256", NULL, &why), -EINVAL);
	check_int(found("AWS4-HMAC-SHA256 Signature=" NOBODY, NULL, &why), -EINVAL);
	check_int(found(S3_SIGNED(""), NULL, &why), -EINVAL);
	check_str(why, "its signature is malformed, or x-amz-date is missing");
	check_int(found("AWS4-ECDSA-P256-SHA256 Signature=" NOBODY, NULL, &why), -EINVAL);
	check_str(why, "its algorithm is not AWS4-HMAC-SHA256");
	check_int(found(S3_SIGNED("host"), "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &why), -EINVAL);
	check_str(why, "its body is signed chunk by chunk");
	check_int(found(S3_SIGNED("host"), "STREAMING-UNSIGNED-PAYLOAD-TRAILER", &why), 0);
	check_int(found(S3_SIGNED("host"), "UNSIGNED-PAYLOAD", &why), 0);
}

TEST(a_signed_field_that_is_not_there)
{
	struct head h = request("GET", "a.example", "/", NULL);
	struct arena arena = ARENA_INIT(65536);
	char got[SIGV4_HEX + 1];
	const char *why = NULL;
	struct sigv4 s;

	field(&h, "x-amz-date", "20130524T000000Z");
	field(&h, "authorization", S3_SIGNED("connection;host"));
	check_int(sigv4_find(&h, &arena, &s, &why), 0);
	check_int(sigv4_make(&h, &s, EMPTY, SECRET_S3, got), -ENOENT);
	arena_free(&arena);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/jks.h"

#define MAGIC      0xFEEDFEEDU
#define VERSION    2
#define TRUSTED    2 /* tag of an entry */
#define CREATED_MS 0 /* the same input gives the same store */
#define CERTS_MAX  4096

static const char password[] = "changeit";

static void put(struct buf *out, uint64_t value, unsigned int bytes)
{
	while (bytes-- > 0)
		buf_char(out, (char)(value >> (8 * bytes)));
}

static void put_text(struct buf *out, const char *s)
{
	put(out, strlen(s), 2);
	buf_str(out, s);
}

static void put_certificate(struct buf *out, const unsigned char *der, size_t n, size_t number)
{
	char alias[32];

	(void)snprintf(alias, sizeof(alias), "cay-%zu", number);
	put(out, TRUSTED, 4);
	put_text(out, alias);
	put(out, CREATED_MS, 8);
	put_text(out, "X.509");
	put(out, n, 4);
	buf_add(out, der, n);
}

/* The certificates of the PEM text @in, which are not parsed: that costs more than all the rest. Return: how many. */
static size_t put_all(BIO *in, struct buf *out)
{
	unsigned char *der = NULL;
	char *name = NULL, *header = NULL;
	size_t count = 0;
	long n = 0;

	while (count < CERTS_MAX && PEM_read_bio(in, &name, &header, &der, &n) == 1) {
		if (strcmp(name, PEM_STRING_X509) == 0 && n > 0)
			put_certificate(out, der, (size_t)n, ++count);
		OPENSSL_free(name);
		OPENSSL_free(header);
		OPENSSL_free(der);
	}
	ERR_clear_error(); /* the end of the text is an error to the reader */
	return count;
}

/* SHA-1 over the password in UTF-16, a phrase of the format's author, and the store. It protects nothing; Java insists on it. */
static void put_digest(struct buf *out, size_t start)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned int n = 0;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();

	if (ctx == NULL || EVP_DigestInit_ex(ctx, EVP_sha1(), NULL) != 1)
		abort();
	for (size_t i = 0; i < sizeof(password) - 1; i++)
		(void)EVP_DigestUpdate(ctx, (const char[]){ 0, password[i] }, 2);
	(void)EVP_DigestUpdate(ctx, "Mighty Aphrodite", 16);
	(void)EVP_DigestUpdate(ctx, out->p + start, out->n - start);
	(void)EVP_DigestFinal_ex(ctx, digest, &n);
	EVP_MD_CTX_free(ctx);
	buf_add(out, digest, n);
}

int jks_write(const char *pem, size_t n, struct buf *out)
{
	BIO *in = n <= INT32_MAX ? BIO_new_mem_buf(pem, (int)n) : NULL;
	struct buf entries = BUF_INIT(out->max);
	size_t count = in != NULL ? put_all(in, &entries) : 0, start = out->n;

	BIO_free(in);
	put(out, MAGIC, 4);
	put(out, VERSION, 4);
	put(out, count, 4);
	buf_add(out, entries.p, entries.n);
	buf_free(&entries);
	if (!buf_failed(out))
		put_digest(out, start);
	return count > 0 && !buf_failed(out) ? 0 : -EINVAL;
}

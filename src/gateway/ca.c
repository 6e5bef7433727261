/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/ca.h"

#include <arpa/inet.h>
#include <string.h>
#include <time.h>

#define DAY_S          86400L
#define ROOT_DAYS      3650L
#define NAME_MAX_BYTES 64 /* ub-common-name of RFC 5280 */

/* ---- building certificates -------------------------------------------------------------------------------------------------- */

static bool set_serial(X509 *x)
{
	unsigned char bytes[16];
	BIGNUM *n;
	bool ok;

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	bytes[0] = (unsigned char)((bytes[0] & 0x3f) | 0x40); /* positive, full length */
	n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	ok = n != NULL && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x)) != NULL;
	BN_free(n);
	return ok;
}

/* A day early: clocks inside may differ. */
static bool set_validity(X509 *x, long days)
{
	return X509_gmtime_adj(X509_getm_notBefore(x), -DAY_S) != NULL &&
	       X509_gmtime_adj(X509_getm_notAfter(x), (days - 1) * DAY_S) != NULL;
}

static bool set_common_name(X509_NAME *name, const char *text)
{
	size_t n = strlen(text);

	return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)text,
		       n > NAME_MAX_BYTES ? NAME_MAX_BYTES : (int)n, -1, 0) == 1;
}

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *e;
	bool ok;

	X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
	e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = e != NULL && X509_add_ext(x, e, -1) == 1;
	X509_EXTENSION_free(e);
	return ok;
}

/* A certificate of @key with @name, not signed. */
static X509 *draft(const char *name, EVP_PKEY *key, long days)
{
	X509 *x = X509_new();

	if (x == NULL || X509_set_version(x, X509_VERSION_3) != 1 || !set_serial(x) ||
		!set_validity(x, days) || !set_common_name(X509_get_subject_name(x), name) ||
		X509_set_pubkey(x, key) != 1) {
		X509_free(x);
		return NULL;
	}
	return x;
}

/* ---- the root --------------------------------------------------------------------------------------------------------------- */

static int failed(struct err *err, const char *what)
{
	unsigned long code = ERR_get_error();
	char text[200];

	ERR_error_string_n(code, text, sizeof(text));
	ERR_clear_error();
	return err_raise(err, ERR_INTERNAL, "%s: %s", what, text);
}

static X509 *self_signed(const char *name, EVP_PKEY *key)
{
	X509 *x = draft(name, key, ROOT_DAYS);

	if (x != NULL && X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
		add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
		add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
		add_extension(x, x, NID_subject_key_identifier, "hash") &&
		add_extension(x, x, NID_authority_key_identifier, "keyid:always") &&
		X509_sign(x, key, EVP_sha256()) > 0)
		return x;
	X509_free(x);
	return NULL;
}

int ca_root_new(struct ca_root *ret, const char *name, struct err *err)
{
	char common[NAME_MAX_BYTES + 1];

	(void)snprintf(common, sizeof(common), "cay sandbox %s", name);
	*ret = (struct ca_root){ .key = EVP_EC_gen("P-256") };
	if (ret->key != NULL)
		ret->cert = self_signed(common, ret->key);
	if (ret->cert != NULL)
		return 0;
	ca_root_fini(ret);
	return failed(err, "make the root certificate");
}

int ca_root_load(struct ca_root *ret, const char *pem, size_t n, struct err *err)
{
	BIO *cert = n <= INT32_MAX ? BIO_new_mem_buf(pem, (int)n) : NULL;
	BIO *key = n <= INT32_MAX ? BIO_new_mem_buf(pem, (int)n) : NULL;

	*ret = (struct ca_root){ 0 };
	if (cert != NULL && key != NULL) {
		ret->cert = PEM_read_bio_X509(cert, NULL, NULL, NULL);
		ret->key = PEM_read_bio_PrivateKey(key, NULL, NULL, NULL);
	}
	BIO_free(cert);
	BIO_free(key);
	if (ret->cert != NULL && ret->key != NULL &&
		X509_check_private_key(ret->cert, ret->key) == 1)
		return 0;
	ca_root_fini(ret);
	ERR_clear_error();
	return err_raise(err, ERR_INVALID,
		"the root is no certificate with the private key that belongs to it");
}

char *ca_root_pem(const struct ca_root *root, bool with_key)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL, *p;
	long n;

	if (bio != NULL && PEM_write_bio_X509(bio, root->cert) == 1 &&
		(!with_key || PEM_write_bio_PKCS8PrivateKey(
				      bio, root->key, NULL, NULL, 0, NULL, NULL) == 1)) {
		n = BIO_get_mem_data(bio, &p);
		text = n > 0 ? strndup(p, (size_t)n) : NULL;
	}
	BIO_free(bio);
	return text;
}

struct ca_root ca_root_share(const struct ca_root *root)
{
	if (EVP_PKEY_up_ref(root->key) != 1 || X509_up_ref(root->cert) != 1)
		abort(); /* only when they are counted beyond all bounds */
	return *root;
}

void ca_root_fini(struct ca_root *root)
{
	EVP_PKEY_free(root->key);
	X509_free(root->cert);
	*root = (struct ca_root){ 0 };
}

/* ---- its leaves --------------------------------------------------------------------------------------------------------------- */

static bool add_subject_name(X509 *x, const char *host)
{
	GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
	ASN1_IA5STRING *text = address == NULL ? ASN1_IA5STRING_new() : NULL;
	bool ok = names != NULL && name != NULL && sk_GENERAL_NAME_push(names, name) > 0;

	if (!ok) {
		GENERAL_NAME_free(name);
	} else if (address != NULL) {
		GENERAL_NAME_set0_value(name, GEN_IPADD, TAKE_PTR(address));
	} else if (text != NULL && ASN1_STRING_set(text, host, -1) == 1) {
		GENERAL_NAME_set0_value(name, GEN_DNS, TAKE_PTR(text));
	} else {
		ok = false;
	}
	ok = ok && X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1;
	ASN1_OCTET_STRING_free(address);
	ASN1_IA5STRING_free(text);
	sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
	return ok;
}

X509 *ca_leaf(const struct ca_root *root, EVP_PKEY *key, const char *host)
{
	X509 *x = draft(host, key, CA_DAYS_MAX);

	if (x != NULL && X509_set_issuer_name(x, X509_get_subject_name(root->cert)) == 1 &&
		add_extension(x, root->cert, NID_basic_constraints, "critical,CA:FALSE") &&
		add_extension(x, root->cert, NID_key_usage, "critical,digitalSignature") &&
		add_extension(x, root->cert, NID_ext_key_usage, "serverAuth") &&
		add_extension(x, root->cert, NID_subject_key_identifier, "hash") &&
		add_extension(x, root->cert, NID_authority_key_identifier, "keyid:always") &&
		add_subject_name(x, host) && X509_sign(x, root->key, EVP_sha256()) > 0)
		return x;
	X509_free(x);
	ERR_clear_error();
	return NULL;
}

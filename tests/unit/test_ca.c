/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/ca.h"
#include "t.h"

/* Is @leaf good for @host under @root? As strictly as OpenSSL can. */
static bool accepted(const struct ca_root *root, X509 *leaf, const char *host, bool address)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	bool ok;

	X509_STORE_add_cert(store, root->cert);
	X509_STORE_CTX_init(ctx, store, leaf, NULL);
	X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_X509_STRICT);
	X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
	if (address)
		X509_VERIFY_PARAM_set1_ip_asc(X509_STORE_CTX_get0_param(ctx), host);
	else
		X509_VERIFY_PARAM_set1_host(X509_STORE_CTX_get0_param(ctx), host, 0);
	ok = X509_verify_cert(ctx) == 1;
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	return ok;
}

TEST(a_leaf_is_good_for_its_host_and_its_root_alone)
{
	struct ca_root root, other;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *leaf;

	check_int(ca_root_new(&root, "a1", NULL), 0);
	check_int(ca_root_new(&other, "b2", NULL), 0);
	leaf = ca_leaf(&root, key, "api.example.com");
	check(!accepted(&root, leaf, "evil.example.com", false));
	check(!accepted(&other, leaf, "api.example.com", false));
	check(accepted(&root, leaf, "api.example.com", false));
	X509_free(leaf);
	leaf = ca_leaf(&root, key, "2001:db8::1");
	check(accepted(&root, leaf, "2001:db8::1", true));
	check(!accepted(&root, leaf, "2001:db8::2", true));
	X509_free(leaf);
	EVP_PKEY_free(key);
	ca_root_fini(&root);
	ca_root_fini(&other);
}

TEST(how_long_and_for_what)
{
	struct ca_root root;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	int days, seconds;
	X509 *leaf;

	check_int(ca_root_new(&root, "a1", NULL), 0);
	leaf = ca_leaf(&root, key, "a.example");
	check(ASN1_TIME_diff(
		      &days, &seconds, X509_get0_notBefore(leaf), X509_get0_notAfter(leaf)) == 1);
	check(days <= CA_DAYS_MAX);
	check(X509_get_extended_key_usage(leaf) == XKU_SSL_SERVER);
	check(X509_check_ca(leaf) == 0);
	check(X509_check_ca(root.cert) == 1 && X509_get_pathlen(root.cert) == 0);
	check(ASN1_OCTET_STRING_cmp(
		      X509_get0_authority_key_id(leaf), X509_get0_subject_key_id(root.cert)) == 0);
	X509_free(leaf);
	EVP_PKEY_free(key);
	ca_root_fini(&root);
}

TEST(a_root_survives_as_text)
{
	struct ca_root root, again;
	char *whole, *half;

	check_int(ca_root_new(&root, "a1", NULL), 0);
	whole = ca_root_pem(&root, true);
	half = ca_root_pem(&root, false);
	check(strstr(half, "PRIVATE") == NULL);
	check_int(ca_root_load(&again, half, strlen(half), NULL), -EINVAL);
	check_int(ca_root_load(&again, "", 0, NULL), -EINVAL);
	check_int(ca_root_load(&again, whole, strlen(whole), NULL), 0);
	check(X509_cmp(root.cert, again.cert) == 0);
	free(whole);
	free(half);
	ca_root_fini(&root);
	ca_root_fini(&again);
}

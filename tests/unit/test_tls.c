/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/tls.h"
#include "t.h"

#define DAY 86400

static bool signed_by(X509 *cert, const struct ca_root *root)
{
	return X509_verify(cert, root->key) == 1;
}

TEST(the_issuing_certificate_is_renewed_before_it_expires)
{
	struct tls_server server;
	struct ca_root root;
	time_t now = time(NULL);
	X509 *first, *leaf;

	check_int(ca_root_new(&root, "test", NULL), 0);
	check_int(tls_server_init(&server, &root, NULL), 0);
	first = server.issuer.cert;
	check(X509_up_ref(first) == 1);
	check(!tls_server_renew(&server, now + 40L * DAY));
	check(server.issuer.cert == first);
	check(tls_server_renew(&server, now + 46L * DAY));
	check(X509_cmp(server.issuer.cert, first) != 0);
	check(signed_by(server.issuer.cert, &root));
	check(sk_X509_value(server.chain, 0) == server.issuer.cert);
	leaf = leaf_get(server.leaves, "a.example");
	check(leaf != NULL && X509_verify(leaf, server.issuer.key) == 1);
	check(!tls_server_renew(&server, now + 47L * DAY));
	X509_free(first);
	tls_server_fini(&server);
	ca_root_fini(&root);
}

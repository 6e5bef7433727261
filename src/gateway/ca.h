/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/ca.h - the certificates that a sandbox trusts.
 *
 * A sandbox has a root of its own (ECDSA P-256); its trust stores hold nothing else of ours. The root signs the leaves itself, and a leaf is all that is sent: a gateway
 * serves one root, so an intermediate would only be one certificate more that each client has to read and to check, which costs it more than the rest of the chain.
 */
#ifndef CAY_GATEWAY_CA_H
#define CAY_GATEWAY_CA_H

#include "base/err.h"
#include "gateway/openssl.h"

#define CA_DAYS_MAX   90 /* of leaves; browsers refuse more than 200 */
#define CA_DAYS_RENEW (CA_DAYS_MAX / 2)

/** struct ca_root - a sandbox's root: key and self-signed certificate. */
struct ca_root {
	EVP_PKEY *key;
	X509 *cert;
};

/** ca_root_new() - a fresh root. @name: the sandbox's id, for people who look at the certificate. Return: 0 or -errno with @err. */
int ca_root_new(struct ca_root *ret, const char *name, struct err *err) attr_must_use;

/** ca_root_load() - a root from its PEM text (certificate and private key). Return: 0; -EINVAL with @err. */
int ca_root_load(struct ca_root *ret, const char *pem, size_t n, struct err *err) attr_must_use;

/** ca_root_pem() - PEM text of the root; @with_key: and of its private key. free(); NULL without memory. */
char *ca_root_pem(const struct ca_root *root, bool with_key) attr_must_use;

/** ca_root_share() - the same root once more, ca_root_fini(). */
struct ca_root ca_root_share(const struct ca_root *root);

/** ca_root_fini() - wipe the key. */
void ca_root_fini(struct ca_root *root);

/** ca_leaf() - a certificate of @key, signed by @root, for @host (a name or an address literal, canonical). Return: X509_free(); NULL on failure. */
X509 *ca_leaf(const struct ca_root *root, EVP_PKEY *key, const char *host) attr_must_use;

#endif

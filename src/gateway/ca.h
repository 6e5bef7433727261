/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/ca.h - the certificates that a sandbox trusts.
 *
 * A sandbox has a root of its own (ECDSA P-256); its trust stores hold nothing else of ours. Leaves are signed by an issuing intermediate whose key lives in
 * this process's memory only, and each root signs its own certificate of that same intermediate. So leaves can be shared between roots, and no sandbox accepts what
 * was signed for another: the chain sent is leaf + the intermediate as that sandbox's root knows it.
 */
#ifndef CAY_GATEWAY_CA_H
#define CAY_GATEWAY_CA_H

#include "base/err.h"
#include "gateway/openssl.h"

#define CA_DAYS_MAX   90 /* of leaves and intermediates; browsers refuse more than 200 */
#define CA_DAYS_RENEW (CA_DAYS_MAX / 2)

/** struct ca_root - a sandbox's root: key and self-signed certificate. */
struct ca_root {
	EVP_PKEY *key;
	X509 *cert;
};

/** struct ca_issuer - who signs leaves; the key never leaves the process. */
struct ca_issuer {
	EVP_PKEY *key;
	EVP_PKEY *leaf_key; /* one for all leaves */
	X509 *cert;         /* as one root signed it */
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

/** ca_issuer_new() - keys, and the certificate that @root signs. Return: 0 or -errno with @err. */
int ca_issuer_new(struct ca_issuer *ret, const struct ca_root *root, struct err *err) attr_must_use;

/** ca_issuer_leaf() - a certificate for @host (a name or an address literal, canonical) on the leaf key. Return: X509_free(); NULL on failure. */
X509 *ca_issuer_leaf(const struct ca_issuer *issuer, const char *host) attr_must_use;

/** ca_issuer_fini() - wipe the keys. */
void ca_issuer_fini(struct ca_issuer *issuer);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/tls.h - TLS 1.2 and 1.3 on both sides: towards the sandbox with leaves of its own root, towards the world with the strict check of the real chain.
 *
 * One SSL_CTX a side: making one costs as much as a handshake. No session tickets towards the sandbox.
 */
#ifndef CAY_GATEWAY_TLS_H
#define CAY_GATEWAY_TLS_H

#include "codec/authority.h"
#include "gateway/leaf.h"
#include "gateway/openssl.h"

struct tls_server {
	SSL_CTX *ctx;
	struct ca_root root; /* shared; signs the leaves */
	struct leaf_cache *leaves;
};

struct tls_client {
	SSL_CTX *ctx;
};

/** struct tls_hello - what a handshake was about; lives at least as long as the handshake. */
struct tls_hello {
	struct tls_server *server;
	const char *fallback;          /* whom the certificate names when the client names nobody */
	char sni[AUTHORITY_HOST_SIZE]; /* canonical; "" when there was none */
	bool bad_sni;                  /* there was one that is no name */
	bool no_leaf;                  /* the certificate could not be made */
};

/** tls_server_init() - for a sandbox with @root (shared). Return: 0 or -errno with @err. */
int tls_server_init(
	struct tls_server *s, const struct ca_root *root, struct err *err) attr_must_use;

/** tls_server_fini() - connections that were made must be gone. */
void tls_server_fini(struct tls_server *s);

/** tls_server_new() - a connection, for wire_accept_tls(). @hello: @fallback is set by the caller. Return: SSL_free(); NULL without memory. */
SSL *tls_server_new(struct tls_server *s, struct tls_hello *hello) attr_must_use;

/**
 * tls_client_init() - trust the certificates in @bundle (PEM text, the system's store) and in @extra (PEM, or NULL).
 * Return: 0; -EINVAL with @err when one of them holds no certificate.
 */
int tls_client_init(struct tls_client *c, const char *bundle, size_t bundle_n, const char *extra,
	size_t extra_n, struct err *err) attr_must_use;

/** tls_client_fini() - as tls_server_fini(). */
void tls_client_fini(struct tls_client *c);

/**
 * tls_client_new() - a connection to @host, for wire_connect_tls(): its certificate must be valid for exactly that name or address.
 * @http2: offer it beside HTTP/1.1.
 * Return: SSL_free(); NULL without memory.
 */
SSL *tls_client_new(
	struct tls_client *c, const char *host, bool is_address, bool http2) attr_must_use;

/** tls_is_http2() - was HTTP/2 agreed on? */
bool tls_is_http2(const SSL *ssl);

/** tls_failure() - why a handshake failed, as text. @rc: what wire_*_tls() said. */
void tls_failure(const SSL *ssl, int rc, char *text, size_t size);

#endif

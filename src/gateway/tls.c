/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/tls.h"
#include "base/str.h"

#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"
#define GROUPS  "X25519:P-256:P-384"

static const unsigned char h2_and_h1[] = "\2h2\10http/1.1";

static int failed(struct err *err, const char *what)
{
	char text[200];

	ERR_error_string_n(ERR_get_error(), text, sizeof(text));
	ERR_clear_error();
	return err_raise(err, ERR_INTERNAL, "%s: %s", what, text);
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (ctx == NULL)
		return NULL;
	(void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	(void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					       SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
					    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(ctx, 1);
	(void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	if (SSL_CTX_set_cipher_list(ctx, CIPHERS) != 1 ||
		SSL_CTX_set1_groups_list(ctx, (char *)(uintptr_t)GROUPS) != 1) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

/* ---- towards the sandbox ---------------------------------------------------------------------------------------------------- */

static void note_server_name(SSL *ssl, struct tls_hello *hello)
{
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	bool is_address;

	hello->bad_sni =
		name != NULL &&
		(authority_host(name, strlen(name), hello->sni, &is_address) < 0 || is_address);
	if (hello->bad_sni)
		hello->sni[0] = '\0';
}

/* Chooses the certificate when the client has said whom it wants. */
static int on_certificate(SSL *ssl, attr_unused void *arg)
{
	struct tls_hello *hello = SSL_get_app_data(ssl);
	struct tls_server *s = hello->server;
	X509 *leaf;

	note_server_name(ssl, hello);
	if (hello->bad_sni)
		return 0;
	leaf = leaf_get(
		s->leaves, hello->sni[0] != '\0' ? hello->sni : hello->fallback, time(NULL));
	hello->no_leaf =
		leaf == NULL || SSL_use_cert_and_key(ssl, leaf, leaf_key(s->leaves), NULL, 1) != 1;
	return !hello->no_leaf;
}

static int on_protocols(attr_unused SSL *ssl, const unsigned char **out, unsigned char *out_n,
	const unsigned char *in, unsigned int in_n, attr_unused void *arg)
{
	unsigned char *chosen;

	if (SSL_select_next_proto(&chosen, out_n, h2_and_h1, sizeof(h2_and_h1) - 1, in, in_n) !=
		OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

int tls_server_init(struct tls_server *s, const struct ca_root *root, struct err *err)
{
	*s = (struct tls_server){ .root = ca_root_share(root) };
	s->leaves = leaf_cache_new(&s->root);
	s->ctx = context_new(TLS_server_method());
	if (s->leaves == NULL || s->ctx == NULL) {
		tls_server_fini(s);
		return failed(err, "set up TLS towards the sandbox");
	}
	(void)SSL_CTX_set_num_tickets(s->ctx, 0);
	SSL_CTX_set_cert_cb(s->ctx, on_certificate, NULL);
	SSL_CTX_set_alpn_select_cb(s->ctx, on_protocols, NULL);
	return 0;
}

void tls_server_fini(struct tls_server *s)
{
	SSL_CTX_free(s->ctx);
	leaf_cache_free(s->leaves);
	ca_root_fini(&s->root);
	*s = (struct tls_server){ 0 };
}

SSL *tls_server_new(struct tls_server *s, struct tls_hello *hello)
{
	SSL *ssl = SSL_new(s->ctx);

	hello->server = s;
	if (ssl != NULL)
		(void)SSL_set_app_data(ssl, hello);
	return ssl;
}

/* ---- towards the world ------------------------------------------------------------------------------------------------------ */

static size_t add_bundle(X509_STORE *store, const char *pem, size_t n)
{
	BIO *bio = n <= INT32_MAX ? BIO_new_mem_buf(pem, (int)n) : NULL;
	size_t added = 0;
	X509 *x;

	while (bio != NULL && (x = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL)) != NULL) {
		added += X509_STORE_add_cert(store, x) == 1;
		X509_free(x);
	}
	BIO_free(bio);
	ERR_clear_error();
	return added;
}

int tls_client_init(struct tls_client *c, const char *bundle, size_t bundle_n, const char *extra,
	size_t extra_n, struct err *err)
{
	X509_STORE *store;

	c->ctx = context_new(TLS_client_method());
	if (c->ctx == NULL)
		return failed(err, "set up TLS towards the world");
	SSL_CTX_set_verify(c->ctx, SSL_VERIFY_PEER, NULL);
	store = SSL_CTX_get_cert_store(c->ctx);
	(void)X509_STORE_set_flags(store, X509_V_FLAG_X509_STRICT | X509_V_FLAG_TRUSTED_FIRST);
	if ((bundle == NULL || add_bundle(store, bundle, bundle_n) > 0) &&
		(extra == NULL || add_bundle(store, extra, extra_n) > 0))
		return 0;
	tls_client_fini(c);
	return err_raise(err, ERR_INVALID, "a bundle of certificates holds none");
}

void tls_client_fini(struct tls_client *c)
{
	SSL_CTX_free(c->ctx);
	c->ctx = NULL;
}

SSL *tls_client_new(struct tls_client *c, const char *host, bool is_address, bool http2)
{
	static const unsigned char h1[] = "\10http/1.1";
	SSL *ssl = SSL_new(c->ctx);
	X509_VERIFY_PARAM *param;

	if (ssl == NULL)
		return NULL;
	param = SSL_get0_param(ssl);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if ((is_address ? X509_VERIFY_PARAM_set1_ip_asc(param, host)
			: X509_VERIFY_PARAM_set1_host(param, host, 0) &&
				    SSL_set_tlsext_host_name(ssl, (char *)(uintptr_t)host) == 1) !=
			1 ||
		SSL_set_alpn_protos(ssl, http2 ? h2_and_h1 : h1,
			http2 ? sizeof(h2_and_h1) - 1 : sizeof(h1) - 1) != 0) {
		SSL_free(ssl);
		return NULL;
	}
	return ssl;
}

bool tls_is_http2(const SSL *ssl)
{
	const unsigned char *name;
	unsigned int n;

	SSL_get0_alpn_selected(ssl, &name, &n);
	return n == 2 && memcmp(name, "h2", 2) == 0;
}

void tls_failure(const SSL *ssl, int rc, char *text, size_t size)
{
	long verdict = SSL_get_verify_result(ssl);
	unsigned long code = ERR_peek_last_error();

	if (verdict != X509_V_OK)
		(void)snprintf(text, size, "the certificate is not accepted: %s",
			X509_verify_cert_error_string(verdict));
	else if (rc == -EPROTO && code != 0)
		(void)snprintf(text, size, "%s", ERR_reason_error_string(code));
	else
		(void)snprintf(text, size, "%s",
			rc == -EPIPE ? "the peer closed the connection" : strerror(-rc));
	ERR_clear_error();
}

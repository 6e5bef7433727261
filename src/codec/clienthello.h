/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/clienthello.h - what the first flight of a TLS client says: server name, protocols, versions.
 *
 * Reads records of any fragmentation (one byte a record included) and hellos of any size up to %CLIENTHELLO_MAX: post-quantum key shares make them larger than a packet.
 * Format: RFC 8446 §4.1.2, §5.1; RFC 6066 §3; RFC 7301 §3.1; RFC 9849 (encrypted client hello).
 */
#ifndef CAY_CODEC_CLIENTHELLO_H
#define CAY_CODEC_CLIENTHELLO_H

#include "base/attr.h"

#define CLIENTHELLO_MAX       65536U /* bytes of the handshake message */
#define CLIENTHELLO_PROTOCOLS 16U

/** struct clienthello - by value: nothing points into the input. */
struct clienthello {
	char server_name[256]; /* lower case, without final dot; "" when there is none */
	struct {
		unsigned char n;
		char text[255];
	} protocols[CLIENTHELLO_PROTOCOLS]; /* ALPN, in the client's order */
	size_t n_protocols;
	bool tls13;     /* supported_versions offers it */
	bool encrypted; /* encrypted_client_hello or its predecessor encrypted_server_name is there */
};

/**
 * clienthello_parse() - read the ClientHello at the beginning of a connection.
 * @p: all bytes that have come.
 *
 * Return: 1 complete, @ret filled; 0 more bytes are needed; -EBADMSG this is no ClientHello, or one that no honest client sends (a name with NUL or bytes that are
 * no host name, two names, repeated extensions); -EMSGSIZE longer than %CLIENTHELLO_MAX.
 */
int clienthello_parse(const unsigned char *p, size_t n, struct clienthello *ret) attr_must_use;

/** clienthello_offers() - is @protocol ("h2", "http/1.1") in the ALPN list? */
bool clienthello_offers(const struct clienthello *hello, const char *protocol);

#endif

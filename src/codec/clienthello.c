/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec/clienthello.c - see the header. Records are joined into the handshake message, which is then walked with a bounds-checked cursor: whatever is missing or too long
 * makes the cursor bad, and a bad cursor yields zeros, so every reader looks at it once, at its end.
 */
#include "codec/clienthello.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_HEADER    5U
#define RECORD_HANDSHAKE 22
#define RECORD_MAX       16384U
#define MESSAGE_HEADER   4U
#define CLIENT_HELLO     1

enum {
	EXTENSION_SERVER_NAME = 0,
	EXTENSION_ALPN = 16,
	EXTENSION_VERSIONS = 43,
	EXTENSION_ESNI = 0xffce,
	EXTENSION_ECH = 0xfe0d
};

struct cursor {
	const unsigned char *p;
	size_t n;
	bool bad;
};

static unsigned int take_number(struct cursor *c, size_t bytes)
{
	unsigned int value = 0;

	if (c->n < bytes) {
		c->bad = true;
		c->n = 0;
		return 0;
	}
	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | c->p[i];
	c->p += bytes;
	c->n -= bytes;
	return value;
}

/* A vector with a length of @bytes in front. */
static struct cursor take_vector(struct cursor *c, size_t bytes)
{
	size_t n = take_number(c, bytes);
	struct cursor v = { .p = c->p, .n = n };

	if (n > c->n) {
		c->bad = true;
		return (struct cursor){ .bad = true };
	}
	c->p += n;
	c->n -= n;
	return v;
}

/* --- records --- */

/* The length that the message says it has, 0 while that is not known. */
static size_t message_size(const unsigned char *m, size_t n)
{
	if (n < MESSAGE_HEADER)
		return 0;
	return MESSAGE_HEADER + ((size_t)m[1] << 16 | (size_t)m[2] << 8 | m[3]);
}

/* Join the fragments. Return: 1 with the message in @out, 0 more is needed, -EBADMSG, -EMSGSIZE. */
static int join(const unsigned char *p, size_t n, unsigned char *out, size_t *ret_n)
{
	size_t got = 0;

	while (n > 0) {
		size_t here;

		if (p[0] != RECORD_HANDSHAKE || (n > 1 && p[1] != 3))
			return -EBADMSG;
		if (n < RECORD_HEADER)
			return 0;
		here = (size_t)p[3] << 8 | p[4];
		if (here == 0 || here > RECORD_MAX)
			return -EBADMSG;
		if (here > n - RECORD_HEADER)
			here = n - RECORD_HEADER;
		if (got + here > CLIENTHELLO_MAX)
			return -EMSGSIZE;
		memcpy(out + got, p + RECORD_HEADER, here);
		got += here;
		if (got > 0 && out[0] != CLIENT_HELLO)
			return -EBADMSG;
		if (message_size(out, got) > CLIENTHELLO_MAX)
			return -EMSGSIZE;
		if (got >= MESSAGE_HEADER && got >= message_size(out, got)) {
			/* nothing may follow it in the same flight */
			*ret_n = message_size(out, got);
			return got == *ret_n ? 1 : -EBADMSG;
		}
		p += RECORD_HEADER + here;
		n -= RECORD_HEADER + here;
	}
	return 0;
}

/* --- extensions --- */

static bool host_char(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

static int read_server_name(struct cursor c, struct clienthello *ret)
{
	struct cursor list = take_vector(&c, 2);
	struct cursor name;
	size_t n;

	if (take_number(&list, 1) != 0)
		return -EBADMSG;
	name = take_vector(&list, 2);
	if (c.bad || c.n > 0 || list.bad || list.n > 0 || name.n == 0)
		return -EBADMSG;
	n = name.p[name.n - 1] == '.' ? name.n - 1 : name.n;
	if (n == 0 || n > 253 || name.p[0] == '.')
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		unsigned char lower = name.p[i];

		if (lower >= 'A' && lower <= 'Z')
			lower = (unsigned char)(lower + ('a' - 'A'));
		if (!host_char(lower) || (lower == '.' && name.p[i - 1] == '.'))
			return -EBADMSG;
		ret->server_name[i] = (char)lower;
	}
	ret->server_name[n] = '\0';
	return 0;
}

static int read_protocols(struct cursor c, struct clienthello *ret)
{
	struct cursor list = take_vector(&c, 2);

	if (c.bad || c.n > 0 || list.n == 0)
		return -EBADMSG;
	while (list.n > 0) {
		struct cursor one = take_vector(&list, 1);

		if (list.bad || one.n == 0 || ret->n_protocols == CLIENTHELLO_PROTOCOLS)
			return -EBADMSG;
		ret->protocols[ret->n_protocols].n = (unsigned char)one.n;
		memcpy(ret->protocols[ret->n_protocols++].text, one.p, one.n);
	}
	return 0;
}

static int read_versions(struct cursor c, struct clienthello *ret)
{
	struct cursor list = take_vector(&c, 1);

	if (c.bad || c.n > 0 || list.n == 0 || list.n % 2 != 0)
		return -EBADMSG;
	while (list.n > 0)
		ret->tls13 |= take_number(&list, 2) == 0x0304;
	return 0;
}

static int read_extension(unsigned int type, struct cursor c, struct clienthello *ret)
{
	switch (type) {
	case EXTENSION_SERVER_NAME:
		return read_server_name(c, ret);
	case EXTENSION_ALPN:
		return read_protocols(c, ret);
	case EXTENSION_VERSIONS:
		return read_versions(c, ret);
	case EXTENSION_ESNI:
	case EXTENSION_ECH:
		ret->encrypted = true;
		return 0;
	default:
		return 0;
	}
}

static int read_extensions(struct cursor c, struct clienthello *ret)
{
	unsigned char seen[65536 / 8] = { 0 };

	while (c.n > 0) {
		unsigned int type = take_number(&c, 2);
		struct cursor body = take_vector(&c, 2);
		int rc;

		if (c.bad || (seen[type / 8] & 1U << type % 8) != 0)
			return -EBADMSG;
		seen[type / 8] |= (unsigned char)(1U << type % 8);
		rc = read_extension(type, body, ret);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_message(const unsigned char *p, size_t n, struct clienthello *ret)
{
	struct cursor c = { .p = p + MESSAGE_HEADER, .n = n - MESSAGE_HEADER }, extensions;
	struct cursor session, ciphers, compressions;

	(void)take_number(&c, 2); /* legacy version */
	for (int i = 0; i < 8; i++)
		(void)take_number(&c, 4); /* random */
	session = take_vector(&c, 1);
	ciphers = take_vector(&c, 2);
	compressions = take_vector(&c, 1);
	if (c.bad || session.n > 32 || ciphers.n == 0 || ciphers.n % 2 != 0 || compressions.n == 0)
		return -EBADMSG;
	if (c.n == 0)
		return 1;
	extensions = take_vector(&c, 2);
	if (c.bad || c.n > 0)
		return -EBADMSG;
	return read_extensions(extensions, ret) < 0 ? -EBADMSG : 1;
}

int clienthello_parse(const unsigned char *p, size_t n, struct clienthello *ret)
{
	cleanup_free unsigned char *message = malloc(CLIENTHELLO_MAX);
	size_t size = 0;
	int rc;

	*ret = (struct clienthello){ 0 };
	if (message == NULL)
		abort();
	rc = join(p, n, message, &size);
	return rc == 1 ? read_message(message, size, ret) : rc;
}

bool clienthello_offers(const struct clienthello *hello, const char *protocol)
{
	size_t n = strlen(protocol);

	for (size_t i = 0; i < hello->n_protocols; i++) {
		if (hello->protocols[i].n == n &&
			memcmp(hello->protocols[i].text, protocol, n) == 0)
			return true;
	}
	return false;
}

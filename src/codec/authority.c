/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/authority.h"
#include "base/str.h"

#include <arpa/inet.h>

#define LABEL_MAX 63

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* A number of an address in decimal, octal (0…) or hexadecimal (0x…). */
static bool parse_number(const char *p, size_t n, uint64_t *ret)
{
	unsigned int base = 10;
	uint64_t v = 0;

	if (n >= 2 && p[0] == '0' && p[1] == 'x') {
		base = 16;
		p += 2;
		n -= 2;
	} else if (n >= 2 && p[0] == '0') {
		base = 8;
		p++;
		n--;
	}
	for (size_t i = 0; i < n; i++) {
		int digit = hex_value(p[i]);

		if (digit < 0 || (unsigned int)digit >= base || v > UINT32_MAX)
			return false;
		v = v * base + (unsigned int)digit;
	}
	*ret = v;
	return true;
}

/* Does the last label make every resolver take it for an address, or try to? */
static bool ends_in_number(const char *host)
{
	const char *last = strrchr(host, '.');
	uint64_t v;

	last = last != NULL ? last + 1 : host;
	if (*last == '\0')
		return false;
	return strspn(last, "0123456789") == strlen(last) ||
	       (last[0] == '0' && last[1] == 'x' && parse_number(last, strlen(last), &v));
}

/* One to four numbers; the last fills what is left. */
static int parse_ipv4(const char *host, char ret[AUTHORITY_HOST_SIZE])
{
	uint64_t parts[4], address = 0;
	size_t n = 0;

	for (const char *p = host;; p++) {
		size_t size = strcspn(p, ".");

		if (n == 4 || size == 0 || !parse_number(p, size, &parts[n++]))
			return -EBADMSG;
		p += size;
		if (*p == '\0')
			break;
	}
	for (size_t i = 0; i + 1 < n; i++) {
		if (parts[i] > 255)
			return -EBADMSG;
		address |= parts[i] << (24 - 8 * i);
	}
	if (parts[n - 1] >= 1ULL << (8 * (5 - n)))
		return -EBADMSG;
	address |= parts[n - 1];
	(void)snprintf(ret, AUTHORITY_HOST_SIZE, "%u.%u.%u.%u", (unsigned int)(address >> 24),
		(unsigned int)(address >> 16 & 255), (unsigned int)(address >> 8 & 255),
		(unsigned int)(address & 255));
	return 0;
}

static int parse_ipv6(const char *p, size_t n, char ret[AUTHORITY_HOST_SIZE])
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (n == 0 || n >= sizeof(text) || memchr(p, '\0', n) != NULL)
		return -EBADMSG;
	memcpy(text, p, n);
	text[n] = '\0';
	if (inet_pton(AF_INET6, text, &address) != 1)
		return -EBADMSG;
	if (IN6_IS_ADDR_V4MAPPED(&address))
		(void)inet_ntop(AF_INET, &address.s6_addr[12], ret, AUTHORITY_HOST_SIZE);
	else
		(void)inet_ntop(AF_INET6, &address, ret, AUTHORITY_HOST_SIZE);
	return 0;
}

static int check_labels(const char *host)
{
	for (const char *p = host;; p++) {
		size_t size = strcspn(p, ".");

		if (size == 0 || size > LABEL_MAX)
			return -EBADMSG;
		p += size;
		if (*p == '\0')
			return 0;
	}
}

static int parse_name(const char *p, size_t n, char ret[AUTHORITY_HOST_SIZE])
{
	if (n > 1 && p[n - 1] == '.')
		n--;
	if (n == 0 || n >= AUTHORITY_HOST_SIZE)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		char c = p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '-' && c != '_' && c != '.')
			return -EBADMSG;
		ret[i] = c;
	}
	ret[n] = '\0';
	return check_labels(ret);
}

int authority_host(const char *p, size_t n, char ret[AUTHORITY_HOST_SIZE], bool *ret_is_address)
{
	char name[AUTHORITY_HOST_SIZE];
	int rc;

	*ret_is_address = n > 0 && memchr(p, ':', n) != NULL;
	if (*ret_is_address)
		return parse_ipv6(p, n, ret);
	rc = parse_name(p, n, name);
	if (rc < 0)
		return rc;
	*ret_is_address = ends_in_number(name);
	if (*ret_is_address)
		return parse_ipv4(name, ret);
	memcpy(ret, name, sizeof(name));
	return 0;
}

static int parse_port(const char *p, size_t n, uint16_t *ret)
{
	unsigned int v = 0;

	if (n == 0 || n > 5)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		if (!is_digit(p[i]))
			return -EBADMSG;
		v = v * 10 + (unsigned int)(p[i] - '0');
	}
	if (v == 0 || v > UINT16_MAX)
		return -EBADMSG;
	*ret = (uint16_t)v;
	return 0;
}

int authority_parse(const char *p, size_t n, struct authority *ret)
{
	const char *end = p + n, *host = p, *host_end, *rest;
	bool bracketed = n > 0 && p[0] == '[';
	int rc = 0;

	*ret = (struct authority){ 0 };
	if (n == 0)
		return -EBADMSG;
	host_end = memchr(p, bracketed ? ']' : ':', n);
	if (bracketed && host_end == NULL)
		return -EBADMSG;
	host_end = host_end != NULL ? host_end : end;
	rest = bracketed ? host_end + 1 : host_end;
	host += bracketed ? 1 : 0;
	if (rest < end) {
		if (*rest != ':')
			return -EBADMSG;
		rc = parse_port(rest + 1, (size_t)(end - rest - 1), &ret->port);
	}
	if (rc == 0)
		rc = authority_host(host, (size_t)(host_end - host), ret->host, &ret->is_address);
	if (rc == 0 && bracketed && memchr(host, ':', (size_t)(host_end - host)) == NULL)
		rc = -EBADMSG;
	return rc;
}

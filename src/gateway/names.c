/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/names.h"
#include "base/str.h"

#include <string.h>

/* 198.18.0.0/15, RFC 2544: benchmarks of devices; no host of the world has one */
#define FIRST_V4 0xc6120000U

struct names {
	const char *list[NAMES_MAX]; /* number n is list[n - 1] */
	uint32_t n;
	size_t bytes;
	json_t *numbers; /* {"name": number} */
};

struct names *names_new(void)
{
	struct names *names = xnew(struct names);

	names->numbers = json_object();
	return names;
}

void names_free(struct names *names)
{
	for (uint32_t i = 0; i < names->n; i++)
		free((char *)(uintptr_t)names->list[i]);
	json_decref(names->numbers);
	free(names);
}

static uint32_t append(struct names *names, const char *name)
{
	size_t n = strlen(name) + 1;

	if (names->n == NAMES_MAX || names->bytes + n > NAMES_BYTES_MAX)
		return 0;
	names->list[names->n++] = str_dup(name);
	names->bytes += n;
	(void)json_object_set_new(names->numbers, name, json_integer(names->n));
	return names->n;
}

void names_load(struct names *names, const json_t *list)
{
	size_t i;
	json_t *v;

	json_array_foreach (list, i, v) {
		if (i >= names->n && json_is_string(v))
			(void)append(names, json_string_value(v));
	}
}

json_t *names_json(const struct names *names)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < names->n; i++)
		(void)json_array_append_new(list, json_string(names->list[i]));
	return list;
}

uint32_t names_give(struct names *names, const char *name, bool *ret_new)
{
	json_int_t known = json_integer_value(json_object_get(names->numbers, name));
	uint32_t n = known > 0 ? (uint32_t)known : append(names, name);

	*ret_new = known == 0 && n != 0;
	return n;
}

static void put_u32(uint8_t *to, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static const uint8_t prefix_v4[12] = { [10] = 0xff, [11] = 0xff };
static const uint8_t prefix_v6[12] = { 0xfd, 0x00, 0xca, 0xfe };

void names_address(uint32_t n, bool v6, struct in6_addr *ret)
{
	memcpy(ret->s6_addr, v6 ? prefix_v6 : prefix_v4, 12);
	put_u32(ret->s6_addr + 12, v6 ? n : FIRST_V4 + n);
}

const char *names_find(const struct names *names, const struct in6_addr *address)
{
	uint32_t n = get_u32(address->s6_addr + 12);

	if (memcmp(address->s6_addr, prefix_v4, 12) == 0)
		n -= FIRST_V4;
	else if (memcmp(address->s6_addr, prefix_v6, 12) != 0)
		return NULL;
	return n >= 1 && n <= names->n ? names->list[n - 1] : NULL;
}

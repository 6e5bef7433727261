/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "store/vault.h"

static const unsigned char key[VAULT_KEY_SIZE] = { 1, 2, 3 };
static char value[VAULT_VALUE_MAX + 1];

TEST(nothing_but_what_was_sealed_opens)
{
	unsigned char other[VAULT_KEY_SIZE] = { 1, 2, 4 };
	char *sealed = vault_seal(key, "NAME", "hunter2hunter2");

	check_int(vault_open(key, "NAME", sealed, value), 0);
	check_str(value, "hunter2hunter2");
	check_int(vault_open(other, "NAME", sealed, value), -EBADMSG);
	check_int(vault_open(key, "OTHER", sealed, value), -EBADMSG);
	check_int(vault_open(key, "NAME", "", value), -EBADMSG);
	check_int(vault_open(key, "NAME", "zz", value), -EBADMSG);
	check_int(vault_open(key, "NAME", "00", value), -EBADMSG);
	for (size_t i = 0; sealed[i] != '\0'; i++) {
		char was = sealed[i];

		sealed[i] = was == '0' ? '1' : '0';
		check_int(vault_open(key, "NAME", sealed, value), -EBADMSG);
		sealed[i] = was;
	}
	free(sealed);
}

TEST(the_value_is_not_in_the_text_and_no_two_are_alike)
{
	char *a = vault_seal(key, "NAME", "hunter2hunter2"),
	     *b = vault_seal(key, "NAME", "hunter2hunter2");

	check(strstr(a, "68756e746572") == NULL);
	check(strcmp(a, b) != 0);
	free(a);
	free(b);
}

TEST(sizes)
{
	static char text[VAULT_VALUE_MAX + 2];
	char *sealed;

	memset(text, 'x', VAULT_VALUE_MAX + 1);
	check(vault_seal(key, "N", text) == NULL);
	text[VAULT_VALUE_MAX] = '\0';
	sealed = vault_seal(key, "N", text);
	check_int(vault_open(key, "N", sealed, value), 0);
	check_str(value, text);
	free(sealed);
	sealed = vault_seal(key, "N", "");
	check_int(vault_open(key, "N", sealed, value), 0);
	check_str(value, "");
	free(sealed);
}

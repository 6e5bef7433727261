/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "base/str.h"

#include <string.h>
#include <sys/random.h>

static const char *const adjectives[] = { "amber", "bold", "brave", "bright", "brisk", "calm",
	"clever", "cosmic", "crisp", "daring", "deft", "eager", "early", "fair", "fleet", "fresh",
	"gentle", "glad", "golden", "grand", "happy", "hardy", "honest", "jolly", "keen", "kind",
	"lively", "lucid", "lucky", "lunar", "mellow", "merry", "mild", "misty", "neat", "nimble",
	"noble", "patient", "plucky", "polite", "proud", "quick", "quiet", "rapid", "ready", "rosy",
	"rustic", "sharp", "shiny", "silent", "silver", "smart", "snug", "solar", "spry", "steady",
	"sunny", "swift", "tidy", "vivid", "warm", "wise", "witty", "zesty" };

static const char *const animals[] = { "adder", "badger", "beaver", "bison", "bobcat", "camel",
	"condor", "coral", "cougar", "crane", "cricket", "dingo", "dolphin", "eagle", "egret",
	"falcon", "ferret", "finch", "fox", "gecko", "gibbon", "heron", "hornet", "ibex", "ibis",
	"jackal", "jaguar", "kestrel", "kiwi", "koala", "lark", "lemur", "leopard", "lynx", "macaw",
	"magpie", "mallard", "marmot", "marten", "meerkat", "mole", "moose", "newt", "ocelot",
	"orca", "osprey", "otter", "owl", "panda", "pelican", "puffin", "quail", "raven", "robin",
	"salmon", "seal", "sparrow", "stoat", "swan", "tapir", "tern", "trout", "walrus",
	"wombat" };

_Static_assert(ARRAY_SIZE(adjectives) == 64 && ARRAY_SIZE(animals) == 64,
	"one byte picks one word evenly");

static void random_bytes(void *p, size_t n)
{
	if (getrandom(p, n, 0) != (ssize_t)n)
		abort(); /* cannot fail for so few bytes on a booted kernel */
}

struct id id_new(void)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned char r[ID_LEN * 2];
	struct id id = { 0 };
	size_t n = 0;

	while (n < ID_LEN) {
		random_bytes(r, sizeof(r));
		for (size_t i = 0; i < sizeof(r) && n < ID_LEN; i++) {
			if (r[i] < 252) /* 7 * 36: keeps every digit equally likely */
				id.s[n++] = digits[r[i] % 36];
		}
	}
	return id;
}

bool id_valid(const char *s)
{
	return strlen(s) == ID_LEN && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ID_LEN;
}

bool id_begins(const char *id, const char *what)
{
	return strlen(what) >= ID_BEGIN_MIN && str_starts(id, what);
}

bool name_valid(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > NAME_MAX_LEN || id_valid(s))
		return false;
	if (strchr("._-", s[0]) != NULL)
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

void name_new(char name[NAME_MAX_LEN + 1], unsigned int attempt)
{
	unsigned char r[2];

	random_bytes(r, sizeof(r));
	if (attempt == 0)
		(void)snprintf(
			name, NAME_MAX_LEN + 1, "%s-%s", adjectives[r[0] % 64], animals[r[1] % 64]);
	else
		(void)snprintf(name, NAME_MAX_LEN + 1, "%s-%s-%u", adjectives[r[0] % 64],
			animals[r[1] % 64], attempt);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "codec/yaml_document.h"

static const char *json_of(const char *text)
{
	static char out[1000];
	char reason[YAML_REASON_SIZE];
	json_t *value;
	char *dump;

	if (yaml_parse(text, strlen(text), &value, reason) < 0)
		return "refused";
	dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
	(void)snprintf(out, sizeof(out), "%s", dump);
	free(dump);
	json_decref(value);
	return out;
}

TEST(what_could_grow_or_mean_two_things_is_refused)
{
	static const char *const bad[] = { "", "a: &x 1", "a: *x", "&x {a: 1}", "- &x [1]",
		"a: !!str 1", "!t {}", "a: 1\na: 2", "? [1, 2]\n: x", "--- 1\n--- 2", "a: [1",
		"a: \"\xff\"", "\t- x", "{1: 2, 1: 3}" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check_str(json_of(bad[i]), "refused");
}

TEST(too_deep_is_refused)
{
	char text[2 * (YAML_DEPTH + 2) + 1];

	memset(text, '[', YAML_DEPTH + 2);
	memset(text + YAML_DEPTH + 2, ']', YAML_DEPTH + 2);
	text[sizeof(text) - 1] = '\0';
	check_str(json_of(text), "refused");
}

TEST(a_refusal_names_the_line)
{
	char reason[YAML_REASON_SIZE];
	json_t *value;

	check_int(yaml_parse("a: 1\nb: 2\na: 3\n", 15, &value, reason), -EINVAL);
	check(strncmp(reason, "line 3: ", 8) == 0);
}

TEST(scalars_have_the_types_of_the_core_schema)
{
	check_str(json_of("[1, -2, +3, 1.5, 1e3, ~, null, true, False]"),
		"[1,-2,3,1.5,1000.0,null,null,true,false]");
	check_str(json_of("[no, on, 2026-11-21, 0x10, .inf, 1.2.3, -, 12345678901234567890]"),
		"[\"no\",\"on\",\"2026-11-21\",\"0x10\",\".inf\",\"1.2.3\",\"-\",\"12345678901234567890\"]");
	check_str(json_of("{a: \"1\", b: '', c: }"), "{\"a\":\"1\",\"b\":\"\",\"c\":null}");
}

TEST(block_and_flow_are_the_same)
{
	check_str(json_of("a:\n  - b: 1\n    c: [x, y]\n  - d\n"),
		"{\"a\":[{\"b\":1,\"c\":[\"x\",\"y\"]},\"d\"]}");
	check_str(json_of("{\"a\": [{\"b\": 1, \"c\": [\"x\", \"y\"]}, \"d\"]}"),
		"{\"a\":[{\"b\":1,\"c\":[\"x\",\"y\"]},\"d\"]}");
}

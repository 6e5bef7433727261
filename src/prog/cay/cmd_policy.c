/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "prog/cay/cmd.h"
#include "prog/cay/policy_text.h"

#include <string.h>

int cmd_policy_check(struct cli *cli)
{
	cleanup_json json_t *body = json_object(), *answer = NULL;
	struct buf out = BUF_INIT(16U << 20);
	struct table t;
	json_t *text, *rule;
	size_t i;
	int rc = policy_text(cli, cli->args.positional[0], &text);

	if (rc < 0)
		return rc;
	(void)json_object_set_new(body, "policy", text);
	rc = cli_call(cli, "POST", "/v1/policy/check", body, &answer);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	table_init(&t, ">#|RULE|ACTION");
	json_array_foreach (json_object_get(answer, "rules"), i, rule) {
		cleanup_free char *number = str_dupf("%zu", i + 1);

		table_cell(&t, number);
		table_cell(&t, cli_string(rule, "name", "?"));
		table_cell(&t, cli_string(rule, "action", "?"));
	}
	table_print(&t, &out);
	if (i == 0)
		buf_str(&out, "no rules: nothing leaves\n");
	return cli_print(cli, &out);
}

int cmd_policy_show(struct cli *cli)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/policy", cli->args.positional[0]);
	cleanup_json json_t *answer = NULL;
	int rc = cli_get(cli, target, &answer);

	return rc < 0 ? rc : cli_print_json(answer);
}

int cmd_policy_set(struct cli *cli)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s/policy", cli->args.positional[0]);
	cleanup_json json_t *body = json_object(), *answer = NULL;
	json_t *text;
	int rc = policy_text(cli, cli->args.positional[1], &text);

	if (rc < 0)
		return rc;
	(void)json_object_set_new(body, "policy", text);
	rc = cli_call(cli, "PUT", target, body, &answer);
	if (rc == 0 && cli->json)
		return cli_print_json(answer);
	if (rc == 0 && cli_string(answer, "hint", NULL) != NULL)
		(void)fprintf(stderr, "cay: %s\n", cli_string(answer, "hint", ""));
	return rc;
}

/* A sandbox of that name, else a file or preset. */
static int question(struct cli *cli, const char *what, json_t *body)
{
	cleanup_free char *target = cli_target("/v1/sandboxes/%s", what);
	cleanup_json json_t *sandbox = NULL;
	json_t *text;
	int rc = cli_get(cli, target, &sandbox);

	if (rc == 0)
		return json_object_set_new(body, "sandbox", json_string(what));
	if (cli->err.code != ERR_NOT_FOUND && cli->err.code != ERR_INVALID)
		return rc;
	cli_forgive(cli);
	rc = policy_text(cli, what, &text);
	return rc < 0 ? rc : json_object_set_new(body, "policy", text);
}

/* "NAME: VALUE", as curl takes them. */
static int add_headers(struct cli *cli, json_t *body)
{
	json_t *headers = json_object();
	const char *text;

	(void)json_object_set_new(body, "headers", headers);
	for (size_t pos = 0; (text = cli_args_next(&cli->args, FLAG_HEADER, &pos)) != NULL;) {
		const char *colon = strchr(text, ':');
		const char *value = colon != NULL ? colon + 1 + strspn(colon + 1, " ") : NULL;
		cleanup_free char *name = NULL;

		if (colon == NULL || colon == text)
			return cli_refuse_value(
				cli, FLAG_HEADER, text, "a name, a colon and a value are wanted");
		name = str_dupf("%.*s", (int)(colon - text), text);
		if (json_object_set_new(headers, name, json_string(value)) < 0)
			return cli_refuse_value(cli, FLAG_HEADER, text, "not valid UTF-8");
	}
	return 0;
}

/* Does a header say what the body is? */
static bool says_type(const json_t *headers)
{
	const char *name;
	json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)headers, name, value) {
		if (strcasecmp(name, "content-type") == 0 &&
			strcasestr(json_string_value(value), "json") == NULL)
			return true;
	}
	return false;
}

/* The request's body: what is no JSON, and does not say that it is something else, no rule can read either, so it is most likely misspelt. */
static int add_body(struct cli *cli, json_t *body)
{
	const char *text = cli_args_value(&cli->args, FLAG_BODY);
	cleanup_json json_t *parsed =
		text != NULL ? json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL)
			     : NULL;

	if (text == NULL)
		return 0;
	if (parsed == NULL && !says_type(json_object_get(body, "headers")))
		return cli_refuse_value(cli, FLAG_BODY, text, "not JSON");
	if (json_object_set_new(body, "body", json_string(text)) < 0)
		return cli_refuse_value(cli, FLAG_BODY, text, "not valid UTF-8");
	return 0;
}

static void put_rules(const json_t *answer, struct buf *out)
{
	struct table t;
	json_t *rule;
	size_t i;

	table_init(&t, "RULE|ACTION|SAYS|BECAUSE OF");
	json_array_foreach (json_object_get(answer, "rules"), i, rule) {
		table_cell(&t, cli_string(rule, "rule", "?"));
		table_cell(&t, cli_string(rule, "action", "?"));
		table_cell(&t, cli_string(rule, "result", "?"));
		table_cell(&t, cli_string(rule, "because", NULL));
	}
	table_print(&t, out);
}

int cmd_policy_explain(struct cli *cli)
{
	const char *method = cli_args_value(&cli->args, FLAG_METHOD), *rule;
	cleanup_json json_t *body = json_pack("{s:s}", "url", cli->args.positional[1]),
			    *answer = NULL;
	struct buf out = BUF_INIT(16U << 20);
	int rc = question(cli, cli->args.positional[0], body);

	if (rc == 0)
		rc = add_headers(cli, body);
	if (rc == 0)
		rc = add_body(cli, body);
	if (rc < 0)
		return rc;
	if (method != NULL)
		(void)json_object_set_new(body, "method", json_string(method));
	rc = cli_call(cli, "POST", "/v1/policy/explain", body, &answer);
	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	put_rules(answer, &out);
	rule = cli_string(answer, "rule", NULL);
	buf_fmt(&out, "%s: %s\n", cli_string(answer, "action", "?"),
		rule != NULL ? rule : "nothing matches");
	return cli_print(cli, &out);
}

int cmd_policy_presets(struct cli *cli)
{
	cleanup_json json_t *answer = NULL;
	struct buf out = BUF_INIT(1U << 20);
	json_t *preset;
	size_t i;
	int rc = cli_get(cli, "/v1/policy/presets", &answer);

	if (rc < 0)
		return rc;
	if (cli->json)
		return cli_print_json(answer);
	json_array_foreach (json_object_get(answer, "presets"), i, preset)
		buf_fmt(&out, "%s\n", cli_string(preset, "name", "?"));
	return cli_print(cli, &out);
}

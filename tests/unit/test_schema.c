/* SPDX-License-Identifier: Apache-2.0 */
#include "api/route.h"
#include "base/str.h"
#include "t.h"

static const struct api_route *route(const char *operation)
{
	for (size_t i = 0; i < api_route_count; i++) {
		if (str_eq(api_routes[i].operation, operation))
			return &api_routes[i];
	}
	abort();
}

/* Code of the first fault in @text as a body of @operation; ERR_NONE when it is good. */
static enum err_code check_body(const char *operation, const char *text, const char *named)
{
	struct err err = { 0 };
	json_t *body = NULL;

	if (schema_parse(text, strlen(text), &body, &err) == 0)
		(void)schema_check(route(operation)->body, body, "", &err);
	json_decref(body);
	if (named != NULL && strstr(err.msg, named) == NULL)
		t_fail("'%s' does not name '%s'", err.msg, named);
	return err.code;
}

TEST(texts_that_are_no_request)
{
	cleanup_free char *deep = xalloc(200);

	check_int(check_body("sandbox_create", "", NULL), ERR_INVALID);
	check_int(check_body("sandbox_create", "[]", "object"), ERR_INVALID);
	check_int(
		check_body("sandbox_create", "{\"name\":\"a\",\"name\":\"b\"}", NULL), ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"name\":\"\xff\"}", NULL), ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"name\":\"a\\u0000b\"}", NULL), ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"limits\":{\"pids\":1e999}}", NULL), ERR_INVALID);
	check_int(check_body("sandbox_create", "{} {}", NULL), ERR_INVALID);
	memset(deep, '[', 100);
	check_int(check_body("sandbox_create", deep, "levels"), ERR_INVALID);
}

TEST(members_are_checked_by_name)
{
	check_int(check_body("sandbox_create", "{\"nmae\":\"a\"}", "'nmae'"), ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"limits\":{\"ram\":1}}", "'limits.ram'"),
		ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"limits\":{\"pids\":0}}", "'limits.pids'"),
		ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"limits\":{\"pids\":\"1\"}}", "'limits.pids'"),
		ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"limits\":{\"pids\":1.5}}", "'limits.pids'"),
		ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"name\":\"Not A Name\"}", "'name'"), ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"profile\":\"lax\"}", "'profile'"), ERR_INVALID);
	check_int(check_body("sandbox_create", "{\"mounts\":[{\"source\":\"/a\"}]}",
			  "'mounts[0].target'"),
		ERR_INVALID);
	check_int(check_body("sandbox_create",
			  "{\"mounts\":[{\"source\":\"a\",\"target\":\"/b\"}]}", "source"),
		ERR_INVALID);
	check_int(check_body("sandbox_create",
			  "{\"mounts\":[{\"source\":\"/a/../b\",\"target\":\"/b\"}]}", "source"),
		ERR_INVALID);
	check_int(check_body("exec_create", "{}", "'argv'"), ERR_INVALID);
	check_int(check_body("exec_create", "{\"argv\":[]}", "'argv'"), ERR_INVALID);
	check_int(check_body("exec_create", "{\"argv\":[1]}", "'argv[0]'"), ERR_INVALID);
	check_int(check_body("exec_create", "{\"argv\":[\"a\"],\"tty\":{\"rows\":1}}", "columns"),
		ERR_INVALID);
	check_int(check_body("exec_create", "{\"argv\":[\"a\"],\"env\":{\"A\":1}}", "env.A"),
		ERR_INVALID);
}

TEST(good_requests_pass)
{
	check_int(check_body("sandbox_create", "{}", NULL), ERR_NONE);
	check_int(
		check_body("sandbox_create",
			"{\"name\":\"a-b\",\"labels\":{\"x\":\"y\"},\"mounts\":[{\"source\":\"/a\",\"target\":\"/b\",\"mode\":\"ro\"}],\"limits\":{\"pids\":5}}",
			NULL),
		ERR_NONE);
	check_int(check_body("exec_create",
			  "{\"argv\":[\"a\",\"\"],\"tty\":null,\"env\":{\"A\":\"\"}}", NULL),
		ERR_NONE);
	check_int(check_body("run", "{\"exec\":{\"argv\":[\"true\"]}}", NULL), ERR_NONE);
}

/* Each text is compiled once, and no other stands in for it. */
TEST(patterns_are_checked_again_and_again)
{
	static const struct schema digits = { .kind = SCHEMA_STRING,
		.max = 9,
		.pattern = "^[0-9]+$" },
				   letters = {
					   .kind = SCHEMA_STRING, .max = 9, .pattern = "^[a-z]+$"
				   };
	struct err err;

	for (int i = 0; i < 3; i++) {
		check_int(schema_check_text(&digits, "12", "d", &err), 0);
		check_int(schema_check_text(&letters, "ab", "l", &err), 0);
		check(schema_check_text(&digits, "ab", "d", &err) < 0);
		check_int(err.code, ERR_INVALID);
		check(schema_check_text(&letters, "12", "l", &err) < 0);
		check_int(err.code, ERR_INVALID);
	}
}

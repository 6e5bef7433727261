/* SPDX-License-Identifier: Apache-2.0 */
#include "api/requester.h"
#include "base/str.h"
#include "io/fiber.h"
#include "sys/file.h"

void requester_begin(struct requester *requester, const struct http_conn *conn)
{
	*requester = (struct requester){ .uid = http_peer_uid(conn), .pid = http_peer_pid(conn) };
	fiber_set_task(requester);
}

void requester_end(void)
{
	fiber_set_task(NULL);
}

/* What somebody asks for and others have to live with. What happens by itself, and what commands do, says so in other ways. */
static bool is_told(enum event_type type)
{
	static const enum event_type told[] = { EVENT_SANDBOX_CREATED, EVENT_SANDBOX_STARTED,
		EVENT_SANDBOX_PAUSED, EVENT_SANDBOX_RESUMED, EVENT_SANDBOX_SUSPENDED,
		EVENT_SANDBOX_STOPPED, EVENT_SANDBOX_REMOVED, EVENT_SANDBOX_FORKED,
		EVENT_SANDBOX_REWOUND, EVENT_SANDBOX_SET, EVENT_EXEC_CREATED, EVENT_EXEC_SIGNALLED,
		EVENT_SNAPSHOT_CREATED, EVENT_SNAPSHOT_REMOVED, EVENT_FILES_APPLIED,
		EVENT_FILES_PUT, EVENT_IMAGE_IMPORTED, EVENT_IMAGE_REMOVED, EVENT_POLICY_CHANGED,
		EVENT_SECRET_SET, EVENT_SECRET_REMOVED };

	for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
		if (told[i] == type)
			return true;
	}
	return false;
}

/* It may have ended since it asked, and its number be another's: not when it waits for its answer, which is the rule. */
static void look_for_name(struct requester *requester)
{
	cleanup_free char *path = str_dupf("/proc/%d/comm", requester->pid);
	cleanup_buf struct buf name = BUF_INIT(sizeof(requester->command) - 1);

	requester->looked = true;
	if (requester->pid <= 0 || file_read_at(AT_FDCWD, path, &name) < 0)
		return;
	(void)snprintf(requester->command, sizeof(requester->command), "%.*s",
		(int)strcspn(buf_cstr(&name), "\n"), buf_cstr(&name));
	str_utf8_tidy(requester->command);
}

json_t *requester_cause(enum event_type type)
{
	struct requester *requester = fiber_running() ? fiber_task() : NULL;
	json_t *cause;

	if (requester == NULL || !is_told(type))
		return NULL;
	if (!requester->looked)
		look_for_name(requester);
	cause = json_pack(
		"{s:I,s:I}", "uid", (json_int_t)requester->uid, "pid", (json_int_t)requester->pid);
	if (requester->command[0] != '\0')
		(void)json_object_set_new(cause, "command", json_string(requester->command));
	return cause;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "events/anchors.h"
#include "base/fault.h"
#include "base/str.h"
#include "events/line.h"
#include "sys/file.h"

#include <fcntl.h>

#define FILE_NAME "anchors.json"
#define FILE_NEW  "anchors.json.new"
#define FILE_MAX  (256U << 20)

int anchors_load(struct anchors *a, int dir)
{
	cleanup_buf struct buf text = BUF_INIT(FILE_MAX);
	int rc = file_read_at(dir, FILE_NAME, &text);
	json_t *doc;

	*a = (struct anchors){ .chains = json_object() };
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	doc = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
	a->retired_n = (uint64_t)json_integer_value(json_object_get(doc, "retired_n"));
	(void)json_object_update(a->chains, json_object_get(doc, "chains"));
	rc = json_is_object(json_object_get(doc, "chains")) ? 0 : -EBADMSG;
	json_decref(doc);
	return rc;
}

int anchors_save(const struct anchors *a, int dir)
{
	json_t *doc =
		json_pack("{s:I,s:O}", "retired_n", (json_int_t)a->retired_n, "chains", a->chains);
	cleanup_free char *text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS);
	cleanup_fd int fd =
		openat(dir, FILE_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
	int rc = fd < 0 ? -errno : file_write_all(fd, text, strlen(text));

	json_decref(doc);
	if (rc == 0 && fdatasync(fd) < 0)
		rc = -errno;
	if (rc == 0 && renameat(dir, FILE_NEW, dir, FILE_NAME) < 0)
		rc = -errno;
	if (rc == 0 && fsync(dir) < 0)
		rc = -errno;
	return rc == 0 ? fault("events.anchors.saved") : rc;
}

bool anchors_find(const struct anchors *a, const char *sandbox, struct journal_head *ret,
	uint64_t *ret_time_ns)
{
	const json_t *one = json_object_get(a->chains, sandbox);
	const char *hash = json_string_value(json_object_get(one, "hash"));

	if (hash == NULL || !line_hash_parse(hash, ret->hash))
		return false;
	ret->seq = (uint64_t)json_integer_value(json_object_get(one, "seq"));
	if (ret_time_ns != NULL)
		*ret_time_ns = (uint64_t)json_integer_value(json_object_get(one, "time_ns"));
	return true;
}

void anchors_set(
	struct anchors *a, const char *sandbox, const struct journal_head *head, uint64_t time_ns)
{
	char digits[2 * LINE_HASH_SIZE + 1];

	if (head == NULL) {
		(void)json_object_del(a->chains, sandbox);
		return;
	}
	line_hash_text(head->hash, digits);
	(void)json_object_set_new(a->chains, sandbox,
		json_pack("{s:I,s:s,s:I}", "seq", (json_int_t)head->seq, "hash", digits, "time_ns",
			(json_int_t)time_ns));
}

void anchors_free(struct anchors *a)
{
	json_decref(a->chains);
	*a = (struct anchors){ 0 };
}

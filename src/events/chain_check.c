/* SPDX-License-Identifier: Apache-2.0 */
/* events/chain_check.c - reading a chain again from disk: numbers, hashes, its anchor and the head that the catalogue holds. */
#include "base/ablate.h"
#include "base/str.h"
#include "events/journal_parts.h"

#define LINE_MAX_SIZE (4U << 20)

static void bad(struct journal_check *c, uint64_t n, uint64_t seq, const char *reason)
{
	if (c->reason[0] != '\0' || ablated("hash_chain"))
		return;
	c->bad_n = n;
	c->bad_seq = seq;
	(void)!str_copy(c->reason, sizeof(c->reason), reason);
}

void journal_check_begin(struct journal *j, const char *sandbox,
	const struct journal_head *expected, struct journal_check *c)
{
	*c = (struct journal_check){ 0 };
	(void)!str_copy(c->sandbox, sizeof(c->sandbox), sandbox);
	if (expected != NULL)
		c->expected = *expected;
	if (anchors_find(&j->anchors, sandbox, &c->anchor, &c->anchor_time_ns)) {
		c->anchored = true;
		c->head = c->anchor;
	}
	c->retired_n = j->anchors.retired_n;
}

/* It says that those before it are missing. */
static void take_cut(struct journal_check *c, const char *line, size_t size, uint64_t n)
{
	json_t *event = json_loadb(line, size, 0, NULL), *data = json_object_get(event, "data");

	if (!json_is_true(json_object_get(data, "restarted")))
		bad(c, n, c->head.seq,
			"events before it are missing: the journal was cut while the machine went on");
	if (c->cut == 0)
		c->cut_seq = c->head.seq;
	c->cut += (uint64_t)json_integer_value(json_object_get(data, "n"));
	json_decref(event);
}

/* Check one record against the chain so far; extends the head when it fits. */
static void check_record(struct journal_check *c, char *line, size_t size, uint64_t n)
{
	unsigned char stated[LINE_HASH_SIZE], computed[LINE_HASH_SIZE];
	uint64_t seq = c->head.seq + 1;
	struct line_numbers at;

	c->head.seq = seq;
	if (size == 0 || line[size - 1] != '\n' || !line_numbers(line, size - 1, &at) ||
		!line_stated_hash(line, size - 1, stated)) {
		bad(c, n, seq, "the record is not in the journal's form");
		return;
	}
	if (at.n != n || at.seq != seq || !str_eq(at.sandbox, c->sandbox)) {
		bad(c, n, seq, "a record is missing, moved or of another sandbox");
		return;
	}
	line_expected_hash(c->head.hash, line, size - 1, computed);
	if (memcmp(stated, computed, sizeof(stated)) != 0) {
		bad(c, n, seq, "the record's hash does not follow from the one before");
		return;
	}
	memcpy(c->head.hash, computed, sizeof(computed));
	c->events++;
	if (line_has_type(line, size - 1, event_type_name(EVENT_EVENTS_CUT)))
		take_cut(c, line, size, n);
	if (c->expected.seq == seq &&
		memcmp(c->expected.hash, computed, sizeof(c->expected.hash)) != 0)
		bad(c, n, seq, "the record's hash is not the one that the catalogue holds");
}

static int retired(struct err *err)
{
	return err_raise(
		err, ERR_BUSY, "events were retired while their chain was checked; try again");
}

int journal_check_step(struct journal *j, struct journal_check *c, size_t max, struct err *err)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_MAX_SIZE);

	while (c->reason[0] == '\0' && max-- > 0) {
		uint64_t seq = c->head.seq + 1, n = 0;
		int rc = journal_locate(j, c->sandbox, seq, &n);

		if (rc == -ENOENT && seq > journal_last_seq(j, c->sandbox)) {
			/* all that is left of it may have been retired, the head that the catalogue held then, too */
			if (c->expected.seq >= seq && c->retired_n != j->anchors.retired_n)
				return retired(err);
			if (c->expected.seq >= seq)
				bad(c, 0, seq,
					"the journal ends before the head that the catalogue holds");
			return 0;
		}
		if (rc == -ESTALE)
			return retired(err);
		buf_reset(&line);
		if (rc == 0)
			rc = journal_read(j, NULL, n, &line);
		if (rc < 0 && rc != -ENODATA && rc != -EMSGSIZE && rc != -ENOENT)
			return err_raise_sys(err, rc, "read event %lu", n);
		check_record(c, line.p, line.n, n);
	}
	return c->reason[0] == '\0';
}

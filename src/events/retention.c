/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events/retention.c - how much of the log is kept. Whole segments go, the oldest first, so that n has no gap in what is left.
 *
 * Order: the anchors of all chains that go on are on disk before the segment is unlinked. A crash between leaves a segment that the anchors call retired: the next start removes it. So does
 * the next round with one whose anchors could not be written (a full disk), when they have been.
 */
#include "base/fault.h"
#include "base/str.h"
#include "events/journal_parts.h"
#include "sys/file.h"

#include <fcntl.h>

#define KEEP_FILE "retention.json"

/* --- the rules --- */

static bool older(uint64_t now_ns, uint64_t time_ns, uint64_t age_ns)
{
	return age_ns != 0 && now_ns > time_ns && now_ns - time_ns > age_ns;
}

static void chain_id(const struct index_chain *c, char id[ID_LEN + 1])
{
	memcpy(id, c->sandbox, ID_LEN);
	id[ID_LEN] = '\0';
}

static bool all_removed(const struct segment_index *x, journal_alive_fn *alive, void *ctx)
{
	for (uint32_t i = 0; i < x->head->chains; i++) {
		char id[ID_LEN + 1];

		chain_id(&x->chains[i], id);
		if (id[0] != '\0' && alive(ctx, id))
			return false;
	}
	return true;
}

/* Why the oldest segment may go; NULL when it may not. */
static const char *why_retire(
	const struct journal *j, uint64_t now_ns, journal_alive_fn *alive, void *ctx)
{
	const struct segment_index *x = &j->sealed[0].index;
	const struct journal_keep *keep = &j->keep;

	if (keep->max_bytes != 0 && j->sealed_bytes + j->written > keep->max_bytes)
		return "bytes";
	if (older(now_ns, x->head->last_time_ns, keep->max_age_ns))
		return "age";
	if (older(now_ns, x->head->last_time_ns, keep->removed_age_ns) &&
		all_removed(x, alive, ctx))
		return "removed";
	return NULL;
}

/* --- retiring --- */

static bool goes_on(const struct journal *j, const char *sandbox)
{
	const struct chain *c = active_find(&j->active, sandbox);

	for (size_t i = 1; i < j->n_sealed; i++) {
		if (segment_index_find(&j->sealed[i].index, sandbox) != NULL)
			return true;
	}
	return c != NULL && c->count > 0;
}

static void set_anchors(struct journal *j, uint64_t now_ns, const struct journal_retire *r)
{
	const struct segment_index *x = &j->sealed[0].index;

	for (uint32_t i = 0; i < x->head->chains; i++) {
		const struct index_chain *c = &x->chains[i];
		struct journal_head head = { .seq = c->first_seq + c->count - 1 };
		char id[ID_LEN + 1];

		chain_id(c, id);
		memcpy(head.hash, c->after, sizeof(head.hash));
		if (id[0] == '\0' || r->alive(r->ctx, id) || goes_on(j, id)) {
			anchors_set(&j->anchors, id, &head, now_ns);
		} else {
			anchors_set(&j->anchors, id, NULL, 0);
			active_forget(&j->active, id);
			r->forget(r->ctx, id);
		}
	}
	j->anchors.retired_n = x->head->first_n + x->head->events - 1;
	j->anchors_changed = true;
}

static int save_anchors(struct journal *j)
{
	int rc = j->anchors_changed ? anchors_save(&j->anchors, j->dir) : 0;

	if (rc == 0)
		j->anchors_changed = false;
	return rc;
}

static int drop_oldest(struct journal *j)
{
	char name[32];

	if (j->read_fd >= 0 && j->read_segment == j->sealed[0].number)
		fd_close(&j->read_fd);
	segment_name(j->sealed[0].number, "jsonl", name);
	if (unlinkat(j->dir, name, 0) < 0)
		return -errno;
	if (fault("events.retire.unlinked") < 0)
		return -EIO;
	segment_name(j->sealed[0].number, "index", name);
	(void)unlinkat(j->dir, name, 0);
	j->sealed_bytes -= j->sealed[0].index.head->bytes;
	segment_index_close(&j->sealed[0].index);
	j->n_sealed--;
	memmove(j->sealed, j->sealed + 1, j->n_sealed * sizeof(*j->sealed));
	return 0;
}

/* What is written could stay below a segment's size for ever: old enough, it is sealed so that it can go. */
static bool wants_seal(const struct journal *j, uint64_t now_ns)
{
	const struct journal_keep *keep = &j->keep;

	return j->active.events > 0 &&
	       (older(now_ns, j->active.first_time_ns, keep->max_age_ns) ||
		       older(now_ns, j->active.first_time_ns, keep->removed_age_ns));
}

int journal_retire(struct journal *j, uint64_t now_ns, struct journal_retire *r)
{
	int rc = save_anchors(j);

	/* left over from a retirement that was cut short */
	while (rc == 0 && j->n_sealed > 0 &&
		j->sealed[0].index.head->first_n <= j->anchors.retired_n)
		rc = drop_oldest(j);
	if (rc == 0 && wants_seal(j, now_ns))
		rc = journal_seal(j);
	while (rc == 0 && j->n_sealed > 0) {
		const char *why = why_retire(j, now_ns, r->alive, r->ctx);
		const struct index_head *h = j->sealed[0].index.head;

		if (why == NULL)
			return 0;
		if (r->segments++ == 0)
			r->first_n = h->first_n;
		r->last_n = h->first_n + h->events - 1;
		r->bytes += h->bytes;
		r->reason = why;
		set_anchors(j, now_ns, r);
		if (r->forgotten != NULL)
			r->forgotten(r->ctx);
		rc = save_anchors(j);
		if (rc == 0)
			rc = drop_oldest(j);
	}
	return rc;
}

/* --- what is kept --- */

const struct journal_keep *journal_keep(const struct journal *j)
{
	return &j->keep;
}

int journal_keep_set(struct journal *j, const struct journal_keep *keep)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
		"{\"max_bytes\":%lu,\"max_age_ns\":%lu,\"removed_age_ns\":%lu,\"segment_bytes\":%lu}\n",
		keep->max_bytes, keep->max_age_ns, keep->removed_age_ns, keep->segment_bytes);
	cleanup_fd int fd = openat(j->dir, KEEP_FILE ".new",
		O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
	int rc = fd < 0 ? -errno : file_write_all(fd, text, (size_t)n);

	if (rc == 0 && fdatasync(fd) < 0)
		rc = -errno;
	if (rc == 0 && renameat(j->dir, KEEP_FILE ".new", j->dir, KEEP_FILE) < 0)
		rc = -errno;
	if (rc == 0 && fsync(j->dir) < 0)
		rc = -errno;
	if (rc == 0)
		j->keep = *keep;
	return rc;
}

int journal_keep_load(struct journal *j)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	int rc = file_read_at(j->dir, KEEP_FILE, &text);
	unsigned long bytes, age, removed, segment;

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	/* all that a power cut may leave of one that was not synced */
	if (text.n == 0)
		return 0;
	if (sscanf(buf_cstr(&text),
		    "{\"max_bytes\":%lu,\"max_age_ns\":%lu,\"removed_age_ns\":%lu,\"segment_bytes\":%lu}",
		    &bytes, &age, &removed, &segment) != 4 ||
		segment < JOURNAL_SEGMENT_MIN || segment > JOURNAL_SEGMENT_MAX)
		return -EBADMSG;
	j->keep = (struct journal_keep){ bytes, age, removed, segment };
	return 0;
}

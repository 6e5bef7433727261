/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events/journal.c - see the header for format and promise; events/active.h and events/segment_index.h for what is known of each segment.
 *
 * Files: NNNNNN.jsonl, numbered without gaps from the oldest that is still there; the last one is written. Each of the others has an NNNNNN.index beside it. In memory is what concerns
 * the last segment, and a few words for each of the others: it does not grow with the log.
 *
 * Failure story: a write that fails half way (full disk) leaves the rest in @pending and is tried again by the next flush at the very offset where it
 * stopped; nothing is acknowledged meanwhile. What @pending has no room for is counted, chain by chain, and told behind it (events.lost); until then nothing is added, so that each chain
 * says it where it was. After kill -9 the last line may be incomplete: it was never acknowledged and is cut off at the next start. A
 * segment is sealed by writing its index and then making the next segment; an index beside the last segment is of a seal that was cut short and is ignored, one that is missing or
 * damaged is made again.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "events/journal_parts.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#define LINE_MAX_SIZE (1U << 20)
#define LINE_ROOM     (LINE_MAX_SIZE + 4096)
#define PENDING_MAX   (256U << 20)
#define SEGMENT_MOST  UINT32_MAX /* places in it have 32 bits */
#define SEAL_AGAIN_NS NS_PER_S

static const struct {
	const char *name;
} types[EVENT_TYPE_COUNT] = {
#define EVENT(name, wire, version, members, when) [EVENT_##name] = { wire },
#include "events.def"
#undef EVENT
};

const char *event_type_name(enum event_type type)
{
	BUG_ON(type >= EVENT_TYPE_COUNT);
	return types[type].name;
}

enum event_type event_type_parse(const char *name)
{
	for (unsigned int i = 0; i < EVENT_TYPE_COUNT; i++) {
		if (str_eq(types[i].name, name))
			return (enum event_type)i;
	}
	return EVENT_KEEPER;
}

/* --- chains, wherever they lie --- */

static const struct index_chain *sealed_chain(
	const struct journal *j, const char *sandbox, const struct sealed **ret)
{
	for (size_t i = j->n_sealed; i-- > 0;) {
		const struct index_chain *c = segment_index_find(&j->sealed[i].index, sandbox);

		if (c == NULL)
			continue;
		*ret = &j->sealed[i];
		return c;
	}
	return NULL;
}

/* The last event that is not in the segment that is written. */
static bool last_before_active(
	const struct journal *j, const char *sandbox, struct journal_head *ret)
{
	const struct sealed *s;
	const struct index_chain *c = sealed_chain(j, sandbox, &s);

	if (c == NULL)
		return anchors_find(&j->anchors, sandbox, ret, NULL);
	ret->seq = c->first_seq + c->count - 1;
	memcpy(ret->hash, c->after, sizeof(ret->hash));
	return true;
}

bool journal_chain_last(const struct journal *j, const char *sandbox, struct journal_head *ret)
{
	const struct chain *c = active_find(&j->active, sandbox);

	if (c == NULL)
		return last_before_active(j, sandbox, ret);
	*ret = c->head;
	return c->head.seq > 0;
}

/* seq of the first event of a chain that is still there, or will be next; 0 when there is no such chain. */
static uint64_t journal_chain_first(const struct journal *j, const char *sandbox)
{
	struct journal_head head;

	if (anchors_find(&j->anchors, sandbox, &head, NULL))
		return head.seq + 1;
	return journal_chain_last(j, sandbox, &head) ? 1 : 0;
}

static struct chain *chain_get(struct journal *j, const char *sandbox)
{
	struct chain *c = active_find(&j->active, sandbox);
	struct journal_head head = { 0 };

	if (c != NULL)
		return c;
	(void)last_before_active(j, sandbox, &head);
	return active_put(&j->active, sandbox, &head);
}

/* --- segments --- */

void segment_name(uint32_t number, const char *suffix, char name[32])
{
	(void)snprintf(name, 32, "%06u.%s", number, suffix);
}

static int segment_open(const struct journal *j, uint32_t number, int flags)
{
	char name[32];
	int fd;

	segment_name(number, "jsonl", name);
	fd = openat(j->dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0640);
	return fd < 0 ? -errno : fd;
}

/* "2026-11-21T08:00:00.123456Z" behind "time": our own text; 0 when there is none. */
static uint64_t line_time_ns(const char *line)
{
	const char *at = NULL;
	struct tm tm = { 0 };

	for (const char *p = line; (p = strstr(p, "\"time\":\"")) != NULL; p++)
		at = p;
	if (at == NULL || strptime(at + 8, "%Y-%m-%dT%H:%M:%S", &tm) == NULL)
		return 0;
	return (uint64_t)timegm(&tm) * NS_PER_S;
}

/* A damaged line stays in its place, in the instance's chain: the check names it. */
static void index_line(struct journal *j, const char *line, size_t n, uint32_t offset)
{
	unsigned char hash[LINE_HASH_SIZE];
	struct line_numbers at;

	if (!line_numbers(line, n, &at))
		at = (struct line_numbers){ .n = journal_last(j) + 1 };
	if (j->n_sealed == 0 && j->active.events == 0)
		j->active.first_n = at.n; /* what was before it was retired */
	if (!line_stated_hash(line, n, hash))
		memset(hash, 0xFF, sizeof(hash));
	active_add(&j->active, chain_get(j, at.sandbox), offset, line_time_ns(line), hash);
}

/* Read a whole segment into @j->active. @cut: a last line without its end is cut off. Return: bytes of it, or an error. */
static int64_t read_segment(struct journal *j, uint32_t number, bool cut, struct err *err)
{
	cleanup_fd int fd = segment_open(j, number, cut ? O_RDWR : O_RDONLY);
	cleanup_fclose FILE *f = NULL;
	cleanup_free char *line = NULL;
	uint32_t offset = 0;
	size_t cap = 0;
	ssize_t n;

	if (fd < 0)
		return err_raise_sys(err, fd, "open journal segment %u", number);
	f = fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 0), "r");
	if (f == NULL)
		return err_raise_sys(err, -errno, "read journal segment %u", number);
	while ((n = getline(&line, &cap, f)) > 0) {
		if (line[n - 1] != '\n') {
			if (cut && ftruncate(fd, offset) < 0)
				return err_raise_sys(err, -errno, "cut journal segment %u", number);
			break;
		}
		index_line(j, line, (size_t)n - 1, offset);
		offset += (uint32_t)n;
	}
	return offset;
}

static int sealed_push(struct journal *j, uint32_t number, uint64_t bytes)
{
	struct sealed s = { .number = number };
	char name[32];
	int rc;

	segment_name(number, "index", name);
	rc = segment_index_open(&s.index, j->dir, name, bytes);
	if (rc < 0)
		return rc;
	j->sealed = reallocarray(j->sealed, j->n_sealed + 1, sizeof(s));
	if (j->sealed == NULL)
		abort();
	j->sealed[j->n_sealed++] = s;
	j->sealed_bytes += bytes;
	j->active.first_n = s.index.head->first_n + s.index.head->events;
	return 0;
}

/* Its index, made again if need be. */
static int open_sealed(struct journal *j, uint32_t number, struct err *err)
{
	cleanup_fd int fd = segment_open(j, number, O_RDONLY);
	uint64_t first_n = j->active.first_n;
	char name[32];
	struct stat st;
	int64_t bytes;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_raise_sys(err, fd < 0 ? fd : -errno, "open journal segment %u", number);
	rc = sealed_push(j, number, (uint64_t)st.st_size);
	if (rc == 0)
		return 0;
	log_warn("events", "segment %u has no usable index: reading it", number);
	bytes = read_segment(j, number, false, err);
	if (bytes < 0)
		return (int)bytes;
	segment_name(number, "index", name);
	rc = active_write_index(&j->active, j->dir, name, (uint64_t)st.st_size);
	active_next(&j->active, first_n);
	if (rc == 0)
		rc = sealed_push(j, number, (uint64_t)st.st_size);
	return rc < 0 ? err_raise_sys(err, rc, "index journal segment %u", number) : 0;
}

/* Numbers of the first and the last segment; 0 and 0 when there is none. */
static int list_segments(const struct journal *j, uint32_t *first, uint32_t *last)
{
	DIR *dir = fdopendir(openat(j->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct dirent *entry;

	*first = *last = 0;
	if (dir == NULL)
		return -errno;
	while ((entry = readdir(dir)) != NULL) {
		char *end;
		unsigned long n = strtoul(entry->d_name, &end, 10);

		if (end == entry->d_name || !str_eq(end, ".jsonl") || n == 0 || n > UINT32_MAX)
			continue;
		if (*first == 0 || n < *first)
			*first = (uint32_t)n;
		if (n > *last)
			*last = (uint32_t)n;
	}
	(void)closedir(dir);
	return 0;
}

static int open_segments(struct journal *j, struct err *err)
{
	uint32_t first, last;
	char name[32];
	int64_t bytes;
	int rc = list_segments(j, &first, &last);

	if (rc < 0)
		return err_raise_sys(err, rc, "list the journal");
	j->active.first_n = j->anchors.retired_n + 1;
	segment_name(first > 0 ? first - 1 : 0, "index", name);
	(void)unlinkat(j->dir, name, 0); /* retiring its segment was cut short */
	for (uint32_t i = first; i < last && rc == 0; i++)
		rc = open_sealed(j, i, err);
	if (rc < 0)
		return rc;
	active_next(&j->active, j->active.first_n);
	j->segment = last != 0 ? last : 1;
	if (last == 0)
		return 0;
	bytes = read_segment(j, last, true, err);
	if (bytes < 0)
		return (int)bytes;
	j->written = (uint32_t)bytes;
	return 0;
}

int journal_open(const char *path, struct journal **ret, struct err *err)
{
	struct journal *j = xnew(struct journal);
	int rc = 0;

	j->fd = j->read_fd = -1;
	j->pending = (struct buf)BUF_INIT(PENDING_MAX);
	j->keep = (struct journal_keep)JOURNAL_KEEP_DEFAULT;
	j->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (j->dir < 0)
		rc = err_raise_sys(err, -errno, "open journal '%s'", path);
	if (rc == 0) {
		rc = anchors_load(&j->anchors, j->dir);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "read the anchors of journal '%s'", path);
	}
	if (rc == 0)
		rc = open_segments(j, err);
	if (rc == 0) {
		j->fd = segment_open(j, j->segment, O_WRONLY | O_CREAT);
		if (j->fd < 0)
			rc = err_raise_sys(err, j->fd, "open journal segment");
	}
	if (rc < 0) {
		journal_close(j);
		return rc;
	}
	*ret = j;
	return 0;
}

void journal_close(struct journal *j)
{
	if (j == NULL)
		return;
	(void)journal_flush(j);
	active_clear(&j->active);
	for (size_t i = 0; i < j->n_sealed; i++)
		segment_index_close(&j->sealed[i].index);
	free(j->sealed);
	anchors_free(&j->anchors);
	fd_close(&j->fd);
	fd_close(&j->read_fd);
	fd_close(&j->dir);
	buf_free(&j->pending);
	free(j->losses);
	free(j);
}

/* --- writing --- */

static int write_pending(struct journal *j)
{
	size_t done = 0;

	if (fault("events.flush.before") < 0)
		return -EIO;
	while (done < j->pending.n) {
		ssize_t n = pwrite(j->fd, j->pending.p + done, j->pending.n - done, j->written);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int rc = -errno;

			buf_consume(&j->pending, done);
			return rc;
		}
		done += (size_t)n;
		j->written += (uint32_t)n;
	}
	buf_reset(&j->pending);
	return 0;
}

static int seal(struct journal *j)
{
	cleanup_fd int next = -1;
	char name[32];
	int rc = journal_flush(j);

	segment_name(j->segment, "index", name);
	if (rc == 0 && fdatasync(j->fd) < 0)
		rc = -errno;
	if (rc == 0)
		rc = active_write_index(&j->active, j->dir, name, j->written);
	if (rc == 0)
		rc = fault("events.seal.indexed");
	if (rc == 0)
		rc = next = segment_open(j, j->segment + 1, O_WRONLY | O_CREAT | O_EXCL);
	if (rc >= 0)
		rc = sealed_push(j, j->segment, j->written);
	if (rc < 0) {
		segment_name(j->segment + 1, "jsonl", name);
		(void)unlinkat(j->dir, name, 0);
		return rc;
	}
	fd_close(&j->fd);
	j->fd = TAKE_FD(next);
	j->segment++;
	j->written = 0;
	active_next(&j->active, j->active.first_n);
	return 0;
}

/* jansson writes \\u001F, most others \\u001f: the canonical form is theirs. */
static void lower_escapes(char *text)
{
	for (char *p = text; *p != '\0'; p++) {
		if (*p != '\\')
			continue;
		p++;
		for (int i = 1; *p == 'u' && i <= 4; i++)
			p[i] = p[i] >= 'A' && p[i] <= 'F' ? (char)(p[i] - 'A' + 'a') : p[i];
	}
}

static void add_value(struct buf *out, const char *name, json_t *value)
{
	cleanup_free char *text =
		value != NULL ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	if (text != NULL)
		lower_escapes(text);
	if (text != NULL && strlen(text) >= LINE_MAX_SIZE / 2)
		buf_fmt(out, "\"%s\":{\"omitted_bytes\":%zu},", name, strlen(text));
	else
		buf_fmt(out, "\"%s\":%s,", name, text != NULL ? text : "null");
	json_decref(value);
}

static void add_text(struct buf *out, const char *name, const char *text)
{
	if (text != NULL)
		buf_fmt(out, "\"%s\":\"%s\",", name,
			text); /* ids and type names: nothing to escape */
	else
		buf_fmt(out, "\"%s\":null,", name);
}

static bool has_room(const struct journal *j, size_t n)
{
	return n <= j->pending.max - j->pending.n &&
	       (uint64_t)j->written + j->pending.n + n <= SEGMENT_MOST;
}

bool journal_is_full(const struct journal *j)
{
	return j->n_losses > 0 || !has_room(j, LINE_ROOM);
}

/* Return: its n; 0 when there is no room for it. */
static uint64_t put(struct journal *j, struct event *e)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_ROOM);
	const char *sandbox = e->sandbox != NULL ? e->sandbox : "";
	uint64_t n = journal_last(j) + 1, time_ns = e->time_ns != 0 ? e->time_ns : clock_wall_ns();
	char when[CLOCK_TEXT_SIZE], digits[2 * LINE_HASH_SIZE + 1];
	unsigned char hash[LINE_HASH_SIZE];
	struct chain *c = chain_get(j, sandbox);

	clock_text(time_ns, when);
	buf_char(&line, '{');
	add_value(&line, "cause", e->cause);
	add_value(&line, "data", e->data != NULL ? e->data : json_object());
	buf_fmt(&line, "\"epoch\":%lu,", e->epoch);
	add_text(&line, "exec", e->exec);
	add_text(&line, "member", e->sandbox);
	buf_fmt(&line, "\"n\":%lu,", n);
	add_text(&line, "sandbox", e->sandbox);
	buf_fmt(&line, "\"seq\":%lu,", c->head.seq + 1);
	add_text(&line, "time", when);
	buf_fmt(&line, "\"type\":\"%s\"}", event_type_name(e->type));
	line_hash(c->head.hash, line.p, line.n, hash);
	line_hash_text(hash, digits);
	line.n--;
	buf_fmt(&line, ",\"hash\":\"%s\"}\n", digits);
	if (!has_room(j, line.n))
		return 0;
	active_add(&j->active, c, (uint32_t)(j->written + j->pending.n), time_ns, hash);
	active_mark_dirty(&j->active, c);
	buf_add(&j->pending, line.p, line.n);
	return n;
}

/* Told when it changes: without room for the next segment the one that is written grows beyond its size. */
int journal_seal(struct journal *j)
{
	int rc = seal(j);

	if (rc < 0 && !j->unsealed)
		log_error(
			"events", "begin another segment of the journal: %s", strerrordesc_np(-rc));
	else if (rc == 0 && j->unsealed)
		log_notice("events", "another segment of the journal is begun");
	j->unsealed = rc < 0;
	j->seal_ns = clock_now_ns() + SEAL_AGAIN_NS;
	return rc;
}

/* An index is made for each try. */
static bool is_long(const struct journal *j)
{
	return (uint64_t)j->written + j->pending.n > j->keep.segment_bytes &&
	       (!j->unsealed || clock_now_ns() >= j->seal_ns);
}

/* --- what there is no room for --- */

static struct loss *loss_of(struct journal *j, const char *sandbox)
{
	struct loss *l;

	for (size_t i = 0; i < j->n_losses; i++) {
		if (str_eq(j->losses[i].sandbox, sandbox))
			return &j->losses[i];
	}
	j->losses = reallocarray(j->losses, j->n_losses + 1, sizeof(*l));
	if (j->losses == NULL)
		abort();
	l = &j->losses[j->n_losses++];
	*l = (struct loss){ 0 };
	(void)!str_copy(l->sandbox, sizeof(l->sandbox), sandbox);
	return l;
}

static void lose(struct journal *j, const struct event *e)
{
	struct loss *l = loss_of(j, e->sandbox != NULL ? e->sandbox : "");

	l->epoch = e->epoch;
	l->n++;
}

static bool tell_loss(struct journal *j, const struct loss *l)
{
	struct event e = { .type = EVENT_EVENTS_LOST,
		.sandbox = l->sandbox[0] != '\0' ? l->sandbox : NULL,
		.epoch = l->epoch,
		.data = json_pack("{s:I,s:s}", "n", (json_int_t)l->n, "source", "journal") };

	return put(j, &e) != 0;
}

static void tell_losses(struct journal *j)
{
	while (j->n_losses > 0 && tell_loss(j, &j->losses[j->n_losses - 1]))
		j->n_losses--;
}

uint64_t journal_add(struct journal *j, struct event *e)
{
	uint64_t n = 0;

	if (is_long(j))
		(void)!journal_seal(j);
	if (j->n_losses == 0) {
		n = put(j, e);
	} else {
		json_decref(e->cause);
		json_decref(e->data);
	}
	if (n == 0)
		lose(j, e);
	return n;
}

int journal_flush(struct journal *j)
{
	int rc = 0;

	/* behind all that waits: what is told as soon as there is room for it would fill that room again and again */
	do {
		rc = j->pending.n > 0 ? write_pending(j) : 0;
		if (rc == 0)
			tell_losses(j);
	} while (rc == 0 && j->pending.n > 0);
	if (rc == 0)
		j->written_n = journal_last(j);
	return rc;
}

uint64_t journal_written(const struct journal *j)
{
	return j->written_n;
}

uint64_t journal_last(const struct journal *j)
{
	return j->active.first_n + j->active.events - 1;
}

uint64_t journal_first(const struct journal *j, const char *sandbox)
{
	if (sandbox != NULL)
		return journal_chain_first(j, sandbox);
	return j->n_sealed > 0 ? j->sealed[0].index.head->first_n : j->active.first_n;
}

uint64_t journal_last_seq(const struct journal *j, const char *sandbox)
{
	struct journal_head head;

	return journal_chain_last(j, sandbox, &head) ? head.seq : 0;
}

bool journal_dirty(const struct journal *j)
{
	return j->active.dirty != NULL;
}

void journal_dirty_heads(struct journal *j,
	void (*fn)(void *ctx, const char *sandbox, const struct journal_head *head), void *ctx)
{
	for (const struct chain *c = j->active.dirty; c != NULL; c = c->next_dirty)
		fn(ctx, c->sandbox, &c->head);
}

void journal_heads_written(struct journal *j)
{
	while (j->active.dirty != NULL) {
		struct chain *c = j->active.dirty;

		j->active.dirty = c->next_dirty;
		c->dirty = false;
	}
}

/* --- reading --- */

/* Where a line lies. */
struct place {
	uint32_t segment;
	uint64_t offset, size;
};

static const struct sealed *sealed_of(const struct journal *j, uint64_t n)
{
	size_t low = 0, high = j->n_sealed;

	while (low < high) { /* the first that ends behind @n */
		size_t middle = low + (high - low) / 2;
		const struct index_head *h = j->sealed[middle].index.head;

		if (h->first_n + h->events <= n)
			low = middle + 1;
		else
			high = middle;
	}
	return &j->sealed[low];
}

static struct place place_of(const struct journal *j, uint64_t n)
{
	const struct active *a = &j->active;
	struct place p = { .segment = j->segment };

	if (n < a->first_n) {
		const struct sealed *s = sealed_of(j, n);
		uint32_t i = (uint32_t)(n - s->index.head->first_n);

		return (struct place){ s->number, s->index.starts[i],
			segment_index_size(&s->index, i) };
	}
	p.offset = a->starts[n - a->first_n];
	p.size = (n - a->first_n + 1 < a->events ? a->starts[n - a->first_n + 1]
						 : j->written + j->pending.n) -
		 p.offset;
	return p;
}

/* The segment that is read most of the time stays open. */
static int reading_fd(struct journal *j, uint32_t segment)
{
	if (j->read_fd >= 0 && j->read_segment == segment)
		return j->read_fd;
	fd_close(&j->read_fd);
	j->read_fd = segment_open(j, segment, O_RDONLY);
	j->read_segment = segment;
	return j->read_fd;
}

/* What is in memory alone is shown to nobody. */
static int make_written(struct journal *j, struct place at)
{
	if (at.segment != j->segment || (uint64_t)at.offset + at.size <= j->written)
		return 0;
	return journal_flush(j);
}

static int read_line(struct journal *j, uint64_t n, struct buf *out)
{
	struct place at = place_of(j, n);
	int fd, rc = make_written(j, at);
	size_t done = 0;
	char *to;

	if (rc < 0)
		return rc;
	fd = reading_fd(j, at.segment);
	if (fd < 0)
		return fd;
	to = buf_room(out, (size_t)at.size);
	if (to == NULL)
		return -EMSGSIZE;
	while (done < at.size) {
		ssize_t got =
			pread(fd, to + done, (size_t)at.size - done, (off_t)(at.offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		done += (size_t)got;
	}
	buf_grown(out, (size_t)at.size);
	out->p[out->n] = '\0';
	return 0;
}

/* n of an event of a chain that is there. */
static uint64_t chain_n(const struct journal *j, const char *sandbox, uint64_t seq)
{
	const struct chain *c = active_find(&j->active, sandbox);

	if (c != NULL && seq >= c->first_seq)
		return j->active.first_n + c->numbers[seq - c->first_seq];
	for (size_t i = j->n_sealed; i-- > 0;) {
		const struct segment_index *x = &j->sealed[i].index;
		const struct index_chain *part = segment_index_find(x, sandbox);

		if (part != NULL && seq >= part->first_seq && seq - part->first_seq < part->count)
			return x->head->first_n + x->numbers[part->first + seq - part->first_seq];
	}
	return 0;
}

int journal_locate(const struct journal *j, const char *sandbox, uint64_t at, uint64_t *ret_n)
{
	uint64_t first = journal_first(j, sandbox),
		 last = sandbox != NULL ? journal_last_seq(j, sandbox) : journal_last(j);

	if (at == 0 || at > last)
		return -ENOENT;
	if (at < first)
		return -ESTALE;
	*ret_n = sandbox != NULL ? chain_n(j, sandbox, at) : at;
	return *ret_n != 0 ? 0 : -ENOENT;
}

int journal_read(struct journal *j, const char *sandbox, uint64_t at, struct buf *out)
{
	uint64_t n;
	int rc = journal_locate(j, sandbox, at, &n);

	return rc < 0 ? rc : read_line(j, n, out);
}

void journal_each_chain(
	const struct journal *j, void (*fn)(void *ctx, const char *sandbox), void *ctx)
{
	for (size_t i = 0; i < j->n_sealed; i++) {
		const struct segment_index *x = &j->sealed[i].index;

		for (uint32_t k = 0; k < x->head->chains; k++) {
			char id[ID_LEN + 1] = "";

			memcpy(id, x->chains[k].sandbox, ID_LEN);
			fn(ctx, id);
		}
	}
	for (size_t i = 0; i < ACTIVE_BUCKETS; i++) {
		for (const struct chain *c = j->active.buckets[i]; c != NULL; c = c->next)
			fn(ctx, c->sandbox);
	}
}

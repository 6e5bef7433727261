/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events/journal.c - see the header for format and promise.
 *
 * In memory: for every event where its line lies (segment, offset), and per chain the list of its n. Eight bytes an event each.
 *
 * Failure story: a write that fails half way (full disk) leaves the rest in @pending and is tried again by the next flush at the very offset where it
 * stopped; nothing is acknowledged meanwhile. After kill -9 the last line may be incomplete: it was never acknowledged and is cut off at the next start.
 */
#include "events/journal.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#define SEGMENT_BYTES (32U << 20)
#define LINE_MAX_SIZE (1U << 20)
#define PENDING_MAX   (256U << 20)
#define TAIL_MAX      400 /* longer than a line without cause and data */

struct place {
	uint32_t segment, offset;
};

struct chain {
	struct chain *next;       /* of the same hash bucket */
	char sandbox[ID_LEN + 1]; /* "" = the instance */
	struct journal_head head;
	bool dirty;
	struct chain *next_dirty;
	uint64_t *numbers; /* n of seq 1, 2, … */
	size_t cap;
};

struct journal {
	int dir;
	int fd;               /* segment that is written */
	uint32_t segment;     /* its number */
	uint32_t written;     /* bytes of it on disk */
	struct buf pending;   /* not written yet */
	struct place *places; /* of n = 1, 2, … */
	size_t n, cap;
	struct chain *buckets[4096];
	struct chain *dirty;
	int read_fd; /* last segment read, */
	uint32_t read_segment;
};

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

/* --- chains and index --- */

static struct chain **bucket_of(struct journal *j, const char *sandbox)
{
	uint32_t h = 2166136261U;

	for (const char *p = sandbox; *p != '\0'; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return &j->buckets[h % ARRAY_SIZE(j->buckets)];
}

static struct chain *chain_find(const struct journal *j, const char *sandbox)
{
	for (struct chain *c = *bucket_of((struct journal *)(uintptr_t)j, sandbox); c != NULL;
		c = c->next) {
		if (str_eq(c->sandbox, sandbox))
			return c;
	}
	return NULL;
}

static struct chain *chain_get(struct journal *j, const char *sandbox)
{
	struct chain **bucket = bucket_of(j, sandbox);
	struct chain *c = chain_find(j, sandbox);

	if (c != NULL)
		return c;
	c = xnew(struct chain);
	(void)!str_copy(c->sandbox, sizeof(c->sandbox), sandbox);
	c->next = *bucket;
	*bucket = c;
	return c;
}

static void grow(void **p, size_t *cap, size_t size, size_t least)
{
	size_t want = *cap * 2 > least ? *cap * 2 : least;
	void *q = reallocarray(*p, want, size);

	if (q == NULL)
		abort();
	*p = q;
	*cap = want;
}

static void index_add(struct journal *j, struct chain *c, uint32_t segment, uint32_t offset)
{
	if (j->n == j->cap)
		grow((void **)&j->places, &j->cap, sizeof(*j->places), 1024);
	j->places[j->n++] = (struct place){ segment, offset };
	if (c->head.seq == c->cap)
		grow((void **)&c->numbers, &c->cap, sizeof(*c->numbers), 16);
	c->numbers[c->head.seq++] = j->n;
}

/* --- hashing --- */

static void hex(const unsigned char *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = '\0';
}

static void hash_line(
	const unsigned char before[32], const char *line, size_t n, unsigned char out[32])
{
	SHA256_CTX ctx;

	/* EVP allocates for each digest; this runs for every event */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	(void)SHA256_Init(&ctx);
	(void)SHA256_Update(&ctx, before, 32);
	(void)SHA256_Update(&ctx, line, n);
	(void)SHA256_Final(out, &ctx);
#pragma GCC diagnostic pop
}

/* A line ends with ,"hash":"<64 digits>"} */
#define HASH_TAIL (sizeof(",\"hash\":\"\"}") - 1 + 64)

static bool hash_of_line(const char *line, size_t n, unsigned char out[32])
{
	const char *p = line + n - HASH_TAIL;

	if (n <= HASH_TAIL || memcmp(p, ",\"hash\":\"", 9) != 0 ||
		memcmp(line + n - 2, "\"}", 2) != 0)
		return false;
	for (size_t i = 0; i < 64; i++) {
		char c = p[9 + i];
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (d < 0)
			return false;
		out[i / 2] = (unsigned char)(i % 2 == 0 ? d << 4 : out[i / 2] | d);
	}
	return true;
}

/* The hash that a line must have: over its bytes without the hash member. */
static void expected_hash(
	const unsigned char before[32], char *line, size_t n, unsigned char out[32])
{
	size_t body = n - HASH_TAIL;
	char kept = line[body];

	line[body] = '}';
	hash_line(before, line, body + 1, out);
	line[body] = kept;
}

/* --- segments --- */

static void segment_name(uint32_t number, char name[32])
{
	(void)snprintf(name, 32, "%06u.jsonl", number);
}

static int segment_open(struct journal *j, uint32_t number, int flags)
{
	char name[32];
	int fd;

	segment_name(number, name);
	fd = openat(j->dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0640);
	return fd < 0 ? -errno : fd;
}

/*
 * n, sandbox and seq of a line, without parsing all of it: it is our own canonical text, and behind "epoch" come only ids, numbers, time and type, so the
 * last "epoch" of the line is the event's own whatever its data hold.
 */
static bool line_numbers(
	const char *line, size_t n, uint64_t *number, char sandbox[ID_LEN + 1], uint64_t *seq)
{
	char tail[TAIL_MAX + 1], *epoch = NULL, *at;

	(void)snprintf(tail, sizeof(tail), "%.*s", (int)(n < TAIL_MAX ? n : TAIL_MAX),
		n < TAIL_MAX ? line : line + n - TAIL_MAX);
	for (char *p = tail; (p = strstr(p, ",\"epoch\":")) != NULL; p++)
		epoch = p;
	at = epoch != NULL ? strstr(epoch, ",\"n\":") : NULL;
	if (at == NULL)
		return false;
	*number = strtoull(at + 5, &at, 10);
	sandbox[0] = '\0';
	if (str_starts(at, ",\"sandbox\":\"") && strlen(at) > 12 + ID_LEN) {
		memcpy(sandbox, at + 12, ID_LEN);
		sandbox[ID_LEN] = '\0';
		if (!id_valid(sandbox))
			return false;
	}
	at = strstr(at, ",\"seq\":");
	if (at == NULL)
		return false;
	*seq = strtoull(at + 7, NULL, 10);
	return true;
}

/* A damaged line stays in the index in its place: verify names it. */
static void index_line(
	struct journal *j, const char *line, size_t n, uint32_t segment, uint32_t offset)
{
	char sandbox[ID_LEN + 1];
	uint64_t number, seq;
	struct chain *c;

	if (!line_numbers(line, n, &number, sandbox, &seq))
		sandbox[0] = '\0';
	c = chain_get(j, sandbox);
	index_add(j, c, segment, offset);
	if (!hash_of_line(line, n, c->head.hash))
		memset(c->head.hash, 0xFF, sizeof(c->head.hash));
}

static int read_segment(struct journal *j, uint32_t number, bool last, struct err *err)
{
	cleanup_fd int fd = segment_open(j, number, last ? O_RDWR : O_RDONLY);
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
			if (last && ftruncate(fd, offset) < 0)
				return err_raise_sys(err, -errno, "cut journal segment %u", number);
			break;
		}
		index_line(j, line, (size_t)n - 1, number, offset);
		offset += (uint32_t)n;
	}
	if (last) {
		j->segment = number;
		j->written = offset;
	}
	return 0;
}

/* Number of the last segment, 0 when there is none; they count from 1 without gaps. */
static uint32_t last_segment(struct journal *j)
{
	uint32_t number = 0;
	char name[32];

	for (;;) {
		segment_name(number + 1, name);
		if (faccessat(j->dir, name, F_OK, 0) < 0)
			return number;
		number++;
	}
}

int journal_open(const char *path, struct journal **ret, struct err *err)
{
	struct journal *j = xnew(struct journal);
	uint32_t last;
	int rc = 0;

	j->fd = j->read_fd = -1;
	j->pending = (struct buf)BUF_INIT(PENDING_MAX);
	j->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (j->dir < 0)
		rc = err_raise_sys(err, -errno, "open journal '%s'", path);
	last = rc == 0 ? last_segment(j) : 0;
	for (uint32_t i = 1; i <= last && rc == 0; i++)
		rc = read_segment(j, i, i == last, err);
	if (rc == 0) {
		if (last == 0)
			j->segment = 1;
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
	for (size_t i = 0; i < ARRAY_SIZE(j->buckets); i++) {
		while (j->buckets[i] != NULL) {
			struct chain *c = j->buckets[i];

			j->buckets[i] = c->next;
			free(c->numbers);
			free(c);
		}
	}
	fd_close(&j->fd);
	fd_close(&j->read_fd);
	fd_close(&j->dir);
	buf_free(&j->pending);
	free(j->places);
	free(j);
}

/* --- writing --- */

int journal_flush(struct journal *j)
{
	size_t done = 0;

	if (j->pending.n == 0)
		return 0;
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

static void roll(struct journal *j)
{
	int fd;

	if (journal_flush(j) < 0)
		return; /* the segment grows beyond its size until there is room */
	fd = segment_open(j, j->segment + 1, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return;
	(void)fdatasync(j->fd);
	fd_close(&j->fd);
	j->fd = fd;
	j->segment++;
	j->written = 0;
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
	buf_fmt(out, "\"%s\":%s,", name,
		text != NULL && strlen(text) < LINE_MAX_SIZE / 2 ? text : "null");
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

uint64_t journal_add(struct journal *j, struct event *e)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_MAX_SIZE + 4096);
	struct chain *c = chain_get(j, e->sandbox != NULL ? e->sandbox : "");
	char when[CLOCK_TEXT_SIZE], digits[65];
	unsigned char hash[32];

	if (j->written + j->pending.n > SEGMENT_BYTES)
		roll(j);
	clock_text(e->time_ns != 0 ? e->time_ns : clock_wall_ns(), when);
	buf_char(&line, '{');
	add_value(&line, "cause", e->cause);
	add_value(&line, "data", e->data != NULL ? e->data : json_object());
	buf_fmt(&line, "\"epoch\":%lu,", e->epoch);
	add_text(&line, "exec", e->exec);
	add_text(&line, "member", e->sandbox);
	buf_fmt(&line, "\"n\":%zu,", j->n + 1);
	add_text(&line, "sandbox", e->sandbox);
	buf_fmt(&line, "\"seq\":%lu,", c->head.seq + 1);
	add_text(&line, "time", when);
	buf_fmt(&line, "\"type\":\"%s\"}", event_type_name(e->type));
	hash_line(c->head.hash, line.p, line.n, hash);
	hex(hash, sizeof(hash), digits);
	line.n--;
	buf_fmt(&line, ",\"hash\":\"%s\"}\n", digits);
	index_add(j, c, j->segment, (uint32_t)(j->written + j->pending.n));
	memcpy(c->head.hash, hash, sizeof(hash));
	if (!c->dirty) {
		c->dirty = true;
		c->next_dirty = j->dirty;
		j->dirty = c;
	}
	buf_add(&j->pending, line.p, line.n);
	return j->n;
}

uint64_t journal_last(const struct journal *j)
{
	return j->n;
}

uint64_t journal_last_seq(const struct journal *j, const char *sandbox)
{
	const struct chain *c = chain_find(j, sandbox);

	return c != NULL ? c->head.seq : 0;
}

bool journal_dirty(const struct journal *j)
{
	return j->dirty != NULL;
}

void journal_dirty_heads(struct journal *j,
	void (*fn)(void *ctx, const char *sandbox, const struct journal_head *head), void *ctx)
{
	while (j->dirty != NULL) {
		struct chain *c = j->dirty;

		j->dirty = c->next_dirty;
		c->dirty = false;
		fn(ctx, c->sandbox, &c->head);
	}
}

/* --- reading --- */

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

/* Size of the line of event @n, from where the next one begins or its segment ends. */
static int line_size(struct journal *j, int fd, uint64_t n, size_t *size)
{
	struct place at = j->places[n - 1];
	struct stat st;

	if (n < j->n && j->places[n].segment == at.segment) {
		*size = j->places[n].offset - at.offset;
		return 0;
	}
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= (off_t)at.offset)
		return -ENODATA;
	*size = (size_t)st.st_size - at.offset;
	return 0;
}

static int read_line(struct journal *j, uint64_t n, struct buf *out)
{
	struct place at = j->places[n - 1];
	size_t size, done = 0;
	int fd, rc;
	char *to;

	rc = journal_flush(j);
	if (rc < 0)
		return rc;
	fd = reading_fd(j, at.segment);
	if (fd < 0)
		return fd;
	rc = line_size(j, fd, n, &size);
	if (rc < 0)
		return rc;
	to = buf_room(out, size);
	if (to == NULL)
		return -EMSGSIZE;
	while (done < size) {
		ssize_t got = pread(fd, to + done, size - done, (off_t)(at.offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		done += (size_t)got;
	}
	out->n += size;
	out->p[out->n] = '\0';
	return 0;
}

int journal_read(struct journal *j, const char *sandbox, uint64_t at, struct buf *out)
{
	uint64_t n = at;

	if (sandbox != NULL) {
		const struct chain *c = chain_find(j, sandbox);

		if (c == NULL || at == 0 || at > c->head.seq)
			return -ENOENT;
		n = c->numbers[at - 1];
	}
	if (n == 0 || n > j->n)
		return -ENOENT;
	return read_line(j, n, out);
}

static int bad(struct journal_check *ret, uint64_t n, uint64_t seq, const char *reason)
{
	if (ablated("hash_chain"))
		return 0;
	ret->bad_n = n;
	ret->bad_seq = seq;
	(void)!str_copy(ret->reason, sizeof(ret->reason), reason);
	return 0;
}

/* Check one record against the chain so far; extends @ret->head when it fits. */
static int check_record(struct journal_check *ret, char *line, size_t size, const char *sandbox,
	uint64_t n, uint64_t seq)
{
	unsigned char stated[32], computed[32];
	char owner[ID_LEN + 1];
	uint64_t line_n, line_seq;

	if (size == 0 || line[size - 1] != '\n' ||
		!line_numbers(line, size - 1, &line_n, owner, &line_seq) ||
		!hash_of_line(line, size - 1, stated))
		return bad(ret, n, seq, "the record is not in the journal's form");
	if (line_n != n || line_seq != seq || !str_eq(owner, sandbox))
		return bad(ret, n, seq, "a record is missing, moved or of another sandbox");
	expected_hash(ret->head.hash, line, size - 1, computed);
	if (memcmp(stated, computed, sizeof(stated)) != 0)
		return bad(ret, n, seq, "the record's hash does not follow from the one before");
	memcpy(ret->head.hash, computed, sizeof(computed));
	ret->head.seq = seq;
	ret->events++;
	return 0;
}

int journal_verify(struct journal *j, const char *sandbox, const struct journal_head *expected,
	struct journal_check *ret, struct err *err)
{
	cleanup_buf struct buf line = BUF_INIT(LINE_MAX_SIZE * 4);
	const struct chain *c = chain_find(j, sandbox);
	uint64_t last = c != NULL ? c->head.seq : 0;

	*ret = (struct journal_check){ 0 };
	for (uint64_t seq = 1; seq <= last && ret->reason[0] == '\0'; seq++) {
		uint64_t n = c->numbers[seq - 1];
		int rc;

		buf_reset(&line);
		rc = read_line(j, n, &line);
		if (rc < 0 && rc != -ENODATA && rc != -EMSGSIZE)
			return err_raise_sys(err, rc, "read event %lu", n);
		(void)check_record(ret, line.p, line.n, sandbox, n, seq);
		if (expected != NULL && expected->seq == seq && ret->reason[0] == '\0' &&
			memcmp(expected->hash, ret->head.hash, sizeof(expected->hash)) != 0)
			(void)bad(ret, n, seq,
				"the record's hash is not the one that the catalogue holds");
	}
	if (expected != NULL && expected->seq > last && ret->reason[0] == '\0')
		(void)bad(ret, 0, last + 1,
			"the journal ends before the head that the catalogue holds");
	return 0;
}

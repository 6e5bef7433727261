/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/memory_object.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/signature.h"
#include "store/tree.h"
#include "sys/file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define FORMAT       2
#define STATE_MAX    ((size_t)1 << 30)
#define INDEX_MAX    ((size_t)1 << 30)
#define PAGES_MAX    (1ULL << 40) /* of one file */
#define MANIFEST_MAX (1U << 20)
#define FILES        (1 + MEMORY_LINKS)
#define CHUNK_LEAST  (16U << 10) /* chunks are this large on average at least */
#define WINDOW       (8U << 20)  /* bytes that are written out together */
#define NAME_SIZE    sizeof("PAGES.4294967295")

_Static_assert(sizeof(struct memory_chunk) == 128, "as it lies in INDEX");

static void name_file(uint32_t n, char name[NAME_SIZE])
{
	(void)snprintf(name, NAME_SIZE, n == 0 ? "PAGES" : "PAGES.%u", n);
}

/* Can mapped bytes be read? Where the disk does not give them, to look would be a SIGBUS. A kernel that cannot tell (before 5.14) is believed. */
static bool is_readable(const void *bytes, size_t n)
{
	uintptr_t at = (uintptr_t)bytes, start = at & ~((uintptr_t)PAGECHUNK_PAGE - 1);

	return madvise((void *)start, at + n - start, MADV_POPULATE_READ) == 0 ||
	       (errno != EFAULT && errno != EHWPOISON);
}

/* --- what is shared with an earlier object --- */

/* Bytes of each file that @base has, whatever is there twice once. */
static void count_live(const struct memory_reader *base, uint64_t live[FILES])
{
	struct chunk_set *seen = chunk_set_new(base->n);

	for (size_t i = 0; i < base->n; i++) {
		const struct memory_chunk *c = &base->index[i];

		if (chunk_set_find(seen, c->content) == CHUNK_NONE)
			live[c->file] += c->head.stored;
		chunk_set_add(seen, c->content);
	}
	chunk_set_free(seen);
}

static void drop_smallest(uint64_t live[FILES])
{
	size_t least = 0;

	for (size_t f = 1; f < FILES; f++) {
		if (live[least] == 0 || (live[f] != 0 && live[f] < live[least]))
			least = f;
	}
	live[least] = 0;
}

/* What cannot be linked is written again. */
static void link_files(struct memory_writer *w)
{
	uint64_t live[FILES] = { 0 };
	uint32_t n = 0;

	count_live(w->base, live);
	for (size_t f = 0; f < FILES; f++) {
		live[f] = live[f] >= w->base->sizes[f] / 2 ? live[f] : 0;
		n += live[f] != 0;
	}
	for (; n > MEMORY_LINKS; n--)
		drop_smallest(live);
	n = 0;
	for (uint32_t f = 0; f < FILES; f++) {
		char from[NAME_SIZE], to[NAME_SIZE];

		name_file(f, from);
		name_file(n + 1, to);
		if (live[f] != 0 && linkat(w->base->dir, from, w->dir, to, 0) == 0)
			w->links[f] = ++n;
	}
	(void)fault("memory.save.linked");
}

static struct chunk_set *known_and(const struct memory_writer *w, size_t more)
{
	size_t n = w->base != NULL ? w->base->n : 0;
	struct chunk_set *s = chunk_set_new(n + more);

	for (size_t i = 0; i < n; i++) {
		const struct memory_chunk *c = &w->base->index[i];

		chunk_set_add(s, w->links[c->file] != 0 ? c->content : NULL);
	}
	return s;
}

struct chunk_set *memory_writer_known(const struct memory_writer *w)
{
	return known_and(w, 0);
}

/* Room for all of it: what some coder knows must be found here. */
void memory_writer_expect(struct memory_writer *w, const struct template_stream *parts)
{
	w->parts = *parts;
	w->known = known_and(w, (size_t)(parts->image + parts->plan + parts->pages) / CHUNK_LEAST);
}

/* --- writing --- */

int memory_writer_open(struct memory_writer *w, const struct store *store, const char *id,
	const struct memory_reader *base, struct err *err)
{
	cleanup_fd int tmp = store_dir(store, "tmp");

	*w = (struct memory_writer){ .store = store,
		.id = id,
		.base = base,
		.dir = -1,
		.pages = -1,
		.index = BUF_INIT(INDEX_MAX) };
	if (tmp < 0 || mkdirat(tmp, id, 0700) < 0)
		return err_raise_sys(err, tmp < 0 ? tmp : -errno, "make memory object '%s'", id);
	w->dir = openat(tmp, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	w->pages = w->dir < 0
			   ? -1
			   : openat(w->dir, "PAGES", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (w->pages < 0)
		return err_raise_sys(err, -errno, "make memory object '%s'", id);
	if (base != NULL)
		link_files(w);
	return 0;
}

/*
 * Goes to the disk while the rest is packed; what is not there yet is never more than two windows, so that the last sync has little to do. That tells what failed only if
 * nobody has been told before: whoever waits for a range is (file_fdatawait_range() of Linux). Return: 0 or -errno.
 */
static int write_out(struct memory_writer *w)
{
	int rc = 0;

	if (w->stored - w->begun < WINDOW)
		return 0;
	(void)!sync_file_range(
		w->pages, (off_t)w->begun, (off_t)(w->stored - w->begun), SYNC_FILE_RANGE_WRITE);
	if (w->begun > w->done &&
		sync_file_range(w->pages, (off_t)w->done, (off_t)(w->begun - w->done),
			SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
				SYNC_FILE_RANGE_WAIT_AFTER) < 0 &&
		errno != ENOSYS)
		rc = -errno;
	w->done = w->begun;
	w->begun = w->stored;
	return rc;
}

static int add_record(struct memory_writer *w, const struct memory_chunk *chunk)
{
	chunk_set_add(w->known, chunk->content);
	buf_add(&w->index, chunk, sizeof(*chunk));
	return buf_failed(&w->index) ? -E2BIG : (int)chunk->head.raw;
}

static int add_new(struct memory_writer *w, const struct pagechunk_head *head, const void *stored,
	const unsigned char content[DIGEST_SIZE])
{
	struct memory_chunk chunk = { .head = *head, .offset = w->stored };
	int rc = pagechunk_check(head);

	if (rc < 0)
		return rc;
	memcpy(chunk.content, content, sizeof(chunk.content));
	digest_bytes(stored, head->stored, chunk.digest);
	rc = file_write_all(w->pages, stored, head->stored);
	w->stored += head->stored;
	if (rc == 0)
		rc = write_out(w);
	return rc < 0 ? rc : add_record(w, &chunk);
}

static bool is_whole(const struct memory_reader *r, const struct memory_chunk *c)
{
	const unsigned char *stored = r->pages + r->starts[c->file] + c->offset;
	unsigned char digest[DIGEST_SIZE];

	if (!is_readable(stored, c->head.stored))
		return false;
	digest_bytes(stored, c->head.stored, digest);
	return memcmp(digest, c->digest, sizeof(digest)) == 0;
}

static int add_from_base(struct memory_writer *w, const struct memory_chunk *earlier)
{
	struct memory_chunk chunk = *earlier;

	chunk.file = w->links[earlier->file];
	if (chunk.file == 0)
		return -EBADMSG;
	if (!is_whole(w->base, earlier))
		return -ESTALE;
	w->used[chunk.file] = true;
	w->shared += chunk.head.stored;
	return add_record(w, &chunk);
}

/* @number: as of w->known. */
static int add_again(struct memory_writer *w, uint64_t number)
{
	size_t n = w->base != NULL ? w->base->n : 0;
	struct memory_chunk chunk;

	if (number < n)
		return add_from_base(w, &w->base->index[number]);
	/* a copy: the table moves when it grows */
	memcpy(&chunk, w->index.p + (number - n) * sizeof(chunk), sizeof(chunk));
	return add_record(w, &chunk);
}

int memory_writer_add(struct memory_writer *w, const struct pagechunk_head *head,
	const void *stored, const unsigned char content[DIGEST_SIZE])
{
	uint64_t number = chunk_set_find(w->known, content);
	int rc = fault("memory.save.chunk");

	if (rc < 0)
		return rc;
	if (number != CHUNK_NONE)
		return add_again(w, number);
	return stored != NULL ? add_new(w, head, stored, content) : -EBADMSG;
}

/* In the object's directory, on disk. */
static int put_file(const struct memory_writer *w, const char *name, const void *bytes, size_t n)
{
	cleanup_fd int fd = openat(w->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int rc = fd < 0 ? -errno : file_write_all(fd, bytes, n);

	return rc == 0 && fsync(fd) < 0 ? -errno : rc;
}

int memory_writer_state(struct memory_writer *w, const char *path)
{
	cleanup_buf struct buf state = BUF_INIT(STATE_MAX);
	int rc = file_read_at(AT_FDCWD, path, &state);

	if (rc < 0)
		return rc;
	digest_bytes(state.p, state.n, w->state);
	return put_file(w, "STATE", state.p, state.n);
}

/* Sizes of the other files; the names of those of which nothing came go. */
static json_t *settle_links(const struct memory_writer *w)
{
	json_t *sizes = json_array();

	for (uint32_t f = 0; f < FILES; f++) {
		uint32_t n = w->links[f];
		char name[NAME_SIZE];

		if (n == 0)
			continue;
		name_file(n, name);
		if (!w->used[n])
			(void)unlinkat(w->dir, name, 0);
		(void)json_array_append_new(
			sizes, json_integer(w->used[n] ? (json_int_t)w->base->sizes[f] : 0));
	}
	return sizes;
}

static int put_manifest(struct memory_writer *w, const char *sandbox, json_t *machine)
{
	char state[DIGEST_TEXT_SIZE], index[DIGEST_TEXT_SIZE];
	unsigned char digest[DIGEST_SIZE];
	cleanup_free char *text = NULL;
	json_t *manifest;
	int rc;

	digest_bytes(w->index.p, w->index.n, digest);
	digest_text(digest, index);
	digest_text(w->state, state);
	manifest = json_pack("{s:i,s:s,s:s,s:O,s:I,s:I,s:I,s:I,s:o,s:s,s:s,s:I}", "format", FORMAT,
		"memory", w->id, "sandbox", sandbox, "machine", machine, "image",
		(json_int_t)w->parts.image, "plan", (json_int_t)w->parts.plan, "pages",
		(json_int_t)w->parts.pages, "stored", (json_int_t)w->stored, "links",
		settle_links(w), "index", index, "state", state, "made_ns",
		(json_int_t)clock_wall_ns());
	rc = manifest == NULL ? -ENOMEM : signature_add(w->store, manifest);
	text = rc == 0 ? json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
	json_decref(manifest);
	return text == NULL ? (rc < 0 ? rc : -ENOMEM) : put_file(w, "MANIFEST", text, strlen(text));
}

static int rename_into_place(struct memory_writer *w)
{
	cleanup_fd int tmp = store_dir(w->store, "tmp"), to = store_dir(w->store, MEMORY_DIR);

	if (tmp < 0 || to < 0)
		return tmp < 0 ? tmp : to;
	if (fsync(w->pages) < 0 || fsync(w->dir) < 0)
		return -errno;
	(void)fault("memory.commit.before_rename");
	if (renameat2(tmp, w->id, to, w->id, RENAME_NOREPLACE) < 0)
		return -errno;
	fd_close(&w->dir); /* committed */
	(void)fault("memory.commit.after_rename");
	return fsync(to) < 0 ? -errno : 0;
}

int memory_writer_commit(
	struct memory_writer *w, const char *sandbox, json_t *machine, struct err *err)
{
	int rc = put_file(w, "INDEX", w->index.p, w->index.n);

	if (rc == 0)
		rc = put_manifest(w, sandbox, machine);
	if (rc == 0)
		rc = rename_into_place(w);
	return rc < 0 ? err_raise_sys(err, rc, "write memory object '%s'", w->id) : 0;
}

void memory_writer_close(struct memory_writer *w)
{
	cleanup_fd int tmp = w->dir >= 0 ? store_dir(w->store, "tmp") : -1;

	if (tmp >= 0)
		(void)!tree_remove(tmp, w->id);
	fd_close(&w->dir);
	fd_close(&w->pages);
	buf_free(&w->index);
	chunk_set_free(w->known);
}

/* --- reading --- */

static int changed(const char *id, const char *what, struct err *err)
{
	return err_raise(
		err, ERR_CORRUPT, "%s of memory object '%s' was changed, or is not ours", what, id);
}

static int read_manifest(
	struct memory_reader *r, const struct store *store, const char *id, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT(MANIFEST_MAX);
	const char *own;
	int rc = file_read_at(r->dir, "MANIFEST", &text);

	if (rc < 0)
		return err_raise_sys(err, rc, "read the manifest of memory object '%s'", id);
	r->manifest = json_loadb(buf_cstr(&text), text.n, JSON_REJECT_DUPLICATES, NULL);
	rc = json_is_object(r->manifest) ? signature_check(store, r->manifest) : -EBADMSG;
	if (rc == -EBADMSG)
		return changed(id, "the manifest", err);
	if (rc < 0)
		return store_key_failed(store, rc, err);
	own = json_string_value(json_object_get(r->manifest, "memory"));
	if (own == NULL || !str_eq(own, id))
		return changed(id, "the manifest", err);
	if (json_integer_value(json_object_get(r->manifest, "format")) != FORMAT)
		return err_raise(err, ERR_UNSUPPORTED,
			"memory object '%s' has a format that this version does not know", id);
	return 0;
}

/* Read-only and whole, at @at if that is not NULL; NULL for an empty file. */
static int map_file(int dir, const char *name, void *at, const void **ret, size_t *ret_n)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	void *p = NULL;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > 0) {
		p = mmap(at, (size_t)st.st_size, PROT_READ,
			MAP_PRIVATE | (at != NULL ? MAP_FIXED : 0), fd, 0);
		if (p == MAP_FAILED)
			return -errno;
		(void)madvise(p, (size_t)st.st_size, MADV_SEQUENTIAL);
	}
	*ret = p;
	*ret_n = (size_t)st.st_size;
	return 0;
}

static bool digest_is(const void *bytes, size_t n, const json_t *manifest, const char *member)
{
	const char *want = json_string_value(json_object_get(manifest, member));
	unsigned char digest[DIGEST_SIZE];
	char text[DIGEST_TEXT_SIZE];

	if (!is_readable(bytes, n))
		return false;
	digest_bytes(bytes, n, digest);
	digest_text(digest, text);
	return want != NULL && str_eq(want, text);
}

static uint64_t number(const json_t *o, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(o, member));
}

/* What the manifest says about the files; where each will be. */
static int lay_out(struct memory_reader *r)
{
	const json_t *links = json_object_get(r->manifest, "links");

	if (json_array_size(links) > MEMORY_LINKS)
		return -EBADMSG;
	for (size_t f = 0; f < FILES; f++) {
		const json_t *size = f == 0 ? json_object_get(r->manifest, "stored")
					    : json_array_get(links, f - 1);

		r->sizes[f] = (uint64_t)json_integer_value(size);
		r->starts[f] = r->pages_size;
		if (r->sizes[f] > PAGES_MAX)
			return -EBADMSG;
		r->pages_size +=
			(r->sizes[f] + PAGECHUNK_PAGE - 1) & ~((uint64_t)PAGECHUNK_PAGE - 1);
	}
	return 0;
}

static int map_pages(struct memory_reader *r)
{
	char *room;

	if (r->pages_size == 0)
		return 0;
	room = mmap(
		NULL, r->pages_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return -errno;
	r->pages = (const unsigned char *)room;
	for (uint32_t f = 0; f < FILES; f++) {
		char name[NAME_SIZE];
		const void *at;
		size_t n = 0;
		int rc = 0;

		name_file(f, name);
		if (r->sizes[f] > 0)
			rc = map_file(r->dir, name, room + r->starts[f], &at, &n);
		if (rc < 0)
			return rc;
		if (n != r->sizes[f])
			return -EBADMSG;
	}
	return 0;
}

static bool is_inside(const struct memory_reader *r, const struct memory_chunk *c)
{
	return c->file < FILES && c->offset <= r->sizes[c->file] &&
	       c->head.stored <= r->sizes[c->file] - c->offset;
}

/* Authentic, and checked like anything else. */
static bool index_fits(const struct memory_reader *r)
{
	for (size_t i = 0; i < r->n; i++) {
		if (pagechunk_check(&r->index[i].head) < 0 || !is_inside(r, &r->index[i]))
			return false;
	}
	return true;
}

static int map_all(struct memory_reader *r, const char *id, struct err *err)
{
	const void *index = NULL;
	size_t bytes = 0;
	int rc = map_file(r->dir, "INDEX", NULL, &index, &bytes);

	r->index = index;
	r->n = bytes / sizeof(*r->index);
	if (rc == 0 && !digest_is(index, bytes, r->manifest, "index"))
		return changed(id, "the index", err);
	if (rc == 0)
		rc = lay_out(r);
	if (rc == 0)
		rc = map_pages(r);
	if (rc == -EBADMSG)
		return changed(id, "the size", err);
	if (rc < 0)
		return err_raise_sys(err, rc, "open memory object '%s'", id);
	return index_fits(r) ? 0 : changed(id, "the index", err);
}

int memory_reader_open(
	struct memory_reader *r, const struct store *store, const char *id, struct err *err)
{
	cleanup_free char *path = str_dupf(MEMORY_DIR "/%s", id);
	int rc;

	*r = (struct memory_reader){ .dir = store_dir(store, path) };
	if (r->dir < 0)
		return err_raise_sys(err, r->dir, "open memory object '%s'", id);
	rc = read_manifest(r, store, id, err);
	if (rc == 0)
		rc = map_all(r, id, err);
	r->parts = (struct template_stream){ .image = number(r->manifest, "image"),
		.plan = number(r->manifest, "plan"),
		.pages = number(r->manifest, "pages") };
	return rc;
}

static uint64_t place_of(const struct memory_reader *r, const struct memory_chunk *c)
{
	return r->starts[c->file] + c->offset;
}

/* Each by itself: of a long range the kernel begins only a part. */
void memory_reader_ahead(const struct memory_reader *r, size_t at, size_t n)
{
	for (size_t i = at; i < r->n && i - at < n; i++) {
		uint64_t start = place_of(r, &r->index[i]), skip = start % PAGECHUNK_PAGE;

		if (r->index[i].head.stored > 0)
			(void)madvise((void *)(uintptr_t)(r->pages + start - skip),
				r->index[i].head.stored + skip, MADV_WILLNEED);
	}
}

int memory_reader_changed(const struct memory_reader *r, struct err *err)
{
	return changed(json_string_value(json_object_get(r->manifest, "memory")), "a page", err);
}

int memory_reader_next(struct memory_reader *r, const struct memory_chunk **chunk, uint64_t *offset,
	struct err *err)
{
	const struct memory_chunk *c = &r->index[r->next];

	if (r->next == r->n)
		return 0;
	if (r->next % MEMORY_AHEAD == 0)
		memory_reader_ahead(r, r->next, (size_t)2 * MEMORY_AHEAD);
	*offset = place_of(r, c);
	if (!is_readable(r->pages + *offset, c->head.stored))
		return memory_reader_changed(r, err);
	*chunk = c;
	r->next++;
	return 1;
}

uint64_t memory_reader_place(const struct memory_reader *r, const struct memory_chunk *chunk)
{
	return place_of(r, chunk);
}

int memory_reader_check(struct memory_reader *r, struct err *err)
{
	const struct memory_chunk *c = NULL;
	uint64_t offset;
	int rc = memory_reader_next(r, &c, &offset, err);

	return rc > 0 && !is_whole(r, c) ? memory_reader_changed(r, err) : rc;
}

int memory_reader_state(struct memory_reader *r, struct buf *out, struct err *err)
{
	const char *id = json_string_value(json_object_get(r->manifest, "memory"));
	int rc = file_read_at(r->dir, "STATE", out);

	if (rc < 0)
		return err_raise_sys(err, rc, "read the state of memory object '%s'", id);
	return digest_is(buf_cstr(out), out->n, r->manifest, "state")
		       ? 0
		       : changed(id, "the state", err);
}

static void unmap(const void *p, size_t n)
{
	if (p != NULL)
		(void)munmap((void *)(uintptr_t)p, n);
}

void memory_reader_close(struct memory_reader *r)
{
	unmap(r->index, r->n * sizeof(*r->index));
	unmap(r->pages, r->pages_size);
	json_decref(r->manifest);
	fd_close(&r->dir);
}

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

#define FORMAT       1
#define STATE_MAX    ((size_t)1 << 30)
#define INDEX_MAX    ((size_t)1 << 30)
#define MANIFEST_MAX (1U << 20)

/* --- writing --- */

int memory_writer_open(
	struct memory_writer *w, const struct store *store, const char *id, struct err *err)
{
	cleanup_fd int tmp = store_dir(store, "tmp");

	*w = (struct memory_writer){
		.store = store, .id = id, .dir = -1, .pages = -1, .index = BUF_INIT(INDEX_MAX)
	};
	if (tmp < 0 || mkdirat(tmp, id, 0700) < 0)
		return err_raise_sys(err, tmp < 0 ? tmp : -errno, "make memory object '%s'", id);
	w->dir = openat(tmp, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	w->pages = w->dir < 0
			   ? -1
			   : openat(w->dir, "PAGES", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return w->pages < 0 ? err_raise_sys(err, -errno, "make memory object '%s'", id) : 0;
}

int memory_writer_add(
	struct memory_writer *w, const struct pagechunk_head *head, const void *stored)
{
	struct memory_chunk chunk = { .head = *head };
	int rc = fault("memory.save.chunk");

	digest_bytes(stored, head->stored, chunk.digest);
	buf_add(&w->index, &chunk, sizeof(chunk));
	w->stored += head->stored;
	if (rc == 0)
		rc = file_write_all(w->pages, stored, head->stored);
	return rc < 0 ? rc : buf_failed(&w->index) ? -E2BIG : 0;
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
	manifest = json_pack("{s:i,s:s,s:s,s:O,s:I,s:I,s:I,s:I,s:s,s:s,s:I}", "format", FORMAT,
		"memory", w->id, "sandbox", sandbox, "machine", machine, "image",
		(json_int_t)w->parts.image, "plan", (json_int_t)w->parts.plan, "pages",
		(json_int_t)w->parts.pages, "stored", (json_int_t)w->stored, "index", index,
		"state", state, "made_ns", (json_int_t)clock_wall_ns());
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
		return err_raise_sys(err, rc, "read '%s/key'", store->path);
	own = json_string_value(json_object_get(r->manifest, "memory"));
	if (own == NULL || !str_eq(own, id))
		return changed(id, "the manifest", err);
	if (json_integer_value(json_object_get(r->manifest, "format")) != FORMAT)
		return err_raise(err, ERR_UNSUPPORTED,
			"memory object '%s' has a format that this version does not know", id);
	return 0;
}

/* Read-only and whole; NULL for an empty file. */
static int map_file(int dir, const char *name, const void **ret, size_t *ret_n)
{
	cleanup_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	void *p = NULL;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > 0) {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
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

	digest_bytes(bytes, n, digest);
	digest_text(digest, text);
	return want != NULL && str_eq(want, text);
}

static uint64_t number(const json_t *o, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(o, member));
}

static int map_all(struct memory_reader *r, const char *id, struct err *err)
{
	const void *index = NULL, *pages = NULL;
	size_t bytes = 0;
	int rc = map_file(r->dir, "INDEX", &index, &bytes);

	r->index = index;
	r->n = bytes / sizeof(*r->index);
	if (rc == 0)
		rc = map_file(r->dir, "PAGES", &pages, &r->pages_size);
	r->pages = pages;
	if (rc < 0)
		return err_raise_sys(err, rc, "open memory object '%s'", id);
	if (!digest_is(index, bytes, r->manifest, "index"))
		return changed(id, "the index", err);
	if (number(r->manifest, "stored") != r->pages_size)
		return changed(id, "the size", err);
	return 0;
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

int memory_reader_next(struct memory_reader *r, const struct pagechunk_head **head, struct err *err)
{
	const char *id = json_string_value(json_object_get(r->manifest, "memory"));
	const struct memory_chunk *c = &r->index[r->next];
	unsigned char digest[DIGEST_SIZE];

	if (r->next == r->n)
		return 0;
	if (pagechunk_check(&c->head) < 0 || c->head.stored > r->pages_size - r->offset)
		return changed(id, "the index", err);
	*head = &c->head;
	digest_bytes(r->pages + r->offset, c->head.stored, digest);
	if (memcmp(digest, c->digest, sizeof(digest)) != 0)
		return changed(id, "a page", err);
	r->next++;
	r->offset += c->head.stored;
	return 1;
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

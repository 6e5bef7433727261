/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-import/import_source.h"
#include "base/str.h"
#include "codec/oci.h"
#include "codec/tar.h"
#include "prog/cay-import/import_tree.h"
#include "sys/fdpass.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#define SPOOL_NAME ".cay-spool"

static int file_size(int fd, uint64_t *ret, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_raise_sys(err, -errno, "look at the archive");
	if (!S_ISREG(st.st_mode))
		return err_raise(err, ERR_INVALID, "the archive is no regular file");
	*ret = (uint64_t)st.st_size;
	return 0;
}

static struct unzip *open_archive(struct source *s, struct err *err)
{
	struct blob blob = { .fd = s->file };

	if (file_size(s->file, &blob.size, err) < 0)
		return NULL;
	return unzip_open(&blob, s->limit_bytes, false, err);
}

/* ---- which kind ---------------------------------------------------------------------------------------------------------------- */

static size_t hex_length(const char *s)
{
	return strspn(s, "0123456789abcdef");
}

/* Can a clean name stand at the top of an image archive? Parts are named by docker itself and OCI, by crane and kaniko, by Jib. */
static bool image_like(const char *name)
{
	static const char *const tops[] = { "blobs", "oci-layout", "index.json", "manifest.json",
		"repositories", "config.json" };
	static const char *const ends[] = { ".json", ".tar", ".tar.gz" };
	size_t n = strcspn(name, "/");
	bool hex = hex_length(name) == 64;

	for (size_t i = 0; i < ARRAY_SIZE(tops); i++)
		if (strlen(tops[i]) == n && memcmp(name, tops[i], n) == 0)
			return true;
	if (str_starts(name, "sha256:"))
		return hex_length(name + 7) == 64 && name[7 + 64] == '\0';
	for (size_t i = 0; hex && i < ARRAY_SIZE(ends); i++)
		if (str_eq(name + 64, ends[i]))
			return true;
	return hex && n == 64;
}

/* Read names until one decides. A root file system is known by its first directory, so this is quick where the archive is large. */
static int detect(struct source *s, struct tar *tar, struct err *err)
{
	cleanup_buf struct buf name = BUF_INIT(TAR_HEADER_MAX + 1);
	bool layout = false, index = false, manifest = false;
	const struct tar_entry *e;
	int rc;

	while ((rc = tar_next(tar, &e, err)) > 0) {
		rc = import_tree_name(e->path, &name, err);
		if (rc < 0)
			return rc;
		if (name.n == 0)
			continue;
		if (!image_like(name.p)) {
			s->kind = SOURCE_ROOTFS;
			return 0;
		}
		layout |= str_eq(name.p, "oci-layout");
		index |= str_eq(name.p, "index.json");
		manifest |= str_eq(name.p, "manifest.json");
	}
	s->kind = layout && index ? SOURCE_OCI : manifest ? SOURCE_DOCKER : SOURCE_ROOTFS;
	return rc;
}

int source_detect(struct source *s, struct err *err)
{
	cleanup_unzip struct unzip *in = NULL;
	cleanup(cleanup_tar_freep) struct tar *tar = NULL;

	if (s->kind != SOURCE_AUTO)
		return 0;
	in = open_archive(s, err);
	if (in == NULL)
		return -EBADMSG;
	tar = tar_new(unzip_read, in);
	return detect(s, tar, err);
}

/* ---- the index of a tar -------------------------------------------------------------------------------------------------------- */

static const struct member *find(const struct source *s, const char *name)
{
	for (size_t i = 0; i < s->n_members; i++)
		if (str_eq(s->members[i].name, name))
			return &s->members[i];
	return NULL;
}

/* The clean name that link @target of member @name means: old docker-save archives hold "<id>/layer.tar -> ../<other>/layer.tar". */
static int link_name(const char *name, const char *target, struct buf *out, struct err *err)
{
	cleanup_buf struct buf raw = BUF_INIT(TAR_HEADER_MAX * 2);
	const char *slash = strrchr(name, '/');

	if (slash != NULL && str_starts(target, "../") && strchr(name, '/') == slash)
		target += 3;
	else if (slash != NULL) {
		buf_add(&raw, name, (size_t)(slash - name) + 1);
	}
	buf_str(&raw, target);
	return import_tree_name(buf_cstr(&raw), out, err);
}

static int add_member(struct source *s, const struct tar_entry *e, uint64_t offset, struct err *err)
{
	cleanup_buf struct buf name = BUF_INIT(TAR_HEADER_MAX + 1);
	cleanup_buf struct buf link = BUF_INIT(TAR_HEADER_MAX + 1);
	int rc = import_tree_name(e->path, &name, err);

	if (rc < 0 || e->type == TAR_DIRECTORY || name.n == 0)
		return rc;
	if (e->sparse || e->type == TAR_CHAR || e->type == TAR_BLOCKDEV || e->type == TAR_FIFO)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"the image archive holds something that is no plain file");
	if (e->type == TAR_SYMLINK)
		rc = link_name(name.p, e->link, &link, err);
	else if (e->type == TAR_HARDLINK)
		rc = import_tree_name(e->link, &link, err);
	if (rc < 0)
		return rc;
	if (s->n_members == SOURCE_MEMBERS_MAX)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"the image archive has more than %d members", SOURCE_MEMBERS_MAX);
	if (find(s, name.p) != NULL)
		return err_raise(
			err, ERR_HOSTILE_ARCHIVE, "the image archive holds one name twice");
	s->members[s->n_members++] = (struct member){ .name = buf_take(&name),
		.link = e->type == TAR_FILE ? NULL : buf_take(&link),
		.offset = offset,
		.size = e->size };
	return 0;
}

/* Put the decompressed archive into an unlinked file. */
static int spool(struct source *s, struct unzip *in, int tree, struct err *err)
{
	static char bytes[256 << 10];
	cleanup_fd int fd =
		openat(tree, SPOOL_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	ssize_t n;

	if (fd < 0 || unlinkat(tree, SPOOL_NAME, 0) < 0)
		return err_raise_sys(err, -errno, "make a file to unpack the archive into");
	while ((n = unzip_read(in, bytes, sizeof(bytes), err)) > 0) {
		int rc = file_write_all(fd, bytes, (size_t)n);

		if (rc < 0)
			return err_raise_sys(err, rc, "unpack the archive");
	}
	if (n < 0)
		return (int)n;
	fd_close(&s->file);
	s->file = TAKE_FD(fd);
	return 0;
}

int source_index(struct source *s, int tree, struct err *err)
{
	cleanup_unzip struct unzip *in = open_archive(s, err);
	cleanup(cleanup_tar_freep) struct tar *tar = NULL;
	const struct tar_entry *e;
	int rc = in == NULL ? -EBADMSG : 0;

	if (rc == 0 && unzip_compressed(in)) {
		rc = spool(s, in, tree, err);
		unzip_close(in);
		in = rc == 0 ? open_archive(s, err) : NULL;
	}
	if (in == NULL)
		return -EBADMSG;
	s->members = xalloc(SOURCE_MEMBERS_MAX * sizeof(*s->members));
	tar = tar_new(unzip_read, in);
	while ((rc = tar_next(tar, &e, err)) > 0) {
		rc = add_member(s, e, tar_position(tar), err);
		if (rc < 0)
			break;
	}
	return rc;
}

bool source_has(const struct source *s, const char *name)
{
	return find(s, name) != NULL;
}

/* ---- parts --------------------------------------------------------------------------------------------------------------------- */

static int missing(const char *name, struct err *err)
{
	cleanup_buf struct buf shown = BUF_INIT(2048);

	return err_raise(err, ERR_CORRUPT, "'%s' is missing from the image",
		import_tree_escape(name, &shown));
}

static int open_member(struct source *s, const char *name, struct part *ret, struct err *err)
{
	const struct member *m = find(s, name);

	if (m != NULL && m->link != NULL)
		m = find(s, m->link);
	if (m == NULL || m->link != NULL)
		return missing(name, err);
	ret->blob = (struct blob){ .fd = s->file, .offset = m->offset, .size = m->size };
	return 0;
}

/* Ask for a file of the layout directory: 'O' and its name; the answer is a status, with the descriptor when it is 0. */
static int ask(struct source *s, const char *name, int *ret_fd, struct err *err)
{
	char message[256] = "O";
	int32_t status = -EIO;
	size_t n_fds = 0;
	ssize_t n;
	int rc = str_copy(message + 1, sizeof(message) - 1, name);

	if (rc == 0)
		rc = fdpass_send(s->socket, message, strlen(message), NULL, 0);
	if (rc < 0)
		return err_raise_sys(err, rc, "ask for a part of the image");
	n = fdpass_recv(s->socket, &status, sizeof(status), ret_fd, 1, &n_fds);
	if (n != sizeof(status))
		return err_raise(
			err, ERR_INTERNAL, "no answer to a question for a part of the image");
	if (status == -ENOENT)
		return missing(name, err);
	if (status == -EACCES)
		return err_raise(err, ERR_DENIED, "you may not read '%s' of the image", name);
	if (status == -ELOOP || status == -EXDEV || status == -EINVAL)
		return err_raise(err, ERR_HOSTILE_ARCHIVE,
			"'%s' of the image is a link or no regular file", name);
	if (status < 0)
		return err_raise_sys(err, status, "open '%s' of the image", name);
	return n_fds == 1 ? 0 : err_raise(err, ERR_INTERNAL, "an answer without a descriptor");
}

int source_open(struct source *s, const char *name, struct part *ret, struct err *err)
{
	int rc;

	*ret = (struct part){ .own = -1 };
	if (s->socket < 0)
		return open_member(s, name, ret, err);
	rc = ask(s, name, &ret->own, err);
	if (rc < 0)
		return rc;
	ret->blob.fd = ret->own;
	return file_size(ret->own, &ret->blob.size, err);
}

/* All decompressed bytes of an opened document; its digest is that of the stored ones. */
static int read_document(const struct part *part, const char *what, bool sha512, struct buf *out,
	char stored[REFERENCE_DIGEST_MAX + 1], struct err *err)
{
	cleanup_unzip struct unzip *in = NULL;
	char plain[REFERENCE_DIGEST_MAX + 1], *room;
	ssize_t n;

	if (part->blob.size > OCI_DOCUMENT_MAX)
		return err_raise(err, ERR_HOSTILE_ARCHIVE, "%s is larger than 4 MiB", what);
	in = unzip_open(&part->blob, OCI_DOCUMENT_MAX, sha512, err);
	if (in == NULL)
		return -EBADMSG;
	if (unzip_compressed(in))
		return err_raise(err, ERR_CORRUPT, "%s is compressed", what);
	room = buf_room(out, (size_t)part->blob.size);
	BUG_ON(room == NULL);
	n = unzip_read(in, room, (size_t)part->blob.size, err);
	if (n < 0)
		return (int)n;
	out->n = (size_t)n;
	unzip_digests(in, stored, plain);
	return 0;
}

json_t *source_document(struct source *s, const char *name, const char *digest,
	char ret_digest[REFERENCE_DIGEST_MAX + 1], struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT(OCI_DOCUMENT_MAX + 1), shown = BUF_INIT(2048);
	cleanup_part struct part part = { .own = -1 };
	char stored[REFERENCE_DIGEST_MAX + 1];
	const char *what = import_tree_escape(name, &shown);

	if (source_open(s, name, &part, err) < 0 ||
		read_document(&part, what, str_starts(digest, "sha512:"), &text, stored, err) < 0)
		return NULL;
	if (digest[0] != '\0' && !str_eq(digest, stored)) {
		(void)err_raise(err, ERR_HOSTILE_ARCHIVE, "'%s' is not what its digest says", what);
		return NULL;
	}
	if (ret_digest != NULL)
		memcpy(ret_digest, stored, sizeof(stored));
	return oci_document(buf_cstr(&text), text.n, what, err);
}

void source_fini(struct source *s)
{
	for (size_t i = 0; i < s->n_members; i++) {
		free(s->members[i].name);
		free(s->members[i].link);
	}
	free(s->members);
	s->members = NULL;
	s->n_members = 0;
	fd_close(&s->file);
}

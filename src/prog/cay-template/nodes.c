/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/nodes.c - what was in the memory file systems, in those of the new sandbox. In the opener, before any file is opened.
 *
 * Such a file system lists a directory by when its entries were made: the first or the last of them first, as the kernel at hand has it. Who is in the middle of reading one goes on
 * at the right place if they are listed as they were; so for that entries are made in the order that gives this.
 */
#include "prog/cay-template/fork.h"

#define AT_CWD     (-100)
#define NO_FOLLOW  0x100
#define S_KIND     0170000
#define S_FIFO     0010000
#define S_DIR      0040000
#define S_REGULAR  0100000
#define S_LINK     0120000
#define S_SOCKET   0140000
#define OPEN_WRITE (1 | 0100 | 01000 | 0400000 | BARE_CLOEXEC) /* WRONLY CREAT TRUNC NOFOLLOW */

typedef const struct image_node node;

static node *row(uint32_t i)
{
	return IMAGE_ROW(struct image_node, TABLE_NODES, i);
}

static void write_piece(int fd, const struct image_piece *p)
{
	const char *bytes = image_bytes(p->data);

	for (uint64_t done = 0; done < p->data.length;)
		done += (uint64_t)fork_must(
			CALL4(__NR_pwrite64, fd, bytes + done, p->data.length - done, p->at + done),
			"fill a file in memory");
}

static void make_file(node *n, const char *path)
{
	int fd = (int)fork_must(
		CALL4(__NR_openat, AT_CWD, path, OPEN_WRITE, 0600), "make a file in memory");

	for (uint32_t i = 0; i < n->n_pieces; i++)
		write_piece(fd, IMAGE_ROW(struct image_piece, TABLE_PIECES, n->first_piece + i));
	(void)fork_must(CALL2(__NR_ftruncate, fd, n->size), "size a file in memory");
	(void)CALL1(__NR_close, fd);
}

/* Of each file by its first row, 1 + the row by which it was made; NULL while rows are made in their order, where that is the first. */
static uint32_t *made_by;

/* The row by which the file of row @i is there already, or IMAGE_NONE. */
static uint32_t is_made_by(uint32_t i)
{
	uint32_t first = row(i)->link == IMAGE_NONE ? i : row(i)->link, by;

	if (made_by == NULL)
		return row(i)->link;
	by = made_by[first];
	if (by == 0)
		made_by[first] = i + 1;
	return by == 0 ? IMAGE_NONE : by - 1;
}

/* What each sandbox has from its beginning is there already. */
static void make(uint32_t i)
{
	const char *path = image_bytes(row(i)->path);
	uint32_t other = is_made_by(i);
	node *n = row(i)->link == IMAGE_NONE ? row(i) : row(row(i)->link);
	uint32_t kind = n->mode & S_KIND;
	long rc = 0;

	if (other != IMAGE_NONE)
		rc = CALL2(__NR_link, image_bytes(row(other)->path), path);
	else if (kind == S_DIR)
		rc = CALL2(__NR_mkdir, path, 0700);
	else if (kind == S_LINK)
		rc = CALL2(__NR_symlink, image_bytes(n->target), path);
	else if (kind == S_FIFO || kind == S_SOCKET)
		rc = CALL3(__NR_mknod, path, kind | 0600, 0);
	else if (kind == S_REGULAR)
		make_file(n, path);
	if (rc != -EEXIST)
		(void)fork_must(rc, "make an entry of a file system in memory");
}

static void describe(node *n)
{
	const char *path = image_bytes(n->path);
	struct {
		uint64_t head[3];
		uint32_t mode, uid, gid, pad;
		uint64_t rest[14];
	} st; /* struct stat */

	(void)fork_must(CALL2(__NR_lstat, path, &st), "look at an entry in memory");
	if (st.uid != n->uid || st.gid != n->gid)
		(void)fork_must(CALL3(__NR_lchown, path, n->uid, n->gid),
			"give an entry in memory to its owner");
	/* a change of owner may have taken bits away */
	if ((n->mode & S_KIND) != S_LINK && (st.mode != n->mode || st.uid != n->uid))
		(void)fork_must(CALL2(__NR_chmod, path, n->mode & 07777),
			"set the mode of an entry in memory");
	(void)CALL4(__NR_utimensat, AT_CWD, path, n->times, NO_FOLLOW);
}

/* --- in which order --- */

static uint32_t depth_of(uint32_t i)
{
	const char *path = image_bytes(row(i)->path);
	uint32_t depth = 0;

	for (; *path != '\0'; path++)
		depth += *path == '/';
	return depth;
}

/* Rows @first to @end are neighbours in a directory, with what is in them behind each: the last one first. */
static void make_last_first(uint32_t first, uint32_t end)
{
	while (first < end) {
		uint32_t at = end - 1, depth = depth_of(first);

		while (at > first && depth_of(at) > depth)
			at--;
		make(at);
		make_last_first(at + 1, end);
		end = at;
	}
}

/* Is somebody in the middle of reading a directory? */
static bool is_read_on(void)
{
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		const struct image_description *d =
			IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if (d->kind == DESCRIPTION_FILE && (d->mode & S_KIND) == S_DIR && d->b != 0)
			return true;
	}
	return false;
}

#define TRIED "/dev/.cay-order" /* memory, in every sandbox */

/* Does this kernel list what was made last before all else? */
static bool lists_last_first(void)
{
	static uint64_t entries[64];
	bool first = false, last = false;
	long fd, n;

	(void)fork_must(CALL2(__NR_mkdir, TRIED, 0700), "make a directory in memory");
	(void)fork_must(
		CALL3(__NR_mknod, TRIED "/1", S_REGULAR | 0600, 0), "make an entry in memory");
	(void)fork_must(
		CALL3(__NR_mknod, TRIED "/2", S_REGULAR | 0600, 0), "make an entry in memory");
	fd = fork_must(CALL3(__NR_open, TRIED, BARE_CLOEXEC, 0), "open a directory in memory");
	n = fork_must(
		CALL3(__NR_getdents64, fd, entries, sizeof(entries)), "read a directory in memory");
	for (const char *at = (const char *)entries, *end = at + n; at < end && !first && !last;) {
		const struct entry *e = (const struct entry *)(const void *)at;

		first = e->name[0] == '1';
		last = e->name[0] == '2';
		at += e->length;
	}
	(void)CALL1(__NR_close, fd);
	(void)CALL1(__NR_unlink, TRIED "/1");
	(void)CALL1(__NR_unlink, TRIED "/2");
	(void)CALL1(__NR_rmdir, TRIED);
	return last;
}

static void make_all(uint32_t n)
{
	if (n > 0 && is_read_on() && lists_last_first()) {
		made_by = (uint32_t *)fork_must(CALL6(__NR_mmap, 0, n * sizeof(*made_by), 3,
							0x22 /* PRIVATE | ANONYMOUS */, -1, 0),
			"get memory for entries");
		make_last_first(0, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		make(i);
}

void nodes_make(void)
{
	uint32_t n = (uint32_t)(image->tables[TABLE_NODES].count / sizeof(struct image_node));

	make_all(n);
	/* backwards: what is made in a directory changes its times */
	for (uint32_t i = n; i-- > 0;)
		describe(row(i));
}

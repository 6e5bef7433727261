/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/nodes.c - what was in the memory file systems, in those of the new sandbox. In the opener, before any file is opened. */
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
#define THERE      (-17)                                       /* EEXIST */

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

/* What each sandbox has from its beginning is there already. */
static void make(node *n)
{
	const char *path = image_bytes(n->path);
	uint32_t kind = n->mode & S_KIND;
	long rc = 0;

	if (n->link != IMAGE_NONE)
		rc = CALL2(__NR_link, image_bytes(row(n->link)->path), path);
	else if (kind == S_DIR)
		rc = CALL2(__NR_mkdir, path, 0700);
	else if (kind == S_LINK)
		rc = CALL2(__NR_symlink, image_bytes(n->target), path);
	else if (kind == S_FIFO || kind == S_SOCKET)
		rc = CALL3(__NR_mknod, path, kind | 0600, 0);
	else if (kind == S_REGULAR)
		make_file(n, path);
	if (rc != THERE)
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

void nodes_make(void)
{
	uint32_t n = (uint32_t)(image->tables[TABLE_NODES].count / sizeof(struct image_node));

	for (uint32_t i = 0; i < n; i++)
		make(row(i));
	/* backwards: what is made in a directory changes its times */
	for (uint32_t i = n; i-- > 0;)
		describe(row(i));
}

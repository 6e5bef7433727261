/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_unix.c - unix sockets: who is connected to whom, and who waits in a backlog. The kernel tells it of all sockets of the network at once
 * (sock_diag), with the inode of each. What waits to be received: dump_queues.c.
 */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/unix_diag.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define SIOCUNIXFILE SIOCPROTOPRIVATE /* of linux/un.h, which has a struct sockaddr_un of its own */

enum { STATE_ESTABLISHED = 1, STATE_LISTEN = 10 };

/* --- all of the sandbox --- */

struct unix_row {
	uint32_t inode, peer, waiting, backlog;
	uint32_t *pending; /* inodes of those who wait to be accepted, the first first */
	size_t n_pending;
	uint32_t file;  /* inode of what it is bound to, 0 = of nothing */
	bool connected; /* to somebody, who may be gone: then @peer is 0 */
	uint8_t shut, state;
};

static struct unix_row *rows;
static size_t n_rows;
static const struct dump_process *lister; /* at whose socket they were listed; NULL = not yet */

static void keep_pending(struct unix_row *row, struct rtattr *a)
{
	row->n_pending = RTA_PAYLOAD(a) / sizeof(*row->pending);
	row->pending = calloc(row->n_pending + 1, sizeof(*row->pending));
	if (row->pending == NULL)
		abort();
	memcpy(row->pending, RTA_DATA(a), row->n_pending * sizeof(*row->pending));
}

static void keep_attribute(struct unix_row *row, struct rtattr *a)
{
	struct unix_diag_rqlen lengths;
	struct unix_diag_vfs file;

	switch (a->rta_type) {
	case UNIX_DIAG_PEER:
		memcpy(&row->peer, RTA_DATA(a), sizeof(row->peer));
		row->connected = true;
		break;
	case UNIX_DIAG_SHUTDOWN:
		memcpy(&row->shut, RTA_DATA(a), sizeof(row->shut));
		break;
	case UNIX_DIAG_RQLEN:
		memcpy(&lengths, RTA_DATA(a), sizeof(lengths));
		row->waiting = lengths.udiag_rqueue;
		row->backlog = lengths.udiag_wqueue;
		break;
	case UNIX_DIAG_VFS:
		memcpy(&file, RTA_DATA(a), sizeof(file));
		row->file = file.udiag_vfs_ino;
		break;
	case UNIX_DIAG_ICONS:
		keep_pending(row, a);
		break;
	default:
		break;
	}
}

static void add_row(const struct unix_diag_msg *m, size_t n)
{
	struct unix_row row = { .inode = m->udiag_ino, .state = m->udiag_state };
	struct rtattr *a = (struct rtattr *)(void *)(uintptr_t)(m + 1);
	struct unix_row *more = realloc(rows, (n_rows + 1) * sizeof(*rows));

	if (more == NULL)
		abort();
	rows = more;
	for (n -= sizeof(*m); RTA_OK(a, n); a = RTA_NEXT(a, n))
		keep_attribute(&row, a);
	rows[n_rows++] = row;
}

int dump_diag(const void *request, size_t size, void (*add)(const void *message, size_t n))
{
	static char answer[65536] __attribute__((aligned(8)));
	cleanup_fd int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd < 0 || send(fd, request, size, 0) < 0)
		return -errno;
	for (;;) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		struct nlmsghdr *h = (struct nlmsghdr *)(void *)answer;

		if (n < 0)
			return -errno;
		for (size_t left = (size_t)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR)
				return ((const struct nlmsgerr *)NLMSG_DATA(h))->error;
			add(NLMSG_DATA(h), h->nlmsg_len - NLMSG_HDRLEN);
		}
	}
}

static void add_message(const void *message, size_t n)
{
	add_row(message, n);
}

int dump_network(const struct dump_process *p)
{
	static bool joined;
	cleanup_fd int net = -1;

	if (joined)
		return 0;
	net = openat(p->tracee.proc, "ns/net", O_RDONLY | O_CLOEXEC);
	if (net < 0 || setns(net, CLONE_NEWNET) < 0)
		return -errno;
	joined = true;
	return 0;
}

static int by_inode(const void *a, const void *b)
{
	const struct unix_row *x = a, *y = b;

	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static void forget_rows(void)
{
	for (size_t i = 0; i < n_rows; i++)
		free(rows[i].pending);
	n_rows = 0;
}

static int list_unix(const struct dump_process *p)
{
	const struct {
		struct nlmsghdr head;
		struct unix_diag_req request;
	} m = { .head = { .nlmsg_len = sizeof(m),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.request = { .sdiag_family = AF_UNIX,
			.udiag_states = ~0U,
			.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_ICONS |
				      UDIAG_SHOW_VFS } };
	int rc = dump_network(p);

	forget_rows();
	if (rc == 0)
		rc = dump_diag(&m, sizeof(m), add_message);
	if (rc == 0 && n_rows > 0)
		qsort(rows, n_rows, sizeof(*rows), by_inode);
	lister = rc == 0 ? p : NULL;
	return rc;
}

static const struct unix_row *find_row(uint64_t inode)
{
	const struct unix_row key = { .inode = (uint32_t)inode };

	return n_rows == 0 || inode != key.inode
		       ? NULL
		       : bsearch(&key, rows, n_rows, sizeof(key), by_inode);
}

/* Those who run may have made one since: for each process that is looked at, and stands still for that, all are listed once more. @ret: NULL = the kernel tells nothing of it. */
static int find_listed(const struct dump *d, const struct subject *s, const struct unix_row **ret)
{
	int rc = lister == NULL ? list_unix(s->p) : 0;

	*ret = rc == 0 ? find_row(s->st.st_ino) : NULL;
	if (rc == 0 && *ret == NULL && d->examination != NULL && lister != s->p) {
		rc = list_unix(s->p);
		*ret = rc == 0 ? find_row(s->st.st_ino) : NULL;
	}
	return rc;
}

/* --- who --- */

struct image_identity dump_identity(const struct dump *d, const struct ucred *said)
{
	struct image_identity out = { .uid = said->uid, .gid = said->gid };
	const struct dump_process *p = dump_by_host_pid(d, said->pid);

	out.known = said->uid != ~0U;
	if (p != NULL)
		out.pid = p->tracee.inner;
	return out;
}

/* Who is gone has a number that only the sandbox knows: its process asks. */
static struct image_identity read_other(const struct dump *d, struct subject *s)
{
	struct tracee *t = &s->p->tracee;
	struct ucred said = { 0 };
	struct image_identity out;
	socklen_t n = sizeof(said);

	if (getsockopt(s->copy, SOL_SOCKET, SO_PEERCRED, &said, &n) < 0)
		return (struct image_identity){ 0 };
	out = dump_identity(d, &said);
	if (out.known == 0 || out.pid != 0 || t->n_threads == 0 || s->carrier >= 0 ||
		tracee_scratch(t) < 0 || tracee_write(t, t->scratch, &n, sizeof(n)) < 0)
		return out;
	if (TRACEE_CALL(t, 0, SYS_getsockopt, (uint64_t)s->fd, SOL_SOCKET, SO_PEERCRED,
		    t->scratch + 16, t->scratch) == 0 &&
		tracee_read(t, t->scratch + 16, &said, sizeof(said)) == 0)
		out.pid = said.pid;
	return out;
}

/* --- names in the files --- */

static bool is_bound_to(const struct unix_row *row, const struct stat *st)
{
	return S_ISSOCK(st->st_mode) && (uint32_t)st->st_ino == row->file;
}

#define LOOKS 8 /* for a name, while somebody on the machine renames or mounts just then */

/* The directory in which @path names something. */
static void folder_of(const char *path, char ret[PATH_MAX])
{
	const char *slash = strrchr(path, '/');

	if (slash == NULL)
		(void)snprintf(ret, PATH_MAX, ".");
	else
		(void)snprintf(ret, PATH_MAX, "%.*s", (int)(slash - path), path);
}

/* Links that begin at the root (/var/run) lead on below @top, where that is one, and not below ours. */
static int open_below(int top, bool is_root, const char *path, int flags)
{
	int fd = -EAGAIN;

	for (int i = 0; i < LOOKS && fd == -EAGAIN; i++)
		fd = raw_openat2(top, path, flags, 0, is_root ? RESOLVE_IN_ROOT : 0);
	return fd;
}

static int open_folder(int top, bool is_root, const char *path, int flags)
{
	char folder[PATH_MAX];

	folder_of(path, folder);
	return open_below(top, is_root, folder, flags | O_DIRECTORY);
}

/* Under which name what @row is bound to is found in directory @fd now, into @ret. Takes @fd. */
static bool find_in(int fd, const struct unix_row *row, struct buf *ret)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	struct stat st;
	bool found = false;

	if (dir == NULL && fd >= 0)
		(void)close(fd);
	while (dir != NULL && !found && (e = readdir(dir)) != NULL) {
		found = (e->d_type == DT_SOCK || e->d_type == DT_UNKNOWN) &&
			fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			is_bound_to(row, &st);
		if (found)
			buf_fmt(ret, "%s", e->d_name);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return found;
}

/* Where @link of /proc/PID leads. */
static struct image_span directory(struct dump *d, const struct dump_process *p, const char *link)
{
	char path[PATH_MAX];
	ssize_t n = readlinkat(p->tracee.proc, link, path, sizeof(path));

	return n <= 0 || n == sizeof(path) ? (struct image_span){ 0 }
					   : image_add_bytes(&d->image, path, (size_t)n);
}

static bool has_own_root(const struct dump_process *p)
{
	char path[2];

	return readlinkat(p->tracee.proc, "root", path, sizeof(path)) != 1;
}

/** struct spot - where a name of a unix socket leads, seen from a directory. */
struct spot {
	bool there;
	bool found; /* what it leads to is what the socket is bound to */
	bool moved; /* that has another name: @place, empty where it cannot be made again by it */
	nlink_t links; /* of it */
	struct stat st;
	struct stat folder; /* in which it is looked for, where it has moved */
	struct buf place;
};

/* The same of the directory in which it was called @path. Its place: an absolute path, where @path is one without its beginning. */
static bool find_file(
	struct spot *spot, int top, bool is_root, const char *path, const struct unix_row *row)
{
	const char *slash = strrchr(path, '/');
	int fd = open_folder(top, is_root, path, O_RDONLY);

	buf_char(&spot->place, '/');
	if (slash != NULL)
		buf_add(&spot->place, path, (size_t)(slash - path) + 1);
	if (fd < 0 || fstat(fd, &spot->folder) < 0)
		fd_close(&fd);
	return find_in(fd, row, &spot->place);
}

/* Nobody comes there by its name, which may be that of another now. */
static bool works_in_removed(const struct dump_process *p)
{
	char path[PATH_MAX];
	ssize_t n = readlinkat(p->tracee.proc, "cwd", path, sizeof(path) - 1);
	struct stat st;

	if (n <= 0)
		return true;
	path[n] = '\0';
	return dump_is_gone(path, (size_t)n) &&
	       (fstatat(p->tracee.proc, "cwd", &st, 0) < 0 || !dump_is_called(p, path, &st));
}

/* Where @path of who works in a directory of the sandbox leads, from its root @root on: links that begin at the root lead on below that one. */
static bool from_root(const struct dump_process *p, int root, const char *path, char ret[PATH_MAX])
{
	cleanup_fd int there = -1;
	struct stat st, now;
	ssize_t n = readlinkat(p->tracee.proc, "cwd", ret, PATH_MAX - 1);

	if (n <= 0 || (size_t)n + 1 + strlen(path) >= PATH_MAX || has_own_root(p) ||
		works_in_removed(p))
		return false;
	ret[n] = '\0';
	there = open_below(root, true, ret, O_PATH | O_DIRECTORY);
	if (there < 0 || fstat(there, &st) < 0 || fstatat(p->tracee.proc, "cwd", &now, 0) < 0 ||
		st.st_dev != now.st_dev || st.st_ino != now.st_ino)
		return false;
	(void)snprintf(ret + n, PATH_MAX - (size_t)n, "/%s", path);
	return true;
}

static void look(struct spot *spot, const struct dump_process *p, const char *link,
	const char *path, const struct unix_row *row)
{
	cleanup_fd int top = openat(p->tracee.proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool is_root = str_eq(link, "root");
	cleanup_fd int file = -1;
	char whole[PATH_MAX];

	if (!is_root && top >= 0 && from_root(p, top, path, whole)) {
		path = whole + strspn(whole, "/");
		is_root = true;
	}
	if (!is_root) {
		fd_close(&top);
		top = openat(p->tracee.proc, link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (top >= 0)
		file = open_below(top, is_root, path, O_PATH | O_NOFOLLOW);
	buf_reset(&spot->place);
	spot->there = file >= 0 && fstat(file, &spot->st) == 0;
	spot->found = spot->there && is_bound_to(row, &spot->st);
	spot->moved = top >= 0 && !spot->found && find_file(spot, top, is_root, path, row);
	spot->links = spot->found ? spot->st.st_nlink : 0;
}

/* Its file may be in another directory by now. The kernel has it open for the socket, whatever it is called, and gives it to whoever may administer the network. */
static void look_elsewhere(
	struct spot *spot, const struct subject *s, const char *path, const struct unix_row *row)
{
	cleanup_fd int file = ioctl(s->copy, SIOCUNIXFILE),
		       root = openat(s->p->tracee.proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC),
		       folder = root < 0 ? -1 : open_folder(root, true, path, O_PATH);
	char link[32], now[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (file < 0 || fstat(file, &st) < 0 || st.st_nlink == 0)
		return;
	spot->links = st.st_nlink;
	if (spot->moved)
		return;
	spot->moved = true;
	buf_reset(&spot->place);
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
	n = readlink(link, now, sizeof(now) - 1);
	if (n <= 1 || folder < 0 || fstat(folder, &spot->folder) < 0 || has_own_root(s->p))
		return;
	now[n] = '\0';
	if (fstatat(root, now + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_bound_to(row, &st))
		buf_add(&spot->place, now, (size_t)n);
}

/* A server may have changed its root directory before it was bound, or behind that. Return: whether the name is seen from its own. */
static bool look_from_roots(struct spot *spot, const struct dump *d, const struct dump_process *p,
	const char *path, const struct unix_row *row)
{
	look(spot, p, "root", path, row);
	if (!has_own_root(p))
		return false;
	for (size_t i = 0; i < d->n && !spot->found && !spot->moved; i++) {
		if (has_own_root(&d->processes[i]))
			continue;
		look(spot, &d->processes[i], "root", path, row);
		return false;
	}
	return spot->found || spot->moved;
}

/** struct dump_renamed - a socket whose file was given another name. */
struct dump_renamed {
	uint32_t at_least; /* the index of its description */
	dev_t device;      /* of the directory in which it was bound */
	ino_t inode;
	struct image_span path;
};

/* Of an address in the files; it ends with the image's own NUL at the latest. */
static const char *last_name(const struct dump *d, struct image_span path)
{
	const char *name = d->image.tables[TABLE_BYTES].p + path.offset +
			   offsetof(struct sockaddr_un, sun_path);
	const char *slash = strrchr(name, '/');

	return slash == NULL ? name : slash + 1;
}

/* Who only looks goes on behind what is refused: of that there is no description. */
static bool is_carried(struct dump *d, const struct dump_renamed *one)
{
	const uint32_t n =
		image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description));

	for (uint32_t i = one->at_least; i < n; i++) {
		const struct image_description *o = dump_description(d, i);

		if (o->place.length > 0 && o->path.offset == one->path.offset)
			return true;
	}
	return false;
}

/*
 * Another that was bound to the same name, and whose file was given another one, too: each is bound to it anew before it is renamed. A name may be spelt otherwise, and be another in
 * another root: what counts is the directory.
 */
static bool has_namesake(struct dump *d, const struct image_description *out, const struct stat *in)
{
	const struct dump_renamed one = {
		.at_least = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(*out)),
		.device = in->st_dev,
		.inode = in->st_ino,
		.path = out->path,
	};
	struct dump_renamed *more;

	for (size_t i = 0; i < d->n_renamed; i++) {
		const struct dump_renamed *other = &d->renamed[i];

		if (other->device == one.device && other->inode == one.inode &&
			is_carried(d, other) &&
			str_eq(last_name(d, other->path), last_name(d, one.path)))
			return true;
	}
	more = realloc(d->renamed, (d->n_renamed + 1) * sizeof(*more));
	if (more == NULL)
		abort();
	d->renamed = more;
	d->renamed[d->n_renamed++] = one;
	return false;
}

/* A name in the files may have been removed or changed since, and another may have taken it. */
static int check_name(
	struct dump *d, struct subject *s, const struct unix_row *row, struct err *err)
{
	const size_t offset = offsetof(struct sockaddr_un, sun_path);
	const char *path = d->image.tables[TABLE_BYTES].p + s->out.path.offset + offset;
	struct spot spot = { .place = BUF_INIT(PATH_MAX) };
	/* the other ends of those who connect have its name too, and need no file */
	bool needs_file = s->out.kind != DESCRIPTION_CONNECTION, relative, inside = false;
	int rc = 0;

	if (s->out.path.length <= offset || path[0] == '\0')
		return 0;
	relative = path[0] != '/';
	path += strspn(path, "/");
	if (relative)
		look(&spot, s->p, "cwd", path, row);
	else
		inside = look_from_roots(&spot, d, s->p, path, row);
	if (needs_file && !spot.found && (spot.there || !relative))
		look_elsewhere(&spot, s, path, row);
	if (needs_file && spot.moved && (spot.there || relative || spot.place.n == 0))
		rc = subject_refuse(s, err, "a socket whose file is not called as it was bound");
	else if (spot.there && !S_ISSOCK(spot.st.st_mode))
		rc = subject_refuse(s, err, "a socket whose name belongs to another file now");
	else if (needs_file && relative && !spot.there)
		rc = subject_refuse(s, err,
			"a socket whose name does not lead to it from where its process works now");
	else if (relative && spot.there && works_in_removed(s->p))
		rc = subject_refuse(
			s, err, "a socket whose name is seen from a directory that was removed");
	else if (needs_file && spot.links > 1)
		rc = subject_refuse(s, err, "a socket whose file has a further name (link(2))");
	else if (needs_file && spot.moved && has_namesake(d, &s->out, &spot.folder))
		rc = subject_refuse(s, err,
			"a socket that was bound to the same name as another, and both were renamed");
	else if (needs_file && spot.moved)
		s->out.place = image_add_bytes(&d->image, spot.place.p, spot.place.n);
	else if (!spot.there)
		s->out.position |= SOCKET_NAMELESS;
	else if (needs_file && !spot.found && row->n_pending > 0)
		rc = subject_busy(
			d, s, err, "a socket with connections waiting whose name another has now");
	else if (needs_file && !spot.found)
		s->out.position |= SOCKET_REPLACED;
	if ((relative && spot.there) || inside)
		s->out.folder = directory(d, s->p, relative ? "cwd" : "root");
	buf_free(&spot.place);
	return rc;
}

/* --- one socket --- */

static bool is_unconnected(int fd)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);

	return dump_socket_number(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0 &&
	       getpeername(fd, (struct sockaddr *)&a, &n) < 0 && errno == ENOTCONN;
}

static bool is_connection(const struct subject *s, const struct unix_row *row)
{
	return s->out.a == SOCK_DGRAM ? row->connected : row->state == STATE_ESTABLISHED;
}

int dump_unix(struct dump *d, struct subject *s, struct err *err)
{
	const struct unix_row *row;
	int rc = find_listed(d, s, &row);

	if (rc < 0)
		return err_raise_sys(err, rc, "list the unix sockets of the sandbox");
	s->out.inode = (uint32_t)s->st.st_ino;
	/* without a name and without another end there is nothing to know */
	if (row == NULL && s->out.path.length == 0 && is_unconnected(s->copy)) {
		s->out.kind = DESCRIPTION_SOCKET;
		return 0;
	}
	if (row == NULL)
		return subject_refuse(s, err, "a unix socket of which the kernel tells nothing");
	s->out.inode_peer = row->peer;
	if (row->state == STATE_LISTEN) {
		s->out.kind = DESCRIPTION_LISTEN;
		s->out.backlog = row->backlog;
	} else {
		s->out.kind = is_connection(s, row) ? DESCRIPTION_CONNECTION : DESCRIPTION_SOCKET;
		if (row->shut != 0)
			s->out.b = row->shut == 3   ? 1 + SHUT_RDWR
				   : row->shut == 2 ? 1 + SHUT_WR
						    : 1 + SHUT_RD;
	}
	rc = check_name(d, s, row, err);
	if (rc < 0)
		return rc;
	if (s->out.kind != DESCRIPTION_SOCKET)
		s->out.other = read_other(d, s);
	s->waits = row->state != STATE_LISTEN || row->n_pending > 0;
	return 0;
}

/* --- backlogs --- */

/* Who accepts is told of whoever connected: one that has the socket now. */
static struct image_identity holder_of(const struct dump_socket *s)
{
	uint64_t uid[4] = { 0 }, gid[4] = { 0 };

	(void)proc_numbers(s->p->status, "Uid", 10, uid, ARRAY_SIZE(uid));
	(void)proc_numbers(s->p->status, "Gid", 10, gid, ARRAY_SIZE(gid));
	return (struct image_identity){ .known = 1,
		.pid = s->p->tracee.inner,
		.uid = (uint32_t)uid[1],
		.gid = (uint32_t)gid[1] };
}

static int add_pending(
	struct dump *d, const struct dump_socket *s, uint32_t inode, struct buf *list)
{
	uint32_t client = dump_socket_find(d, inode);
	struct image_description *row;
	int unread = 0;

	row = client == IMAGE_NONE ? NULL : dump_description(d, client);
	/* what the client has sent already can be seen by accepting it alone, and so can whether one that is gone has */
	if (row == NULL || row->kind != DESCRIPTION_CONNECTION || row->peer != IMAGE_NONE)
		return -EBUSY;
	for (size_t i = 0; i < d->n_sockets; i++) {
		if (d->sockets[i].index != client)
			continue;
		if (ioctl(d->sockets[i].copy, SIOCOUTQ, &unread) < 0 || unread > 0)
			return -EBUSY;
		row->other = holder_of(&d->sockets[i]);
	}
	row->kind = DESCRIPTION_PENDING;
	row->peer = s->index;
	buf_add(list, &client, sizeof(client));
	return 0;
}

int dump_unix_backlog(struct dump *d, const struct dump_socket *s)
{
	const struct unix_row *row = find_row(dump_description(d, s->index)->inode);
	cleanup_buf struct buf list = BUF_INIT(1 << 20);
	struct image_span span;
	int rc = 0;

	for (size_t i = 0; rc == 0 && row != NULL && i < row->n_pending; i++)
		rc = add_pending(d, s, row->pending[i], &list);
	if (rc == 0 && list.n > 0) {
		span = image_add_bytes(&d->image, list.p, list.n);
		dump_description(d, s->index)->data = span;
	}
	return rc;
}

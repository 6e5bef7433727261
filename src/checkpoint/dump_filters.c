/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_filters.c - system call filters that programs have made: they are read before the dumper is executed (seizer.h), and go with each thread. */
#include "base/str.h"
#include "checkpoint/dump.h"
#include "checkpoint/seizer.h"
#include "sys/file.h"

#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define UNREADABLE \
	"it has installed a system call filter of its own, which only a server that runs as root can read"

static void note_closed(const struct tracee *t, struct dump_report *r)
{
	cleanup_buf struct buf name = BUF_INIT(64);

	if (file_read_at(t->proc, "comm", &name) < 0)
		return;
	r->closed = t->inner;
	(void)snprintf(r->closed_name, sizeof(r->closed_name), "%.*s",
		(int)strcspn(buf_cstr(&name), "\n"), buf_cstr(&name));
	str_utf8_tidy(r->closed_name);
}

void dump_filtered(const struct dump_order *order, struct dump_report *r)
{
	for (uint32_t i = 0; i < order->n_pids; i++) {
		struct tracee t;

		if (tracee_watch(&t, order->pids[i]) == 0 && tracee_watch_filters(&t) == 0) {
			r->n_filtered += t.filters > order->filters;
			if (!t.zombie && tracee_is_closed(&t))
				note_closed(&t, r);
		}
		tracee_release(&t);
	}
}

/* --- what was read --- */

static bool take(const struct buf *from, size_t *at, void *to, size_t n)
{
	if (n > from->n - *at)
		return false;
	memcpy(to, from->p + *at, n);
	*at += n;
	return true;
}

static bool skip_filters(const struct buf *from, size_t *at, uint32_t n)
{
	struct seized_filter f;

	while (n-- > 0) {
		if (!take(from, at, &f, sizeof(f)) || f.n > BPF_MAXINSNS ||
			f.n * sizeof(struct sock_filter) > from->n - *at)
			return false;
		*at += f.n * sizeof(struct sock_filter);
	}
	return true;
}

static void add_chain(struct dump *d, const struct dump_chain *chain)
{
	struct dump_chain *more = realloc(d->chains, (d->n_chains + 1) * sizeof(*more));

	if (more == NULL)
		abort();
	d->chains = more;
	more[d->n_chains++] = *chain;
}

static int read_seized(struct buf *out)
{
	cleanup_fd int fd = DUMP_FILTERS_FD;
	struct stat st;
	char *room;
	int rc;

	if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	room = buf_room(out, (size_t)st.st_size);
	rc = room == NULL ? -ENOMEM : file_read_all(fd, room, (size_t)st.st_size);
	if (rc == 0)
		buf_grown(out, (size_t)st.st_size);
	return rc;
}

int dump_filters_load(struct dump *d)
{
	struct seized_thread t;
	size_t at = 0;
	int rc = read_seized(&d->seized);

	tracee_take_over();
	while (rc == 0 && take(&d->seized, &at, &t, sizeof(t))) {
		struct dump_chain c = { .host = t.host,
			.n = t.n,
			.at = at,
			.like = d->n_chains,
			.first_row = IMAGE_NONE };

		if (t.n == SEIZED_LEFT) {
			d->left_behind = t.host;
			continue;
		}
		if (t.n == SEIZED_SAME && d->n_chains > 0)
			c.like = d->chains[d->n_chains - 1].like;
		else if (!skip_filters(&d->seized, &at, t.n))
			rc = -EPROTO;
		c.n = c.like == d->n_chains ? t.n : d->chains[c.like].n;
		add_chain(d, &c);
	}
	return rc;
}

/* Threads come mostly in the order in which they were read. */
static struct dump_chain *find_chain(struct dump *d, pid_t host)
{
	for (size_t i = 0; i < d->n_chains; i++) {
		struct dump_chain *c = &d->chains[(d->next_chain + i) % d->n_chains];

		if (c->host == host) {
			d->next_chain += i + 1;
			return c;
		}
	}
	return NULL;
}

/* --- what is refused --- */

static int check_thread(
	struct dump *d, struct dump_process *p, const struct tracee_thread *t, struct err *err)
{
	const struct dump_chain *c;
	int rc;

	if (t->filters <= d->order->filters)
		return 0;
	if (d->order->readable == 0)
		return dump_refuse(p, err, UNREADABLE);
	if (d->order->suspended == 0) {
		/* in a moment it is known that it has one */
		rc = dump_refuse(p, err, "it has just installed a system call filter");
		err->code = ERR_BUSY;
		return rc;
	}
	c = find_chain(d, t->host);
	if (c == NULL || c->n != t->filters - d->order->filters)
		return dump_refuse(p, err, "it has system call filters that cannot be read");
	return t->no_new_privs
		       ? 0
		       : dump_refuse(p, err,
				 "it has installed a system call filter without giving up privileges (no_new_privs)");
}

/* While it runs: who has ended meanwhile is nobody's concern. */
static int check_running(const struct dump *d, struct dump_process *p, struct err *err)
{
	if (d->order->readable != 0 || tracee_watch_filters(&p->tracee) < 0)
		return 0;
	return p->tracee.filters > d->order->filters ? dump_refuse(p, err, UNREADABLE) : 0;
}

int dump_filters_check(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = 0;

	p->out.filtered = (uint32_t)proc_number(p->status, "Seccomp_filters", 10, 0);
	if (d->examination != NULL)
		return check_running(d, p, err);
	for (size_t i = 0; rc == 0 && i < p->tracee.n_threads; i++)
		rc = check_thread(d, p, &p->tracee.threads[i], err);
	return rc;
}

/* --- what is carried over --- */

static uint32_t add_rows(struct dump *d, const struct dump_chain *c)
{
	uint32_t first = image_count(&d->image, TABLE_FILTERS, sizeof(struct image_filter));
	size_t at = c->at;

	for (uint32_t i = 0; i < c->n; i++) {
		struct image_filter row = { 0 };
		struct seized_filter f;

		BUG_ON(!take(&d->seized, &at, &f, sizeof(f))); /* dump_filters_load() has */
		row.log = f.log;
		row.code = image_add_bytes(
			&d->image, d->seized.p + at, f.n * sizeof(struct sock_filter));
		at += f.n * sizeof(struct sock_filter);
		(void)IMAGE_ADD(&d->image, TABLE_FILTERS, &row);
	}
	return first;
}

void dump_filters(struct dump *d, struct dump_process *p, size_t i, struct image_thread *out)
{
	const struct tracee_thread *t = &p->tracee.threads[i];
	struct dump_chain *c = t->filters > d->order->filters ? find_chain(d, t->host) : NULL;

	out->no_new_privs = t->no_new_privs;
	if (c == NULL)
		return;
	c = &d->chains[c->like];
	if (c->first_row == IMAGE_NONE)
		c->first_row = add_rows(d, c);
	out->first_filter = c->first_row;
	out->n_filters = c->n;
	p->out.own_filters = 1;
}

static bool same_filter(struct dump *d, uint32_t a, uint32_t b)
{
	const struct image_filter *x = image_row(&d->image, TABLE_FILTERS, a, sizeof(*x)),
				  *y = image_row(&d->image, TABLE_FILTERS, b, sizeof(*y));
	const char *bytes = d->image.tables[TABLE_BYTES].p;

	return a == b ||
	       (x->log == y->log && x->code.length == y->code.length &&
		       memcmp(bytes + x->code.offset, bytes + y->code.offset, x->code.length) == 0);
}

void dump_filters_end(struct dump *d, struct dump_process *p)
{
	const struct image_thread *all =
		image_row(&d->image, TABLE_THREADS, p->out.first_thread, sizeof(*all));
	uint32_t n = all[0].n_filters;

	for (uint32_t i = 1; i < p->out.n_threads; i++) {
		uint32_t same = 0;

		while (same < n && same < all[i].n_filters &&
			same_filter(d, all[0].first_filter + same, all[i].first_filter + same))
			same++;
		n = same;
	}
	p->out.shared_filters = n;
}

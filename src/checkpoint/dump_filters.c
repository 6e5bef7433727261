/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_filters.c - system call filters that programs have made, which go with each thread: they were read before the dumper was executed (seizer.h), and do not count for
 * what it has the threads do; or the keeper has learned them when they were installed, and they do.
 */
#include "base/str.h"
#include "checkpoint/asker.h"
#include "checkpoint/dump.h"
#include "checkpoint/seizer.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define FILTERS_MAX \
	32768U /* of a thread: the kernel's limit of instructions on the way of a call */

#define UNREADABLE \
	"it has installed a system call filter of its own, which only a server that runs as root, and under no such filter itself, can read"
#define UNKNOWN \
	"it has system call filters of which nobody knows what they are: it has inherited one of several, or they could not be read when they were installed"

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

static bool has_own(const struct tracee *t, uint32_t base)
{
	for (size_t i = 0; i < t->n_threads; i++) {
		if (t->threads[i].filters > base)
			return true;
	}
	return false;
}

void dump_filtered(const struct dump_order *order, struct dump_report *r)
{
	for (uint32_t i = 0; i < order->n_pids; i++) {
		struct tracee t;

		if (tracee_watch(&t, order->pids[i]) == 0 && tracee_watch_threads(&t) == 0) {
			r->n_filtered += has_own(&t, order->filters);
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

/* Return: false when they are not all there. @ret: the caller's in any case. */
static bool take_filters(const struct buf *from, size_t *at, uint32_t n, struct dump_chain *ret)
{
	struct seized_filter f;

	if (n > FILTERS_MAX)
		return false;
	ret->programs = calloc((size_t)n + 1, sizeof(*ret->programs));
	if (ret->programs == NULL)
		abort();
	for (uint32_t i = 0; i < n; i++) {
		if (!take(from, at, &f, sizeof(f)) || f.n > BPF_MAXINSNS ||
			f.n * sizeof(struct sock_filter) > from->n - *at)
			return false;
		ret->quiet |= f.quiet;
		ret->programs[i] = (struct filter_program){
			(const struct sock_filter *)(const void *)(from->p + *at), f.n
		};
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

static int read_file(int fd, struct buf *out)
{
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

int dump_filters_load(struct dump *d, int fd)
{
	struct seized_thread t;
	size_t at = 0;
	int rc = read_file(fd, &d->seized);

	(void)close(fd);
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
		else if (!take_filters(&d->seized, &at, t.n, &c))
			rc = -EPROTO;
		c.n = c.like == d->n_chains ? t.n : d->chains[c.like].n;
		add_chain(d, &c);
	}
	return rc;
}

void dump_filters_fini(struct dump *d)
{
	for (size_t i = 0; i < d->n_chains; i++)
		free(d->chains[i].programs);
	free(d->chains);
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

static const char *name_of(long nr)
{
	static const struct {
		long nr;
		const char *name;
	} names[] = { { SYS_mmap, "mmap" }, { SYS_munmap, "munmap" }, { SYS_fcntl, "fcntl" },
		{ SYS_sigaltstack, "sigaltstack" }, { SYS_prctl, "prctl" },
		{ SYS_membarrier, "membarrier" }, { SYS_getitimer, "getitimer" },
		{ SYS_arch_prctl, "arch_prctl" }, { SYS_brk, "brk" },
		{ SYS_rt_sigaction, "rt_sigaction" } };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (names[i].nr == nr)
			return names[i].name;
	}
	return "a call";
}

/* What it is asked in any case, and how. */
static const char *refused_call(const struct dump_process *p, size_t i)
{
	static const struct tracee_question around[] = {
		{ .nr = SYS_mmap,
			.arguments = { 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				~0ULL } },
		{ .nr = SYS_munmap, .arguments = { 0, 4096 } },
		{ .nr = SYS_fcntl, .arguments = { 0, F_GETFD } },
	};
	struct tracee_question asked[DUMP_QUESTIONS_MAX];
	size_t n = dump_questions(p, i, asked);

	for (size_t j = 0; i == 0 && j < ARRAY_SIZE(around); j++)
		asked[n++] = around[j];
	for (size_t j = 0; j < n; j++) {
		if (!asked[j].known &&
			!tracee_may_call(&p->tracee, i, asked[j].nr, asked[j].arguments))
			return name_of(asked[j].nr);
	}
	return NULL;
}

/* How filter @n of a thread may be installed again, above the others; @threads: for others too. */
static enum image_install way_to_install(const struct dump_chain *c, uint32_t n, bool threads)
{
	const struct filter_program *f = c->programs;
	struct seccomp_data call = { .nr = SYS_seccomp,
		.arch = AUDIT_ARCH_X86_64,
		.args = { SECCOMP_SET_MODE_FILTER, 0, WINDOW_RESIDUE, 0,
			ASKED_TOLD << 32 | ASKED_ALL } };
	bool allowed = filter_chain_allows(f, n, &call);

	call.args[1] = SECCOMP_FILTER_FLAG_LOG;
	allowed = allowed && filter_chain_allows(f, n, &call);
	call.args[1] = SECCOMP_FILTER_FLAG_TSYNC;
	allowed = allowed && (!threads || filter_chain_allows(f, n, &call));
	if (allowed || threads)
		return allowed ? INSTALL_SECCOMP : INSTALL_NOT;
	call.nr = SYS_prctl;
	call.args[0] = PR_SET_SECCOMP;
	call.args[1] = SECCOMP_MODE_FILTER;
	return filter_chain_allows(f, n, &call) ? INSTALL_PRCTL : INSTALL_NOT;
}

/* Its filters count for what it does for us, and for what its fork does to get them. */
static int check_learned(struct dump *d, struct dump_process *p, size_t i,
	const struct dump_chain *c, struct err *err)
{
	struct tracee_thread *t = &p->tracee.threads[i];
	const struct dump_chain *like = &d->chains[c->like];
	const char *name;

	t->own = like->programs;
	t->n_own = c->n;
	/* whoever asked in advance was alone in its process: what is known of one thread's filters is of all */
	if (i == 0)
		p->quiet = like->quiet;
	name = refused_call(p, i);
	if (name != NULL)
		return dump_refuse(p, err,
			"its system call filter refuses %s(2), which it would have to be asked by",
			name);
	for (uint32_t n = 0; n < c->n; n++) {
		if (way_to_install(like, n, p->tracee.n_threads > 1) == INSTALL_NOT)
			return dump_refuse(p, err,
				"its system call filters refuse that the uppermost are installed again");
	}
	return 0;
}

static int check_thread(struct dump *d, struct dump_process *p, size_t i, struct err *err)
{
	const struct tracee_thread *t = &p->tracee.threads[i];
	const struct dump_chain *c;
	int rc;

	if (t->filters <= d->order->filters)
		return 0;
	if (d->order->readable == 0)
		return dump_refuse(p, err, UNREADABLE);
	if (d->order->suspended == 0 && d->order->learned == 0) {
		/* in a moment it is known that it has one */
		rc = dump_refuse(p, err, "it has just installed a system call filter");
		err->code = ERR_BUSY;
		return rc;
	}
	c = find_chain(d, t->host);
	/* it had none yet when it was looked for them */
	if (c == NULL && d->examination != NULL)
		return 0;
	if (c == NULL || c->n != t->filters - d->order->filters)
		return dump_refuse(p, err,
			d->order->suspended != 0 ? "it has system call filters that cannot be read"
						 : UNKNOWN);
	if (!t->no_new_privs)
		return dump_refuse(p, err,
			"it has installed a system call filter without giving up privileges (no_new_privs)");
	return d->order->suspended != 0 ? 0 : check_learned(d, p, i, c, err);
}

static int check_threads(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < p->tracee.n_threads; i++)
		rc = check_thread(d, p, i, err);
	return rc;
}

/* While it runs: who has ended meanwhile is nobody's concern. Who can read them has still to do so. */
static int check_running(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = 0;

	if (d->order->readable != 0 && d->order->learned == 0)
		return 0;
	if (tracee_watch_threads(&p->tracee) == 0)
		rc = check_threads(d, p, err);
	tracee_forget_threads(&p->tracee);
	return rc;
}

int dump_filters_check(struct dump *d, struct dump_process *p, struct err *err)
{
	p->out.filtered = (uint32_t)proc_number(p->status, "Seccomp_filters", 10, 0);
	if (d->examination != NULL)
		return check_running(d, p, err);
	return check_threads(d, p, err);
}

/* --- what is carried over --- */

static uint32_t add_rows(struct dump *d, const struct dump_chain *c)
{
	uint32_t first = image_count(&d->image, TABLE_FILTERS, sizeof(struct image_filter));
	size_t at = c->at;

	for (uint32_t i = 0; i < c->n; i++) {
		struct image_filter row = { 0 };
		struct seized_filter f;

		if (!take(&d->seized, &at, &f, sizeof(f)))
			abort(); /* dump_filters_load() has */
		row.log = f.log;
		/* who puts it back may be below a server's filters where we are not, and suspend none */
		row.install = way_to_install(c, i, false);
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

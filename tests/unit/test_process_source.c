/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "events/process_source.h"
#include "t.h"

#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <malloc.h>
#include <sys/socket.h>

#define KEEPER 100
#define FIRST  1000

static const char a[] = "aaaaaaaaaaaaaaaaaaaa", b[] = "bbbbbbbbbbbbbbbbbbbb";

/* A source whose kernel is the other end of a socket. */
struct world {
	char path[32];
	struct journal *journal;
	struct process_source *ps;
	int kernel;
	uint64_t now_ns;
};

static void begin(struct world *w)
{
	struct proc_connector connector = { 0 };
	struct err err;
	int pair[2];

	*w = (struct world){ .path = "/tmp/cay-processes-XXXXXX", .now_ns = NS_PER_S };
	if (mkdtemp(w->path) == NULL || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	check_int(journal_open(w->path, &w->journal, &err), 0);
	connector.fd = connector.wake = pair[0];
	w->kernel = pair[1];
	w->ps = process_source_new(w->journal, &connector);
	process_source_follow(w->ps, a, KEEPER);
}

static void end(struct world *w)
{
	char file[64];

	process_source_free(w->ps);
	journal_close(w->journal);
	(void)close(w->kernel);
	(void)snprintf(file, sizeof(file), "%s/000001.jsonl", w->path);
	check_int(unlink(file), 0);
	check_int(rmdir(w->path), 0);
}

static void tell(struct world *w, struct proc_event e)
{
	_Alignas(struct nlmsghdr) char bytes[256] = { 0 };
	struct cn_msg *m = (struct cn_msg *)(bytes + NLMSG_HDRLEN);

	e.cpu = UINT16_MAX; /* not numbered */
	e.timestamp_ns = w->now_ns;
	m->id.idx = CN_IDX_PROC;
	m->len = sizeof(e);
	memcpy(m->data, &e, sizeof(e));
	check(send(w->kernel, bytes, NLMSG_HDRLEN + sizeof(*m) + sizeof(e), 0) > 0);
	process_source_drain(w->ps);
}

static void forks(struct world *w, pid_t parent, pid_t pid)
{
	struct proc_event e = { .what = 0x00000001 };

	e.event_data.fork.parent_pid = e.event_data.fork.parent_tgid = parent;
	e.event_data.fork.child_pid = e.event_data.fork.child_tgid = pid;
	tell(w, e);
}

static void ends(struct world *w, pid_t pid)
{
	struct proc_event e = { .what = 0x80000000 };

	e.event_data.exit.process_pid = e.event_data.exit.process_tgid = pid;
	tell(w, e);
}

TEST(what_ended_before_it_was_named_is_told_when_it_is)
{
	struct world w;

	begin(&w);
	for (pid_t pid = FIRST; pid < FIRST + 1000; pid++) {
		forks(&w, KEEPER, pid);
		ends(&w, pid);
	}
	for (pid_t pid = FIRST; pid < FIRST + 1000; pid++)
		process_source_bind(w.ps, a, pid, b);
	check_int(journal_last_seq(w.journal, a), 2000);
	end(&w);
}

TEST(what_is_left_of_one_that_ended_before_it_was_named_is_told_too)
{
	struct world w;

	begin(&w);
	forks(&w, KEEPER, FIRST);
	forks(&w, FIRST, FIRST + 1);
	ends(&w, FIRST);
	process_source_bind(w.ps, a, FIRST, b);
	check_int(journal_last_seq(w.journal, a), 3);
	ends(&w, FIRST + 1);
	check_int(journal_last_seq(w.journal, a), 4);
	end(&w);
}

/* It ends when it has made its child, whenever the kernel tells of that. */
TEST(what_came_without_its_parent_is_told_whenever_that_ends)
{
	enum { TEMPLATE = 200, PARENT, MAKER, MADE };

	for (int late = 0; late < 2; late++) {
		struct world w;

		begin(&w);
		process_source_template(w.ps, TEMPLATE, true);
		forks(&w, TEMPLATE, PARENT);
		forks(&w, PARENT, MAKER);
		forks(&w, MAKER, MADE);
		if (!late)
			ends(&w, MAKER);
		process_source_claim(w.ps, a, PARENT);
		process_source_settle(w.ps, a);
		if (late)
			ends(&w, MAKER);
		check_int(journal_last_seq(w.journal, a), 3);
		/* what is begun there since may still be named */
		forks(&w, PARENT, FIRST);
		forks(&w, FIRST, FIRST + 1);
		ends(&w, FIRST);
		process_source_settle(w.ps, a);
		check_int(journal_last_seq(w.journal, a), 3);
		forks(&w, MADE, MADE + 1);
		check_int(journal_last_seq(w.journal, a), 4);
		end(&w);
	}
}

/* Helpers of the keeper: dumpers, one for each capture. */
TEST(what_nobody_ever_names_is_forgotten)
{
	size_t before = 0;
	struct world w;

	begin(&w);
	for (pid_t pid = FIRST; pid < FIRST + 20000; pid++) {
		if (pid == FIRST + 1000)
			before = mallinfo2().uordblks;
		forks(&w, KEEPER, pid);
		ends(&w, pid);
		w.now_ns += NS_PER_S;
	}
	check(mallinfo2().uordblks < before + 65536);
	process_source_bind(w.ps, a, FIRST + 19990, b);
	check_int(journal_last_seq(w.journal, a), 2);
	end(&w);
}

/* What is above the budget is one loss, told at the end at the latest; another sandbox has its own. */
TEST(processes_have_a_budget_of_the_log)
{
	static const struct journal_keep keep = { .max_bytes = 1U << 20,
		.segment_bytes = 32U << 20 };
	enum { OTHER = 101, MANY = 2000 };
	struct world w;
	char file[64];
	uint64_t told;

	begin(&w);
	check_int(journal_keep_set(w.journal, &keep), 0);
	process_source_follow(w.ps, b, OTHER);
	for (pid_t pid = FIRST; pid < FIRST + MANY; pid++) {
		forks(&w, KEEPER, pid);
		process_source_bind(w.ps, a, pid, NULL);
	}
	told = journal_last_seq(w.journal, a);
	check(told > 500 && told < 1000);
	forks(&w, OTHER, FIRST - 1);
	process_source_bind(w.ps, b, FIRST - 1, NULL);
	check_int(journal_last_seq(w.journal, b), 1);
	process_source_forget(w.ps, a);
	check_int(journal_last_seq(w.journal, a), told + 1);
	(void)snprintf(file, sizeof(file), "%s/retention.json", w.path);
	check_int(unlink(file), 0);
	end(&w);
}

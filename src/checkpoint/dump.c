/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump.c - the order of a capture, in the dumper. Every way out releases every process. */
#include "checkpoint/dump.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/alive.h"
#include "checkpoint/seizer.h"
#include "sys/confine.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/raw.h"
#include "sys/urgency.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CLOSE_TRIES 3 /* of tracee_hurry() each */

static struct dump_finding refused; /* the last refusal, by its parts */

int dump_refuse_at(const struct dump_process *p, int fd, struct err *err, const char *fmt, ...)
{
	va_list args;

	refused = (struct dump_finding){ .pid = p->tracee.inner, .fd = fd };
	memcpy(refused.name, p->name, sizeof(refused.name));
	va_start(args, fmt);
	(void)vsnprintf(refused.reason, sizeof(refused.reason), fmt, args);
	va_end(args);
	str_utf8_tidy(refused.name);
	str_utf8_tidy(refused.reason);
	return err_raise(err, ERR_UNSUPPORTED, "process %d (%s): %s", refused.pid, refused.name,
		refused.reason);
}

bool dump_note(struct dump *d, struct err *err)
{
	struct dump_examination *x = d->examination;

	if (x == NULL)
		return false;
	if (err->code == ERR_UNSUPPORTED && x->n == DUMP_FINDINGS_MAX)
		x->more++;
	else if (err->code == ERR_UNSUPPORTED && refused.pid != 0)
		x->findings[x->n++] = refused;
	else if (err->code == ERR_UNSUPPORTED)
		(void)!str_copy((x->findings[x->n++] = (struct dump_finding){ .fd = -1 }).reason,
			sizeof(refused.reason), err->msg);
	refused.pid = 0;
	*err = (struct err){ 0 };
	return true;
}

/* The last refusals: nothing has been changed yet, and nothing is refused once the processes run. */
static int check_all(struct dump *d, struct err *err)
{
	int rc = dump_order_check(d, err);

	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		if (!d->processes[i].tracee.zombie)
			rc = dump_maps(d, &d->processes[i], err);
	}
	if (rc == 0)
		rc = dump_shared_check(d, err);
	return rc == 0 ? dump_room_check(d, err) : rc;
}

/* A point at which a test may have a call never end. */
static void hang(struct dump *d, const char *point)
{
	struct tracee *t = &d->processes[0].tracee;

	if (fault(point) < 0)
		(void)!TRACEE_CALL(t, 0, SYS_pause);
}

/* What only the stopped processes can tell. */
static int look_at_all(struct dump *d, struct err *err)
{
	int rc = dump_zombies(d, err);

	if (rc == 0)
		rc = dump_tree(d, err);
	for (size_t i = 0; rc == 0 && i < d->n; i++)
		rc = dump_threads_check(&d->processes[i], err);
	if (rc == 0)
		rc = dump_tmpfs(d, err);
	if (rc == 0)
		rc = dump_ask(d, err);
	if (rc == 0)
		shared_memories_ask(&d->shared);
	if (rc == 0)
		rc = dump_sysv(d, err); /* kcmp(2) wants them open */
	hang(d, "live.dump.hang.looked");
	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		struct dump_process *p = &d->processes[i];

		if (p->tracee.zombie)
			continue;
		rc = dump_attributes(p, err);
		if (rc == 0)
			rc = dump_threads(d, p, err);
		if (rc == 0)
			rc = dump_signals(p, err);
		if (rc == 0)
			rc = dump_timers(d, p, &p->tracee, err);
		if (rc == 0)
			rc = dump_files(d, p, err);
	}
	if (rc == 0)
		rc = dump_fired(d, err);
	if (rc == 0)
		rc = dump_stopped(d, err);
	if (rc == 0)
		rc = dump_files_end(d, err);
	if (rc == 0)
		rc = dump_inotify_end(d, err);
	if (rc == 0)
		rc = dump_terminals_end(d, err);
	return rc == 0 ? check_all(d, err) : rc;
}

/* A subreaper would be told of twins' ends; for the while all children that lose their parent go to init. */
static int set_subreapers(struct dump *d, bool on)
{
	long rc = 0;

	d->no_subreapers = !on;
	/* the keeper, who waits for us, is not told of it (defs/seccomp/default.profile) */
	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		if (d->processes[i].out.subreaper != 0)
			rc = TRACEE_CALL(&d->processes[i].tracee, 0, SYS_prctl,
				PR_SET_CHILD_SUBREAPER, on, CONFINE_OURS);
	}
	return (int)rc;
}

/*
 * Who ends holding locks of its robust list has them marked by the kernel (FUTEX_OWNER_DIED). Of those that are suspended these locks may be in files, which nobody captures, and
 * their owners are to go on: nothing is marked while they have no such list. Filters that refuse that are obeyed.
 */
static int set_robust_lists(struct dump *d, bool on)
{
	long rc = 0;

	d->no_robust_lists = !on;
	for (size_t i = 0; i < d->n; i++) {
		const struct dump_process *p = &d->processes[i];

		for (uint32_t j = 0; (rc == 0 || on) && j < p->out.n_threads; j++) {
			const struct image_thread *t = image_row(
				&d->image, TABLE_THREADS, p->out.first_thread + j, sizeof(*t));

			if (t->robust_list != 0)
				rc = TRACEE_CALL(&d->processes[i].tracee, j, SYS_set_robust_list,
					on ? t->robust_list : 0, t->robust_length);
			rc = rc == -EACCES ? 0 : rc;
		}
	}
	return (int)rc;
}

/* All or none: without twins the memory is copied while everything stands still. Return: how many, -errno when the processes are not as they were. */
static int make_twins(struct dump *d)
{
	struct tracee_pair *pairs = calloc(d->n + 1, sizeof(*pairs));
	int rc = set_subreapers(d, false), n = 0, back;

	if (pairs == NULL)
		abort();
	for (size_t i = 0; i < d->n; i++) {
		if (!d->processes[i].tracee.zombie)
			pairs[n++] = (struct tracee_pair){ .t = &d->processes[i].tracee,
				.twin = &d->processes[i].twin };
	}
	d->pairs = pairs;
	d->n_pairs = (size_t)n;
	if (rc == 0)
		rc = tracee_twins(pairs, (size_t)n);
	hang(d, "live.dump.hang.twins");
	d->n_pairs = 0;
	free(pairs);
	back = set_subreapers(d, true);
	return back < 0 ? back : rc < 0 ? 0 : n;
}

/* A copy of who is open for us alone would be open for others, and they run again while it is read. */
static bool may_be_copied(const struct dump *d)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->processes[i].tracee.opened)
			return false;
	}
	return d->order->for_good == 0;
}

static int take_moment(struct dump *d, struct dump_report *r)
{
	int rc = may_be_copied(d) ? make_twins(d) : 0;

	if (rc < 0)
		return err_raise_sys(&r->err, rc, "copy the processes");
	r->n_twins = (uint32_t)rc;
	rc = 0;
	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		if (!d->processes[i].tracee.zombie)
			rc = dump_moment(d, &d->processes[i], &r->err);
	}
	if (rc == 0)
		rc = dump_shared_copy(d, &r->err);
	if (rc == 0 && d->order->for_good != 0) {
		rc = set_robust_lists(d, false);
		if (rc < 0)
			return err_raise_sys(&r->err, rc, "take the lists of robust locks away");
	}
	return rc;
}

/* The rest, which twins know as well. */
static int look_at_sources(struct dump *d, struct err *err)
{
	int rc = dump_ask_sources(d, err);

	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		struct dump_process *p = &d->processes[i];

		if (!p->tracee.zombie)
			rc = dump_creds(p, err);
		if (rc == 0 && !p->tracee.zombie)
			rc = dump_actions(p, err);
		if (rc == 0 && !p->tracee.zombie)
			rc = dump_memory(d, p, err);
		(void)IMAGE_ADD(&d->image, TABLE_PROCESSES, &p->out);
	}
	return rc;
}

static int make_plan(struct dump *d, int *ret_fd, struct err *err)
{
	struct plan_process *processes = NULL;
	struct plan head = { .n_leaves = d->order->n_leaves, .n_slots = d->order->n_slots };
	int rc = dump_order(d, &head, &processes, err);
	int32_t last = dump_last_number(d);

	/* numbers that have been used before, and may be remembered, do not come again at once */
	if (last > 0)
		head.last_pid = last;
	head.n_descriptions =
		image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description));
	head.first_description = dump_first_description(d);
	if (fault("live.dump.plan") < 0)
		head.n_slots = ~0U;
	if (rc == 0) {
		*ret_fd = plan_seal(&d->image, &head, processes);
		if (*ret_fd < 0)
			rc = err_raise_sys(err, *ret_fd, "write the plan");
	}
	free(processes);
	return rc;
}

/* Of processes that nothing comes after, the memory is read when it is written to disk, out of themselves. */
static int fill_template(const struct dump *d, int image, int plan, struct err *err)
{
	const uint32_t kind = d->order->for_good != 0 ? TEMPLATE_POINT : TEMPLATE_FILL;
	struct template_message m = { 0 };
	struct ucred template = { 0 };
	socklen_t n = sizeof(template);
	int rc;

	dump_hand_memories(d);
	rc = fdpass_send(DUMP_TEMPLATE_FD, &kind, sizeof(kind), (int[]){ image, plan }, 2);
	(void)getsockopt(DUMP_TEMPLATE_FD, SOL_SOCKET, SO_PEERCRED, &template, &n);
	if (rc == 0 && alive_receive(DUMP_TEMPLATE_FD, &m, sizeof(m), template.pid) != sizeof(m))
		rc = -EPIPE;
	if (rc == 0 && m.kind != TEMPLATE_DONE)
		rc = m.status < 0 ? m.status : -EPROTO;
	(void)close(DUMP_TEMPLATE_FD);
	if (rc < 0 && m.kind == TEMPLATE_FAILED && m.step[0] != '\0')
		return err_raise(err, ERR_INTERNAL, "the template refused the plan: %.*s",
			(int)sizeof(m.step), m.step);
	return rc < 0 ? err_raise_sys(err, rc, "copy the memory into the template") : 0;
}

/* For a test of who reads it: a descriptor of nothing. */
static void spoil(struct dump *d)
{
	struct image_fd *f;

	if (image_count(&d->image, TABLE_FDS, sizeof(*f)) == 0)
		return;
	f = image_row(&d->image, TABLE_FDS, 0, sizeof(*f));
	f->description = IMAGE_NONE;
}

/* The template has all that is kept of all processes; a suspension that it could not load again is refused while they stand still. */
static int check_mappings(const struct dump *d, struct err *err)
{
	const uint64_t room = dump_mappings_room(), n = image_mappings(&d->image);

	return n > room
		       ? err_raise(err, ERR_UNSUPPORTED,
				 "the processes have memory in %llu places, and one process can hold %llu of them (sysctl vm.max_map_count)",
				 (unsigned long long)n, (unsigned long long)room)
		       : 0;
}

static int write_out(struct dump *d, struct err *err)
{
	cleanup_fd int image = -1, plan = -1;
	int rc = check_mappings(d, err);

	if (rc == 0)
		rc = make_plan(d, &plan, err);
	if (rc < 0)
		return rc;
	if (fault("live.dump.image") < 0)
		spoil(d);
	image = image_seal(&d->image);
	if (image < 0)
		return err_raise_sys(err, image, "write the image");
	return fill_template(d, image, plan, err);
}

static void close_all(struct dump *d)
{
	for (size_t i = 0; i < d->n; i++)
		(void)!tracee_close(&d->processes[i].tracee);
}

/* Ours of what the programs have open: what they close from now on is closed. */
static void close_copies(struct dump *d)
{
	dump_copies_close(d);
	for (size_t i = 0; i < d->n_masters; i++)
		fd_close(&d->masters[i]);
}

static void release_all(struct dump *d)
{
	BUG_ON(d->n_copies > 0);
	struct tracee **all = calloc(d->n + 1, sizeof(struct tracee *));

	if (all == NULL)
		abort();
	for (size_t i = 0; i < d->n; i++)
		all[i] = &d->processes[i].tracee;
	if (d->no_robust_lists)
		(void)set_robust_lists(d, true);
	tracee_scratch_end(all, d->n);
	free(all);
	close_all(d);
	for (size_t i = 0; i < d->n; i++) {
		tracee_release(&d->processes[i].tracee);
		(void)fault("live.dump.released_one");
	}
}

/* They are waited for, and not reaped. */
static void end_twins(const struct dump *d)
{
	for (size_t i = 0; i < d->n; i++) {
		if (d->processes[i].twin.host != 0)
			(void)kill(d->processes[i].twin.host, SIGKILL);
	}
	for (size_t i = 0; i < d->n; i++) {
		siginfo_t info;

		if (d->processes[i].twin.host != 0)
			(void)waitid(P_PID, (id_t)d->processes[i].twin.host, &info,
				WEXITED | WNOWAIT | __WALL);
	}
}

static void forget_all(struct dump *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct dump_process *p = &d->processes[i];

		tracee_end(&p->twin);
		keep_fini(&p->kept);
		mappings_fini(&p->maps);
		buf_free(&p->smaps);
		free(p->pages.list);
		free(p->pages.guards);
		free(p->status);
		free(p->program);
		dump_ask_end(p);
	}
	shared_memories_fini(&d->shared);
	buf_free(&d->pieces);
	image_writer_fini(&d->image);
	buf_free(&d->places);
	buf_free(&d->numbers);
	buf_free(&d->owned);
	buf_free(&d->seized);
	dump_names_fini(d);
	dump_gone_fini(d);
	dump_filters_fini(d);
	dump_shares_fini(d);
	free(d->taken);
	free(d->known);
	free(d->ordered);
	free(d->terminals);
	dump_inotify_fini(d);
	free(d->epolls);
	free(d->sockets);
	free(d->resting);
	free(d->renamed);
	free(d->processes);
}

static int receive(void *to, size_t size, uint32_t kind)
{
	size_t none;
	ssize_t n = fdpass_recv(DUMP_KEEPER_FD, to, size, NULL, 0, &none);
	uint32_t got = 0;

	if (n >= (ssize_t)sizeof(got))
		memcpy(&got, to, sizeof(got));
	return n >= (ssize_t)sizeof(got) && got == kind ? 0 : -EPIPE;
}

static int receive_order(struct dump *d, struct dump_order *order)
{
	ssize_t n = fdpass_recv(DUMP_KEEPER_FD, order, sizeof(*order), d->masters,
		ARRAY_SIZE(d->masters), &d->n_masters);

	return n == (ssize_t)sizeof(*order) &&
			       (order->kind == DUMP_PREPARE || order->kind == DUMP_ORDER ||
				       order->kind == DUMP_EXAMINE || order->kind == DUMP_SETTLE) &&
			       order->n_pids <= TEMPLATE_PIDS_MAX &&
			       order->n_slots <= TEMPLATE_SLOTS_MAX &&
			       order->n_leaves <= TEMPLATE_LEAVES_MAX
		       ? 0
		       : -EPROTO;
}

static int report(const struct dump_report *r)
{
	return fdpass_send(DUMP_KEEPER_FD, r, sizeof(*r), NULL, 0);
}

/* With the numbers of open files. */
static int report_looked(const struct dump *d, const struct dump_report *r)
{
	cleanup_fd int fd = -1;

	if (d->numbers.n == 0 || buf_failed(&d->numbers))
		return report(r);
	fd = memfd_create("numbers", MFD_CLOEXEC);
	if (fd < 0 || file_write_all(fd, d->numbers.p, d->numbers.n) < 0)
		return report(r);
	return fdpass_send(DUMP_KEEPER_FD, r, sizeof(*r), &fd, 1);
}

static uint64_t phase(struct dump_report *r, enum dump_phase which, uint64_t since)
{
	uint64_t now = clock_now_ns();

	r->phase_ns[which] = now - since;
	return now;
}

/* The rest of the image, and the memory into the template. */
static int fill(struct dump *d, struct dump_report *r)
{
	uint64_t at = clock_now_ns();
	int rc = look_at_sources(d, &r->err);

	at = phase(r, DUMP_READ, at);
	if (rc == 0)
		rc = write_out(d, &r->err);
	(void)fault("live.dump.copied");
	(void)phase(r, DUMP_COPY, at);
	for (size_t i = 0; i < d->image.copies.n / sizeof(struct plan_copy); i++)
		r->copied_bytes += ((struct plan_copy *)(void *)d->image.copies.p)[i].length;
	return rc;
}

static int wait_for(uint32_t message)
{
	uint32_t kind;

	return receive(&kind, sizeof(kind), message);
}

static void note_reason(struct dump_report *r, int rc)
{
	if (rc < 0 && r->err.code == ERR_NONE)
		(void)err_raise(&r->err, ERR_INTERNAL, "the capture was given up");
	/* somebody was killed meanwhile, or the twin of one: another try finds another state */
	if (rc == -ESRCH)
		r->err.code = ERR_BUSY;
}

/* Up to where everything is known that only stopped processes can tell. Return: 0, -ECANCELED when the keeper does not want more, other -errno. */
static int capture(struct dump *d, struct dump_report *r)
{
	uint64_t at = clock_now_ns();
	int rc = dump_stop_all(d, &r->err);

	dump_holes_begin(d);
	at = phase(r, DUMP_SEIZE, at);
	(void)fault("live.dump.seized");
	/* the keeper may meet with something itself, and say RELEASE at once */
	if (rc == 0 && (report(r) < 0 || wait_for(DUMP_GO) < 0))
		rc = -ECANCELED;
	at = clock_now_ns();
	if (rc == 0)
		rc = look_at_all(d, &r->err);
	at = phase(r, DUMP_LOOK, at);
	(void)fault("live.dump.looked");
	if (rc == 0)
		rc = take_moment(d, r);
	if (rc == 0)
		rc = dump_timerfds_end(d, &r->err);
	(void)phase(r, DUMP_TWIN, at);
	(void)fault("live.dump.twins");
	r->n_processes = (uint32_t)d->n;
	for (size_t i = 0; i < d->n; i++)
		r->n_threads += (uint32_t)d->processes[i].tracee.n_threads;
	return rc;
}

/* --- given up --- */

static sigjmp_buf before_all;

static void on_given_up(attr_unused int signal)
{
	siglongjmp(before_all, 1);
}

/* Whom we have opened does not go on so, for all of its user to look at: it stays ours, and ends with us. Return: how many threads are not let go. */
static unsigned int close_and_give_up(struct tracee *t)
{
	bool refuses = t->opened && fault("live.dump.unclosed") < 0;
	int rc = -ETIMEDOUT;

	for (unsigned int tries = CLOSE_TRIES; rc < 0 && tries > 0; tries--) {
		tracee_calm(t);
		tracee_hurry(true);
		rc = refuses ? -ETIMEDOUT : tracee_close(t);
		tracee_hurry(false);
	}
	return rc < 0 ? (unsigned int)t->n_threads : tracee_give_up(t);
}

/*
 * The keeper has not heard of us for long: something hangs, in a call of ours or in one that a process makes for us, and we were torn out of it. Whatever was being done is left,
 * but for what would show in the processes.
 */
static int give_up(struct dump *d, struct dump_report *r)
{
	*r = (struct dump_report){ 0 };
	/* whose threads are not all known, and whom the seizer has stopped: it ends with us */
	if (d->order->suspended != 0 && d->n > d->n_stopped && d->n <= d->order->n_pids)
		r->n_stuck++;
	dump_stop_rest(d);
	for (size_t i = 0; i < d->n_pairs; i++)
		tracee_end(&d->pairs[i].helper); /* who waits for it goes on to the end */
	for (size_t i = 0; i < d->n; i++)
		tracee_calm(&d->processes[i].tracee);
	tracee_hurry(true);
	if (d->no_subreapers)
		(void)set_subreapers(d, true);
	if (d->no_robust_lists)
		(void)set_robust_lists(d, true);
	tracee_hurry(false);
	/* of what we were torn out of nobody knows what it had open: all but the way to the keeper */
	(void)!raw_close_range(DUMP_KEEPER_FD + 1, ~0U, 0);
	for (size_t i = 0; i < d->n; i++)
		r->n_stuck += close_and_give_up(&d->processes[i].tracee);
	r->let_go = 1;
	return err_raise(&r->err, ERR_TIMEOUT, "the capture was told to stop");
}

/* With twins the processes go on before their memory has been copied, else after. */
static int run(struct dump *d, struct dump_report *r)
{
	int rc = capture(d, r);
	uint64_t at;

	close_copies(d);
	if (rc == 0 && r->n_twins == 0)
		rc = fill(d, r);
	close_all(d); /* when it has heard, the keeper may start programs beside them */
	note_reason(r, rc);
	/* of a refusal, too: before anybody goes on the keeper takes back what it has lent */
	if (rc != -ECANCELED && (report_looked(d, r) < 0 || wait_for(DUMP_RELEASE) < 0))
		rc = -ECANCELED;
	at = clock_now_ns();
	release_all(d);
	r->let_go = 1;
	alive_end();
	(void)phase(r, DUMP_RELEASE_PHASE, at);
	if (rc == 0)
		rc = report(r);
	if (rc == 0 && r->n_twins > 0)
		rc = fill(d, r);
	return rc;
}

/* The keeper may interrupt it when something hangs. */
static int run_while_wanted(struct dump *d, struct dump_report *r)
{
	struct sigaction given_up = { .sa_handler = on_given_up },
			 ignored = { .sa_handler = SIG_IGN };
	int rc;

	if (sigsetjmp(before_all, 1) != 0) {
		(void)sigaction(SIGTERM, &ignored, NULL);
		return give_up(d, r);
	}
	(void)sigaction(SIGTERM, &given_up, NULL);
	rc = run(d, r);
	(void)sigaction(SIGTERM, &ignored, NULL);
	return rc;
}

/* What is seen by one look at each process that runs. Who is gone is nobody's loss. */
static void each_running(
	struct dump *d, void (*look)(struct dump *d, pid_t host, const struct mappings *maps))
{
	for (uint32_t i = 0; i < d->order->n_pids; i++) {
		struct mappings maps = { 0 };
		char path[32];

		(void)snprintf(path, sizeof(path), "/proc/%d/maps", d->order->pids[i]);
		if (mappings_read(AT_FDCWD, path, &maps) == 0)
			look(d, d->order->pids[i], &maps);
		mappings_fini(&maps);
	}
}

static void look_ahead(struct dump *d, pid_t host, const struct mappings *maps)
{
	dump_shared_see(d, host, maps);
	dump_shared_guess(d, host, maps);
	if (d->order->for_good == 0)
		dump_gather(host, maps, &d->gather_until_ns);
}

/* Is there shared memory of which only page tables tell? */
static bool lacks_some(const struct dump *d)
{
	for (size_t i = 0; i < d->shared.n; i++) {
		if (!d->shared.list[i].is_lent)
			return true;
	}
	return false;
}

/* Shared memory is looked at while its owners run: not for the bytes, which change, but to have the pages when they stand still. */
static void prepare(struct dump *d, struct dump_report *r)
{
	dump_holes_begin(d);
	each_running(d, look_ahead);
	if (fault("live.dump.hang.prepare") < 0)
		(void)pause();
	dump_lend(d);
	if (lacks_some(d))
		each_running(d, dump_holes_known);
	shared_memories_warm(&d->shared);
	dump_inotify_foresee(d);
	shared_memories_stale(&d->shared);
	dump_filtered(d->order, r);
}

static void raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	dump_watches_room();
}

/* It comes behind the terminals. */
static int take_learned(struct dump *d)
{
	if (d->order->learned == 0)
		return 0;
	if (d->n_masters == 0)
		return -EPROTO;
	return dump_filters_load(d, d->masters[--d->n_masters]);
}

int dump_main(void)
{
	static struct dump_examination examination;
	static struct dump_order order;
	/* not on the stack: see give_up() */
	static struct dump_report r;
	static struct dump d = { .order = &order,
		.places = BUF_INIT(64U << 20),
		.numbers = BUF_INIT(DUMP_NUMBERS_MAX),
		.pieces = BUF_INIT(1U << 30),
		.owned = BUF_INIT(64U << 20),
		.seized = BUF_INIT(SEIZED_MAX),
		.foreseen = BUF_INIT(64U << 20) };
	int rc;

	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	raise_files();
	urgency_set(true); /* nothing of the sandbox runs until it has done its part */
	image_writer_init(&d.image);
	if (receive_order(&d, &order) < 0)
		return 1;
	if (order.kind == DUMP_SETTLE) {
		dump_settle(&order);
		return report(&r) < 0;
	}
	if (order.kind != DUMP_EXAMINE)
		alive_begin(DUMP_KEEPER_FD);
	if (order.kind == DUMP_PREPARE) {
		prepare(&d, &r);
		if (report(&r) < 0 || receive_order(&d, &order) < 0)
			return 1;
		shared_memories_go(&d.shared); /* all are frozen */
	}
	if (order.kind == DUMP_EXAMINE) {
		if (take_learned(&d) < 0)
			return 1;
		dump_examine(&d, &examination);
		forget_all(&d);
		return fdpass_send(DUMP_KEEPER_FD, &examination, sizeof(examination), NULL, 0) < 0;
	}
	d.processes = calloc(order.n_pids + 1, sizeof(*d.processes));
	if (d.processes == NULL)
		abort();
	if (order.suspended != 0) {
		tracee_take_over();
		rc = dump_filters_load(&d, DUMP_FILTERS_FD);
	} else {
		rc = take_learned(&d);
	}
	if (rc < 0)
		return 1;
	rc = run_while_wanted(&d, &r);
	note_reason(&r, rc);
	/* twins stay until the keeper has seen that they are still what was copied, and count as processes until it has taken back what it has lent for them: then it closes the socket */
	if (report(&r) == 0 && wait_for(DUMP_END) == 0) {
		end_twins(&d);
		if (report(&r) == 0)
			(void)!wait_for(DUMP_END);
	}
	forget_all(&d);
	return rc == 0 ? 0 : 1;
}

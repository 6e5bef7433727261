/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/forker.h"
#include "base/str.h"
#include "checkpoint/capturer.h"
#include "sys/confine.h"
#include "sys/fdpass.h"
#include "sys/feature.h"
#include "sys/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define ANSWER_TIMEOUT_MS 60000

struct descriptors {
	int list[FDPASS_MAX];
	size_t n;
	bool too_many;
};

static void add(struct descriptors *d, const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (d->n == FDPASS_MAX)
			d->too_many = true;
		else
			d->list[d->n++] = fds[i];
	}
}

static int filter_file(const struct fork_place *place)
{
	cleanup_fd int fd = memfd_create("filter", MFD_CLOEXEC);
	int rc = fd < 0 ? -errno
			: file_write_all(
				  fd, place->filter, place->n_filter * sizeof(*place->filter));

	if (rc == 0)
		rc = file_write_all(fd, place->told, place->n_told * sizeof(*place->told));
	return rc < 0 ? rc : TAKE_FD(fd);
}

static int send_order(int sock, const struct fork_place *place)
{
	struct template_fork order = { .kind = TEMPLATE_FORK,
		.has_u1 = place->u1 >= 0,
		.has_timens = place->timens >= 0,
		.has_cgroup = place->keeper_cgroup >= 0,
		.has_loader_cgroup = place->loader_cgroup >= 0,
		.n_tasks = (uint32_t)place->n_tasks,
		.n_leaves = (uint32_t)place->n_leaves,
		.n_slots = (uint32_t)place->n_slots,
		.filter_bytes = (uint32_t)(place->n_filter * sizeof(*place->filter)),
		.told_bytes = (uint32_t)(place->n_told * sizeof(*place->told)),
		.told_error = (uint32_t)place->told_error,
		.told_listen = place->listen,
		.nameless = !feature_withheld(FEATURE_OVERLAY_TMPFILE),
		.counts = feature_withheld(FEATURE_TIMER_IDS),
		.learns = place->learns,
		.single_id = place->single_id,
		.hold = 1, /* those that are not to be held are told to go at once */
		.wipe = place->wipe };
	cleanup_fd int filter = filter_file(place);
	cleanup_fd int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct descriptors d = { .n = 0 };
	struct confine_rights rights = { 0 };
	int rc = filter < 0 ? filter : place->landlock ? confine_landlock_rights(&rights) : 0;

	if (rc < 0)
		return rc;
	order.landlock_size = rights.size;
	order.landlock_files = rights.files;
	order.landlock_scoped = rights.scoped;
	add(&d, &place->init_pidfd, 1);
	add(&d, &place->pids, 1);
	add(&d, &place->cgroups, 1);
	add(&d, &place->u1, place->u1 >= 0);
	add(&d, &place->u2, 1);
	add(&d, &place->timens, place->timens >= 0);
	add(&d, &filter, 1);
	add(&d, &program, 1);
	add(&d, &place->starter, 1);
	add(&d, &place->keeper_cgroup, place->keeper_cgroup >= 0);
	add(&d, &place->loader_cgroup, place->loader_cgroup >= 0);
	add(&d, place->tasks, place->n_tasks);
	add(&d, place->leaves, place->n_leaves);
	add(&d, place->slots, place->n_slots);
	return d.too_many ? -E2BIG : fdpass_send(sock, &order, sizeof(order), d.list, d.n);
}

/** struct talk - with the template, and T'. */
struct talk {
	int sock, parent; /* pidfd of T', -1 before it has introduced itself */
	const struct fork_listening *listening;
	int *listener; /* -1 = there is none yet, or none any more */
};

/* Return: as of poll(2), of the first two. */
static int wait_for_word(const struct talk *t, struct pollfd p[3])
{
	int n;

	for (;;) {
		p[0] = (struct pollfd){ .fd = t->sock, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = t->parent, .events = POLLIN };
		p[2] = (struct pollfd){ .fd = *t->listener, .events = POLLIN };
		n = poll(p, 3, ANSWER_TIMEOUT_MS);
		if (n <= 0 || p[0].revents != 0 || p[1].revents != 0)
			return n;
		t->listening->hear(t->listening->ctx, t->listener);
	}
}

/* What could not be made. */
static int say_failed(struct template_message *m, struct err *err)
{
	m->step[sizeof(m->step) - 1] = '\0';
	str_utf8_tidy(m->step);
	if (m->status == -EBADMSG)
		return err_raise(err, ERR_CORRUPT,
			"%s: what lies on disk of it was changed, or the disk does not give it",
			m->step);
	if (m->status == TEMPLATE_LOCKED)
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"a program holds a lock of '%s', which somebody else has locked: a file outside of the sandbox is one for its source and all its forks",
				m->step),
			"let it go, or stop who has it; a rewind or a resume of the sandbox takes its own lock again");
	if (m->status == TEMPLATE_REPLACED)
		return err_hint(err,
			err_raise(err, ERR_CONFLICT,
				"'%s' is not the file any more that a program has mapped: it was replaced or changed on the machine since, and what the program has in memory goes with the one that was there",
				m->step),
			"--files-only goes on without the programs; or bring the file back as it was, with its time of change");
	if (m->step[0] == '\0')
		return err_raise(
			err, ERR_INTERNAL, "the template refused: %s", strerrordesc_np(-m->status));
	return err_raise(err, ERR_INTERNAL, "process %d: %s: %s", m->pid, m->step,
		strerrordesc_np(-m->status));
}

/* The next message. @ret: the descriptor that came along, NULL = none is expected. */
static int receive(const struct talk *t, struct template_message *m, int *ret, struct err *err)
{
	struct pollfd p[3];
	ssize_t n = wait_for_word(t, p);
	size_t got = 0;

	if (n > 0 && p[0].revents == 0)
		return err_raise(err, ERR_INTERNAL, "the parent of the fork was killed");
	if (n > 0)
		n = fdpass_recv(t->sock, m, sizeof(*m), ret, ret != NULL ? 1 : 0, &got);
	if (n != (ssize_t)sizeof(*m))
		return err_raise(err, ERR_INTERNAL, "the template gave no answer (%zd)", n);
	return m->kind == TEMPLATE_FAILED ? say_failed(m, err) : 0;
}

/* T' says who it is. Return: its pidfd, or an error. */
static int meet_parent(const struct talk *t, int32_t *ret_pid, struct err *err)
{
	struct template_message m = { .pid = 0 };
	int parent = -1, rc = receive(t, &m, &parent, err);

	if (rc == 0 && (m.kind != TEMPLATE_BEGUN || parent < 0))
		rc = err_raise(err, ERR_INTERNAL, "the template said something unexpected");
	if (rc < 0)
		fd_close(&parent);
	*ret_pid = m.pid;
	return rc < 0 ? rc : parent;
}

/* The next message but for that all go. */
static int receive_news(const struct talk *t, struct template_message *m, int *ret, struct err *err)
{
	int rc = receive(t, m, ret, err);

	if (rc < 0 || m->kind != TEMPLATE_GOING)
		return rc;
	t->listening->going(t->listening->ctx);
	return receive(t, m, ret, err);
}

/* What comes before all are complete. */
static int collect(const struct talk *t, struct forked *ret, struct err *err)
{
	for (;;) {
		struct template_message m;
		cleanup_fd int fd = -1;
		int rc = receive(t, &m, &fd, err);

		if (rc < 0)
			return rc;
		if (m.kind == TEMPLATE_READY)
			return 0;
		if (m.kind == TEMPLATE_TELLS && fd >= 0 && ret->listener < 0) {
			ret->listener = TAKE_FD(fd);
			continue;
		}
		if (m.kind != TEMPLATE_ROOT || ret->n_roots == ARRAY_SIZE(ret->roots))
			return err_raise(
				err, ERR_INTERNAL, "the template said something unexpected");
		ret->roots[ret->n_roots++] =
			(struct fork_root){ .host = m.pid, .inside = m.inside };
	}
}

/* @ret_loading: as of forker_go(). */
static int let_go(const struct talk *t, bool *ret_loading, struct err *err)
{
	struct template_message m = { .kind = TEMPLATE_GO };
	int rc = fdpass_send(t->sock, &m, sizeof(m), NULL, 0);

	rc = rc < 0 ? err_raise_sys(err, rc, "let the fork go") : receive_news(t, &m, NULL, err);
	*ret_loading = rc == 0 && m.status != 0;
	return rc;
}

int forker_go(int sock, int parent, const struct fork_listening *listening, int *listener,
	bool *ret_loading, struct err *err)
{
	const struct talk talk = { sock, parent, listening, listener };

	return let_go(&talk, ret_loading, err);
}

int forker_fork(const struct fork_place *place, struct forked *ret, struct err *err)
{
	cleanup_fd int sock = template_connect(place->template_path, err);
	struct talk talk = { sock, -1, &place->listening, &ret->listener };
	bool loading;
	int rc;

	*ret = (struct forked){ .parent = -1, .listener = -1 };
	if (sock < 0)
		return sock;
	rc = send_order(sock, place);
	if (rc < 0)
		return err_raise_sys(err, rc, "order the fork");
	ret->parent = talk.parent = meet_parent(&talk, &ret->pid, err);
	rc = ret->parent < 0 ? ret->parent : collect(&talk, ret, err);
	if (rc == 0)
		place->listening.complete(place->listening.ctx);
	if (rc == 0 && !place->hold)
		rc = let_go(&talk, &loading, err);
	if (rc < 0) {
		fd_close(&ret->parent);
		fd_close(&ret->listener);
		return rc;
	}
	return TAKE_FD(sock);
}

int forker_hear(int sock, struct template_message *ret)
{
	size_t none;
	ssize_t n = fdpass_recv(sock, ret, sizeof(*ret), NULL, 0, &none);

	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(*ret))
		return n < 0 ? (int)n : -EPROTO;
	return ret->kind == TEMPLATE_ENDED || ret->kind == TEMPLATE_TOUCHED ||
			       ret->kind == TEMPLATE_LOADED || ret->kind == TEMPLATE_LOST
		       ? 1
		       : -EPROTO;
}

void forker_reap(int sock, int32_t pid)
{
	struct template_message m = { .kind = TEMPLATE_REAP, .pid = pid };

	(void)!fdpass_send(sock, &m, sizeof(m), NULL, 0);
}

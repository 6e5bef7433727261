/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/carry.c - a line of JSON, then bytes in the order in which the line announces them. Written and read by keepers alone, with our own version of the
 * program: it never leaves the machine.
 */
#include "sandbox/carry.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

/* --- slots --- */

static int add_slot(struct dump_order *order, int fd)
{
	struct stat st;

	if (fd < 0)
		return 0;
	if (order->n_slots == TEMPLATE_SLOTS_MAX)
		return -E2BIG;
	if (fstat(fd, &st) < 0)
		return -errno;
	order->slots[order->n_slots++] =
		(struct dump_slot){ .device = st.st_dev, .inode = st.st_ino };
	return 0;
}

static int add_terminal(struct dump_order *order, int master)
{
	unsigned int number;
	int rc = add_slot(order, master);

	if (rc < 0)
		return rc;
	if (ioctl(master, TIOCGPTN, &number) < 0)
		return -errno;
	order->slots[order->n_slots - 1].is_terminal = 1;
	order->slots[order->n_slots - 1].number = number;
	return 0;
}

int carry_slots(const struct list *execs, struct dump_order *order, int *masters)
{
	int n = 0;

	list_for_each (execs, pos, next) {
		const struct exec *e = list_entry(pos, struct exec, node);
		int rc = 0;

		if (e->state != EXEC_RUNNING)
			continue;
		if (e->tty && e->out >= 0) {
			rc = add_terminal(order, e->out);
			masters[n++] = e->out;
			if (rc < 0)
				return rc;
			continue;
		}
		rc = add_slot(order, e->in);
		if (rc == 0)
			rc = add_slot(order, e->out);
		if (rc == 0)
			rc = add_slot(order, e->err);
		if (rc < 0)
			return rc;
	}
	return n;
}

/* --- saving --- */

/* All that a terminal's master holds was read into the ring, unless somebody attached there is too slow. */
static int check_terminal(int master)
{
	struct pollfd p = { .fd = master, .events = POLLIN };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0 ? -EBUSY : 0;
}

/* What waits in a pipe, left where it is. @fd: either end. */
static int peek(int fd, struct buf *out)
{
	char path[32];
	cleanup_fd int again = -1;
	int copy[2], waiting = 0, rc = 0;
	char *room;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (again < 0 || ioctl(again, FIONREAD, &waiting) < 0)
		return -errno;
	if (waiting == 0)
		return 0;
	if (pipe2(copy, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	(void)fcntl(copy[1], F_SETPIPE_SZ, fcntl(again, F_GETPIPE_SZ));
	room = buf_room(out, (size_t)waiting);
	if (room == NULL || tee(again, copy[1], (size_t)waiting, SPLICE_F_NONBLOCK) != waiting ||
		read(copy[0], room, (size_t)waiting) != waiting)
		rc = -EIO;
	else
		buf_grown(out, (size_t)waiting);
	(void)close(copy[0]);
	(void)close(copy[1]);
	return rc;
}

static void add_run(json_t *runs, enum ring_stream stream, size_t n)
{
	(void)json_array_append_new(runs, json_pack("[i,I]", (int)stream, (json_int_t)n));
}

static int save_output(const struct exec *e, json_t *runs, struct buf *bytes)
{
	const char *from;
	enum ring_stream stream;
	size_t n, before;
	int rc = 0;

	for (uint64_t at = e->ring.start;
		(n = ring_read(&e->ring, at, SIZE_MAX, &stream, &from)) > 0; at += n) {
		buf_add(bytes, from, n);
		add_run(runs, stream, n);
	}
	if (e->tty && e->out >= 0)
		return check_terminal(e->out);
	before = bytes->n;
	if (e->out >= 0)
		rc = peek(e->out, bytes);
	if (bytes->n > before)
		add_run(runs, RING_STDOUT, bytes->n - before);
	before = bytes->n;
	if (rc == 0 && e->err >= 0)
		rc = peek(e->err, bytes);
	if (bytes->n > before)
		add_run(runs, RING_STDERR, bytes->n - before);
	return rc;
}

static int inside_pid(pid_t host, int32_t *ret)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	const char *line, *last;
	char path[32];
	int rc;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", host);
	rc = file_read_at(AT_FDCWD, path, &text);
	line = rc < 0 ? NULL : strstr(buf_cstr(&text), "\nNSpid:");
	if (line == NULL || strstr(buf_cstr(&text), "\nState:\tZ") != NULL)
		return -EAGAIN;
	text.p[(size_t)(line - text.p) + 1 + strcspn(line + 1, "\n")] = '\0';
	last = strrchr(line, '\t');
	*ret = last != NULL ? (int32_t)strtol(last, NULL, 10) : 0;
	return *ret > 0 ? 0 : -EINVAL;
}

static json_int_t terminal_number(const struct exec *e)
{
	unsigned int number;

	return e->out >= 0 && ioctl(e->out, TIOCGPTN, &number) == 0 ? (json_int_t)number : -1;
}

static int save_exec(const struct exec *e, int *slot, json_t *list, struct buf *bytes)
{
	json_t *runs = json_array(), *o;
	size_t before, waits;
	int32_t inside = 0;
	uint64_t now = clock_now_ns();
	int rc = inside_pid(e->pid, &inside);

	if (rc == 0)
		rc = save_output(e, runs, bytes);
	before = bytes->n;
	if (rc == 0 && e->in >= 0)
		rc = peek(e->in, bytes);
	waits = bytes->n - before; /* in its pipe: not taken there, where it is written anew */
	buf_add(bytes, e->input.p, e->input.n);
	o = json_pack("{s:s,s:i,s:s,s:i,s:I,s:I,s:o,s:I,s:I,s:b,s:I,s:I,s:b}", "exec", e->id,
		"channel", e->channel, "leaf", e->leaf, "pid", inside, "ring_max",
		(json_int_t)e->ring.max, "ring_start", (json_int_t)e->ring.start, "runs", runs,
		"input", (json_int_t)(bytes->n - before), "input_taken",
		(json_int_t)(e->input_taken - (waits < e->input_taken ? waits : e->input_taken)),
		"input_closed", (int)e->input_closed, "deadline_ms",
		(json_int_t)(e->deadline_ns > now ? (e->deadline_ns - now) / NS_PER_MS + 1
						  : e->deadline_ns != 0),
		"started_wall_ns", (json_int_t)e->started_wall_ns, "timed_out", (int)e->timed_out);
	if (o == NULL)
		abort();
	if (e->tty)
		(void)json_object_set_new(o, "terminal", json_integer(terminal_number(e)));
	(void)json_object_set_new(o, "shown", json_integer((json_int_t)e->shown));
	if (spill_is_open(&e->spill))
		(void)json_object_set_new(o, "spill_max", json_integer((json_int_t)e->spill.max));
	(void)json_object_set_new(o, "in", json_integer(e->in >= 0 ? (*slot)++ : -1));
	(void)json_object_set_new(o, "out", json_integer(e->out >= 0 ? (*slot)++ : -1));
	(void)json_object_set_new(o, "err", json_integer(e->err >= 0 ? (*slot)++ : -1));
	(void)json_array_append_new(list, o);
	return rc;
}

int carry_save(const struct list *execs, const struct dump_order *order,
	const struct clocks *clocks, const struct first *first, json_t *numbers, struct buf *out)
{
	cleanup_buf struct buf bytes = BUF_INIT(CARRY_MAX);
	json_t *list = json_array(), *leaves = json_array(), *head;
	cleanup_free char *text = NULL;
	int slot = 0, rc = 0;

	list_for_each (execs, pos, next) {
		const struct exec *e = list_entry(pos, struct exec, node);

		if (rc == 0 && e->state == EXEC_RUNNING)
			/* who is on its way out is in no group any more, and not dead yet: nothing of it was captured */
			rc = dump_order_has(order, e->pid) ? save_exec(e, &slot, list, &bytes)
							   : -EAGAIN;
	}
	if (rc == 0 && slot != (int)order->n_slots)
		rc = -EAGAIN;
	for (uint32_t i = 0; i < order->n_leaves; i++)
		(void)json_array_append_new(leaves, json_string(order->leaves[i]));
	head = json_pack("{s:o,s:o,s:o,s:o,s:O*}", "execs", list, "leaves", leaves, "clocks",
		clocks_save(clocks), "first", first_describe(first), "numbers", numbers);
	text = json_dumps(head, JSON_COMPACT);
	json_decref(head);
	buf_str(out, text);
	buf_char(out, '\n');
	buf_add(out, bytes.p, bytes.n);
	return rc < 0 ? rc : buf_failed(out) || buf_failed(&bytes) ? -E2BIG : 0;
}

/* --- loading --- */

static int64_t number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

/* A pipe as the program had it: our end stays with the exec, its end becomes the slot. */
static int load_pipe(const struct box *box, struct carried *c, const json_t *o, const char *key,
	bool ours_reads, int *ours)
{
	int64_t slot = number(o, key);
	int ends[2] = { -1, -1 }, rc;

	if (slot < 0)
		return 0;
	if (slot >= TEMPLATE_SLOTS_MAX || (size_t)slot != c->n_slots)
		return -EINVAL;
	rc = exec_pipe(box, ends);
	if (rc < 0) {
		fd_close(&ends[0]);
		fd_close(&ends[1]);
		return rc;
	}
	*ours = ends[ours_reads ? 0 : 1];
	c->slots[c->n_slots++] = ends[ours_reads ? 1 : 0];
	return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* The slot is its master too: the program's side is opened by name. */
static int load_terminal(const struct box *box, struct carried *c, const json_t *o, struct exec *e)
{
	int64_t number_of = number(o, "terminal"), slot = number(o, "out");

	e->tty = true;
	if (number_of < 0 || slot < 0)
		return 0; /* closed */
	if (slot >= TEMPLATE_SLOTS_MAX || (size_t)slot != c->n_slots)
		return -EINVAL;
	e->out = box_terminal_numbered(box, (uint32_t)number_of);
	if (e->out < 0)
		return e->out;
	c->slots[c->n_slots] = fcntl(e->out, F_DUPFD_CLOEXEC, 3);
	return c->slots[c->n_slots++] < 0 ? -errno : 0;
}

static int load_pipes(const struct box *box, struct carried *c, const json_t *o, struct exec *e)
{
	int rc = load_pipe(box, c, o, "in", false, &e->in);

	if (rc == 0)
		rc = load_pipe(box, c, o, "out", true, &e->out);
	return rc == 0 ? load_pipe(box, c, o, "err", true, &e->err) : rc;
}

static int load_bytes(struct exec *e, const json_t *o, const char **at, const char *end)
{
	int64_t input = number(o, "input");
	const json_t *run;
	size_t i;

	e->ring.start = e->ring.end = (uint64_t)number(o, "ring_start");
	json_array_foreach (json_object_get(o, "runs"), i, run) {
		int64_t n = json_integer_value(json_array_get(run, 1));

		if (n < 0 || n > end - *at)
			return -EINVAL;
		ring_add(&e->ring, (enum ring_stream)json_integer_value(json_array_get(run, 0)),
			*at, (size_t)n);
		*at += n;
	}
	if (input < 0 || input > end - *at)
		return -EINVAL;
	buf_add(&e->input, *at, (size_t)input);
	*at += input;
	return 0;
}

/* What an earlier keeper wrote behind the instant is taken back; also of one that keeps no output on disk, but had it written when it stopped. */
static int load_spill(const struct box *box, const json_t *o, struct exec *e)
{
	const json_t *max = json_object_get(o, "spill_max");
	int rc = spill_resume(&e->spill, box, e->id,
		max != NULL ? (uint64_t)json_integer_value(max) : UINT64_MAX);

	if (rc == 0)
		rc = spill_rewind(&e->spill, e->ring.end);
	if (max == NULL)
		spill_close(&e->spill);
	return rc == -ENOENT ? 0 : rc;
}

static int load_exec(
	const struct box *box, struct carried *c, const json_t *o, const char **at, const char *end)
{
	struct exec *e = exec_blank((size_t)number(o, "ring_max"));
	int64_t deadline_ms = number(o, "deadline_ms");
	int rc = 0;

	list_append(&c->execs, &e->node);
	if (c->n_execs == TEMPLATE_SLOTS_MAX ||
		str_copy(e->id, sizeof(e->id), json_string_value(json_object_get(o, "exec"))) < 0 ||
		str_copy(e->leaf, sizeof(e->leaf), json_string_value(json_object_get(o, "leaf"))) <
			0)
		return -EINVAL;
	c->inside[c->n_execs++] = (int32_t)number(o, "pid");
	e->channel = (uint16_t)number(o, "channel");
	e->input_taken = (uint64_t)number(o, "input_taken");
	e->input_closed = json_is_true(json_object_get(o, "input_closed"));
	e->timed_out = json_is_true(json_object_get(o, "timed_out"));
	e->started_wall_ns = (uint64_t)number(o, "started_wall_ns");
	e->deadline_ns = deadline_ms > 0 ? clock_now_ns() + (uint64_t)deadline_ms * NS_PER_MS : 0;
	rc = json_object_get(o, "terminal") != NULL ? load_terminal(box, c, o, e)
						    : load_pipes(box, c, o, e);
	if (rc == 0)
		rc = load_bytes(e, o, at, end);
	/* of one who does not say it: somebody will have seen it */
	e->shown = json_object_get(o, "shown") != NULL ? (uint64_t)number(o, "shown") : e->ring.end;
	return rc == 0 ? load_spill(box, o, e) : rc;
}

static int load_leaves(struct carried *c, const json_t *leaves)
{
	const json_t *name;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)leaves, i, name) {
		if (i >= TEMPLATE_LEAVES_MAX ||
			str_copy(c->leaves[i], DUMP_LEAF_SIZE, json_string_value(name)) < 0)
			return -EINVAL;
		c->n_leaves++;
	}
	return 0;
}

/* The line of JSON. @at: what is behind it. */
static json_t *load_head(const struct buf *in, const char **at)
{
	const char *text = buf_cstr(in), *newline = strchr(text, '\n');

	*at = newline != NULL ? newline + 1 : text + in->n;
	return newline == NULL ? NULL : json_loadb(text, (size_t)(newline - text), 0, NULL);
}

/* New reference. */
static json_t *member(const struct buf *in, const char *name)
{
	const char *at;
	json_t *head = load_head(in, &at), *found = json_incref(json_object_get(head, name));

	json_decref(head);
	return found;
}

json_t *carry_clocks(const struct buf *in)
{
	return member(in, "clocks");
}

json_t *carry_numbers(const struct buf *in)
{
	return member(in, "numbers");
}

int carry_load(const struct box *box, const struct buf *in, struct carried *c, struct err *err)
{
	const char *at, *end = buf_cstr(in) + in->n;
	json_t *head = load_head(in, &at), *o;
	size_t i;
	int rc;

	*c = (struct carried){ 0 };
	list_init(&c->execs);
	rc = head == NULL ? -EINVAL : load_leaves(c, json_object_get(head, "leaves"));
	json_array_foreach (json_object_get(head, "execs"), i, o) {
		if (rc == 0)
			rc = load_exec(box, c, o, &at, end);
	}
	json_decref(head);
	return rc < 0 ? err_raise_sys(err, rc, "take over the programs of sandbox '%s'", box->id)
		      : 0;
}

void carried_fini(struct carried *c)
{
	for (size_t i = 0; i < c->n_slots; i++)
		fd_close(&c->slots[i]);
	list_for_each (&c->execs, pos, next)
		exec_free(list_entry(pos, struct exec, node));
}

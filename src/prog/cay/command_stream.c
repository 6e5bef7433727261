/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The poll loop between our standard streams and a command's stream of frames.
 *
 * Invariants: (1) never more than PENDING_MAX bytes of output wait here: the socket is not read meanwhile, and the server sends no more
 * than its window; (2) nothing is written with a call that may block where a signal is waited for: pipes and terminals take
 * PIPE_BUF bytes when poll says they are writable, and terminals, which may have room for less, get it through a description of our own that does not block; (3) our standard streams keep their flags, others share them.
 * Failure story: when standard output goes away the command gets SIGPIPE, as it would without us, and the rest of its output is
 * dropped; what could not be written for another reason (a full disk) is our failure, whatever became of the command. When the server goes away the command goes on in its keeper: we come back to the next server with the offset that we have, learn how much of the input
 * arrived and send the rest again; nothing is lost and nothing comes twice.
 */
#include "prog/cay/command_stream.h"
#include "base/str.h"
#include "codec/frame.h"
#include "io/terminal.h"
#include "prog/cay/old_output.h"
#include "prog/cay/sandbox_spec.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define PENDING_MAX (256U << 10) /* output waiting for our standard streams */
#define INPUT_MAX \
	(256U << 10) /* input sent and not taken by the command yet: signals must not wait behind more */
#define REJOINS_MAX 100         /* connections one after the other that bring nothing */
#define ACK_BYTES   (64U << 10) /* tell the server after so many bytes that they were taken */
#define READ_SIZE   (60U << 10) /* with the NUL of a struct buf still one small allocation */
#define LOOK_MS     200         /* in the background: how often it is looked whether we still are */

struct sink {
	int fd;
	struct buf wait;
	size_t used;
	bool file; /* takes any amount at once */
	bool own;  /* the descriptor is ours alone */
	bool gone; /* its reader went away */
};

struct stream {
	struct cli *cli;
	const struct stream_options *o;
	struct stream_result *r;
	int fd, signals;
	sigset_t
		blocked; /* while there is no server: what our caller blocks, and what is meant for the command alone */
	struct buf in, out;
	size_t out_used, unacked;
	size_t stale;    /* of what waits in the sinks: it came over connections that are gone */
	uint64_t offset; /* of the next byte of output */
	struct old_output old; /* what of it was shown before */
	struct buf sent;       /* input that the command has not taken yet, */
	uint64_t sent_from;    /* which begins at this byte of all */
	uint64_t
		retaken; /* what the command takes before that: it has gone back to an earlier instant */
	bool counted;    /* @sent_from counts what others had sent before us, too */
	bool input_over; /* our standard input has ended, and that was sent */
	bool asking;     /* after coming back: how much input arrived is not known yet */
	struct sink sinks[2];
	bool together; /* both streams are one file: one sink keeps their order */
	bool terminal; /* our standard input is one: who sits there may leave by keys */
	bool input;    /* our standard input is read */
	bool eof;
	bool over;              /* nothing is left but to write what has come */
	unsigned int rejoins;   /* how often we came back, since that last brought something */
	unsigned int asked;     /* how often we were asked to end */
	bool away;              /* its sandbox is suspended: nothing moves until that is resumed */
	bool line_start, tilde; /* for the detach keys */
};

void stream_result_fini(struct stream_result *r)
{
	json_decref(r->sandbox);
	json_decref(r->exec);
	json_decref(r->status);
	json_decref(r->summary);
}

bool stream_wants_input(void)
{
	struct stat st;

	if (fstat(STDIN_FILENO, &st) < 0)
		return false;
	if (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode))
		return true;
	if (!S_ISCHR(st.st_mode) || st.st_rdev == makedev(1, 3))
		return false;
	return !isatty(STDIN_FILENO) || terminal_foreground(STDIN_FILENO);
}

/* What our caller has us ignore stays ignored (nohup, `&` in a script): Linux keeps a blocked signal for us all the same. */
static bool is_ignored(int sig)
{
	struct sigaction now;

	return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static int signals_open(sigset_t *ret_before)
{
	static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP,
		SIGWINCH };
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(caught); i++) {
		if (caught[i] == SIGWINCH || !is_ignored(caught[i]))
			(void)sigaddset(&set, caught[i]);
	}
	(void)sigprocmask(SIG_BLOCK, &set, ret_before);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void send_u32(struct stream *s, enum frame_type type, uint32_t v)
{
	unsigned char p[4];

	frame_put_u32(p, v);
	frame_encode(&s->out, type, 0, p, sizeof(p));
}

static void send_size(struct stream *s)
{
	unsigned char p[4];
	uint16_t rows, columns;

	terminal_size(STDIN_FILENO, &rows, &columns);
	frame_put_u16(p, rows);
	frame_put_u16(p + 2, columns);
	frame_encode(&s->out, FRAME_RESIZE, 0, p, sizeof(p));
}

/* Hands over what waits for the server, as much as it takes now. Return: 0 or -errno. */
static int flush_out(struct stream *s)
{
	while (s->out_used < s->out.n) {
		ssize_t n = send(s->fd, s->out.p + s->out_used, s->out.n - s->out_used,
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		s->out_used += (size_t)n;
	}
	buf_reset(&s->out);
	s->out_used = 0;
	return 0;
}

/* As the signal does it to any program: nobody is stopped where no shell could continue it (an orphaned process group), as SIGSTOP would. */
static void stop_here(void)
{
	sigset_t stop, before;

	(void)sigemptyset(&stop);
	(void)sigaddset(&stop, SIGTSTP);
	(void)raise(SIGTSTP);
	(void)sigprocmask(SIG_UNBLOCK, &stop, &before);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
}

static void suspend_here(struct stream *s)
{
	send_u32(s, FRAME_SIGNAL,
		SIGSTOP); /* SIGTSTP does nothing to a process group without a shell */
	(void)flush_out(s);
	terminal_restore();
	stop_here();
	if (s->o->tty && terminal_raw(STDIN_FILENO) == 0)
		send_size(s);
	send_u32(s, FRAME_SIGNAL, SIGCONT);
}

/* Asked to end: pass it on, then kill, then leave. Return: 1 to leave. */
static int ask_to_end(struct stream *s, int sig)
{
	s->asked++;
	if (s->over || (s->r->exec == NULL && s->o->run) || s->asked >= 3) {
		s->r->signal = sig;
		return 1;
	}
	send_u32(s, FRAME_SIGNAL, s->asked == 1 ? (uint32_t)sig : SIGKILL);
	return 0;
}

/* Our terminal is gone. A command that we have only joined is not ours to end. Return: 1 to leave. */
static int hang_up(struct stream *s)
{
	if (!s->o->detachable)
		return ask_to_end(s, SIGHUP);
	s->r->signal = SIGHUP;
	return 1;
}

/* Return: 1 to leave. */
static int on_signals(struct stream *s)
{
	struct signalfd_siginfo info;
	int leave = 0;

	while (leave == 0 && read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		int sig = (int)info.ssi_signo;

		if (sig == SIGWINCH && s->o->tty)
			send_size(s);
		else if (sig == SIGTSTP)
			suspend_here(s);
		else if (sig == SIGUSR1 || sig == SIGUSR2)
			send_u32(s, FRAME_SIGNAL, (uint32_t)sig);
		else if (sig == SIGHUP)
			leave = hang_up(s);
		else if (sig != SIGWINCH)
			leave = ask_to_end(s, sig);
	}
	return leave;
}

/* May who sits at our terminal leave by "~."? Where the command has no terminal ours gives its lines whole. */
static bool heeds_keys(const struct stream *s)
{
	return s->terminal && (s->o->detachable || s->away);
}

/* "~." after a new line. Return: 1 when the user leaves. */
static int watch_keys(struct stream *s, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (s->tilde && p[i] == '.')
			return 1;
		s->tilde = s->line_start && p[i] == '~';
		s->line_start = p[i] == '\r' || p[i] == '\n';
	}
	return 0;
}

/* @n: 0 at the end of our standard input. */
static void send_input(struct stream *s, const char *p, size_t n)
{
	if (!s->o->input || s->input_over)
		return; /* it was read for the keys alone */
	if (!s->asking) /* else resend_input() sends it */
		frame_encode(&s->out, FRAME_STDIN, 0, p, n);
	buf_add(&s->sent, p, n);
}

/* @hung_up: nothing comes any more, of a terminal either. Return: 1 when the user leaves. */
static int on_input(struct stream *s, bool hung_up)
{
	char bytes[READ_SIZE];
	ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n > 0 && heeds_keys(s) && watch_keys(s, bytes, (size_t)n) != 0) {
		s->r->detached = true;
		return 1;
	}
	send_input(s, bytes, n > 0 ? (size_t)n : 0);
	if (n <= 0) {
		s->input_over = true;
		s->input = n == 0 && !hung_up && heeds_keys(s); /* behind Ctrl-D, for the keys */
	}
	return 0;
}

/* Rewinds and suspensions end connections too, as often as there are some. Behind the status only the summary is waited for. */
static void gets_on(struct stream *s)
{
	if (s->r->status == NULL)
		s->rejoins = 0;
}

/* The command took some of its input. */
static void on_window(struct stream *s, const struct frame *f)
{
	size_t taken = f->size == 4 ? frame_get_u32(f->payload) : 0;
	size_t again = taken < s->retaken ? taken : s->retaken;

	if (taken > 0)
		gets_on(s);
	s->retaken -= again;
	taken -= again;
	taken = taken < s->sent.n ? taken : s->sent.n;
	buf_consume(&s->sent, taken);
	s->sent_from += taken;
}

/* We have joined a command that others have sent @received bytes to, of which @taken are with it: none of them is ours. */
static void count_input(struct stream *s, uint64_t received, uint64_t taken)
{
	s->counted = true;
	s->sent_from += received;
	s->retaken = received > taken ? received - taken : 0;
}

/*
 * We came back: @received bytes of the input have arrived, @taken of them are with the command. Fewer than it once had, when its sandbox was rewound: what it had taken since then was
 * typed in a time that is gone.
 */
static void resend_input(struct stream *s, uint64_t received, uint64_t taken)
{
	size_t done, there;

	if (s->sent_from > received)
		s->sent_from = received;
	s->retaken = s->sent_from > taken ? s->sent_from - taken : 0;
	done = taken > s->sent_from ? (size_t)(taken - s->sent_from) : 0;
	done = done < s->sent.n ? done : s->sent.n;
	buf_consume(&s->sent, done);
	s->sent_from += done;
	there = received > s->sent_from ? (size_t)(received - s->sent_from) : 0;
	if (there < s->sent.n)
		frame_encode(&s->out, FRAME_STDIN, 0, s->sent.p + there, s->sent.n - there);
	if (s->input_over)
		frame_encode(&s->out, FRAME_STDIN, 0, "", 0);
	s->asking = false;
}

static void acknowledge(struct stream *s, size_t n)
{
	size_t old = n < s->stale ? n : s->stale; /* of a connection that is gone */

	s->stale -= old;
	s->unacked += n - old;
	if (s->unacked < ACK_BYTES || s->r->status != NULL)
		return;
	send_u32(s, FRAME_WINDOW, (uint32_t)s->unacked);
	s->unacked = 0;
}

/* @error: -errno. */
static void sink_gone(struct stream *s, struct sink *sink, int error)
{
	if (!sink->gone)
		send_u32(s, FRAME_SIGNAL, SIGPIPE);
	sink->gone = true;
	if (error != -EPIPE && s->r->unwritten == 0)
		s->r->unwritten = error;
	acknowledge(s, sink->wait.n - sink->used);
	buf_reset(&sink->wait);
	sink->used = 0;
}

/* Until @sink takes something. Return: 1 to leave. */
static int sink_wait(struct stream *s, const struct sink *sink)
{
	struct pollfd p[2];

	do {
		p[0] = (struct pollfd){ .fd = s->signals, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = sink->fd, .events = POLLOUT };
		(void)poll(p, ARRAY_SIZE(p), -1);
		if (p[0].revents != 0 && on_signals(s) != 0)
			return 1;
	} while (p[1].revents == 0);
	return 0;
}

/* Writes what the sink takes without blocking; all of it when @all, unless we are asked to end. */
static void sink_write(struct stream *s, struct sink *sink, bool all)
{
	do {
		size_t left = sink->wait.n - sink->used;
		ssize_t n;

		if (left == 0 || (all && !sink->file && sink_wait(s, sink) != 0))
			break;
		if (!sink->file && left > PIPE_BUF)
			left = PIPE_BUF;
		n = write(sink->fd, sink->wait.p + sink->used, left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && all)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			sink_gone(s, sink, -errno);
			return;
		}
		sink->used += (size_t)n;
		acknowledge(s, (size_t)n);
	} while (all || sink->file);
	if (sink->used == sink->wait.n) {
		buf_reset(&sink->wait);
		sink->used = 0;
	}
}

static int bad_stream(struct stream *s)
{
	return err_raise(&s->cli->err, ERR_CORRUPT, "the server sent a frame that makes no sense");
}

static int on_output(struct stream *s, const struct frame *f)
{
	bool second = !s->together && (f->type == FRAME_STDERR || s->o->quiet);
	struct sink *sink = &s->sinks[second];
	size_t n, left_out;

	if (f->size < 8)
		return bad_stream(s);
	n = f->size - 8;
	if (n > 0)
		gets_on(s);
	s->offset = frame_get_u64(f->payload) + n;
	if (sink->gone) {
		acknowledge(s, n);
		return 0;
	}
	/* a reader that is always behind never empties the buffer: what was written must make room all the same */
	buf_consume(&sink->wait, sink->used);
	sink->used = 0;
	left_out = old_output_put(
		&s->old, second, frame_get_u64(f->payload), f->payload + 8, n, &sink->wait);
	if (buf_failed(&sink->wait))
		return bad_stream(s);
	acknowledge(s, left_out);
	return 0;
}

/* Shown again, it is newer. */
static void take_newer(json_t **kept, json_t *v)
{
	if (v == NULL)
		return;
	json_decref(*kept);
	*kept = json_incref(v);
}

/* Is its sandbox suspended? Then nothing comes, and who sits at a terminal is told why, and how to leave. */
static void look_whether_away(struct stream *s)
{
	bool was = s->away;

	s->away = str_eq(cli_string(s->r->exec, "state", ""), "suspended");
	if (!s->away || was)
		return;
	s->line_start = true;
	s->tilde = false;
	if (s->o->tty || (s->terminal && s->input))
		buf_fmt(&s->sinks[1].wait,
			"\r\ncay: the sandbox is suspended; cay resume %s lets the command go on, ~. %s it\r\n",
			cli_string(s->r->exec, "sandbox", ""),
			s->o->tty ? "leaves" : "and Enter leave");
}

static int on_object(struct stream *s, const struct frame *f)
{
	cleanup_json json_t *object = json_loadb(f->payload, f->size, 0, NULL);
	json_t *v;

	if (object == NULL)
		return bad_stream(s);
	if (s->r->sandbox == NULL)
		sandbox_warnings(&s->sinks[1].wait, json_object_get(object, "sandbox"),
			s->o->tty ? "\r\n" : "\n");
	take_newer(&s->r->sandbox, json_object_get(object, "sandbox"));
	take_newer(&s->r->exec, json_object_get(object, "exec"));
	look_whether_away(s);
	/* of one that has ended nobody takes an answer any more */
	if (s->away || str_eq(cli_string(s->r->exec, "state", ""), "ended"))
		old_output_until(&s->old, UINT64_MAX);
	if ((v = json_object_get(object, "shown")) != NULL)
		old_output_until(&s->old, (uint64_t)json_integer_value(v));
	v = json_object_get(object, "input");
	if (v != NULL) /* its keeper has answered */
		gets_on(s);
	if (v != NULL && !s->counted)
		count_input(s, cli_number(v, "received"), cli_number(v, "taken"));
	if (v != NULL && s->asking)
		resend_input(s, cli_number(v, "received"), cli_number(v, "taken"));
	if ((v = json_object_get(object, "summary")) != NULL && s->r->summary == NULL)
		s->r->summary = json_incref(v);
	if (s->r->summary != NULL && s->r->status != NULL)
		s->eof = true; /* nothing comes behind it */
	return 0;
}

static void on_gap(struct stream *s, const struct frame *f)
{
	struct buf line = BUF_INIT(256);

	if (f->size < 16)
		return;
	s->offset = frame_get_u64(f->payload + 8);
	buf_fmt(&line, "cay: %llu bytes of output were overwritten before they were read%s\n",
		(unsigned long long)(frame_get_u64(f->payload + 8) - frame_get_u64(f->payload)),
		s->o->tty ? "\r" : "");
	buf_add(&s->sinks[1].wait, line.p, line.n);
	buf_free(&line);
}

static int on_error(struct stream *s, const struct frame *f)
{
	cleanup_json json_t *error = json_loadb(f->payload, f->size, 0, NULL);
	json_t *inner = json_object_get(error, "error");

	return error == NULL ? bad_stream(s)
			     : cli_fail_api(s->cli, json_is_object(inner) ? inner : error);
}

static int on_frame(struct stream *s, const struct frame *f)
{
	switch (f->type) {
	case FRAME_STDOUT:
	case FRAME_STDERR:
		return on_output(s, f);
	case FRAME_OBJECT:
		return on_object(s, f);
	case FRAME_STATUS:
		if (s->r->status == NULL)
			s->r->status = json_loadb(f->payload, f->size, 0, NULL);
		s->input = false;
		return s->r->status != NULL ? 0 : bad_stream(s);
	case FRAME_GAP:
		on_gap(s, f);
		return 0;
	case FRAME_ERROR:
		return on_error(s, f);
	case FRAME_WINDOW:
		on_window(s, f);
		return 0;
	case FRAME_REQUEST:
	case FRAME_REPLY:
	case FRAME_EVENT:
	case FRAME_STDIN:
	case FRAME_RESIZE:
	case FRAME_SIGNAL:
		break;
	}
	return bad_stream(s);
}

/* Takes the whole frames out of what was received. */
static int on_bytes(struct stream *s)
{
	size_t used = 0;
	int rc = 0;

	while (rc == 0) {
		struct frame f;
		ssize_t n = frame_decode(buf_cstr(&s->in) + used, s->in.n - used, &f);

		if (n == 0)
			break;
		rc = n < 0 ? bad_stream(s) : on_frame(s, &f);
		used += n > 0 ? (size_t)n : 0;
	}
	buf_consume(&s->in, used);
	for (size_t i = 0; i < ARRAY_SIZE(s->sinks); i++) {
		if (s->sinks[i].file)
			sink_write(s, &s->sinks[i], false);
	}
	return rc;
}

static int on_socket(struct stream *s)
{
	char *room = buf_room(&s->in, READ_SIZE);
	ssize_t n;

	if (room == NULL)
		return bad_stream(s);
	n = recv(s->fd, room, READ_SIZE, MSG_DONTWAIT);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n <= 0) {
		s->eof = true;
		return 0;
	}
	buf_grown(&s->in, (size_t)n);
	return on_bytes(s);
}

/* One turn. Return: 1 to leave, negative on failure. */
static int turn(struct stream *s)
{
	struct pollfd p[5] = { { .fd = s->signals, .events = POLLIN }, { .fd = s->fd },
		{ .fd = -1, .events = POLLIN }, { .fd = -1, .events = POLLOUT },
		{ .fd = -1, .events = POLLOUT } };
	size_t pending = 0;
	int rc = 0, timeout_ms = -1;

	for (size_t i = 0; i < ARRAY_SIZE(s->sinks); i++) {
		pending += s->sinks[i].wait.n - s->sinks[i].used;
		if (s->sinks[i].wait.n > s->sinks[i].used)
			p[3 + i].fd = s->sinks[i].fd;
	}
	if (pending < PENDING_MAX)
		p[1].events = POLLIN;
	if (s->out.n > s->out_used)
		p[1].events |= POLLOUT;
	if (s->input && (!s->asking || (s->away && s->terminal)) && s->sent.n < INPUT_MAX) {
		/* nobody tells a job that it is in the foreground again */
		if (terminal_background(STDIN_FILENO))
			timeout_ms = LOOK_MS;
		else
			p[2].fd = STDIN_FILENO;
	}
	if (p[1].events == 0)
		p[1].fd = -1; /* a hang-up is seen when there is room again */
	if (poll(p, ARRAY_SIZE(p), timeout_ms) < 0)
		return errno == EINTR ? 0 : err_raise_sys(&s->cli->err, -errno, "poll");
	for (size_t i = 0; i < ARRAY_SIZE(s->sinks); i++) {
		if (p[3 + i].revents != 0)
			sink_write(s, &s->sinks[i], false);
	}
	if (p[0].revents != 0)
		rc = on_signals(s);
	if (rc == 0 && p[2].revents != 0)
		rc = on_input(s, (p[2].revents & (POLLHUP | POLLERR)) != 0);
	if (rc == 0 && (p[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
		rc = on_socket(s);
	if (rc >= 0 && flush_out(s) < 0)
		s->out_used = s->out.n; /* gone; what it still sent us comes by reading */
	return rc;
}

/* A description of the terminal @fd that does not block; -1 where it cannot be opened, as that of another user. @device: its number; the other side of a terminal is another one each time that it is opened. */
static int open_terminal(int fd, dev_t device)
{
	char path[32];

	if (device == makedev(5, 2) || !isatty(fd))
		return -1;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static void sink_init(struct sink *sink, int fd)
{
	bool device, null;
	struct stat st;
	int own = -1;

	*sink = (struct sink){ .fd = fd, .wait = BUF_INIT(PENDING_MAX + (4U << 20)) };
	if (fstat(fd, &st) < 0)
		return;
	device = S_ISCHR(st.st_mode);
	null = device && st.st_rdev == makedev(1, 3);
	sink->file = S_ISREG(st.st_mode) || null;
	if (device && !null)
		own = open_terminal(fd, st.st_rdev);
	sink->own = own >= 0;
	sink->fd = sink->own ? own : fd;
}

static void sink_fini(struct sink *sink)
{
	if (sink->own)
		fd_close(&sink->fd);
	buf_free(&sink->wait);
}

static bool one_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino && x.st_rdev == y.st_rdev;
}

/* Has everything come that will come? A server that goes away says nothing. */
static bool is_over(const struct stream *s)
{
	if (!s->eof)
		return false;
	if (s->o->rejoin == NULL || s->rejoins >= REJOINS_MAX)
		return true;
	return s->r->status != NULL && (!s->o->run || s->r->summary != NULL);
}

/*
 * For as long as there is no server nobody passes on signals, or keys: those that end or stop do so to us, and the terminal is as before meanwhile. What came
 * until now is for the command.
 */
static int rejoin_next(struct stream *s)
{
	sigset_t ours;
	int rc = on_signals(s), raw;

	if (rc != 0)
		return rc;
	terminal_restore();
	(void)sigprocmask(SIG_SETMASK, &s->blocked, &ours);
	rc = s->o->rejoin(s->cli, s->o->ctx, s->offset);
	(void)sigprocmask(SIG_SETMASK, &ours, NULL);
	raw = s->o->tty ? terminal_raw(STDIN_FILENO) : 0;
	if (rc >= 0 && raw < 0)
		return err_raise_sys(&s->cli->err, raw, "make the terminal raw");
	return rc < 0 ? rc : 0;
}

/* Go on at the next server. What only ends with the status, a summary that nobody can give any more, is no failure. */
static int rejoin(struct stream *s)
{
	int rc;

	s->rejoins++;
	fd_close(&s->fd);
	buf_reset(&s->in);
	buf_reset(&s->out);
	s->out_used = s->unacked = s->stale = 0;
	old_output_end(&s->old, s->offset == s->o->from ? 0 : s->offset);
	for (size_t i = 0; i < ARRAY_SIZE(s->sinks); i++) {
		termquery_end(&s->old.sinks[i].query, &s->sinks[i].wait);
		s->stale += s->sinks[i].wait.n - s->sinks[i].used;
	}
	rc = rejoin_next(s);
	if (rc < 0 && s->r->status != NULL) {
		s->rejoins = REJOINS_MAX;
		return 0;
	}
	if (rc != 0)
		return rc;
	s->fd = http_client_upgraded(&s->cli->http, &s->in);
	s->eof = false;
	s->asking = s->o->input;
	if (s->o->tty)
		send_size(s);
	return on_bytes(s);
}

static int loop(struct stream *s)
{
	int rc = 0;

	if (s->o->tty) {
		rc = terminal_raw(STDIN_FILENO);
		if (rc < 0)
			return err_raise_sys(&s->cli->err, rc, "make the terminal raw");
		if (s->o->detachable)
			send_size(s);
	}
	rc = on_bytes(s);
	while (rc == 0 && !is_over(s)) {
		rc = s->eof ? rejoin(s) : turn(s);
	}
	s->over = true;
	for (size_t i = 0; i < ARRAY_SIZE(s->sinks) && rc <= 0 && s->r->signal == 0; i++)
		sink_write(s, &s->sinks[i], true);
	if (rc == 0 && s->r->status == NULL)
		rc = err_hint(&s->cli->err,
			err_raise(&s->cli->err, ERR_UNAVAILABLE,
				"the connection to the server ended before the command did"),
			"cay ps and cay logs tell what became of it");
	return rc < 0 ? rc : 0;
}

int stream_run(struct cli *cli, const struct stream_options *o, struct stream_result *r)
{
	struct stream s = {
		.cli = cli,
		.o = o,
		.r = r,
		.in = BUF_INIT(8U << 20),
		.out = BUF_INIT(8U << 20),
		.sent = BUF_INIT(INPUT_MAX + READ_SIZE + 4096),
		.terminal = isatty(STDIN_FILENO) == 1,
		.old.sinks[0].answered = isatty(STDOUT_FILENO) == 1,
		.old.sinks[1].answered = isatty(STDERR_FILENO) == 1,
		.offset = o->from,
		.old.known = o->fresh,
		.line_start = true,
		.counted = o->fresh,
	};
	sigset_t before;
	int rc;

	/* for the keys alone only where nobody else reads there, as a pager behind our output does */
	s.input = o->input || (o->detachable && s.terminal && isatty(STDOUT_FILENO) == 1 &&
				      stream_wants_input());
	(void)signal(SIGPIPE, SIG_IGN);
	s.fd = http_client_upgraded(&cli->http, &s.in);
	s.signals = signals_open(&before);
	s.blocked = before;
	(void)sigaddset(&s.blocked, SIGUSR1);
	(void)sigaddset(&s.blocked, SIGUSR2);
	sink_init(&s.sinks[0], STDOUT_FILENO);
	sink_init(&s.sinks[1], STDERR_FILENO);
	s.together = one_file(STDOUT_FILENO, STDERR_FILENO);
	rc = s.signals < 0 ? err_raise_sys(&cli->err, -errno, "make a signalfd") : loop(&s);
	terminal_restore();
	if (o->leaves && rc == 0)
		return 0;
	fd_close(&s.fd);
	fd_close(&s.signals);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	buf_free(&s.in);
	buf_free(&s.out);
	buf_free(&s.sent);
	sink_fini(&s.sinks[0]);
	sink_fini(&s.sinks[1]);
	return rc;
}

/* "key value, key value" of an evidence object. */
static void evidence(struct buf *out, const json_t *status)
{
	json_t *object = json_object_get(status, "evidence"), *value;
	const char *key, *sep = " (";

	json_object_foreach (object, key, value) {
		cleanup_free char *text =
			json_is_string(value) ? str_dup(json_string_value(value))
					      : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		if (str_eq(key, "wait_status"))
			continue; /* the raw form of what was said already; --json has it */
		buf_str(out, sep);
		text_escape(out, key);
		buf_char(out, ' ');
		text_escape(out, text != NULL ? text : "?");
		sep = ", ";
	}
	if (sep[0] == ',')
		buf_char(out, ')');
}

/* What may have made it fail: what it ended with is its own still, if it ended by itself. */
struct ending {
	const char *status, *says;
	int exit;
	bool own; /* its own exit status goes before @exit */
};

static const struct ending endings[] = {
	{ "oom", "out of memory: the kernel killed it at the memory limit", 137, true },
	{ "timeout", "killed: it ran longer than --timeout allows", 124, false },
	{ "disk_full", "ended: the disk limit is reached", 125, true },
	{ "limit", "ended: a limit is reached", 125, true },
	{ "killed", "killed, with everything that it started", 137, false },
	{ "lost", "lost: nobody saw how it ended", 125, false },
};

static void say(struct cli *cli, const char *what, const json_t *status)
{
	struct buf line = BUF_INIT(8192);

	buf_fmt(&line, "%s%s", cli->talk_colour ? "\033[31mcay:\033[0m " : "cay: ", what);
	evidence(&line, status);
	buf_char(&line, '\n');
	(void)!write(STDERR_FILENO, line.p, line.n);
	buf_free(&line);
}

int stream_status(struct cli *cli, const json_t *status)
{
	const char *word = cli_string(status, "status", "lost");
	const json_t *code = json_object_get(status, "code");
	int sig = (int)cli_number(status, "signal");

	if (str_eq(word, "exited"))
		return (int)(cli_number(status, "code") & 0xFF);
	if (str_eq(word, "signaled")) {
		const char *name = sigabbrev_np(sig);
		cleanup_free char *text =
			str_dupf("ended by signal %d (SIG%s)", sig, name != NULL ? name : "?");

		if (sig != SIGINT && sig != SIGPIPE)
			say(cli, text, status);
		return 128 + sig;
	}
	for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
		if (str_eq(endings[i].status, word)) {
			say(cli, endings[i].says, status);
			return endings[i].own && json_is_integer(code)
				       ? (int)(json_integer_value(code) & 0xFF)
				       : endings[i].exit;
		}
	}
	say(cli, "it ended in a way that this cay does not know", status);
	return 125;
}

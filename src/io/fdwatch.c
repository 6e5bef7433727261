/* SPDX-License-Identifier: Apache-2.0 */
#include "io/fdwatch.h"

static void watch_wanted(struct fdwatch *w);

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct fdwatch *w = container_of(poll, struct fdwatch, poll);

	(void)uv_poll_stop(poll);
	if (status < 0 || (events & UV_READABLE) != 0)
		waiters_wake(&w->readable);
	if (status < 0 || (events & UV_WRITABLE) != 0)
		waiters_wake(&w->writable);
	watch_wanted(w);
}

static void watch_wanted(struct fdwatch *w)
{
	int wanted = (waiters_any(&w->readable) ? UV_READABLE : 0) |
		     (waiters_any(&w->writable) ? UV_WRITABLE : 0);

	if (wanted != 0 && !uv_is_closing((uv_handle_t *)&w->poll))
		(void)uv_poll_start(&w->poll, wanted, on_poll);
}

int fdwatch_open(struct fdwatch *w, uv_loop_t *loop, int fd)
{
	waiters_init(&w->readable);
	waiters_init(&w->writable);
	return uv_poll_init(loop, &w->poll, fd);
}

int fdwatch_wait(struct fdwatch *w, bool write, uint64_t deadline_ns)
{
	struct waiters *mine = write ? &w->writable : &w->readable;
	struct waiters *other = write ? &w->readable : &w->writable;

	(void)uv_poll_start(&w->poll,
		(write ? UV_WRITABLE : UV_READABLE) |
			(waiters_any(other) ? (write ? UV_READABLE : UV_WRITABLE) : 0),
		on_poll);
	return waiters_wait(mine, deadline_ns);
}

static void on_closed(uv_handle_t *handle)
{
	struct fdwatch *w = container_of((uv_poll_t *)handle, struct fdwatch, poll);

	w->closed(w);
}

void fdwatch_close(struct fdwatch *w, void (*closed)(struct fdwatch *w))
{
	w->closed = closed;
	(void)uv_poll_stop(&w->poll);
	uv_close((uv_handle_t *)&w->poll, on_closed);
	waiters_wake(&w->readable);
	waiters_wake(&w->writable);
}

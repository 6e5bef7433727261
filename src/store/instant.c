/* SPDX-License-Identifier: Apache-2.0 */
#include "store/instant.h"
#include "sys/fdpass.h"

enum word { BEGIN = 'b', CAPTURED = 'c', KEEP = 'k' };

/* Removed by cay-spawn with everything else of the template, when a killed job has left it behind. */
static int path_of(const char *run, const char *id, char path[INSTANT_PATH_SIZE])
{
	int n = snprintf(path, INSTANT_PATH_SIZE, "%s/keepers/%s.files", run, id);

	return n < 0 || n >= INSTANT_PATH_SIZE ? -ENAMETOOLONG : 0;
}

static int say(int fd, enum word word)
{
	const char byte = (char)word;

	return fdpass_send(fd, &byte, 1, NULL, 0);
}

/* @rc: of a word said or heard. */
static bool has_gone(ssize_t rc)
{
	return rc == -EPIPE || rc == -ECONNRESET;
}

/* Return: 1, 0 when the other side has given up, or -errno. */
static int hear(int fd, enum word expected)
{
	char byte = 0;
	size_t none;
	ssize_t n = fdpass_recv(fd, &byte, 1, NULL, 0, &none);

	if (n <= 0)
		return has_gone(n) ? 0 : (int)n;
	return byte == (char)expected ? 1 : -EPROTO;
}

/* --- the job --- */

int instant_open(struct instant *i, const char *run, const char *id)
{
	int rc = path_of(run, id, i->path);

	if (rc == 0)
		rc = i->listener = fdpass_listen(i->path);
	return rc < 0 ? rc : 0;
}

int instant_await(struct instant *i)
{
	int rc = 0;

	while (rc == 0) {
		fd_close(&i->peer);
		i->peer = fdpass_accept(i->listener);
		rc = i->peer < 0 ? i->peer : hear(i->peer, BEGIN);
	}
	return rc < 0 ? rc : 0;
}

int instant_done(struct instant *i)
{
	int rc = say(i->peer, CAPTURED);

	/* it let them go before all was captured: whatever it has said until then */
	if (has_gone(rc))
		return 0;
	return rc < 0 ? rc : hear(i->peer, KEEP);
}

void instant_close(struct instant *i)
{
	fd_close(&i->peer);
	if (i->listener >= 0)
		(void)unlink(i->path);
	fd_close(&i->listener);
}

/* --- the keeper --- */

int instant_join(const char *run, const char *id)
{
	char path[INSTANT_PATH_SIZE];
	int rc = path_of(run, id, path);

	return rc < 0 ? rc : fdpass_connect(path);
}

static int tell(int fd, enum word word)
{
	int rc = say(fd, word);

	return has_gone(rc) ? 0 : rc;
}

int instant_begin(int fd)
{
	return tell(fd, BEGIN);
}

int instant_keep(int fd)
{
	return tell(fd, KEEP);
}

bool instant_captured(int fd)
{
	return hear(fd, CAPTURED) == 1;
}

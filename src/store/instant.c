/* SPDX-License-Identifier: Apache-2.0 */
#include "store/instant.h"
#include "base/clock.h"
#include "sys/fdpass.h"

#include <string.h>

enum word { BEGIN = 'b', CAPTURED = 'c', KEEP = 'k' };

/* Keepers and jobs of before have sent the word alone. */
struct said {
	char word;
	uint64_t at_ns; /* monotonic */
};

/* Removed by cay-spawn with everything else of the template, when a killed job has left it behind. */
static int path_of(const char *run, const char *id, char path[INSTANT_PATH_SIZE])
{
	int n = snprintf(path, INSTANT_PATH_SIZE, "%s/keepers/%s.files", run, id);

	return n < 0 || n >= INSTANT_PATH_SIZE ? -ENAMETOOLONG : 0;
}

static int say(int fd, enum word word)
{
	struct said said;

	memset(&said, 0, sizeof(said));
	said.word = (char)word;
	said.at_ns = clock_now_ns();
	return fdpass_send(fd, &said, word == CAPTURED ? sizeof(said) : 1, NULL, 0);
}

/* @rc: of a word said or heard. */
static bool has_gone(ssize_t rc)
{
	return rc == -EPIPE || rc == -ECONNRESET;
}

/* @at_ns: when it was said, 0 = nobody knows; NULL = nobody asks. Return: 1, 0 when the other side has given up, or -errno. */
static int hear(int fd, enum word expected, uint64_t *at_ns)
{
	struct said said = { 0 };
	size_t none;
	ssize_t n = fdpass_recv(fd, &said, sizeof(said), NULL, 0, &none);

	if (n <= 0)
		return has_gone(n) ? 0 : (int)n;
	if (at_ns != NULL)
		*at_ns = n == (ssize_t)sizeof(said) ? said.at_ns : 0;
	return said.word == (char)expected ? 1 : -EPROTO;
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
		rc = i->peer < 0 ? i->peer : hear(i->peer, BEGIN, NULL);
	}
	return rc < 0 ? rc : 0;
}

int instant_done(struct instant *i)
{
	int rc = say(i->peer, CAPTURED);

	/* it let them go before all was captured: whatever it has said until then */
	if (has_gone(rc))
		return 0;
	return rc < 0 ? rc : hear(i->peer, KEEP, NULL);
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

bool instant_captured(int fd, uint64_t *at_ns)
{
	return hear(fd, CAPTURED, at_ns) == 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets whose files are not called as they were bound: renamed to where clients look for them, also in another directory, over another's, bound to a name that does not begin at
 * the root, or begins at another; to one that leads through a link, as /var/run is; and those whose directory was removed.
 */
#include "object.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un at(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s", name);
	return a;
}

static int bound(const char *name, int type)
{
	struct sockaddr_un a = at(name);
	int fd = socket(AF_UNIX, type, 0);

	MUST(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	MUST(type == SOCK_DGRAM || listen(fd, 5) == 0);
	return fd;
}

static int connected(const char *name, int type)
{
	struct sockaddr_un a = at(name);
	int fd = socket(AF_UNIX, type, 0);

	MUST(connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
	return fd;
}

static void must_be_called(int fd, const char *name)
{
	struct sockaddr_un a = { 0 };
	socklen_t n = sizeof(a);

	MUST(getsockname(fd, (struct sockaddr *)&a, &n) == 0 && strcmp(a.sun_path, name) == 0);
}

/* Who looks for it under @name finds it. */
static void must_serve(int listener, const char *name)
{
	int client = connected(name, SOCK_STREAM), served = accept(listener, NULL, NULL);

	MUST(served >= 0);
	object_talk(client, served);
	MUST(close(client) == 0 && close(served) == 0);
}

static void must_receive(int fd, const char *name)
{
	int sender = connected(name, SOCK_DGRAM);

	object_talk(sender, fd);
	MUST(close(sender) == 0);
}

/* A server in a root directory of its own, which was bound to @name: before that, or there. What ends in ".new" is renamed there. It answers once. */
static pid_t jailed(const char *place, const char *name, bool before)
{
	int listener = before ? bound(name, SOCK_STREAM) : -1, told[2], served;
	pid_t pid;
	char byte = 'j', final[128];

	MUST(pipe(told) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		MUST(chroot(place) == 0 && chdir("/") == 0);
		if (!before)
			listener = bound(name, SOCK_STREAM);
		if (strstr(name, ".new") != NULL) {
			(void)snprintf(final, sizeof(final), "%.*s", (int)strlen(name) - 4, name);
			MUST(rename(name, final) == 0);
		}
		MUST(write(told[1], "", 1) == 1);
		MUST((served = accept(listener, NULL, NULL)) >= 0);
		MUST(write(served, &byte, 1) == 1);
		_exit(0);
	}
	if (listener >= 0)
		MUST(close(listener) == 0);
	MUST(read(told[0], &byte, 1) == 1 && close(told[0]) == 0 && close(told[1]) == 0);
	return pid;
}

static void must_answer(pid_t pid, const char *name)
{
	int client = connected(name, SOCK_STREAM), status;
	char byte = 0;

	MUST(read(client, &byte, 1) == 1 && byte == 'j');
	MUST(close(client) == 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* One whose file was removed, and one that has its name since: two servers, of which the older still has the socket. @older: gets that. */
static int taken_over(const char *name, bool older_first, int *older)
{
	int newer;

	*older = bound(name, SOCK_STREAM);
	MUST(unlink(name) == 0);
	newer = bound(name, SOCK_STREAM);
	if (!older_first) {
		int copy = dup(*older);

		MUST(copy > newer && close(*older) == 0);
		*older = copy;
	}
	MUST(fcntl(*older, F_SETFL, O_NONBLOCK) == 0);
	return newer;
}

/** struct lost - sockets whose directory was removed, with who has connected to them. */
struct lost {
	char listened[128], lettered[128];
	int listener, ends[2], waiting; /* accepted, and not yet */
	int letters, sender;
	int relative[2]; /* nobody listens at that name any more */
};

static struct lost lose(const char *place)
{
	struct lost l = { 0 };
	int relative;

	MUST(mkdir("away", 0700) == 0 && mkdir("away/inner", 0700) == 0);
	(void)snprintf(l.listened, sizeof(l.listened), "%s/away/inner/eleven", place);
	l.listener = bound(l.listened, SOCK_STREAM);
	l.ends[0] = connected("away/inner/eleven", SOCK_STREAM);
	MUST((l.ends[1] = accept(l.listener, NULL, NULL)) >= 0);
	l.waiting = connected("away/inner/eleven", SOCK_STREAM);
	(void)snprintf(l.lettered, sizeof(l.lettered), "%s/away/twelve", place);
	l.letters = bound(l.lettered, SOCK_DGRAM);
	l.sender = connected("away/twelve", SOCK_DGRAM);
	MUST(write(l.sender, "letter", 6) == 6);
	relative = bound("away/inner/thirteen", SOCK_STREAM);
	l.relative[0] = connected("away/inner/thirteen", SOCK_STREAM);
	MUST((l.relative[1] = accept(relative, NULL, NULL)) >= 0 && close(relative) == 0);
	MUST(unlink("away/inner/eleven") == 0 && unlink("away/inner/thirteen") == 0);
	MUST(unlink("away/twelve") == 0 && rmdir("away/inner") == 0 && rmdir("away") == 0);
	/* and a file has its name */
	MUST(close(open("away", O_WRONLY | O_CREAT, 0600)) == 0);
	return l;
}

static void check_lost(const struct lost *l)
{
	char told[16];
	struct stat st;
	int served;

	must_be_called(l->listener, l->listened);
	must_be_called(l->ends[1], l->listened);
	must_be_called(l->letters, l->lettered);
	must_be_called(l->relative[1], "away/inner/thirteen");
	object_talk(l->ends[0], l->ends[1]);
	object_talk(l->ends[1], l->ends[0]);
	object_talk(l->relative[0], l->relative[1]);
	MUST((served = accept(l->listener, NULL, NULL)) >= 0);
	object_talk(l->waiting, served);
	MUST(fcntl(l->listener, F_SETFL, O_NONBLOCK) == 0);
	MUST(accept(l->listener, NULL, NULL) < 0 && errno == EAGAIN);
	MUST(read(l->letters, told, sizeof(told)) == 6 && memcmp(told, "letter", 6) == 0);
	object_talk(l->sender, l->letters);
	MUST(stat("away", &st) == 0 && S_ISREG(st.st_mode));
	MUST(access("/dev/.cay-nameless", F_OK) < 0 && errno == ENOENT);
}

/** struct elsewhere - sockets whose files were moved to another directory, and those whose directory is a link. */
struct elsewhere {
	char listened[128], lettered[128], linked[128];
	int listener, waiting, letters, sender, behind, client, near;
};

static struct elsewhere move_away(const char *place)
{
	struct elsewhere e = { 0 };
	char link[128];

	(void)snprintf(e.listened, sizeof(e.listened), "%s/staged/fourteen", place);
	(void)snprintf(e.lettered, sizeof(e.lettered), "%s/staged/fifteen", place);
	(void)snprintf(e.linked, sizeof(e.linked), "%s/run/sixteen", place);
	(void)snprintf(link, sizeof(link), "%s/deep", place);
	MUST(mkdir("staged", 0700) == 0 && symlink(link, "run") == 0);
	e.listener = bound(e.listened, SOCK_STREAM);
	MUST(chmod(e.listened, 0620) == 0 && rename(e.listened, "deep/fourteen") == 0);
	e.waiting = connected("deep/fourteen", SOCK_STREAM);
	e.letters = bound(e.lettered, SOCK_DGRAM);
	MUST(rename(e.lettered, "deep/fifteen") == 0);
	e.sender = connected("deep/fifteen", SOCK_DGRAM);
	MUST(write(e.sender, "letter", 6) == 6);
	e.behind = bound(e.linked, SOCK_STREAM);
	e.client = connected("deep/sixteen", SOCK_STREAM);
	e.near = bound("run/seventeen", SOCK_STREAM);
	return e;
}

static void check_elsewhere(const struct elsewhere *e)
{
	char told[16];
	struct stat st;
	int served;

	must_be_called(e->listener, e->listened);
	must_be_called(e->letters, e->lettered);
	must_be_called(e->behind, e->linked);
	MUST((served = accept(e->listener, NULL, NULL)) >= 0);
	object_talk(e->waiting, served);
	must_serve(e->listener, "deep/fourteen");
	MUST(stat("deep/fourteen", &st) == 0 && (st.st_mode & 07777) == 0620);
	MUST(access("staged/fourteen", F_OK) < 0 && access("staged/fifteen", F_OK) < 0);
	MUST(read(e->letters, told, sizeof(told)) == 6 && memcmp(told, "letter", 6) == 0);
	object_talk(e->sender, e->letters);
	must_receive(e->letters, "deep/fifteen");
	MUST((served = accept(e->behind, NULL, NULL)) >= 0);
	object_talk(e->client, served);
	must_serve(e->behind, "deep/sixteen");
	must_be_called(e->near, "run/seventeen");
	must_serve(e->near, "deep/seventeen");
}

int main(void)
{
	char place[] = "/tmp/names.XXXXXX", told[256];
	int newer[2], older[2], renamed, over, covered, relative, deep, ends[2], waiting, heard,
		letters, sender;
	struct stat st;
	struct lost lost;
	struct elsewhere elsewhere;
	pid_t inner, outer, twins[2];

	MUST(mkdtemp(place) != NULL && chdir(place) == 0 && mkdir("deep", 0755) == 0);
	(void)snprintf(told, sizeof(told), "%s/deep/one.new", place);
	renamed = bound(told, SOCK_STREAM);
	MUST(chmod(told, 0640) == 0 && rename(told, "deep/one") == 0);
	waiting = connected("deep/one", SOCK_STREAM);
	(void)snprintf(told, sizeof(told), "%s/two.new", place);
	over = bound(told, SOCK_STREAM);
	(void)snprintf(told, sizeof(told), "%s/two", place);
	covered = bound(told, SOCK_STREAM);
	MUST(rename("two.new", "two") == 0);
	relative = bound("three", SOCK_STREAM);
	ends[0] = connected("three", SOCK_STREAM);
	MUST((ends[1] = accept(relative, NULL, NULL)) >= 0);
	deep = bound("deep/four", SOCK_STREAM);
	letters = bound("five", SOCK_DGRAM);
	sender = connected("five", SOCK_DGRAM);
	MUST(write(sender, "letter", 6) == 6);
	(void)snprintf(told, sizeof(told), "%s/six.new", place);
	heard = bound(told, SOCK_DGRAM);
	MUST(rename("six.new", "six") == 0);
	newer[0] = taken_over("nine", true, &older[0]);
	newer[1] = taken_over("ten", false, &older[1]);
	lost = lose(place);
	elsewhere = move_away(place);
	inner = jailed(place, "/seven", false);
	(void)snprintf(told, sizeof(told), "%s/eight", place);
	outer = jailed("/var", told, true);
	/* each in a root of its own: these are two names */
	twins[0] = jailed(place, "/eighteen.new", false);
	twins[1] = jailed("deep", "/eighteen.new", false);

	object_ready();

	must_answer(inner, "seven");
	must_answer(outer, "eight");
	must_answer(twins[0], "eighteen");
	must_answer(twins[1], "deep/eighteen");

	check_lost(&lost);
	check_elsewhere(&elsewhere);
	MUST(close(waiting) == 0 && (waiting = accept(renamed, NULL, NULL)) >= 0);
	MUST(close(waiting) == 0);
	must_serve(renamed, "deep/one");
	MUST(stat("deep/one", &st) == 0 && (st.st_mode & 07777) == 0640);
	MUST(access("deep/one.new", F_OK) < 0 && access("two.new", F_OK) < 0);
	must_serve(over, "two");
	MUST(fcntl(covered, F_SETFL, O_NONBLOCK) == 0 && accept(covered, NULL, NULL) < 0);
	must_serve(relative, "three");
	must_be_called(relative, "three");
	must_be_called(ends[1], "three");
	object_talk(ends[0], ends[1]);
	must_serve(deep, "deep/four");
	MUST(read(letters, told, sizeof(told)) == 6 && memcmp(told, "letter", 6) == 0);
	object_talk(sender, letters);
	must_receive(letters, "five");
	must_receive(heard, "six");
	for (int i = 0; i < 2; i++) {
		must_be_called(older[i], i == 0 ? "nine" : "ten");
		must_serve(newer[i], i == 0 ? "nine" : "ten");
		MUST(accept(older[i], NULL, NULL) < 0 && errno == EAGAIN);
	}
	MUST(access("nine.cay-aside", F_OK) < 0 && access("ten.cay-aside", F_OK) < 0);
	MUST(access("/three", F_OK) < 0 && access("/five", F_OK) < 0 && access("/seven", F_OK) < 0);
	return object_done();
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/timens.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/fdpass.h"
#include "sys/file.h"
#include "sys/probe.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>

#define OFFSETS    "/proc/self/timens_offsets"
#define TIMEOUT_MS 30000 /* the machine may have much else to do, and without it clocks step back */

/* The kernel's offsets count from the clocks of the machine, whatever namespace the writer is in; nanoseconds always count upwards. */
struct offset {
	long long s;
	unsigned long long ns;
};

struct request {
	int sock; /* takes the namespace */
	struct offset monotonic, boottime;
};

static int read_own(struct offset *monotonic, struct offset *boottime)
{
	cleanup_buf struct buf text = BUF_INIT(4096);
	int rc = file_read_at(AT_FDCWD, OFFSETS, &text);

	if (rc < 0)
		return rc == -ENOENT ? -EINVAL : rc;
	return sscanf(buf_cstr(&text), " monotonic %lld %llu boottime %lld %llu", &monotonic->s,
		       &monotonic->ns, &boottime->s, &boottime->ns) == 4
		       ? 0
		       : -EPROTO;
}

static void add(struct offset *o, int64_t ns)
{
	const int64_t s = (int64_t)NS_PER_S, before = ns < 0 ? (s - 1 - ns) / s : 0;

	ns += before * s;
	o->ns += (uint64_t)ns % NS_PER_S;
	o->s += ns / s - before + (long long)(o->ns / NS_PER_S);
	o->ns %= NS_PER_S;
}

/* It has no process yet, which is the only time at which its clocks can be set. */
static int make(void *arg)
{
	const struct request *r = arg;
	cleanup_fd int fd = -1;
	int rc = unshare(CLONE_NEWTIME) < 0 ? -errno : 0;

	if (rc == 0)
		rc = file_write_fmt_at(AT_FDCWD, OFFSETS,
			"monotonic %lld %llu\nboottime %lld %llu\n", r->monotonic.s,
			r->monotonic.ns, r->boottime.s, r->boottime.ns);
	if (rc < 0)
		return rc;
	fd = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fdpass_send(r->sock, "", 1, &fd, 1);
}

int timens_new(int64_t monotonic_ns, int64_t boottime_ns)
{
	struct request r;
	cleanup_fd int ours = -1, theirs = -1;
	int rc = read_own(&r.monotonic, &r.boottime), pair[2], fd;
	size_t n = 0;
	char none;

	if (rc < 0)
		return rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ours = pair[0];
	r.sock = theirs = pair[1];
	add(&r.monotonic, monotonic_ns);
	add(&r.boottime, boottime_ns);
	rc = probe_run(make, &r, TIMEOUT_MS);
	if (rc < 0)
		return rc;
	return fdpass_recv(ours, &none, 1, &fd, 1, &n) == 1 && n == 1 ? fd : -EPROTO;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks through /proc and /sys: write host settings, read the kernel's and other processes' secrets. */
#include "redcell.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Only opened, never written: that it can be opened is the break, writing would hurt the machine. */
static void pr_01(struct run *r)
{
	static const char *const files[] = { "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
		"/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/panic",
		"/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper",
		"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/drop_caches",
		"/proc/sys/kernel/pid_max", "/proc/sys/fs/suid_dumpable",
		"/proc/irq/0/smp_affinity", "/proc/mtrr", "/proc/kcore", "/proc/acpi/wakeup" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		attempt(r, files[i], open(files[i], O_WRONLY | O_CLOEXEC));
}

/* Settings of our own namespaces: the ids match their owner's root, so only the mount stops us. */
static void pr_01b(struct run *r)
{
	static const char *const files[] = { "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv4/tcp_fastopen", "/proc/sys/net/core/somaxconn",
		"/proc/sys/kernel/shmmax", "/proc/sys/kernel/hostname", "/proc/sys/kernel/msgmax",
		"/proc/sys/fs/mqueue/queues_max", "/proc/sys/user/max_user_namespaces",
		"/proc/sys/net/ipv4/ip_unprivileged_port_start" };
	char value[256];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_RDWR | O_CLOEXEC);

		if (attempt(r, files[i], fd) < 0)
			continue;
		/* write back what is there */
		ssize_t n = read(fd, value, sizeof(value));

		if (n > 0 && pwrite(fd, value, (size_t)n, 0) == n)
			remark(r, "written");
		close(fd);
	}
}

static void pr_02(struct run *r)
{
	static const char *const files[] = { "/proc/kcore", "/proc/kallsyms", "/proc/kmsg",
		"/dev/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list",
		"/proc/sched_debug", "/proc/iomem", "/proc/ioports", "/proc/slabinfo",
		"/proc/config.gz", "/proc/modules", "/proc/cmdline", "/proc/partitions",
		"/proc/diskstats", "/proc/interrupts", "/proc/vmstat", "/proc/zoneinfo",
		"/proc/buddyinfo", "/proc/swaps", "/proc/locks", "/proc/crypto", "/proc/consoles",
		"/proc/fb", "/proc/vmallocinfo", "/proc/kpagecount", "/proc/pagetypeinfo" };
	char head[8192];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		ssize_t n = fd < 0 ? -1 : read(fd, head, sizeof(head) - 1);

		r->attempts++;
		if (fd >= 0)
			close(fd);
		head[n > 0 ? n : 0] = '\0';
		/* a synthetic list of nothing is its heading, or zeros */
		if (n > 0 && (memchr(head, '\n', (size_t)n) == head + n - 1 || only_zeros(head)))
			n = 0;
		if (n <= 0) {
			if (r->error == 0)
				r->error = errno;
			continue;
		}
		note(r, LEAKED, "%s", files[i]);
		prove(r, head, (size_t)(n > 256 ? 256 : n));
	}
}

static void pr_03(struct run *r)
{
	char path[64], link[256];
	int seen = 0;

	/* the attacker knows where the canary is, if it can see it at all */
	snprintf(path, sizeof(path), "/proc/%s/cmdline", arg(r, "pid", "1"));
	prove_file(r, path);
	for (int pid = 1; pid <= 32768; pid++) {
		snprintf(path, sizeof(path), "/proc/%d", pid);
		struct stat st;

		if (stat(path, &st) != 0)
			continue;
		seen++;
		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		prove_file(r, path);
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		prove_file(r, path);
		snprintf(path, sizeof(path), "/proc/%d/exe", pid);
		ssize_t n = readlink(path, link, sizeof(link));

		if (n > 0)
			prove(r, link, (size_t)n);
	}
	remark(r, "%d processes visible", seen);
}

static void pr_04(struct run *r)
{
	static const char *const files[] = { "/proc/self/cgroup", "/proc/self/mountinfo",
		"/proc/self/mounts", "/proc/1/cgroup", "/proc/self/mountstats" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		/* these may be larger than one read: read all of it */
		FILE *f = fopen(files[i], "re");
		char line[8192];

		r->attempts++;
		while (f != NULL && fgets(line, sizeof(line), f) != NULL)
			if (strlen(r->proof) + strlen(line) < sizeof(r->proof) - 2)
				prove(r, line, strlen(line) - 1);
		if (f != NULL)
			fclose(f);
	}
}

static void pr_05(struct run *r)
{
	static const char *const files[] = { "/proc/1/environ", "/proc/1/auxv", "/proc/1/maps",
		"/proc/1/stack", "/proc/1/syscall", "/proc/1/io", "/proc/1/smaps",
		"/proc/1/pagemap" };
	char link[256];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		ssize_t n = prove_file(r, files[i]);

		if (n > 0)
			note(r, LEAKED, "read %s", files[i]);
	}
	ssize_t n = readlink("/proc/1/exe", link, sizeof(link));

	if (n > 0) {
		prove(r, link, (size_t)n);
		note(r, LEAKED, "read /proc/1/exe");
	}
	DIR *d = opendir("/proc/1/fd");

	struct dirent *e;

	/* its owner is the root of our ids, so it may be listed: it must be empty */
	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			note(r, LEAKED, "init has descriptor %s", e->d_name);
	if (d != NULL)
		closedir(d);
	if (r->outcome == BLOCKED)
		remark(r, "nothing of init's can be read");
}

static void pr_06(struct run *r)
{
	static const char *const files[] = { "/proc/meminfo", "/proc/cpuinfo", "/proc/stat",
		"/proc/uptime", "/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/memory",
		"/proc/version" };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		prove_file(r, files[i]);
}

static void pr_07(struct run *r)
{
	const char *file = arg(r, "rofile", "/ro/canary");
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	if (mem < 0) {
		attempt(r, "/proc/self/mem", -1);
		return;
	}
	void *private_map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	void *shared_map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	r->attempts++;
	if (private_map != MAP_FAILED &&
		pwrite(mem, "forced!", 7, (off_t)(uintptr_t)private_map) == 7)
		note(r, LEAKED, "a read-only page of its own forced (copied)");
	if (shared_map != MAP_FAILED)
		attempt(r, "force a shared read-only page",
			pwrite(mem, "forced!", 7, (off_t)(uintptr_t)shared_map));
}

static void pr_08(struct run *r)
{
	mkdir("/tmp/mnt", 0755);
	attempt(r, "mount proc", mount("proc", "/tmp/mnt", "proc", 0, NULL));
	attempt(r, "mount sysfs", mount("sysfs", "/tmp/mnt", "sysfs", 0, NULL));
	attempt(r, "fsopen proc", syscall(SYS_fsopen, "proc", 1));
	attempt(r, "fsopen sysfs", syscall(SYS_fsopen, "sysfs", 1));
}

static void pr_13(struct run *r)
{
	static const char *const files[] = { "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/debug",
		"/sys/kernel/tracing", "/sys/kernel/security/lsm", "/sys/firmware",
		"/sys/class/net", "/sys/block", "/sys/class/block", "/sys/kernel/vmcoreinfo",
		"/sys/kernel/notes", "/sys/module", "/sys/bus", "/sys/power/state", "/sys/fs/bpf",
		"/sys/devices/virtual/dmi/id", "/sys/fs/cgroup/memory/memory.stat" };
	struct stat st;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		r->attempts++;
		if (stat(files[i], &st) == 0)
			note(r, LEAKED, "%s is there", files[i]);
		else if (r->error == 0)
			r->error = errno;
	}
}

static void pr_14(struct run *r)
{
	static const char *const kinds[] = { "mnt", "pid", "net", "ipc", "uts", "user", "cgroup" };
	char path[64], link[64];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
		ssize_t n = readlink(path, link, sizeof(link));

		r->attempts++;
		if (n > 0)
			prove(r, link, (size_t)n);
	}
}

const struct attack attacks_proc[] = {
	{ "PR-01", "opens host settings for writing", pr_01 },
	{ "PR-01B", "writes settings of its own namespaces", pr_01b },
	{ "PR-02", "reads kernel information", pr_02 },
	{ "PR-03", "looks for foreign processes", pr_03 },
	{ "PR-04", "looks for host paths in mountinfo and cgroup", pr_04 },
	{ "PR-05", "reads init's environment, maps and links", pr_05 },
	{ "PR-06", "reads the host's size and load", pr_06 },
	{ "PR-07", "forces writes through /proc/self/mem", pr_07 },
	{ "PR-08", "mounts its own proc and sysfs", pr_08 },
	{ "PR-13", "looks for sysfs, cgroupfs, debugfs", pr_13 },
	{ "PR-14", "reads its namespace ids", pr_14 },
	{ NULL, NULL, NULL },
};

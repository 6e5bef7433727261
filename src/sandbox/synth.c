/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/synth.h"
#include "base/clock.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

unsigned int synth_cpus(const struct cgroup_limits *limits)
{
	cpu_set_t set;
	unsigned int have = 1, want = (unsigned int)((limits->cpu_millis + 999) / 1000);

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		have = (unsigned int)CPU_COUNT(&set);
	return want != 0 && want < have ? want : have;
}

uint64_t synth_memory(const struct cgroup_limits *limits)
{
	struct sysinfo info = { 0 };
	uint64_t have, want = limits->memory_bytes;

	(void)sysinfo(&info);
	have = (uint64_t)info.totalram * info.mem_unit;
	return want != 0 && want < have ? want : have;
}

static void write_meminfo(struct buf *out, const struct synth_view *view)
{
	uint64_t kb = synth_memory(&view->limits) / 1024;

	buf_fmt(out, "MemTotal:       %8lu kB\nMemFree:        %8lu kB\nMemAvailable:   %8lu kB\n",
		kb, kb, kb);
	buf_str(out,
		"Buffers:               0 kB\nCached:                0 kB\nSwapCached:            0 kB\n"
		"Active:                0 kB\nInactive:              0 kB\nSwapTotal:             0 kB\n"
		"SwapFree:              0 kB\nDirty:                 0 kB\nWriteback:             0 kB\n"
		"AnonPages:             0 kB\nMapped:                0 kB\nShmem:                 0 kB\n"
		"Slab:                  0 kB\nSReclaimable:          0 kB\nSUnreclaim:            0 kB\n"
		"HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n");
}

/* The machine's lines about its first processor, without what is the machine's alone: which of its processors, how fast just now, how patched. */
static void read_processor(struct buf *out)
{
	static const char *const left_out[] = { "processor", "physical id", "siblings", "core id",
		"cpu cores", "apicid", "initial apicid", "cpu MHz", "microcode", "bugs" };
	cleanup_fd int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	char text[16384];
	ssize_t n = 0, got = 0;

	while (fd >= 0 && (got = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0) {
		n += got;
		text[n] = '\0';
		if (strstr(text, "\n\n") != NULL)
			break;
	}
	text[n] = '\0';
	for (char *line = text, *end; *line != '\n' && (end = strchr(line, '\n')) != NULL;
		line = end + 1) {
		bool copied = true;

		for (size_t i = 0; i < ARRAY_SIZE(left_out); i++) {
			size_t len = strlen(left_out[i]);

			if (strncmp(line, left_out[i], len) == 0 && strchr("\t :", line[len]))
				copied = false;
		}
		if (copied)
			buf_add(out, line, (size_t)(end + 1 - line));
	}
}

/* A processor is described as it describes itself to every program that asks it: programs choose by it what they run. */
static void write_cpuinfo(struct buf *out, const struct synth_view *view)
{
	unsigned int n = synth_cpus(&view->limits);
	cleanup_buf struct buf processor = BUF_INIT(16384);

	read_processor(&processor);
	for (unsigned int i = 0; i < n; i++) {
		buf_fmt(out, "processor\t: %u\n", i);
		buf_add(out, processor.p, processor.n);
		buf_fmt(out,
			"physical id\t: 0\nsiblings\t: %u\ncore id\t\t: %u\ncpu cores\t: %u\n\n", n,
			i, n);
	}
}

static void write_stat(struct buf *out, const struct synth_view *view)
{
	unsigned int n = synth_cpus(&view->limits);

	buf_str(out, "cpu  0 0 0 0 0 0 0 0 0 0\n");
	for (unsigned int i = 0; i < n; i++)
		buf_fmt(out, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
	/* btime is where CLOCK_BOOTTIME began: ps and others derive start times from it, and the kernel counts those by the reader's clock */
	buf_fmt(out, "intr 0\nctxt 0\nbtime %llu\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
		(unsigned long long)(clock_wall_ns() / NS_PER_S -
				     (clock_boot_ns() + view->ahead_ns) / NS_PER_S));
}

static void write_version(struct buf *out, attr_unused const struct synth_view *view)
{
	struct utsname u;

	(void)uname(&u);
	buf_fmt(out, "Linux version %s (cay) #1 SMP\n", u.release);
}

static void write_loadavg(struct buf *out, attr_unused const struct synth_view *view)
{
	buf_str(out, "0.00 0.00 0.00 1/1 1\n");
}

/* Of the machine's counters none; but who reads some wants them to be there (vmstat, psutil). */
static void write_vmstat(struct buf *out, attr_unused const struct synth_view *view)
{
	buf_str(out,
		"pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\noom_kill 0\n");
}

static void write_swaps(struct buf *out, attr_unused const struct synth_view *view)
{
	buf_str(out, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
}

const struct synth_file *synth_proc_files(void)
{
	static const struct synth_file files[] = {
		{ "meminfo", SYNTH_MEMORY, write_meminfo },
		{ "cpuinfo", SYNTH_CPUS, write_cpuinfo },
		{ "stat", SYNTH_START, write_stat },
		{ "version", SYNTH_NOTHING, write_version },
		{ "loadavg", SYNTH_NOTHING, write_loadavg },
		{ "swaps", SYNTH_NOTHING, write_swaps },
		{ "vmstat", SYNTH_NOTHING, write_vmstat },
		{ NULL, SYNTH_NOTHING, NULL },
	};

	return files;
}

static void write_file(int dir, const struct synth_file *f, const struct synth_view *view)
{
	cleanup_buf struct buf text = BUF_INIT(1 << 20);

	f->write(&text, view);
	(void)!file_create_at(dir, f->name, 0444, buf_cstr(&text), text.n);
}

void synth_write(int dir, const struct synth_view *view)
{
	for (const struct synth_file *f = synth_proc_files(); f->name != NULL; f++)
		write_file(dir, f, view);
}

static bool differs(
	enum synth_depends depends, const struct synth_view *was, const struct synth_view *now)
{
	bool cpus = synth_cpus(&was->limits) != synth_cpus(&now->limits);

	switch (depends) {
	case SYNTH_NOTHING:
		return false;
	case SYNTH_CPUS:
		return cpus;
	case SYNTH_START:
		return cpus || was->ahead_ns != now->ahead_ns;
	case SYNTH_MEMORY:
		return was->limits.memory_bytes != now->limits.memory_bytes;
	}
	return true;
}

void synth_update(int dir, const struct synth_view *was, const struct synth_view *now)
{
	for (const struct synth_file *f = synth_proc_files(); f->name != NULL; f++) {
		if (differs(f->depends, was, now))
			write_file(dir, f, now);
	}
}

void synth_cpu_list(struct buf *out, const struct cgroup_limits *limits)
{
	unsigned int n = synth_cpus(limits);

	if (n == 1)
		buf_str(out, "0\n");
	else
		buf_fmt(out, "0-%u\n", n - 1);
}

int synth_cpu_lists(int cpu, const struct cgroup_limits *limits)
{
	static const char *const names[] = { "online", "possible", "present" };
	cleanup_buf struct buf list = BUF_INIT(64);
	int rc = 0;

	synth_cpu_list(&list, limits);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(names); i++)
		rc = file_create_at(cpu, names[i], 0444, list.p, list.n);
	return rc;
}

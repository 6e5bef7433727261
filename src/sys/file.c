/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/file.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/raw.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>

#define SEAL_TRIES 40 /* the kernel waits for some 150 ms each time */

int file_read_all(int fd, void *bytes, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = read(fd, (char *)bytes + done, n - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EPIPE;
		done += (size_t)got;
	}
	return 0;
}

int file_write_all(int fd, const void *bytes, size_t n)
{
	const char *p = bytes;

	while (n > 0) {
		ssize_t w = write(fd, p, n);

		if (w < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

off_t file_data_from(int fd, off_t at)
{
	off_t data = lseek(fd, at, SEEK_DATA);
	struct stat st;

	if (data >= 0)
		return data;
	return errno == ENXIO && fstat(fd, &st) == 0 && st.st_size > at ? st.st_size : at;
}

int file_seal(int fd)
{
	for (int i = 0; i < SEAL_TRIES; i++) {
		if (fcntl(fd, F_ADD_SEALS,
			    F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0)
			return 0;
		if (errno != EBUSY)
			break;
	}
	return -errno;
}

int file_write_at(int dirfd, const char *path, const char *text)
{
	cleanup_fd int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	size_t n = strlen(text);
	ssize_t written;

	if (fd < 0)
		return -errno;
	written = write(fd, text, n);
	if (written < 0)
		return -errno;
	return (size_t)written == n ? 0 : -EIO;
}

int file_write_fmt_at(int dirfd, const char *path, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		return -E2BIG;
	return file_write_at(dirfd, path, text);
}

int file_create_at(int dirfd, const char *path, mode_t mode, const void *bytes, size_t n)
{
	cleanup_fd int fd =
		openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0)
		return -errno;
	return file_write_all(fd, bytes, n);
}

/* From where @fd stands to the end. */
static int read_rest(int fd, struct buf *out)
{
	for (;;) {
		char chunk[4096];
		ssize_t n = read(fd, chunk, sizeof(chunk));

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			return 0;
		buf_add(out, chunk, (size_t)n);
		if (buf_failed(out))
			return -EMSGSIZE;
	}
}

int file_read_at(int dirfd, const char *path, struct buf *out)
{
	cleanup_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : read_rest(fd, out);
}

int file_read_again(int fd, struct buf *out)
{
	return lseek(fd, 0, SEEK_SET) < 0 ? -errno : read_rest(fd, out);
}

int file_read_u64_at(int dirfd, const char *path, uint64_t *ret)
{
	cleanup_buf struct buf b = BUF_INIT(64);
	int rc = file_read_at(dirfd, path, &b);

	if (rc < 0)
		return rc;
	if (b.n > 0 && b.p[b.n - 1] == '\n')
		b.p[--b.n] = '\0';
	if (str_eq(buf_cstr(&b), "max")) {
		*ret = UINT64_MAX;
		return 0;
	}
	return str_to_u64(buf_cstr(&b), 0, UINT64_MAX, ret);
}

int file_read_key(int fd, const char *key, uint64_t *ret)
{
	cleanup_buf struct buf b = BUF_INIT(65536);
	size_t klen = strlen(key);
	int rc = file_read_again(fd, &b);

	if (rc < 0)
		return rc;
	for (char *line = b.p; line != NULL && *line != '\0';) {
		char *end = strchr(line, '\n');

		if (end != NULL)
			*end = '\0';
		if (strncmp(line, key, klen) == 0 && line[klen] == ' ')
			return str_to_u64(line + klen + 1, 0, UINT64_MAX, ret);
		line = end != NULL ? end + 1 : NULL;
	}
	return -ENOENT;
}

int file_read_key_at(int dirfd, const char *path, const char *key, uint64_t *ret)
{
	cleanup_fd int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : file_read_key(fd, key, ret);
}

int file_own_dir(char *dir, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", dir, size - 1);
	char *slash;

	if (n < 0)
		return -errno;
	dir[n] = '\0';
	slash = strrchr(dir, '/');
	if (slash == NULL)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

/* fchmod() takes no O_PATH, and fchmodat2() comes with Linux 6.6. */
int file_set_mode(int fd, mode_t mode)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return chmod(path, mode) < 0 ? -errno : 0;
}

int file_mkdirs_at(int dirfd, const char *path, mode_t mode)
{
	cleanup_fd int at = openat(dirfd, dirfd == AT_FDCWD && path[0] == '/' ? "/" : ".",
		O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (at < 0)
		return -errno;
	while (*path != '\0') {
		char name[NAME_MAX + 1];
		size_t len;
		int next;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 0)
			break;
		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = '\0';
		path += len;
		if (mkdirat(at, name, mode) < 0 && errno != EEXIST)
			return -errno;
		next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return -errno;
		fd_close(&at);
		at = next;
	}
	return 0;
}

static void interrupt_only(attr_unused int sig)
{
}

/* Again and again: an alarm that rings just before the call would not interrupt it. */
static void alarm_set(suseconds_t every_us)
{
	const struct itimerval timer = { .it_interval = { .tv_usec = every_us },
		.it_value = { .tv_usec = every_us } };

	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

int file_lock(int fd, bool alone, unsigned int timeout_ms)
{
	const struct sigaction interrupt = { .sa_handler = interrupt_only };
	uint64_t deadline = clock_now_ns() + timeout_ms * NS_PER_MS;
	int how = alone ? LOCK_EX : LOCK_SH, rc;
	struct sigaction before;

	if (flock(fd, how | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK || timeout_ms == 0)
		return errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
	if (sigaction(SIGALRM, &interrupt, &before) < 0)
		return -errno;
	alarm_set(100000);
	do
		rc = flock(fd, how) < 0 ? -errno : 0;
	while (rc == -EINTR && clock_now_ns() < deadline);
	alarm_set(0);
	(void)sigaction(SIGALRM, &before, NULL);
	return rc == -EINTR ? -ETIMEDOUT : rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Files: offsets, flags, shared descriptions, deleted files, directories, memory files, close-on-exec. */
#include "object.h"

#include <dirent.h>

int main(void)
{
	int file = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0644), twin, append, gone, memory,
	    null, plain, nameless, log;
	int go[2], back[2], sparse = open("/tmp/high", O_RDONLY | O_CREAT, 0600);
	int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC), same_statm, tasks, parents;
	char text[32] = { 0 }, path[64];
	struct stat st;
	pid_t child;
	DIR *dir;

	MUST(write(file, "0123456789", 10) == 10 && lseek(file, 4, SEEK_SET) == 4);
	MUST((twin = dup(file)) >= 0);
	append = open("/tmp/file", O_WRONLY | O_APPEND | O_CLOEXEC);
	gone = open("/tmp/gone", O_RDWR | O_CREAT | O_TRUNC, 0640);
	MUST(write(gone, "still here", 10) == 10 && unlink("/tmp/gone") == 0);
	/* as tempfile of Python does */
	plain = open("/tmp/plain", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	MUST(write(plain, "plain", 5) == 5 && unlink("/tmp/plain") == 0);
	/* as a command's output that goes into a file */
	log = open("/tmp/log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	MUST(write(log, "a line", 6) == 6 && unlink("/tmp/log") == 0);
	nameless = open("/tmp", O_RDWR | O_TMPFILE | O_EXCL, 0600);
	if (nameless < 0 && errno == EOPNOTSUPP) /* an overlay, before Linux 6.3 */
		nameless = open("/dev/shm", O_RDWR | O_TMPFILE | O_EXCL, 0600);
	MUST(nameless >= 0 && write(nameless, "nameless", 8) == 8);
	MUST((memory = memfd_create("object", MFD_ALLOW_SEALING)) >= 0);
	MUST(write(memory, "in memory", 9) == 9 && fcntl(memory, F_ADD_SEALS, F_SEAL_GROW) == 0);
	null = open("/dev/null", O_RDWR);
	MUST(dup2(sparse, 200) == 200 && close(sparse) == 0);
	dir = opendir("/proc");
	MUST(dir != NULL && append >= 0 && null >= 0);
	MUST(read(statm, text, 1) == 1 && (same_statm = dup(statm)) >= 0);
	MUST((tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY)) >= 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/status", getppid());
	parents = open(getppid() > 0 ? path : "/proc/1/status", O_RDONLY);
	MUST(parents >= 0);
	MUST(pipe(go) == 0 && pipe(back) == 0);
	child = fork();
	if (child == 0) {
		char c;

		/* what /proc shows of a parent */
		MUST(pread(statm, text, 2, 0) == 2 && pread(same_statm, text, 2, 0) == 2);
		/* the same description: where one reads the other goes on */
		MUST(read(go[0], &c, 1) == 1 && read(file, &c, 1) == 1 && c == '4');
		MUST(write(back[1], &c, 1) == 1);
		_exit(0);
	}

	object_ready();

	MUST(write(go[1], "x", 1) == 1 && read(back[0], text, 1) == 1);
	MUST(read(twin, text, 2) == 2 && memcmp(text, "56", 2) == 0);
	MUST(lseek(file, 0, SEEK_CUR) == 7);
	MUST(write(append, "ab", 2) == 2 && fstat(file, &st) == 0 && st.st_size == 12);
	MUST((fcntl(append, F_GETFL) & (O_APPEND | O_ACCMODE)) == (O_APPEND | O_WRONLY));
	MUST(fcntl(append, F_GETFD) == FD_CLOEXEC && fcntl(file, F_GETFD) == 0);
	MUST(fstat(gone, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 07777) == 0640);
	MUST(pread(gone, text, 10, 0) == 10 && memcmp(text, "still here", 10) == 0);
	MUST(lseek(gone, 0, SEEK_CUR) == 10 && access("/tmp/gone", F_OK) < 0);
	MUST(pread(plain, text, 5, 0) == 5 && memcmp(text, "plain", 5) == 0);
	MUST(pread(nameless, text, 8, 0) == 8 && memcmp(text, "nameless", 8) == 0);
	MUST(write(nameless, "!", 1) == 1 && fstat(nameless, &st) == 0 && st.st_size == 9);
	MUST((fcntl(log, F_GETFL) & (O_APPEND | O_ACCMODE)) == (O_APPEND | O_WRONLY));
	MUST(lseek(log, 0, SEEK_CUR) == 6 && write(log, ", more", 6) == 6);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", log);
	MUST((log = open(path, O_RDONLY)) >= 0 && read(log, text, sizeof(text)) == 12);
	MUST(memcmp(text, "a line, more", 12) == 0 && fstat(log, &st) == 0 && st.st_nlink == 0);
	MUST(pread(memory, text, 9, 0) == 9 && memcmp(text, "in memory", 9) == 0);
	MUST(lseek(memory, 0, SEEK_CUR) == 9 && fcntl(memory, F_GET_SEALS) == F_SEAL_GROW);
	MUST(fstat(null, &st) == 0 && S_ISCHR(st.st_mode) && write(null, "x", 1) == 1);
	MUST(fstat(200, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600);
	MUST(readdir(dir) != NULL && waitpid(child, NULL, 0) == child);
	MUST(lseek(statm, 0, SEEK_CUR) == 1 && lseek(same_statm, 0, SEEK_SET) == 0 &&
		lseek(statm, 0, SEEK_CUR) == 0);
	MUST((fcntl(statm, F_GETFD) & FD_CLOEXEC) != 0 &&
		(fcntl(same_statm, F_GETFD) & FD_CLOEXEC) == 0);
	(void)snprintf(path, sizeof(path), "%d", getpid());
	MUST(faccessat(tasks, path, F_OK, 0) == 0);
	MUST(pread(parents, text, 5, 0) == 5 && memcmp(text, "Name:", 5) == 0);
	return object_done();
}

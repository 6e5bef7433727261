/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files and directories of files, without libFuzzer: `replay_frame fuzz/corpus/frame`. Ends with 0 when all
 * inputs passed; an input that breaks the target kills the process, after its name was printed. No input at all is a failure.
 */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

#define INPUT_MAX (16U << 20)

static int replay_file(const char *path)
{
	cleanup_fclose FILE *f = fopen(path, "rbe");
	cleanup_free uint8_t *data = NULL;
	struct stat st;

	if (f == NULL || fstat(fileno(f), &st) < 0 || st.st_size > INPUT_MAX) {
		fprintf(stderr, "%s: cannot be read\n", path);
		return -1;
	}
	/* An exact copy, so that a sanitizer sees one byte too many. */
	data = xalloc((size_t)st.st_size + (st.st_size == 0));
	if (fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
		return -1;
	(void)fprintf(stderr, "%s\n", path);
	(void)LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	return 1;
}

static int replay(const char *path)
{
	struct dirent *entry;
	struct stat st;
	int n = 0;
	DIR *dir;

	if (stat(path, &st) < 0) {
		fprintf(stderr, "%s: cannot be read\n", path);
		return -1;
	}
	if (!S_ISDIR(st.st_mode))
		return replay_file(path);
	dir = opendir(path);
	while (dir != NULL && n >= 0 && (entry = readdir(dir)) != NULL) {
		char file[PATH_MAX];

		if (entry->d_name[0] == '.')
			continue;
		(void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		n = replay_file(file) < 0 ? -1 : n + 1;
	}
	if (dir != NULL)
		(void)closedir(dir);
	return n;
}

int main(int argc, char **argv)
{
	int n = 0;

	for (int i = 1; i < argc; i++) {
		int rc = replay(argv[i]);

		if (rc < 0)
			return 1;
		n += rc;
	}
	printf("%d inputs\n", n);
	return n == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/machine.h"
#include "base/str.h"
#include "checkpoint/image.h"
#include "codec/proctext.h"
#include "store/digest.h"
#include "sys/file.h"

#include <cpuid.h>
#include <fcntl.h>
#include <sys/utsname.h>

#define CPUID_XSAVE 0xd

static int vdso_digest(char text[DIGEST_TEXT_SIZE])
{
	cleanup_buf struct buf maps = BUF_INIT(1U << 20);
	unsigned char digest[DIGEST_SIZE];
	struct proc_map map;
	const char *at, *end;
	int rc = file_read_at(AT_FDCWD, "/proc/self/maps", &maps);

	at = buf_cstr(&maps);
	end = at + maps.n;
	while (rc == 0 && proc_map_next(&at, end, &map) > 0) {
		if (map.name_size != 6 || memcmp(map.name, "[vdso]", 6) != 0)
			continue;
		digest_bytes((const void *)(uintptr_t)map.start, map.end - map.start, digest);
		digest_text(digest, text);
		return 0;
	}
	return rc < 0 ? rc : -ENOENT;
}

static json_t *cpu_features(void)
{
	cleanup_buf struct buf info = BUF_INIT(16U << 20);
	json_t *list = json_array();
	const char *line;
	char *end, *save = NULL;

	if (file_read_at(AT_FDCWD, "/proc/cpuinfo", &info) < 0)
		return list;
	line = strstr(buf_cstr(&info), "\nflags");
	line = line != NULL ? strchr(line, ':') : NULL;
	end = line != NULL ? strchr(line, '\n') : NULL;
	if (end == NULL)
		return list;
	*end = '\0';
	for (char *word = strtok_r(info.p + (line - info.p) + 1, " ", &save); word != NULL;
		word = strtok_r(NULL, " ", &save))
		(void)json_array_append_new(list, json_string(word));
	return list;
}

/* Of all states that the kernel has switched on. */
static unsigned int xsave_size(void)
{
	unsigned int a = 0, b = 0, c = 0, d = 0;

	return __get_cpuid_count(CPUID_XSAVE, 0, &a, &b, &c, &d) != 0 ? b : 0;
}

json_t *machine_describe(struct err *err)
{
	char vdso[DIGEST_TEXT_SIZE];
	struct utsname name;
	int rc = vdso_digest(vdso);

	if (rc < 0 || uname(&name) < 0) {
		(void)err_raise_sys(err, rc < 0 ? rc : -errno, "look at this machine's kernel");
		return NULL;
	}
	return json_pack("{s:i,s:s,s:s,s:I,s:o}", "image", (int)IMAGE_VERSION, "kernel",
		name.release, "vdso", vdso, "xsave", (json_int_t)xsave_size(), "cpu",
		cpu_features());
}

static bool has(const json_t *list, const char *word)
{
	const json_t *e;
	size_t i;

	json_array_foreach (list, i, e) {
		if (str_eq(json_string_value(e), word))
			return true;
	}
	return false;
}

static int check_cpu(const json_t *then, const json_t *now, struct err *err)
{
	const json_t *e;
	size_t i;

	json_array_foreach (json_object_get(then, "cpu"), i, e) {
		if (!has(json_object_get(now, "cpu"), json_string_value(e)))
			return err_raise(err, ERR_UNSUPPORTED,
				"the memory was written on a processor with '%s', which this one has not",
				json_string_value(e));
	}
	if (!json_equal(json_object_get(then, "xsave"), json_object_get(now, "xsave")))
		return err_raise(err, ERR_UNSUPPORTED,
			"the memory holds %lld bytes of registers for each thread, this processor has %lld",
			json_integer_value(json_object_get(then, "xsave")),
			json_integer_value(json_object_get(now, "xsave")));
	return 0;
}

/* What was written before its version was noted has none. */
static int check_image(const json_t *then, struct err *err)
{
	json_int_t version = json_integer_value(json_object_get(then, "image"));

	if (version == IMAGE_VERSION)
		return 0;
	return err_raise(err, ERR_UNSUPPORTED,
		"the memory was written by %s version of cay: its image has format %lld, this one reads %u",
		version > IMAGE_VERSION ? "a newer" : "an older", version, IMAGE_VERSION);
}

static int compare(const json_t *then, const json_t *now, struct err *err)
{
	const char *kernel = json_string_value(json_object_get(then, "kernel"));

	if (check_image(then, err) < 0)
		return -ENOTSUP;
	if (!json_equal(json_object_get(then, "kernel"), json_object_get(now, "kernel")))
		return err_raise(err, ERR_UNSUPPORTED,
			"the memory was written under kernel %s, this is %s",
			kernel != NULL ? kernel : "?",
			json_string_value(json_object_get(now, "kernel")));
	if (!json_equal(json_object_get(then, "vdso"), json_object_get(now, "vdso")))
		return err_raise(err, ERR_UNSUPPORTED,
			"the memory was written under another build of kernel %s: its vDSO differs",
			kernel != NULL ? kernel : "?");
	return check_cpu(then, now, err);
}

int machine_check(const json_t *then, struct err *err)
{
	json_t *now = machine_describe(err);
	int rc = now == NULL ? -EIO : compare(then, now, err);

	json_decref(now);
	return rc;
}

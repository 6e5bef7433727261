/* SPDX-License-Identifier: Apache-2.0 */
#include "base/credential.h"
#include "base/str.h"

#include <stdlib.h>
#include <unistd.h>

struct place {
	const char *path, *what;
};

static const struct place places[] = {
#define CREDENTIAL(path, what) { path, what },
#define CREDENTIAL_WHOLE(path, what)
#include "credentials.def"
#undef CREDENTIAL
#undef CREDENTIAL_WHOLE
};

/* What is shown whole with these is more than any program needs. */
static const char *whole_place(const char *path)
{
	static const struct place whole[] = {
#define CREDENTIAL(path, what)
#define CREDENTIAL_WHOLE(path, what) { path, what },
#include "credentials.def"
#undef CREDENTIAL
#undef CREDENTIAL_WHOLE
	};

	for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
		if (str_eq(path, whole[i].path))
			return whole[i].what;
	}
	return NULL;
}

const char *credential_place(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		size_t n = strlen(places[i].path);

		for (const char *p = strstr(path, places[i].path); p != NULL;
			p = strstr(p + 1, places[i].path)) {
			if (p[n] == '\0' || p[n] == '/')
				return places[i].what;
		}
	}
	return whole_place(path);
}

const char *credential_at(const char *path)
{
	static const char *const below[] = { ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc",
		".config/gcloud", ".azure", ".git-credentials", ".password-store" };
	cleanup_free char *real = realpath(path, NULL);
	const char *what = credential_place(path);

	if (what == NULL && real != NULL)
		what = credential_place(real);
	for (size_t i = 0; what == NULL && i < ARRAY_SIZE(below); i++) {
		cleanup_free char *inner = str_dupf("%s/%s", path, below[i]);

		if (access(inner, F_OK) == 0)
			what = credential_place(inner);
	}
	return what;
}

/* Is @place there, a path of a home directory, where @path is that directory or one on the way ("/.config")? */
static bool is_below(const char *path, const char *place)
{
	size_t n = strlen(path);

	if (!str_starts(place, "/."))
		return false;
	for (const char *rest = place; rest != NULL; rest = strchr(rest + 1, '/')) {
		size_t way = (size_t)(rest - place);
		cleanup_free char *inner = str_dupf("%s%s", path, rest);

		if (way <= n && memcmp(path + n - way, place, way) == 0 && access(inner, F_OK) == 0)
			return true;
	}
	return false;
}

const char *credential_exposed(const char *path)
{
	cleanup_free char *real = realpath(path, NULL);
	const char *what = credential_at(path);

	for (size_t i = 0; what == NULL && real != NULL && i < ARRAY_SIZE(places); i++) {
		if (is_below(real, places[i].path))
			what = places[i].what;
	}
	return what;
}

int credential_refuse(const char *path, const char *what, struct err *err)
{
	return err_hint(err, err_raise(err, ERR_DENIED, "expose '%s': %s lie there", path, what),
		"expose the directory of the program alone; a variable of the environment hands in one value");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/directories.h"
#include "base/str.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

/* Several slashes in a row become one, and none stays at the end. */
static char *squeeze(char *path)
{
	char *to = path;

	for (const char *p = path; *p != '\0'; p++) {
		if (*p != '/' || to == path || to[-1] != '/')
			*to++ = *p;
	}
	if (to > path + 1 && to[-1] == '/')
		to--;
	*to = '\0';
	return path;
}

static char *given(const char *name)
{
	const char *value = getenv(name);

	return value != NULL && *value != '\0' ? squeeze(str_dup(value)) : NULL;
}

/* What is relative is not heeded, as the XDG base directory specification wants it. */
static char *below(const char *variable, const char *tail)
{
	const char *value = getenv(variable);

	return value != NULL && *value == '/' ? squeeze(str_dupf("%s/%s", value, tail)) : NULL;
}

static char *from(const char *name, char *path, const char **ret_of)
{
	if (ret_of != NULL)
		*ret_of = name;
	return path;
}

char *directories_home(void)
{
	const char *home = getenv("HOME");
	const struct passwd *pw;

	if (home == NULL || *home != '/') {
		pw = getpwuid(geteuid());
		home = pw != NULL ? pw->pw_dir : NULL;
	}
	return home != NULL && *home == '/' ? squeeze(str_dup(home)) : NULL;
}

char *directories_state(const char **ret_of)
{
	char *path = given("CAY_STATE");
	cleanup_free char *home = NULL;

	if (path != NULL)
		return from("CAY_STATE", path, ret_of);
	if (geteuid() == 0)
		return from("", str_dup("/var/lib/cay"), ret_of);
	path = below("XDG_DATA_HOME", "cay");
	if (path != NULL)
		return from("XDG_DATA_HOME", path, ret_of);
	home = directories_home();
	if (home == NULL)
		return NULL;
	return from("HOME", squeeze(str_dupf("%s/.local/share/cay", home)), ret_of);
}

char *directories_run(const char **ret_of)
{
	char *path = given("CAY_RUN");

	if (path != NULL)
		return from("CAY_RUN", path, ret_of);
	if (geteuid() == 0)
		return from("", str_dup("/run/cay"), ret_of);
	path = below("XDG_RUNTIME_DIR", "cay");
	if (path != NULL)
		return from("XDG_RUNTIME_DIR", path, ret_of);
	return from("", str_dupf("/tmp/cay-%u", geteuid()), ret_of);
}

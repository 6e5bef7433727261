/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/account.h"
#include "base/ablate.h"
#include "base/buf.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCOUNT_FILE_MAX (1U << 20)
#define ID_MAX_INSIDE    65534

/* Splits the next line of *@cursor into colon-separated fields. Return: number of fields; -1 at the end. */
static int next_fields(char **cursor, char **field, size_t max)
{
	char *line = *cursor, *end;
	size_t n = 0;

	if (line == NULL || *line == '\0')
		return -1;
	end = strchr(line, '\n');
	if (end != NULL)
		*end = '\0';
	*cursor = end != NULL ? end + 1 : NULL;
	while (line != NULL && n < max) {
		char *colon = strchr(line, ':');

		if (colon != NULL)
			*colon = '\0';
		field[n++] = line;
		line = colon != NULL ? colon + 1 : NULL;
	}
	return (int)n;
}

static bool parse_id(const char *s, uint32_t *ret)
{
	uint64_t v;

	if (str_to_u64(s, 0, ID_MAX_INSIDE, &v) < 0)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static void find_passwd(char *text, const char *name, struct account *a, bool *found)
{
	char *field[7], *cursor = text;
	uint32_t wanted = 0, uid, gid;
	bool by_id = parse_id(name, &wanted);
	int n;

	while ((n = next_fields(&cursor, field, 7)) >= 0) {
		if (n < 7 || !parse_id(field[2], &uid) || !parse_id(field[3], &gid))
			continue;
		if (!str_eq(field[0], name) && !(by_id && uid == wanted))
			continue;
		if (str_copy(a->name, sizeof(a->name), field[0]) < 0 ||
			str_copy(a->home, sizeof(a->home), field[5]) < 0)
			continue;
		a->uid = uid;
		a->gid = gid;
		*found = true;
		return;
	}
}

/* Two names may stand for one group. */
static void add_group(struct account *a, uint32_t gid)
{
	for (size_t i = 0; i < a->n_groups; i++) {
		if (a->groups[i] == gid)
			return;
	}
	if (a->n_groups < ACCOUNT_GROUPS_MAX)
		a->groups[a->n_groups++] = gid;
}

static void find_groups(char *text, const char *wanted, struct account *a, bool *found)
{
	char *field[4], *cursor = text;
	uint32_t gid;
	int n;

	while ((n = next_fields(&cursor, field, 4)) >= 0) {
		if (n < 4 || !parse_id(field[2], &gid))
			continue;
		if (wanted != NULL && str_eq(field[0], wanted)) {
			a->gid = gid;
			*found = true;
		}
		if (str_list_has(field[3], a->name))
			add_group(a, gid);
	}
}

/* Programs that need no accounts come in images without any: uid 0 is root there too. */
static bool known_id(const char *name, uint32_t *ret)
{
	if (!str_eq(name, "root"))
		return parse_id(name, ret);
	*ret = 0;
	return true;
}

int account_among(const char *user, char *passwd, char *group, struct account *ret, struct err *err)
{
	cleanup_free char *name = str_dup(user[0] != '\0' ? user : "0");
	char *group_name = strchr(name, ':');
	bool found = false;
	uint32_t id;

	if (group_name != NULL)
		*group_name++ = '\0';
	*ret = (struct account){ .home = "/" };
	find_passwd(passwd, name, ret, &found);
	if (!found) {
		if (!known_id(name, &id))
			return err_raise(
				err, ERR_BAD_USER, "user '%s' does not exist in the sandbox", name);
		(void)snprintf(ret->name, sizeof(ret->name), "%u", id);
		ret->uid = id;
		ret->gid = id == 0 ? 0 : id;
		if (id == 0)
			(void)!str_copy(ret->home, sizeof(ret->home), "/root");
	}
	found = group_name == NULL;
	find_groups(group, group_name, ret, &found);
	if (!found) {
		if (!known_id(group_name, &id))
			return err_raise(err, ERR_BAD_USER,
				"group '%s' does not exist in the sandbox", group_name);
		ret->gid = id;
	}
	return 0;
}

/* The payload may have put anything there: a FIFO would stop us, a device would never end. */
static void read_text(const char *path, struct buf *text)
{
	cleanup_fd int fd = open(path,
		O_RDONLY | O_CLOEXEC | O_NOCTTY | (ablated("regular_accounts") ? 0 : O_NONBLOCK));
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		char *room = buf_room(text, (size_t)st.st_size < ACCOUNT_FILE_MAX - 1
						    ? (size_t)st.st_size
						    : ACCOUNT_FILE_MAX - 1);
		ssize_t n = room != NULL && st.st_size < ACCOUNT_FILE_MAX
				    ? read(fd, room, (size_t)st.st_size)
				    : 0;

		if (n > 0)
			buf_grown(text, (size_t)n);
	}
	buf_char(text, '\0');
}

int account_find(const char *user, struct account *ret, struct err *err)
{
	cleanup_buf struct buf passwd = BUF_INIT(ACCOUNT_FILE_MAX),
			       group = BUF_INIT(ACCOUNT_FILE_MAX);

	read_text("/etc/passwd", &passwd);
	read_text("/etc/group", &group);
	return account_among(user, passwd.p, group.p, ret, err);
}

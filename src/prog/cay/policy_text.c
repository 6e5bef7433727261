/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/policy_text.h"
#include "base/buf.h"
#include "base/str.h"

#include <string.h>

#define POLICY_MAX (256U << 10)

/* Is there a preset @name? A word that is neither a file nor a preset is most likely misspelt, so say both. */
static int known_preset(struct cli *cli, const char *name)
{
	cleanup_json json_t *answer = NULL;
	json_t *preset;
	size_t i;
	int rc = cli_get(cli, "/v1/policy/presets", &answer);

	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(answer, "presets"), i, preset) {
		if (str_eq(cli_string(preset, "name", ""), name))
			return 0;
	}
	return err_hint(&cli->err,
		err_raise(&cli->err, ERR_NOT_FOUND,
			"policy '%s': there is no such file, and '%s' is no preset", name, name),
		"cay policy presets lists those that come with cay");
}

int policy_text(struct cli *cli, const char *what, json_t **ret)
{
	cleanup_buf struct buf text = BUF_INIT(POLICY_MAX);
	cleanup_fclose FILE *f = fopen(what, "re");
	size_t n = 1;
	int rc;

	if (f == NULL && (errno != ENOENT || strchr(what, '/') != NULL))
		return err_raise(&cli->err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DENIED,
			"policy '%s': %s", what, strerrordesc_np(errno));
	if (f == NULL && (rc = known_preset(cli, what)) < 0)
		return rc;
	if (f == NULL)
		buf_fmt(&text, "{\"version\": 1, \"preset\": [\"%s\"]}", what);
	while (f != NULL && n > 0 && !buf_failed(&text)) {
		char *room = buf_room(&text, 4096);

		n = room != NULL ? fread(room, 1, 4096, f) : 0;
		if (n > 0)
			buf_grown(&text, n);
	}
	if (f != NULL && ferror(f))
		return err_raise(
			&cli->err, ERR_USAGE, "policy '%s': %s", what, strerrordesc_np(errno));
	if (text.n == 0)
		return err_raise(&cli->err, ERR_USAGE, "policy '%s': the file is empty", what);
	if (buf_failed(&text) || strlen(buf_cstr(&text)) != text.n)
		return err_raise(&cli->err, ERR_USAGE, "policy '%s': too large, or no text", what);
	*ret = json_stringn(buf_cstr(&text), text.n);
	return *ret != NULL ? 0
			    : err_raise(&cli->err, ERR_USAGE, "policy '%s': not valid UTF-8", what);
}

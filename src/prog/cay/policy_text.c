/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/policy_text.h"
#include "base/buf.h"

#include <string.h>

#define POLICY_MAX (256U << 10)

int policy_text(struct cli *cli, const char *what, json_t **ret)
{
	cleanup_buf struct buf text = BUF_INIT(POLICY_MAX);
	cleanup_fclose FILE *f = fopen(what, "re");
	size_t n = 1;

	if (f == NULL && (errno != ENOENT || strchr(what, '/') != NULL))
		return err_raise(&cli->err, errno == ENOENT ? ERR_NOT_FOUND : ERR_DENIED,
			"policy '%s': %s", what, strerrordesc_np(errno));
	if (f == NULL)
		buf_fmt(&text, "{\"version\": 1, \"preset\": [\"%s\"]}", what);
	while (f != NULL && n > 0 && !buf_failed(&text)) {
		char *room = buf_room(&text, 4096);

		n = room != NULL ? fread(room, 1, 4096, f) : 0;
		text.n += n;
	}
	if (buf_failed(&text) || strlen(buf_cstr(&text)) != text.n)
		return err_raise(&cli->err, ERR_USAGE, "policy '%s': too large, or no text", what);
	*ret = json_stringn(buf_cstr(&text), text.n);
	return *ret != NULL ? 0
			    : err_raise(&cli->err, ERR_USAGE, "policy '%s': not valid UTF-8", what);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/nameservers.h"
#include "api/gateways.h"
#include "api/server.h"
#include "base/str.h"
#include "gateway/address.h"
#include "sys/file.h"

#include <fcntl.h>
#include <string.h>

#define PATH     "/etc/resolv.conf"
#define TEXT_MAX 65536U
#define CSV_MAX  1024U
#define LOOK_NS  (2 * NS_PER_S)

/* What is no address, or is of one link alone, is left out. */
static void add(struct buf *csv, const char *word, size_t n)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (n >= sizeof(text))
		return;
	memcpy(text, word, n);
	text[n] = '\0';
	if (address_parse(text, &address) < 0)
		return;
	buf_fmt(csv, strchr(text, ':') != NULL ? "%s[%s]:53" : "%s%s:53", csv->n > 0 ? "," : "",
		text);
}

char *nameservers_csv(const char *text)
{
	static const char keyword[] = "nameserver";
	struct buf csv = BUF_INIT(CSV_MAX);

	for (const char *line = text, *end; *line != '\0'; line = end + (*end != '\0')) {
		const char *p = line + strspn(line, " \t");
		size_t n = strlen(keyword);

		end = line + strcspn(line, "\n");
		if (strncmp(p, keyword, n) != 0 || (p[n] != ' ' && p[n] != '\t'))
			continue;
		p += n + strspn(p + n, " \t");
		add(&csv, p, strcspn(p, " \t\r\n#;"));
	}
	if (csv.n > 0 && !buf_failed(&csv))
		return buf_take(&csv);
	buf_free(&csv);
	return NULL;
}

static char *read_csv(void)
{
	cleanup_buf struct buf text = BUF_INIT(TEXT_MAX);

	return file_read_at(AT_FDCWD, PATH, &text) == 0 ? nameservers_csv(buf_cstr(&text)) : NULL;
}

void nameservers_init(struct server *srv)
{
	srv->nameservers = read_csv();
	srv->nameservers_due_ns = clock_now_ns() + LOOK_NS;
}

static void tell(struct sandbox *sb, attr_unused const void *arg)
{
	if (sb->gateway_wanted)
		gateway_configure_surely(sb);
}

static void tell_all(void *arg)
{
	sandbox_for_all(arg, tell, NULL);
}

/* A file that is just being written may name none; it does when that is done. */
void nameservers_settle(struct server *srv)
{
	char *now;

	if (clock_now_ns() < srv->nameservers_due_ns || srv->stopping)
		return;
	srv->nameservers_due_ns = clock_now_ns() + LOOK_NS;
	now = read_csv();
	if (now == NULL || (srv->nameservers != NULL && str_eq(now, srv->nameservers))) {
		free(now);
		return;
	}
	free(srv->nameservers);
	srv->nameservers = now;
	fiber_start(tell_all, srv);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/dns.h"
#include "fuzz/fuzz.h"

#include <string.h>

/* Whatever is asked, an answer is well-formed: its head counts what is in it, and it repeats the question. */
static void answer(const struct dns_query *q, size_t limit)
{
	cleanup_buf struct buf out = BUF_INIT(DNS_MESSAGE_MAX);
	unsigned char data[16] = { 0 };
	struct dns_answer a;
	const unsigned char *p;

	dns_answer_begin(&a, &out, q, DNS_NOERROR);
	for (int i = 0; i < 20; i++) {
		dns_answer_add(&a, DNS_AAAA, 60, data, sizeof(data));
		MUST(dns_answer_add_name(&a, DNS_SRV, 60, data, 6, q->name) == 0 || !q->plain);
	}
	dns_answer_end(&a, limit);
	p = (const unsigned char *)out.p;
	MUST(!buf_failed(&out) && out.n >= 12 && (p[2] & 0x80) != 0);
	MUST(out.n <= limit || a.count == 0);
	MUST(q->question == NULL || memcmp(p + 12, q->question, q->question_n) == 0);
	MUST(p[6] * 256 + p[7] == a.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char encoded[255];
	struct in6_addr address;
	struct dns_query q;
	int rc = dns_parse_query(data, size, &q);
	ssize_t n;

	if (rc == -EINVAL)
		return 0;
	MUST(strlen(q.name) <= DNS_NAME_MAX);
	MUST(rc != 0 || (q.question_n >= 5 && q.question_n <= size - 12));
	/* a name that was read can be written again, to the bytes that it came from but for letter case */
	n = rc == 0 && q.plain && q.name[0] != '\0' ? dns_name_encode(q.name, encoded) : 0;
	MUST(n == 0 || (size_t)n + 4 == q.question_n);
	for (ssize_t i = 0; i < n; i++)
		MUST((encoded[i] | 32) == (q.question[i] | 32));
	(void)!dns_reverse(q.name, &address);
	answer(&q, DNS_PLAIN_MAX);
	answer(&q, DNS_MESSAGE_MAX);
	return 0;
}

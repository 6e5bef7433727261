/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/packet.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct packet p;
	int rc = packet_parse(data, size, &p);

	MUST(rc == 0 || rc == -EBADMSG);
	if (rc < 0)
		return 0;
	MUST(size >= (data[0] >> 4 == 4 ? 20 : 40));
	MUST(data[0] >> 4 == 6 || IN6_IS_ADDR_V4MAPPED(&p.to));
	/* ports only where the protocol has them */
	MUST(p.port == 0 || p.protocol == IPPROTO_TCP || p.protocol == IPPROTO_UDP ||
		p.protocol == IPPROTO_UDPLITE || p.protocol == IPPROTO_SCTP ||
		p.protocol == IPPROTO_DCCP);
	return 0;
}

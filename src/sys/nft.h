/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/nft.h - nf_tables over netlink: tables, chains, sets and rules of one inet table, as one batch that the kernel takes or refuses as a whole.
 *
 * A rule is a sequence of expressions between nft_rule() and nft_rule_end(); each reads or writes register 1, and one that does not match ends the rule. Each costs more than a
 * microsecond to make (the kernel looks through the names of all kinds that it has), so what looks at two things compares them at once. Expressions are
 * named as nft(8) prints them with --debug=netlink. Needs CAP_NET_ADMIN over the network namespace of the socket.
 */
#ifndef CAY_SYS_NFT_H
#define CAY_SYS_NFT_H

#include "sys/netlink.h"

enum nft_base { NFT_NETWORK, NFT_TRANSPORT };

/** struct nft - a batch for one table. */
struct nft {
	struct netlink nl;
	const char *table;
	size_t rule; /* nest of the open rule's expressions, or of a set's elements */
};

/** struct nft_range - ports first..last. */
struct nft_range {
	uint16_t first, last;
};

/** struct nft_ranges - some of them; borrowed. */
struct nft_ranges {
	const struct nft_range *p;
	size_t n;
};

/** nft_begin() - begin a batch; end it with nft_commit() or netlink_fini(&nft->nl). @table: borrowed. */
void nft_begin(struct nft *nft, const char *table);

/** nft_commit() - send the batch over @fd (NETLINK_NETFILTER) and release it. Return: 0 or -errno; then nothing of it holds. */
int nft_commit(struct nft *nft, int fd) attr_must_use;

/** nft_table() - add the table. */
void nft_table(struct nft *nft);

/** nft_chain() - add a chain; @hook: NF_INET_* or -1 for one that is only jumped to. */
void nft_chain(struct nft *nft, const char *name, int hook, int priority);

/** nft_port_set() - add a set of ports, each with its protocol. */
void nft_port_set(struct nft *nft, const char *name);

/** nft_ports() - begin to add ranges to a set. */
void nft_ports(struct nft *nft, const char *set);

/** nft_ports_gone() - begin to take ranges out of a set, each as it was added. */
void nft_ports_gone(struct nft *nft, const char *set);

/** nft_ports_range() - @range of @protocol; it must not touch another of the same protocol in the set. */
void nft_ports_range(struct nft *nft, uint8_t protocol, struct nft_range range);

/** nft_ports_end() - end that; one range at least. */
void nft_ports_end(struct nft *nft);

/** nft_rule() - begin a rule at the end of @chain. */
void nft_rule(struct nft *nft, const char *chain);

/** nft_rule_end() - end it. */
void nft_rule_end(struct nft *nft);

/** nft_family() - go on for packets of NFPROTO_IPV4 or NFPROTO_IPV6. */
void nft_family(struct nft *nft, uint8_t family);

/** nft_protocol() - go on for packets of IPPROTO_*. */
void nft_protocol(struct nft *nft, uint8_t protocol);

/** nft_field() - go on when @n bytes at @offset, with @mask (NULL = all bits), equal (or, with @differ, do not equal) @value. @n: at most 16. */
void nft_field(struct nft *nft, enum nft_base base, uint32_t offset, const void *value,
	const void *mask, uint32_t n, bool differ);

/** nft_protocol_field() - nft_protocol() and nft_field() of @n (at most 4) bytes of the transport header, in one comparison. */
void nft_protocol_field(
	struct nft *nft, uint8_t protocol, uint32_t offset, const void *value, uint32_t n);

/** nft_family_field() - the same of the family and the network header. */
void nft_family_field(
	struct nft *nft, uint8_t family, uint32_t offset, const void *value, uint32_t n);

/** nft_protocols() - go on for packets of protocols @first to @last. */
void nft_protocols(struct nft *nft, uint8_t first, uint8_t last);

/** nft_port_in() - go on when the protocol with the destination port is in the set. */
void nft_port_in(struct nft *nft, const char *set);

/** nft_set_source_port() - change the source port of the datagram. */
void nft_set_source_port(struct nft *nft, uint16_t port);

/** nft_tproxy() - give the packet to the transparent listener on @port, and go on. */
void nft_tproxy(struct nft *nft, uint16_t port);

/** nft_mark() - set the packet's mark. */
void nft_mark(struct nft *nft, uint32_t mark);

/** nft_marked() - go on for packets with this mark. */
void nft_marked(struct nft *nft, uint32_t mark);

/** nft_mark_by_cgroup() - set the packet's mark to the low 32 bits of the id of its socket's control group, @level groups below the root. */
void nft_mark_by_cgroup(struct nft *nft, uint32_t level);

/** nft_log() - send the first @bytes of the packet to NFLOG group @group. */
void nft_log(struct nft *nft, uint16_t group, uint32_t bytes);

/** nft_reject() - refuse with "port unreachable"; @reset: with a reset instead, for TCP alone. */
void nft_reject(struct nft *nft, bool reset);

/** nft_goto() - go on in @chain and do not come back; NULL: accept. */
void nft_goto(struct nft *nft, const char *chain);

#endif

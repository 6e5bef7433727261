/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/nft.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>

#define TYPE(message) ((uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | (message)))

/* inet_proto . inet_service of nft(8), for those who list the table */
#define PORT_TYPE (12U << 6 | 13U)

/* Two values that stand in one register behind each other, in four bytes each. */
struct pair {
	uint8_t kind, zero[3]; /* protocol or family */
	unsigned char value[4];
};

static void put_u32(struct nft *nft, uint16_t type, uint32_t value)
{
	uint32_t big = htonl(value);

	netlink_attr(&nft->nl, type, &big, sizeof(big));
}

static void put_str(struct nft *nft, uint16_t type, const char *s)
{
	netlink_attr(&nft->nl, type, s, strlen(s) + 1);
}

static void put_data(struct nft *nft, uint16_t type, const void *p, size_t n)
{
	size_t nest = netlink_nest(&nft->nl, type);

	netlink_attr(&nft->nl, NFTA_DATA_VALUE, p, n);
	netlink_nest_end(&nft->nl, nest);
}

static void open_message(struct nft *nft, uint16_t type, uint16_t flags)
{
	struct nfgenmsg g = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };

	netlink_open(&nft->nl, type, flags, &g, sizeof(g));
}

static void batch_edge(struct nft *nft, uint16_t type)
{
	struct nfgenmsg g = { .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES) };

	netlink_open(&nft->nl, type, 0, &g, sizeof(g));
	netlink_close(&nft->nl);
}

void nft_begin(struct nft *nft, const char *table)
{
	*nft = (struct nft){ .table = table };
	netlink_init(&nft->nl);
	batch_edge(nft, NFNL_MSG_BATCH_BEGIN);
}

int nft_commit(struct nft *nft, int fd)
{
	int rc;

	/* its answer comes when all of it holds, and behind the error of any other part */
	netlink_want_answer(&nft->nl);
	batch_edge(nft, NFNL_MSG_BATCH_END);
	rc = netlink_talk(&nft->nl, fd);
	netlink_fini(&nft->nl);
	return rc;
}

void nft_table(struct nft *nft)
{
	open_message(nft, TYPE(NFT_MSG_NEWTABLE), NLM_F_CREATE);
	put_str(nft, NFTA_TABLE_NAME, nft->table);
	netlink_close(&nft->nl);
}

void nft_chain(struct nft *nft, const char *name, int hook, int priority)
{
	open_message(nft, TYPE(NFT_MSG_NEWCHAIN), NLM_F_CREATE);
	put_str(nft, NFTA_CHAIN_TABLE, nft->table);
	put_str(nft, NFTA_CHAIN_NAME, name);
	if (hook >= 0) {
		size_t nest = netlink_nest(&nft->nl, NFTA_CHAIN_HOOK);

		put_u32(nft, NFTA_HOOK_HOOKNUM, (uint32_t)hook);
		put_u32(nft, NFTA_HOOK_PRIORITY, (uint32_t)priority);
		netlink_nest_end(&nft->nl, nest);
		put_u32(nft, NFTA_CHAIN_POLICY, NF_ACCEPT);
		put_str(nft, NFTA_CHAIN_TYPE, "filter");
	}
	netlink_close(&nft->nl);
}

void nft_port_set(struct nft *nft, const char *name)
{
	open_message(nft, TYPE(NFT_MSG_NEWSET), NLM_F_CREATE);
	put_str(nft, NFTA_SET_TABLE, nft->table);
	put_str(nft, NFTA_SET_NAME, name);
	put_u32(nft, NFTA_SET_ID, 1);
	put_u32(nft, NFTA_SET_FLAGS, NFT_SET_INTERVAL);
	put_u32(nft, NFTA_SET_KEY_TYPE, PORT_TYPE);
	put_u32(nft, NFTA_SET_KEY_LEN, sizeof(struct pair));
	netlink_close(&nft->nl);
}

static void set_element(struct nft *nft, uint8_t protocol, uint16_t port, bool end)
{
	struct pair key = { .kind = protocol,
		.value = { (unsigned char)(port >> 8), (unsigned char)port } };
	size_t nest = netlink_nest(&nft->nl, NFTA_LIST_ELEM);

	put_data(nft, NFTA_SET_ELEM_KEY, &key, sizeof(key));
	if (end)
		put_u32(nft, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
	netlink_nest_end(&nft->nl, nest);
}

static void open_elements(struct nft *nft, uint16_t type, uint16_t flags, const char *set)
{
	open_message(nft, type, flags);
	put_str(nft, NFTA_SET_ELEM_LIST_TABLE, nft->table);
	put_str(nft, NFTA_SET_ELEM_LIST_SET, set);
	nft->rule = netlink_nest(&nft->nl, NFTA_SET_ELEM_LIST_ELEMENTS);
}

void nft_ports(struct nft *nft, const char *set)
{
	open_elements(nft, TYPE(NFT_MSG_NEWSETELEM), NLM_F_CREATE, set);
}

void nft_ports_gone(struct nft *nft, const char *set)
{
	open_elements(nft, TYPE(NFT_MSG_DELSETELEM), 0, set);
}

void nft_ports_range(struct nft *nft, uint8_t protocol, struct nft_range range)
{
	set_element(nft, protocol, range.first, false);
	if (range.last == UINT16_MAX) /* up to where the next protocol begins */
		set_element(nft, (uint8_t)(protocol + 1), 0, true);
	else
		set_element(nft, protocol, (uint16_t)(range.last + 1), true);
}

void nft_ports_end(struct nft *nft)
{
	nft_rule_end(nft);
}

void nft_rule(struct nft *nft, const char *chain)
{
	open_message(nft, TYPE(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND);
	put_str(nft, NFTA_RULE_TABLE, nft->table);
	put_str(nft, NFTA_RULE_CHAIN, chain);
	nft->rule = netlink_nest(&nft->nl, NFTA_RULE_EXPRESSIONS);
}

void nft_rule_end(struct nft *nft)
{
	netlink_nest_end(&nft->nl, nft->rule);
	netlink_close(&nft->nl);
}

/* --- expressions --- */

struct expression {
	size_t element, data;
};

static struct expression expression(struct nft *nft, const char *name)
{
	struct expression e = { .element = netlink_nest(&nft->nl, NFTA_LIST_ELEM) };

	put_str(nft, NFTA_EXPR_NAME, name);
	e.data = netlink_nest(&nft->nl, NFTA_EXPR_DATA);
	return e;
}

static void expression_end(struct nft *nft, const struct expression *e)
{
	netlink_nest_end(&nft->nl, e->data);
	netlink_nest_end(&nft->nl, e->element);
}

static void compare(struct nft *nft, const void *value, size_t n, bool differ)
{
	struct expression e = expression(nft, "cmp");

	put_u32(nft, NFTA_CMP_SREG, NFT_REG_1);
	put_u32(nft, NFTA_CMP_OP, differ ? NFT_CMP_NEQ : NFT_CMP_EQ);
	put_data(nft, NFTA_CMP_DATA, value, n);
	expression_end(nft, &e);
}

static void meta_load(struct nft *nft, uint32_t key)
{
	struct expression e = expression(nft, "meta");

	put_u32(nft, NFTA_META_DREG, NFT_REG_1);
	put_u32(nft, NFTA_META_KEY, key);
	expression_end(nft, &e);
}

static void meta_is(struct nft *nft, uint32_t key, const void *value, size_t n)
{
	meta_load(nft, key);
	compare(nft, value, n, false);
}

static void meta_set(struct nft *nft, uint32_t key)
{
	struct expression e = expression(nft, "meta");

	put_u32(nft, NFTA_META_KEY, key);
	put_u32(nft, NFTA_META_SREG, NFT_REG_1);
	expression_end(nft, &e);
}

void nft_family(struct nft *nft, uint8_t family)
{
	meta_is(nft, NFT_META_NFPROTO, &family, sizeof(family));
}

void nft_protocol(struct nft *nft, uint8_t protocol)
{
	meta_is(nft, NFT_META_L4PROTO, &protocol, sizeof(protocol));
}

void nft_protocols(struct nft *nft, uint8_t first, uint8_t last)
{
	struct expression e;

	meta_load(nft, NFT_META_L4PROTO);
	e = expression(nft, "range");
	put_u32(nft, NFTA_RANGE_SREG, NFT_REG_1);
	put_u32(nft, NFTA_RANGE_OP, NFT_RANGE_EQ);
	put_data(nft, NFTA_RANGE_FROM_DATA, &first, sizeof(first));
	put_data(nft, NFTA_RANGE_TO_DATA, &last, sizeof(last));
	expression_end(nft, &e);
}

static void load(
	struct nft *nft, enum nft_base base, uint32_t offset, uint32_t n, enum nft_registers to)
{
	struct expression e = expression(nft, "payload");

	put_u32(nft, NFTA_PAYLOAD_DREG, (uint32_t)to);
	put_u32(nft, NFTA_PAYLOAD_BASE,
		base == NFT_NETWORK ? NFT_PAYLOAD_NETWORK_HEADER : NFT_PAYLOAD_TRANSPORT_HEADER);
	put_u32(nft, NFTA_PAYLOAD_OFFSET, offset);
	put_u32(nft, NFTA_PAYLOAD_LEN, n);
	expression_end(nft, &e);
}

void nft_field(struct nft *nft, enum nft_base base, uint32_t offset, const void *value,
	const void *mask, uint32_t n, bool differ)
{
	static const unsigned char zero[16];
	struct expression e;

	load(nft, base, offset, n, NFT_REG_1);
	if (mask != NULL) {
		e = expression(nft, "bitwise");
		put_u32(nft, NFTA_BITWISE_SREG, NFT_REG_1);
		put_u32(nft, NFTA_BITWISE_DREG, NFT_REG_1);
		put_u32(nft, NFTA_BITWISE_LEN, n);
		put_data(nft, NFTA_BITWISE_MASK, mask, n);
		put_data(nft, NFTA_BITWISE_XOR, zero, n);
		expression_end(nft, &e);
	}
	compare(nft, value, n, differ);
}

/* As struct pair: the kernel fills what is left of four bytes with zeros. */
static void load_pair(
	struct nft *nft, uint32_t kind, enum nft_base base, uint32_t offset, uint32_t n)
{
	meta_load(nft, kind);
	load(nft, base, offset, n, NFT_REG32_01);
}

static void pair_is(struct nft *nft, uint8_t kind, const void *value, uint32_t n)
{
	struct pair p = { .kind = kind };

	BUG_ON(n > sizeof(p.value));
	memcpy(p.value, value, n);
	compare(nft, &p, sizeof(p), false);
}

void nft_protocol_field(
	struct nft *nft, uint8_t protocol, uint32_t offset, const void *value, uint32_t n)
{
	load_pair(nft, NFT_META_L4PROTO, NFT_TRANSPORT, offset, n);
	pair_is(nft, protocol, value, n);
}

void nft_family_field(
	struct nft *nft, uint8_t family, uint32_t offset, const void *value, uint32_t n)
{
	load_pair(nft, NFT_META_NFPROTO, NFT_NETWORK, offset, n);
	pair_is(nft, family, value, n);
}

void nft_port_in(struct nft *nft, const char *set)
{
	struct expression e;

	load_pair(nft, NFT_META_L4PROTO, NFT_TRANSPORT, 2, sizeof(uint16_t));
	e = expression(nft, "lookup");
	put_str(nft, NFTA_LOOKUP_SET, set);
	put_u32(nft, NFTA_LOOKUP_SREG, NFT_REG_1);
	expression_end(nft, &e);
}

static void immediate(struct nft *nft, const void *p, size_t n)
{
	struct expression e = expression(nft, "immediate");

	put_u32(nft, NFTA_IMMEDIATE_DREG, NFT_REG_1);
	put_data(nft, NFTA_IMMEDIATE_DATA, p, n);
	expression_end(nft, &e);
}

void nft_set_source_port(struct nft *nft, uint16_t port)
{
	uint16_t big = htons(port);
	struct expression e;

	immediate(nft, &big, sizeof(big));
	e = expression(nft, "payload");
	put_u32(nft, NFTA_PAYLOAD_SREG, NFT_REG_1);
	put_u32(nft, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER);
	put_u32(nft, NFTA_PAYLOAD_OFFSET, 0);
	put_u32(nft, NFTA_PAYLOAD_LEN, sizeof(big));
	put_u32(nft, NFTA_PAYLOAD_CSUM_TYPE, NFT_PAYLOAD_CSUM_INET);
	put_u32(nft, NFTA_PAYLOAD_CSUM_OFFSET, 6); /* of a UDP header */
	expression_end(nft, &e);
}

static void verdict(struct nft *nft, int code, const char *chain)
{
	struct expression e = expression(nft, "immediate");
	size_t data, inner;

	put_u32(nft, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = netlink_nest(&nft->nl, NFTA_IMMEDIATE_DATA);
	inner = netlink_nest(&nft->nl, NFTA_DATA_VERDICT);
	put_u32(nft, NFTA_VERDICT_CODE, (uint32_t)code);
	if (chain != NULL)
		put_str(nft, NFTA_VERDICT_CHAIN, chain);
	netlink_nest_end(&nft->nl, inner);
	netlink_nest_end(&nft->nl, data);
	expression_end(nft, &e);
}

void nft_tproxy(struct nft *nft, uint16_t port)
{
	uint16_t big = htons(port);
	struct expression e;

	immediate(nft, &big, sizeof(big));
	e = expression(nft, "tproxy");
	put_u32(nft, NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC);
	put_u32(nft, NFTA_TPROXY_REG_PORT, NFT_REG_1);
	expression_end(nft, &e);
}

void nft_mark_by_cgroup(struct nft *nft, uint32_t level)
{
	struct expression e = expression(nft, "socket");

	put_u32(nft, NFTA_SOCKET_KEY, NFT_SOCKET_CGROUPV2);
	put_u32(nft, NFTA_SOCKET_DREG, NFT_REG_1);
	put_u32(nft, NFTA_SOCKET_LEVEL, level);
	expression_end(nft, &e);
	meta_set(nft, NFT_META_MARK);
}

void nft_mark(struct nft *nft, uint32_t mark)
{
	immediate(nft, &mark, sizeof(mark)); /* marks are in native order */
	meta_set(nft, NFT_META_MARK);
}

void nft_marked(struct nft *nft, uint32_t mark)
{
	meta_is(nft, NFT_META_MARK, &mark, sizeof(mark));
}

void nft_log(struct nft *nft, uint16_t group, uint32_t bytes)
{
	struct expression e = expression(nft, "log");
	uint16_t big = htons(group);

	netlink_attr(&nft->nl, NFTA_LOG_GROUP, &big, sizeof(big));
	put_u32(nft, NFTA_LOG_SNAPLEN, bytes);
	expression_end(nft, &e);
}

void nft_reject(struct nft *nft, bool reset)
{
	struct expression e = expression(nft, "reject");
	uint8_t code = NFT_REJECT_ICMPX_PORT_UNREACH;

	put_u32(nft, NFTA_REJECT_TYPE, reset ? NFT_REJECT_TCP_RST : NFT_REJECT_ICMPX_UNREACH);
	netlink_attr(&nft->nl, NFTA_REJECT_ICMP_CODE, &code, sizeof(code));
	expression_end(nft, &e);
}

void nft_goto(struct nft *nft, const char *chain)
{
	verdict(nft, chain != NULL ? NFT_GOTO : NF_ACCEPT, chain);
}

/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/netlink.h - netlink messages: built one behind the other in a buffer, sent in one go, answered by acknowledgements.
 *
 * A message is opened with netlink_open(), takes attributes and nests, and is closed by netlink_close(). Everything is native byte order; numbers of nf_tables are
 * big-endian and have functions of their own in sys/nft.h. Format: Documentation/userspace-api/netlink/intro.rst.
 */
#ifndef CAY_SYS_NETLINK_H
#define CAY_SYS_NETLINK_H

#include "base/buf.h"

#define NETLINK_BATCH_MAX 65536U

/** struct netlink - messages under construction. Initialise with netlink_init(). */
struct netlink {
	struct buf bytes;
	uint32_t seq;    /* of the next message */
	uint32_t wanted; /* acknowledgements that will come */
	size_t message;  /* where the open message begins */
};

/** netlink_init() - no messages. */
void netlink_init(struct netlink *nl);

/** netlink_fini() - release the buffer. */
void netlink_fini(struct netlink *nl);

/** netlink_open() - begin a message with its fixed part of @n bytes. @flags: NLM_F_*; NLM_F_REQUEST is added, and NLM_F_ACK counted. */
void netlink_open(struct netlink *nl, uint16_t type, uint16_t flags, const void *fixed, size_t n);

/** netlink_close() - end the open message. */
void netlink_close(struct netlink *nl);

/** netlink_want_answer() - have the message that was closed last acknowledged. */
void netlink_want_answer(struct netlink *nl);

/** netlink_attr() - add an attribute of @n bytes. */
void netlink_attr(struct netlink *nl, uint16_t type, const void *p, size_t n);

/** netlink_nest() - begin a nested attribute. Return: handle for netlink_nest_end(). */
size_t netlink_nest(struct netlink *nl, uint16_t type) attr_must_use;

/** netlink_nest_end() - end it. */
void netlink_nest_end(struct netlink *nl, size_t nest);

/**
 * netlink_talk() - send all messages over @fd and wait for their acknowledgements.
 * Return: 0, the first error that the kernel reports (-errno), -EMSGSIZE when they did not fit the buffer. Context: blocks for the kernel's work only.
 */
int netlink_talk(struct netlink *nl, int fd) attr_must_use;

/** netlink_ask() - send all messages over @fd to the kernel, for one that it answers before send() returns. Return: bytes of the answer in @ret, or -1. */
ssize_t netlink_ask(const struct netlink *nl, int fd, void *ret, size_t size) attr_must_use;

/** netlink_socket() - a netlink socket of @protocol (NETLINK_*), close-on-exec. Return: descriptor or -errno. */
int netlink_socket(int protocol) attr_must_use;

/**
 * netlink_find() - attribute @type of a sequence of attributes.
 * @p, @n: the attributes; untrusted lengths are checked. @ret_n: set to the payload's size.
 *
 * Return: the payload, aligned to 4 bytes only, or NULL.
 */
const void *netlink_find(const void *p, size_t n, uint16_t type, size_t *ret_n);

#endif

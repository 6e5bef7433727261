/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/keeper_link.h - the gateway's end of gateway/link.h. */
#ifndef CAY_GATEWAY_KEEPER_LINK_H
#define CAY_GATEWAY_KEEPER_LINK_H

#include "gateway/gateway.h"
#include "gateway/link.h"

/** keeper_link_start() - wait for %LINK_START on descriptor %LINK_FD. @fds: the sandbox's sockets. Return: 0 or -errno. Context: before the loop runs; blocks. */
int keeper_link_start(struct gateway *gw, int fds[LINK_SOCKETS]) attr_must_use;

/** keeper_link_watch() - from now on take what the keeper sends; when it goes, so do we. Return: 0 or -errno. */
int keeper_link_watch(struct gateway *gw) attr_must_use;

/** keeper_link_ask() - ask which exec a control group is. Return: 0, owner_told() gets the answer; -EAGAIN when the keeper has not read for so long that nothing more fits in, other -errno. Context: never blocks, once keeper_link_watch() was called. */
int keeper_link_ask(uint64_t cgroup) attr_must_use;

/** keeper_link_ask_process() - ask which process of @cgroup has socket @inode. Return: 0, owner_told_process() gets the answer; -errno: none will come. */
int keeper_link_ask_process(
	const struct gateway *gw, uint64_t cgroup, uint32_t inode) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/alive.h - by what a keeper knows that its dumper gets on: while processes stand still, and nobody else could let them go. */
#ifndef CAY_CHECKPOINT_ALIVE_H
#define CAY_CHECKPOINT_ALIVE_H

#include "base/attr.h"

/** alive_begin() - from now on alive() says so over @fd, a socket of packets; borrowed until alive_end(). */
void alive_begin(int fd);

/** alive_end() - nobody waits any more. */
void alive_end(void);

/** alive() - a step is done. Says so at most once a second; nothing before alive_begin(). */
void alive(void);

/** alive_is() - is a packet of @n bytes what alive() sends? */
bool alive_is(size_t n);

/** alive_receive() - as recv() of a packet from @fd, whose sender is process @pid, which works meanwhile: alive() while that runs or waits for a processor. Return: bytes or -errno. */
ssize_t alive_receive(int fd, void *bytes, size_t n, int pid) attr_must_use;

#endif

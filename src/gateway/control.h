/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/control.h - the connection to cayd: configuration comes in; events and state go out until they are acknowledged.
 *
 * A newer connection takes the place of an older one: it gets the state and all events that nobody acknowledged. cayd knows an event that it has seen before by its number
 * and our boot id (docs/design/0007).
 */
#ifndef CAY_GATEWAY_CONTROL_H
#define CAY_GATEWAY_CONTROL_H

#include "gateway/gateway.h"

/** control_init() - no connection, no events. */
void control_init(struct gateway *gw);

/** control_open() - cayd is on @fd, which is taken over. */
void control_open(struct gateway *gw, int fd);

#endif

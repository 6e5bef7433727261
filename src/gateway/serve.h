/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/serve.h - the HTTP side (proxy.h) as a part of the gateway process: its configuration, its way to the world, its events. */
#ifndef CAY_GATEWAY_SERVE_H
#define CAY_GATEWAY_SERVE_H

#include "gateway/gateway.h"

/**
 * serve_init() - read the system's certificates and get OpenSSL ready, while files can still be opened. Sets @gw->proxy once there is a configuration.
 *
 * Members of the configuration that are read here: "state.ca.pem" (root of the sandbox with its key; when missing one is made and told as state "ca"),
 * "secrets" (see secrets_new()), "trust" (PEM text of further roots of the world), "through" ("host:port" of an HTTP proxy that all connections go through).
 * Return: 0 or -errno.
 */
int serve_init(struct gateway *gw) attr_must_use;

/** serve_scrubbed() - @data of an event without any secret of the sandbox; stolen. Return: a new reference. */
json_t *serve_scrubbed(const struct gateway *gw, json_t *data) attr_must_use;

#endif

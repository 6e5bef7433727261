/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/har.h - exchanges as an HTTP Archive, version 1.2 (w3c.github.io/web-performance/specs/HAR/Overview.html), for the tools that read one. */
#ifndef CAY_PROG_CAY_HAR_H
#define CAY_PROG_CAY_HAR_H

#include "base/attr.h"

#include <jansson.h>

/** har_entry() - a net.exchange event as an entry; a new reference. What the format has no word for is in members that begin with '_'. */
json_t *har_entry(const json_t *event) attr_must_use;

#endif

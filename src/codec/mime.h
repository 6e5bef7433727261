/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/mime.h - a mail message for people and programs to read: headers, text, list of attachments (RFC 5322, 2045 to 2047).
 *
 * Whatever comes is shown as well as it can be; nothing is refused. Text is UTF-8 in the end: UTF-8, US-ASCII, ISO 8859-1 and Windows-1252 are read, bytes of anything else that are
 * no UTF-8 become '?'. Nested parts are followed %MIME_DEPTH levels deep.
 */
#ifndef CAY_CODEC_MIME_H
#define CAY_CODEC_MIME_H

#include "base/attr.h"

#include <jansson.h>

#define MIME_DEPTH       8
#define MIME_PARTS_MAX   100
#define MIME_HEADERS_MAX 200
#define MIME_TEXT_MAX    (256U << 10) /* of a text that is shown; the rest is cut */

/**
 * mime_parse() - read a message.
 * Return: {"from","to","cc","reply_to","subject","date","message_id": strings or null, "headers":[["Name","value"]], "text","html": strings or null,
 * "attachments":[{"name","type","bytes"}]}, a new reference.
 */
json_t *mime_parse(const char *p, size_t n) attr_must_use;

#endif

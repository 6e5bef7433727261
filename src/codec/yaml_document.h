/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/yaml_document.h - one YAML document as JSON values (YAML 1.2 core schema, on libyaml).
 *
 * Refused: several documents, anchors and aliases (they can grow without bound), tags, keys that are no strings or come twice, more than
 * %YAML_DEPTH levels. Plain scalars become null, true, false, numbers or strings ("no", "on" and dates are strings); quoted ones stay strings.
 */
#ifndef CAY_CODEC_YAML_DOCUMENT_H
#define CAY_CODEC_YAML_DOCUMENT_H

#include "base/attr.h"

#include <jansson.h>

#define YAML_DEPTH       32
#define YAML_REASON_SIZE 160

/**
 * yaml_parse() - read a document.
 * @p, @n: UTF-8 text.
 * @ret: a new reference on success.
 * @reason: on failure "line 3: what is wrong".
 *
 * Return: 0 or -EINVAL.
 */
int yaml_parse(const char *p, size_t n, json_t **ret, char reason[YAML_REASON_SIZE]) attr_must_use;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: policy/parameter.h - names of parameters, of queries and forms, as one of their readers takes them. Pure. */
#ifndef CAY_POLICY_PARAMETER_H
#define CAY_POLICY_PARAMETER_H

#include "base/attr.h"

/** parameter_name() - @n bytes at @p, escaped, as a name. What is no escape stays; PHP's names end with a NUL. @out: @n + 1 bytes. */
void parameter_name(const char *p, size_t n, char *out);

/**
 * parameter_is() - does some reader take @name for @want? Some do not tell capitals from small letters, others make a list of "name[…]"; PHP skips spaces in front and reads dots,
 * spaces, and a bracket that nothing closes, as '_'; Rack and qs take "[name]" for "name".
 */
bool parameter_is(const char *name, const char *want) attr_must_use;

#endif

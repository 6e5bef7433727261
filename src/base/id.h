/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/id.h - identities: 20 random characters of [a-z0-9], and readable names such as "swift-otter". */
#ifndef CAY_BASE_ID_H
#define CAY_BASE_ID_H

#include "base/attr.h"

#define ID_LEN       20
#define NAME_MAX_LEN 63

/** struct id - an object's identity as text; unique for the life of the state directory. */
struct id {
	char s[ID_LEN + 1];
};

/** id_new() - a fresh random id (over 100 bits from the kernel). */
struct id id_new(void);

/** id_valid() - exactly 20 characters of [a-z0-9]? */
bool id_valid(const char *s);

/* So many characters of an id stand for it where no other begins so: fewer are a slip, or the name of something that is not there, too often. */
#define ID_BEGIN_MIN 4

/** id_begins() - does @id begin with @what, which is long enough to stand for it? */
bool id_begins(const char *id, const char *what);

/** name_valid() - a user's name for an object: [a-z0-9][a-z0-9._-]{0,62}, and not shaped like an id. */
bool name_valid(const char *s);

/** name_new() - a readable random name, adjective-animal; @attempt > 0 adds a number. */
void name_new(char name[NAME_MAX_LEN + 1], unsigned int attempt);

#endif

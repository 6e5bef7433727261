/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/form_method.h - finds in forms, as they pass, the member that says another method than the request's: "_method", which many frameworks obey.
 *
 * Pure. Of "a=b&c=d" it tells the value; of multipart only that there is one. Who reads forms otherwise than this should find less, not more: names are taken as
 * any reader takes them (policy/parameter.h), parts may be parted by ';' too; in multipart all that follows the boundary up to an empty line that is one for everybody
 * counts as the head of a part.
 */
#ifndef CAY_GATEWAY_FORM_METHOD_H
#define CAY_GATEWAY_FORM_METHOD_H

#include "gateway/channel.h"

#define FORM_METHOD_PART_MAX \
	512U /* bytes of a part as it is written; what is longer is no method */
#define FORM_METHOD_MARK_MAX \
	32U /* bytes of what parts the parts, "--" and a boundary, that are compared */
#define FORM_METHOD_SAID_MAX \
	8U /* times that a form may say a method: of more nobody can tell which counts */

/** struct form_method - a body that is being read. Zeroed: nothing is looked for. */
struct form_method {
	enum form_method_kind { FORM_NONE, FORM_PARTS, FORM_MULTIPART, FORM_HIDDEN } kind;
	unsigned int n_said; /* methods that were found */
	char part[FORM_METHOD_PART_MAX + 1];
	size_t n;
	bool begun, long_part; /* of parts */
	/* of multipart: within a part, the line of a boundary, an empty head, one with something in it, behind what ends that for most */
	enum { PART_BODY, PART_BOUNDARY, PART_BEGUN, PART_HEAD, PART_DOUBT } at;
	char tail[16];                   /* of a head */
	char mark[FORM_METHOD_MARK_MAX]; /* "--" and a boundary */
	unsigned char back
		[FORM_METHOD_MARK_MAX]; /* by bytes of @mark that were there but one: those that still are when the next is not */
	size_t mark_n, marked;
	unsigned int ends; /* of CR LF CR LF, so many bytes were there */
	char before[2];    /* the last bytes, of those that matter beside CR and LF */
	bool doubted;      /* behind such an end something was said, perhaps */
	char value[FORM_METHOD_PART_MAX + 1];
};

/** form_method_begin() - the body of a request with @head begins. One of which readers may make something else (compressed, two types, another charset, a boundary that is missing or odd) counts as one that says some method. */
void form_method_begin(struct form_method *m, const struct head *head);

/**
 * form_method_feed() - a piece of the body; with @p NULL its end.
 * @used: bytes that were looked at; go on behind them.
 * @ret: the method that it says, valid until the next call; empty: one that cannot be told. Then no more are looked for.
 * Return: was one found?
 */
bool form_method_feed(struct form_method *m, const char *p, size_t n, size_t *used,
	struct policy_text *ret) attr_must_use;

#endif

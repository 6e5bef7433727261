/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/scrub.h - find secrets in a stream of bytes, however they are written, and put their placeholders there.
 *
 * A placeholder has the shape of its secret: the same length, every letter and digit replaced by one of its kind, everything else kept. So every rendering of the one is as
 * long as that of the other, and replacing changes no length: not of a body, not of a chunk, not of a base64 group.
 *
 * Found are: the bytes themselves, hexadecimal, base64 (both alphabets, at any offset within the encoded text), and each of these with any of its bytes percent-encoded or
 * escaped as in JSON strings, or with all but letters and digits percent-encoded twice or written as in HTML ("&#x2F;"), cut into pieces anywhere. Not found: encodings on top of encodings beyond that, and compressed text, which the caller decodes first.
 * The search is Aho and Corasick's (Efficient String Matching, CACM 18/6, 1975), run over three views of the stream: as it is, percent-decoded, JSON-unescaped; and over two more for secrets that hold what is escaped there.
 */
#ifndef CAY_CODEC_SCRUB_H
#define CAY_CODEC_SCRUB_H

#include "base/buf.h"

#define SCRUB_SECRET_MIN 8 /* bytes; shorter ones would be found by chance */
#define SCRUB_SECRET_MAX 4096
#define SCRUB_PAIRS_MAX  256
#define SCRUB_CERTAIN    5  /* characters that the beginning of a secret is known by */
#define SCRUB_SURE       12 /* that nobody finds by trying */

/** scrub_secret_valid() - can @s be a secret: %SCRUB_SECRET_MIN to %SCRUB_SECRET_MAX printable ASCII bytes without space, six letters or digits among them? */
bool scrub_secret_valid(const char *s);

/**
 * scrub_placeholder() - a placeholder of the shape of @secret. Leading words up to a '_' or '-' are kept ("sk_live_"), as far as enough is left to replace.
 * @random: as many bytes as the secret has, from a good source.
 *
 * Return: the placeholder, free().
 */
char *scrub_placeholder(const char *secret, const unsigned char *random) attr_must_use;

struct scrub_set;

/** struct scrub_pair - what is looked for and what takes its place: equally long, and equal wherever @find has no letter or digit. */
struct scrub_pair {
	const char *find, *replace;
};

/** scrub_set_new() - compile. @pairs are copied. Return: NULL when a pair is not as scrub_placeholder() makes it or there are too many. */
struct scrub_set *scrub_set_new(const struct scrub_pair *pairs, size_t n) attr_must_use;

/** scrub_set_free() - NULL is allowed. */
void scrub_set_free(struct scrub_set *set);

struct scrub;

/** scrub_new() - begin a stream. @set is borrowed and must outlive it. */
struct scrub *scrub_new(const struct scrub_set *set) attr_must_use;

/** scrub_free() - NULL is allowed. */
void scrub_free(struct scrub *s);

/**
 * scrub_evenly() - hold back what could be the beginning of any secret, a run of bytes without a space in it, instead of what is the beginning of one: else how that which is given out
 * is cut tells whoever has chosen the bytes, one character after the other.
 */
void scrub_evenly(struct scrub *s);

/** scrub_holds() - is anything held back? */
bool scrub_holds(const struct scrub *s);

/**
 * scrub_write() - the next bytes of the stream; what is certain by now is appended to @out. At most eight times the longest rendering is held back.
 */
void scrub_write(struct scrub *s, const void *p, size_t n, struct buf *out);

/**
 * scrub_flush() - append what is held back, because whoever reads has to get it now; the stream goes on, and what begins before this is found behind it.
 *
 * What may be the beginning of a secret is replaced already when %SCRUB_CERTAIN of its characters are there that its placeholder has not: less than that is shown, whatever follows, and
 * text that only begins as a secret does is changed by a chance of that many characters.
 */
void scrub_flush(struct scrub *s, struct buf *out);

/** scrub_let_go() - the same where the text pauses, as whoever has chosen it may be able to make it: a beginning is replaced when %SCRUB_SURE characters are there, so nobody tries it out. */
void scrub_let_go(struct scrub *s, struct buf *out);

/**
 * struct scrub_heard - beginnings of secrets that were said. Who has said one gets it back as it was: else he could try out what a secret begins with, one
 * character after the other, with whoever repeats what he is told.
 */
struct scrub_heard;

/** scrub_heard_new() - nothing was said of what @s looks for. Return: free(). */
struct scrub_heard *scrub_heard_new(const struct scrub *s) attr_must_use;

/** scrub_note() - note in @heard, which is borrowed, what is written to @s from now on, in whatever rendering. */
void scrub_note(struct scrub *s, struct scrub_heard *heard);

/** scrub_spare() - scrub_flush() of @s leaves as it is what is no longer a beginning than those in @heard, which is borrowed. Both of the same set. */
void scrub_spare(struct scrub *s, const struct scrub_heard *heard);

/** scrub_end() - the stream is over: append the rest. */
void scrub_end(struct scrub *s, struct buf *out);

/** scrub_found() - how often pair @i was found so far, in any rendering. */
uint64_t scrub_found(const struct scrub *s, size_t i);

/** scrub_whole() - all of the above for one piece of text: append the scrubbed bytes to @out. Return: how many were found. */
uint64_t scrub_whole(const struct scrub_set *set, const void *p, size_t n, struct buf *out);

#endif

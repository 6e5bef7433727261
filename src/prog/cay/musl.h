/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/musl.h - what glibc's headers have and musl's have not; included before everything where cay is built with musl (src/prog/cay/meson.build). */
#ifndef CAY_PROG_CAY_MUSL_H
#define CAY_PROG_CAY_MUSL_H

/** strerrordesc_np() - the text of an errno value, in English; static. */
const char *strerrordesc_np(int number);

/** sigabbrev_np() - "INT" for SIGINT; static, NULL for a number without a name. */
const char *sigabbrev_np(int number);

#endif

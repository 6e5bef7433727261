/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/copying.h - the memory of a capture, out of its processes into the stash. */
#ifndef CAY_TEMPLATE_COPYING_H
#define CAY_TEMPLATE_COPYING_H

/**
 * copying_run() - everything that the plan names, which has been checked: by as many threads as there are processors, since one alone is slower than memory. They have ended when this
 * returns, so that clones have the one that there always is. Return: 0; -ESRCH when a process has ended; other -errno.
 */
long copying_run(void);

#endif

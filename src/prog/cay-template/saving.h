/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/saving.h - what the template holds, to those that pack it for the disk, and from those that unpack it (checkpoint/memory_coder.h). */
#ifndef CAY_TEMPLATE_SAVING_H
#define CAY_TEMPLATE_SAVING_H

#include "checkpoint/template_wire.h"
#include "prog/cay-template/bare.h"

/** saving_fds_fit() - may so many descriptors be a memory file and, for each of at least one coder, pipe and credit? */
bool saving_fds_fit(uint32_t n_fds);

/**
 * saving_give() - TEMPLATE_SAVE, in a clone: give everything that is @held, and end; without the last pieces when that fails. @from_processes: the pages, which are not here, from
 * those that the plan names. @fds: fitting ones.
 */
BARE_NORETURN void saving_give(
	const struct template_stream *held, bool from_processes, const int *fds, uint32_t n_fds);

/** saving_take() - TEMPLATE_LOAD: @left bytes of pages, to where the plan says, which has been checked. @fds: fitting ones. Return: 0 or -errno. */
long saving_take(uint64_t left, const int *fds, uint32_t n_fds);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/urgency.h - who runs first where there are more programs than processors (sched_setattr(2), kernel documentation sched-eevdf). */
#ifndef CAY_SYS_URGENCY_H
#define CAY_SYS_URGENCY_H

#include <stdbool.h>

/**
 * urgency_set() - while @on the calling thread runs as soon as it is woken, instead of when whoever computes has used up its turn (milliseconds): it asks for short turns, which are not more.
 * Who may (CAP_SYS_NICE) also gets more of the processor than others: turns alone are worth little to whoever has just had one.
 * Off is how a process was before; children have what their parent has. Kernels before 6.12 know no turns. Context: one thread.
 */
void urgency_set(bool on);

#endif

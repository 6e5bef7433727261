/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/urgency.h - who runs first where there are more programs than processors (sched_setattr(2), kernel documentation sched-eevdf). */
#ifndef CAY_SYS_URGENCY_H
#define CAY_SYS_URGENCY_H

#include <stdbool.h>

/**
 * urgency_set() - while @on the calling thread runs as soon as it is woken, instead of when whoever computes has used up its turn (milliseconds): it asks for short turns, which are not more.
 * Off is how every thread begins; children have what their parent has. Needs no privilege; kernels before 6.12 do not know it, and nothing happens.
 */
void urgency_set(bool on);

#endif

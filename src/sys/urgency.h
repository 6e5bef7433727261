/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/urgency.h - who runs first where there are more programs than processors (sched_setattr(2), kernel documentation sched-eevdf). */
#ifndef CAY_SYS_URGENCY_H
#define CAY_SYS_URGENCY_H

#include <stdbool.h>
#include <sys/types.h>

/**
 * urgency_set() - while @on the calling thread runs as soon as it is woken, instead of when whoever computes has used up its turn (milliseconds): it asks for short turns, which are not more.
 * Who may (CAP_SYS_NICE) also gets more of the processor than others: turns alone are worth little to whoever has just had one.
 * Off is how a process was before; children have what their parent has. Kernels before 6.12 know no turns. Context: one thread.
 */
void urgency_set(bool on);

/**
 * urgency_yield() - thread @tid (0 = the caller), which has nothing to do any more that anybody waits for, lets go first whoever is woken on its processor: what the kernel does at the end
 * of a process would else be done to the end of its turn, though another processor is idle. Not less of the processor: it asks for longer turns than anybody has, and by that is the last to
 * have one. Its urgency is over. Nothing where the caller may not. Kernels before 6.12 know no turns.
 */
void urgency_yield(pid_t tid);

#endif

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Steps of tensors that a switch sums, which others have gone on with while this host's processes are late: it takes its part in
 * them with zeros. A sum of all is then there, which nobody need be told anything of; who was late owes what it has.
 */
#ifndef GRADLANE_ABSENCE_H
#define GRADLANE_ABSENCE_H

#include "exchange/tensor.h"

/* Others wait for this step. It begins without the processes as soon as it is the next one, if they have not come by then. */
void absence_asked(gl_exchange *x, tensor *t, uint32_t step, uint64_t now);
/* The tensor's step before is complete, so that one that was asked for may be next. */
void absences_look(gl_exchange *x, tensor *t, uint64_t now);
/* The processes have come to a step, and a partition is prepared. Returns whether it began without them: then it is owed. */
bool absence_took(gl_exchange *x, tensor *t, unsigned index);
/* Returns whether the processes have come to a step that began without them, and it is complete: its result is in its place. */
bool absence_over(gl_exchange *x, tensor *t);
/* Returns whether the event is of a step that began without the processes. */
bool absence_event(gl_exchange *x, tensor *t, const gl_event *event, uint64_t now);
void absences_free(tensor *t);

#endif

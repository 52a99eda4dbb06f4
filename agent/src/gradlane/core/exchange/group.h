/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Groups of processes, and their collectives.
 */
#ifndef GRADLANE_GROUP_H
#define GRADLANE_GROUP_H

#include "exchange/state.h"

struct group {
    uint16_t id, host_count, member_count;
    uint16_t *hosts;
    bool pair, closed; /* closed: a host of it is dead, as others may have told */
    uint32_t from, to;
    uint8_t algorithms[GL_SIZE_CLASSES];
    int16_t member_of[GL_MAX_PROCESSES]; /* process -> its place among the local members, or -1 */
    uint32_t sequence, step; /* of the next joint; of the last submission */
    joint *joints, *last; /* in the order of their calls: those that lack members are behind those that have all */
    joint *next_of[GL_MAX_PROCESSES]; /* the first one that a local member has not called; NULL: it has called all */
};

void group_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now);
/* A piece of what the first of the joints has left. Returns about how many bytes it took. */
uint64_t group_work(gl_exchange *x, uint64_t now);
void group_event(gl_exchange *x, const gl_event *event);
/* If that host is in the group: its operations are LOST, those in flight now, others as soon as they are called. */
void group_drop(gl_exchange *x, group *g, unsigned host);
void group_free(group *g);

#endif

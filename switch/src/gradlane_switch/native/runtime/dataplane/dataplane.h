/* SPDX-License-Identifier: Apache-2.0
 * The ports and the program between them. */
#ifndef GL_DATAPLANE_H
#define GL_DATAPLANE_H

#include <unistd.h>

#include "base/lock.h"
#include "dataplane/api.h"
#include "ports/port.h"
#include "ports/shared.h"

struct gl_dataplane {
    gl_shared shared;        /* first, because the program knows the data plane by its gl_host */
    gl_lock *lock;
    uint64_t seed;
    gl_port *ports[GL_PORTS];
    gl_port *list[GL_PORTS];
    uint32_t count;
    uint32_t generation;     /* of the list of ports */
    gl_port_stats elsewhere; /* counts of packets that came from no port */
    uint64_t epoch;
    gl_process *process, *traced;
    gl_state *state;
    int wake_fd;
    uint64_t stop_at;        /* ns: nothing comes in any more, and forwarding ends then at the latest; 0: it runs */
    uint64_t longest_wait;   /* ns that packets had to wait for a change of tables or ports */
    uint64_t coalesce;       /* ns: the least time from one round of forwarding to the next */
};

/* Wakes the forwarding thread. */
static inline void gl_wake(const gl_dataplane *dp) {
    const uint64_t one = 1;
    /* This fails only when the counter is full, and then the thread wakes anyway. */
    (void)!write(dp->wake_fd, &one, sizeof one);
}

#endif

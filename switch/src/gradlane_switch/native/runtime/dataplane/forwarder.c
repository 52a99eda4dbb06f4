/* SPDX-License-Identifier: Apache-2.0
 * The forwarding thread: the ports' frames in, the program, the ports' queues and links out. */
#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/time.h"
#include "dataplane/host.h"
#include "dataplane/schedule.h"
#include "ports/events.h"
#include "ports/receive.h"

/* How long to sleep until a time; NULL: until something comes. */
static const struct timespec *until(uint64_t next, struct timespec *time) {
    if (next == UINT64_MAX) {
        return NULL;
    }
    uint64_t now = gl_clock(CLOCK_MONOTONIC), wait = next > now ? next - now : 0;
    *time = (struct timespec){(time_t)(wait / GL_SECOND), (long)(wait % GL_SECOND)};
    return time;
}

/* Lets packets gather since the last round, unless that was long ago: a round per packet costs twice the CPU time. What
 * the switch decides does not depend on when it decides it. */
static void gather(uint64_t end) {
    if (gl_clock(CLOCK_MONOTONIC) < end) {
        struct timespec time = {(time_t)(end / GL_SECOND), (long)(end % GL_SECOND)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    }
}

/* Takes the lock, and notes how long somebody else had it. */
static void enter(gl_dataplane *dp) {
    if (gl_try(dp->lock)) {
        return;
    }
    uint64_t began = gl_clock(CLOCK_MONOTONIC);
    gl_acquire(dp->lock);
    uint64_t waited = gl_clock(CLOCK_MONOTONIC) - began;
    dp->longest_wait = waited > dp->longest_wait ? waited : dp->longest_wait;
}

/* What to poll: the wake descriptor, then the ports in the list's order. */
static uint32_t watch(const gl_dataplane *dp, struct pollfd *fds) {
    fds[0] = (struct pollfd){dp->wake_fd, POLLIN, 0};
    for (uint32_t i = 0; i < dp->count; i++) {
        fds[i + 1] = (struct pollfd){dp->list[i]->fd, POLLIN, 0};
    }
    return dp->count + 1;
}

static void flush_files(gl_dataplane *dp) {
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port *port = dp->list[i];
        if (port->file && fflush(port->file)) {
            gl_report(&dp->shared, port, GL_EVENT_TX_ERROR, errno, 0);
        }
    }
}

/* Takes in what has come to a port's socket. Returns whether there may be more. */
static int take_in(gl_dataplane *dp, gl_port *port, uint64_t offset, uint64_t now) {
    uint32_t up = port->stats.up;
    gl_port_receive(&dp->shared, port, offset, now);
    if (port->stats.up != up) {
        gl_tell_program(dp, port->number);
    }
    return port->more;
}

int gl_run(gl_dataplane *dp) {
    struct pollfd fds[GL_PORTS + 1];
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    gl_acquire(dp->lock);
    gl_epoch(dp, gl_clock(CLOCK_REALTIME) - gl_clock(CLOCK_MONOTONIC));
    uint32_t generation = dp->generation, count = watch(dp, fds);
    gl_release(dp->lock);
    for (uint64_t next = 0, gathered = 0;;) {
        struct timespec time;
        if (ppoll(fds, count, until(next, &time), NULL) < 0 && errno != EINTR) {
            return errno;
        }
        if (fds[0].revents) {
            uint64_t times;
            (void)!read(dp->wake_fd, &times, sizeof times);
        }
        gather(gathered);
        enter(dp);
        uint64_t now = gl_clock(CLOCK_MONOTONIC), offset = gl_clock(CLOCK_REALTIME) - now;
        int current = generation == dp->generation, more = 0;
        for (uint32_t i = 0; current && !dp->stop_at && i < dp->count; i++) {
            if (fds[i + 1].revents) {
                more |= take_in(dp, dp->list[i], offset, now);
            }
        }
        uint64_t complete = gl_process_arrived(dp);
        gl_advance_all(dp, complete < now ? complete : now);
        flush_files(dp);
        next = gl_next_event(dp);
        gathered = more || next == 0 ? 0 : now + dp->coalesce;
        if (!current) {
            generation = dp->generation;
            count = watch(dp, fds);
        }
        uint64_t end = dp->stop_at;
        gl_release(dp->lock);
        if (end) {
            if (now >= end || next == UINT64_MAX) {
                return 0;
            }
            count = 1;
            next = next < end ? next : end;
        }
    }
}

void gl_stop(gl_dataplane *dp, uint64_t patience) {
    gl_acquire(dp->lock);
    dp->stop_at = gl_clock(CLOCK_MONOTONIC) + patience;
    gl_release(dp->lock);
    gl_wake(dp);
}

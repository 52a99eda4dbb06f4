/* SPDX-License-Identifier: Apache-2.0
 * The forwarding thread: the ports' frames in, the program, the ports' queues and links out.
 *
 * Packets are processed in the order of the kernel's receive timestamps over all ports, and queues are drained up to a
 * packet's own time before it is queued. So a thread that was kept off the CPU decides as it would have decided in time;
 * only the delivery is late. */
#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "ports/port.h"

static uint64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * GL_SECOND + (uint64_t)time.tv_nsec;
}

/* ---- Processing ---- */

/* Does what happens by `now` without anything coming in: packets leave queues and arrive from the hosts' links, over
 * all ports in order of time. Each may make others that wait or leave. */
static void catch_up(gl_dataplane *dp, uint64_t now) {
    while (dp->quiet <= now) {
        gl_port *first = NULL;
        uint64_t earliest = UINT64_MAX;
        int departs = 0;
        for (uint32_t i = 0; i < dp->count; i++) {
            gl_port *port = dp->list[i];
            uint64_t departure = gl_port_departure(port);
            uint64_t arrival = port->rx_link.count ? port->rx_link.heap[0]->due : UINT64_MAX;
            uint64_t next = departure <= arrival ? departure : arrival;
            if (next < earliest) {
                first = port;
                earliest = next;
                departs = departure <= arrival;
            }
        }
        if (earliest > now) {
            dp->quiet = earliest;
        } else if (departs) {
            gl_port_depart(dp, first);
        } else {
            gl_process_packet(dp, gl_link_due(&first->rx_link, earliest), earliest);
        }
    }
}

static void from_host(gl_dataplane *dp, gl_port *port, gl_packet *packet) {
    uint64_t arrived = packet->due;
    gl_packet *twin;
    switch (gl_link_enter(&port->rx_link, &dp->pool, packet, arrived, &twin)) {
    case GL_LINK_NOW:
        gl_process_packet(dp, packet, arrived);
        if (twin) {
            gl_process_packet(dp, twin, arrived);
        }
        break;
    case GL_LINK_LATER:
        gl_expect(dp, port->rx_link.heap[0]->due);
        break;
    case GL_LINK_NO_MEMORY:
        gl_note(&port->stats.rx_no_memory, packet->length);
        gl_pool_put(&dp->pool, packet);
        break;
    case GL_LINK_LOST:
        if (dp->tracer && (dp->trace_port == GL_PORTS || dp->trace_port == port->number)) {
            packet->traced = ++dp->trace_last;
            gl_trace_packet(dp->tracer, packet, arrived);
            GL_NOTE(dp->tracer, GL_TRACE_DROPPED, GL_DROP_RX_LINK);
        }
        gl_pool_put(&dp->pool, packet);
        break;
    }
}

/* Processes received packets in order of arrival. A port whose batch was full may have more in its socket, so others'
 * packets that are later than its last wait for the next round. Returns the time up to which none can be missing. */
static uint64_t process_arrived(gl_dataplane *dp) {
    gl_port *active[GL_PORTS];
    uint32_t count = 0;
    uint64_t horizon = UINT64_MAX;
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port *port = dp->list[i];
        if (port->arrived) {
            active[count++] = port;
            if (port->more && port->last_arrived->due < horizon) {
                horizon = port->last_arrived->due;
            }
        }
    }
    while (count) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < count; i++) {
            if (active[i]->arrived->due < active[first]->arrived->due) {
                first = i;
            }
        }
        gl_port *port = active[first];
        gl_packet *packet = port->arrived;
        if (packet->due > horizon) {
            return horizon;
        }
        port->arrived = packet->next;
        port->arrived_count--;
        catch_up(dp, packet->due);
        from_host(dp, port, packet);
        if (!port->arrived) {
            active[first] = active[--count];
        }
    }
    return horizon;
}

/* When there is something to do next: a departure, a delivery, or a packet that is already here. */
static uint64_t next_event(const gl_dataplane *dp) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < dp->count; i++) {
        const gl_port *port = dp->list[i];
        uint64_t at = port->arrived ? 0 : gl_port_next(port);
        next = at < next ? at : next;
    }
    return next;
}

static void flush_all(gl_dataplane *dp) {
    for (uint32_t i = 0; i < dp->count; i++) {
        if (dp->list[i]->leaving_count) {
            gl_port_flush(dp, dp->list[i]);
        }
    }
}

static void advance_all(gl_dataplane *dp, uint64_t now) {
    catch_up(dp, now);
    for (uint32_t i = 0; i < dp->count; i++) {
        gl_port_deliver(dp, dp->list[i], now);
    }
    flush_all(dp);
}

/* ---- The thread ---- */

/* How long to sleep until a time; NULL: until something comes. */
static const struct timespec *until(uint64_t next, struct timespec *time) {
    if (next == UINT64_MAX) {
        return NULL;
    }
    uint64_t now = clock_ns(CLOCK_MONOTONIC), wait = next > now ? next - now : 0;
    *time = (struct timespec){(time_t)(wait / GL_SECOND), (long)(wait % GL_SECOND)};
    return time;
}

/* Lets packets gather since the last round, unless that was long ago: a round per packet costs twice the CPU time. What
 * the switch decides does not depend on when it decides it. */
static void gather(uint64_t end) {
    if (clock_ns(CLOCK_MONOTONIC) < end) {
        struct timespec time = {(time_t)(end / GL_SECOND), (long)(end % GL_SECOND)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    }
}

/* Takes the lock, and notes how long somebody else had it. */
static void enter(gl_dataplane *dp) {
    if (gl_try(dp->lock)) {
        return;
    }
    uint64_t began = clock_ns(CLOCK_MONOTONIC);
    gl_acquire(dp->lock);
    uint64_t waited = clock_ns(CLOCK_MONOTONIC) - began;
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
            gl_tell(dp, port, GL_EVENT_TX_ERROR, errno, 0);
        }
    }
}

int gl_run(gl_dataplane *dp) {
    struct pollfd fds[GL_PORTS + 1];
    prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    gl_acquire(dp->lock);
    gl_epoch(dp, clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC));
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
        uint64_t now = clock_ns(CLOCK_MONOTONIC), offset = clock_ns(CLOCK_REALTIME) - now;
        int current = generation == dp->generation, more = 0;
        for (uint32_t i = 0; current && !dp->stop_at && i < dp->count; i++) {
            if (fds[i + 1].revents) {
                gl_port_receive(dp, dp->list[i], offset, now);
                more |= dp->list[i]->more;
            }
        }
        gathered = more ? 0 : now + dp->coalesce;
        uint64_t complete = process_arrived(dp);
        advance_all(dp, complete < now ? complete : now);
        flush_files(dp);
        next = next_event(dp);
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
    dp->stop_at = clock_ns(CLOCK_MONOTONIC) + patience;
    gl_release(dp->lock);
    gl_wake(dp);
}

/* ---- From elsewhere: the controller, files ---- */

void gl_epoch(gl_dataplane *dp, uint64_t epoch) {
    dp->epoch = epoch;
    for (uint32_t i = 0; i < dp->count; i++) {
        dp->list[i]->epoch = epoch;
    }
}

int gl_inject(gl_dataplane *dp, uint32_t port, const uint8_t *frame, uint32_t length) {
    gl_acquire(dp->lock);
    gl_packet *packet = length <= dp->frame_size ? gl_pool_get(&dp->pool) : NULL;
    if (packet) {
        packet->port = (uint16_t)port;
        packet->length = length;
        memcpy(packet->data, frame, length);
        gl_note(&(dp->ports[port] ? &dp->ports[port]->stats : &dp->elsewhere)->rx, length);
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        catch_up(dp, now);
        gl_process_packet(dp, packet, now);
        flush_all(dp);
    }
    gl_release(dp->lock);
    gl_wake(dp);
    return packet ? 0 : -1;
}

static void feed(gl_dataplane *dp, gl_port *port, uint64_t now, const uint8_t *frame, uint32_t length) {
    if (length > port->frame_limit) {
        gl_note(&port->stats.oversize, length);
        gl_tell(dp, port, GL_EVENT_OVERSIZE, 0, length);
        return;
    }
    gl_note(&port->stats.rx, length);
    gl_packet *packet = gl_pool_get(&dp->pool);
    if (!packet) {
        gl_note(&port->stats.rx_no_memory, length);
        return;
    }
    packet->port = (uint16_t)port->number;
    packet->due = now;
    packet->length = length;
    memcpy(packet->data, frame, length);
    if (port->config.up) {
        from_host(dp, port, packet);
    } else {
        gl_note(&port->stats.rx_down, packet->length);
        gl_pool_put(&dp->pool, packet);
    }
}

void gl_feed(gl_dataplane *dp, uint32_t port, uint64_t now, const uint8_t *frame, uint32_t length) {
    gl_acquire(dp->lock);
    catch_up(dp, now);
    feed(dp, dp->ports[port], now, frame, length);
    gl_release(dp->lock);
}

int gl_finish(gl_dataplane *dp) {
    int error = 0;
    gl_acquire(dp->lock);
    for (uint64_t next; (next = next_event(dp)) != UINT64_MAX;) {
        advance_all(dp, next);
    }
    advance_all(dp, 0);
    for (uint32_t i = 0; i < dp->count; i++) {
        if (dp->list[i]->file && fflush(dp->list[i]->file)) {
            error = errno;
        }
    }
    gl_release(dp->lock);
    return error;
}

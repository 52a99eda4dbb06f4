/* SPDX-License-Identifier: Apache-2.0
 *
 * A receiver's port: what all the streams that come in at it may have, as in RCP, and the REPORTs that tell them.
 */
#include "internal.h"

static const double SHARE_GAIN = 1.0 / 2;    /* of the spare fraction, each SHARE_WINDOW */
static const double SHARE_SPARE = 1.0 / 16;  /* less than that is a full port */
static const double SHARE_REACTION = 4000;   /* us until a new share has slowed its streams */
static const double SHARE_NEWS = 1.0 / 16;   /* a change that is told before its time */
static const double USABLE = 0.98; /* of a link, so that a queue that has grown drains again */

/* Tells every sender the share as soon as something of its stream arrives. */
static void tell_all(gl_engine *e) {
    e->told_share = e->share;
    for (unsigned rank = 0; rank < e->ranks; rank++)
        e->peers[rank].unreported[0] = e->peers[rank].unreported[1] = REPORT_EVERY;
}

/* How many streams share this host's port now. A stream is over with the last slice of its message, or when it falls
 * silent; the next message's first slice revives it. */
static unsigned count_streams(gl_engine *e, unsigned source, bool multicast, bool end, uint64_t now) {
    e->peers[source].active_until[multicast] = now + (end ? STREAM_IDLE / 4 : STREAM_IDLE);
    unsigned streams = 0;
    for (unsigned rank = 0; rank < e->ranks; rank++)
        streams += (e->peers[rank].active_until[0] > now) + (e->peers[rank].active_until[1] > now);
    return streams ? streams : 1;
}

/* The one rate that all streams into this port are told, as in RCP (Dukkipati, 2007): it follows what the port has to
 * spare, so streams that wait for something else leave their part to the others; never below an equal part. */
static void share_port(gl_engine *e, unsigned source, bool multicast, bool end, uint32_t bytes, uint64_t now) {
    const double usable = USABLE * e->rate;
    const unsigned streams = count_streams(e, source, multicast, end, now);
    const uint64_t elapsed = now - e->window_start;
    if (elapsed > STREAM_IDLE) {
        /* After a pause all streams of the pattern are to be expected, whichever comes first. */
        const unsigned expected = !e->config.servers                    ? 2 * (e->config.workers - 1u)
                                  : e->config.rank < e->config.workers ? e->config.servers
                                                                       : e->config.workers;
        e->streams = streams > expected ? streams : expected;
        e->share = usable / e->streams;
        e->window_start = now, e->window_bytes = bytes;
        tell_all(e);
        return;
    }
    if (streams > e->streams) {
        /* A stream more fills the port's buffer within milliseconds. */
        e->share *= (double)e->streams / streams;
        if (e->share < usable / streams) e->share = usable / streams;
        e->streams = streams;
        tell_all(e);
    }
    e->window_bytes += bytes;
    if (elapsed < SHARE_WINDOW) return;
    e->streams = streams;
    if (elapsed < 2 * SHARE_WINDOW) {
        /* A full port looks the same however much too fast its senders are, so what is above the equal part must go. */
        const double spare = 1 - (double)e->window_bytes / (double)elapsed / usable, equal = usable / streams;
        if (spare > SHARE_SPARE)
            e->share *= 1 + SHARE_GAIN * spare;
        else
            e->share -= (e->share - equal) / 2;
    }
    if (e->share < usable / streams) e->share = usable / streams;
    /* Streams that rest come back all at once: no more than the buffer takes until the others have heard of it. */
    const double most = usable / streams * (1 + e->queue_time / SHARE_REACTION);
    if (e->share > most) e->share = most;
    if (e->share > usable) e->share = usable;
    e->window_start = now, e->window_bytes = 0;
    if (e->share < e->told_share * (1 - SHARE_NEWS) || e->share > e->told_share * (1 + SHARE_NEWS)) tell_all(e);
}

/* Tells the sender how its stream gets through, and which part of this host's port is its. */
void report(gl_engine *e, unsigned source, const uint8_t *h, uint32_t bytes, bool congested, uint64_t now) {
    peer *from = &e->peers[source];
    const bool multicast = h[GL_AT_FLAGS] & GL_FLAG_MULTICAST, end = h[GL_AT_FLAGS] & GL_FLAG_END;
    share_port(e, source, multicast, end, bytes + FRAME_OVERHEAD, now);
    from->received[multicast]++;
    from->marked[multicast] += congested;
    e->statistics.ecn_marked += congested;
    gl_counts *c = counts_of(e, source, class_of(e, get16(h + GL_AT_LAYER)));
    c->ecn_marked += congested, c->bytes_received += bytes;
    if (++from->unreported[multicast] < REPORT_EVERY && !end) return;
    from->unreported[multicast] = 0;
    uint8_t payload[REPORT_BYTES];
    put32(payload, from->received[multicast]), put32(payload + 4, from->marked[multicast]);
    put32(payload + 8, (uint32_t)(e->share * 8e3));
    send_control(e, source, GL_KIND_REPORT, h, payload, sizeof payload);
    e->statistics.reports_sent++;
}

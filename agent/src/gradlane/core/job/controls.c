/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The queue of control datagrams.
 */
#include "job/controls.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"

/* A receiver comes behind the others that something waits for. */
static void queue_up(job *j, mail *m) {
    m->next = NULL;
    *j->mail_end = m;
    j->mail_end = &m->next;
}

static void leave_queue(job *j, mail **at) {
    if (!(*at = (*at)->next)) j->mail_end = at;
}

void send_control(job *j, unsigned to, unsigned kind, const uint8_t *like, const void *payload, uint16_t length) {
    control *c = malloc(sizeof *c + GL_HEADER + length);
    if (!c) return; /* like a lost datagram: it is asked for again */
    c->next = NULL, c->length = GL_HEADER + length;
    memcpy(c->bytes, like, GL_HEADER);
    c->bytes[0] = (uint8_t)(GL_VERSION << 4 | kind);
    put_sender(c->bytes, kind == GL_KIND_TRACE ? get_way(like) : 0, j->config.rank); /* a trace goes where a slice goes */
    put16(c->bytes + GL_AT_LENGTH, length);
    if (length) memcpy(c->bytes + GL_HEADER, payload, length);
    mail *m = &j->mail[to];
    if (!m->first) {
        m->end = &m->first;
        queue_up(j, m);
    }
    *m->end = c;
    m->end = &c->next;
}

control *take_control(mail *m, control **at) {
    control *c = *at;
    if (!(*at = c->next)) m->end = at;
    return c;
}

void mail_sent(job *j) {
    mail *m = j->mail_first;
    leave_queue(j, &j->mail_first);
    if (m->first) queue_up(j, m);
}

void mail_drop(job *j, unsigned to) {
    mail *m = &j->mail[to];
    if (!m->first) return;
    mail **at = &j->mail_first;
    while (*at != m) at = &(*at)->next;
    leave_queue(j, at);
    while (m->first) free(take_control(m, &m->first));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of control datagrams.
 */
#include "job/controls.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/sender.h"

void send_control(job *j, unsigned to, unsigned kind, const uint8_t *like, const void *payload, uint16_t length) {
    control *c = malloc(sizeof *c + GL_HEADER + length);
    if (!c) return; /* like a lost datagram: it is asked for again */
    c->next = NULL, c->to = to, c->length = GL_HEADER + length;
    memcpy(c->bytes, like, GL_HEADER);
    c->bytes[0] = (uint8_t)(GL_VERSION << 4 | kind);
    put_sender(c->bytes, kind == GL_KIND_TRACE ? get_way(like) : 0, j->config.rank); /* a trace goes where a slice goes */
    put16(c->bytes + GL_AT_LENGTH, length);
    if (length) memcpy(c->bytes + GL_HEADER, payload, length);
    *j->controls_tail = c;
    j->controls_tail = &c->next;
}

control *take_control(job *j, control **at) {
    control *c = *at;
    if (!(*at = c->next)) j->controls_tail = at;
    return c;
}

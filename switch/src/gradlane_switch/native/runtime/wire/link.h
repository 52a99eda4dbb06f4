/* SPDX-License-Identifier: Apache-2.0
 * Links that lose, delay, reorder, duplicate and corrupt packets, in one direction. */
#ifndef GL_LINK_H
#define GL_LINK_H

#include "packets/buffers.h"
#include "wire/api.h"

typedef struct {
    gl_impairment config;
    int impaired;            /* the configuration does anything */
    uint64_t seed;
    uint64_t sequence;       /* of the next packet that enters */
    int bad;                 /* the state of burst loss */
    uint64_t delivered;      /* highest sequence delivered, plus one */
    gl_packet **heap;        /* in flight, earliest first */
    uint32_t count, capacity;
    gl_impaired statistics;
} gl_link;

typedef enum { GL_LINK_NOW, GL_LINK_LATER, GL_LINK_LOST, GL_LINK_NO_MEMORY } gl_link_result;

void gl_link_configure(gl_link *link, gl_impairment config);
/* Puts a packet on the link at time `now`. GL_LINK_NOW: it has arrived, and then so has `twin` unless that is NULL;
 * GL_LINK_LATER: the link holds it, and its twin. */
gl_link_result gl_link_enter(gl_link *link, gl_pool *pool, gl_packet *packet, uint64_t now, gl_packet **twin);
/* The earliest packet if it is due by `now`, else NULL. */
gl_packet *gl_link_due(gl_link *link, uint64_t now);

#endif

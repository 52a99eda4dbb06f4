/* SPDX-License-Identifier: Apache-2.0 */
#include "ports/setup.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/counter.h"
#include "ports/io.h"
#include "ports/queues.h"

void gl_port_apply(gl_shared *shared, gl_port *port, uint64_t at, gl_port_config config) {
    if (port->free_at > at && port->config.rate != config.rate) {
        unsigned __int128 left = (unsigned __int128)(port->free_at - at) * port->config.rate;
        port->free_at = at + (config.rate ? (uint64_t)(left / config.rate) : 0);
        gl_expect(shared, port->free_at);
    }
    port->config = config;
    gl_link_configure(&port->tx_link, config.tx);
    gl_link_configure(&port->rx_link, config.rx);
    port->free_rest = 0;
    if (!config.up) {
        gl_port_flush_queues(shared, port);
    }
    gl_port_shrink_queues(shared, port);
}

gl_port *gl_port_new(uint32_t number, uint32_t kind, int fd, uint32_t frame_limit, uint64_t seed) {
    gl_port *port = calloc(1, sizeof *port);
    if (!port) {
        return NULL;
    }
    port->number = number;
    port->io = &gl_kinds[kind];
    port->fd = kind == GL_PORT_FILE ? -1 : fd;  /* Nothing ever comes from a file by itself. */
    port->frame_limit = frame_limit;
    port->stats.up = 1;
    port->tx_link.seed = seed * 2 * GL_PORTS + 2 * number;
    port->rx_link.seed = seed * 2 * GL_PORTS + 2 * number + 1;
    if (kind == GL_PORT_FILE && fd >= 0) {
        int own = dup(fd);
        port->file = own < 0 ? NULL : fdopen(own, "ab");
        if (!port->file && own >= 0) {
            close(own);
        }
    }
    if (kind == GL_PORT_FILE && fd >= 0 && !port->file) {
        free(port);
        return NULL;
    }
    return port;
}

static void cut(gl_shared *shared, gl_port *port, gl_packet **packets, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        gl_tally(&port->stats.cut, packets[i]->length);
        gl_pool_put(&shared->pool, packets[i]);
    }
}

void gl_port_empty(gl_shared *shared, gl_port *port) {
    gl_port_flush_queues(shared, port);
    cut(shared, port, port->tx_link.heap, port->tx_link.count);
    cut(shared, port, port->rx_link.heap, port->rx_link.count);
    cut(shared, port, port->leaving, port->leaving_count);
    port->tx_link.count = port->rx_link.count = port->leaving_count = 0;
    while (port->arrived) {
        gl_packet *packet = port->arrived;
        port->arrived = packet->next;
        cut(shared, port, &packet, 1);
    }
    port->arrived_count = 0;
}

void gl_port_free(gl_shared *shared, gl_port *port) {
    gl_port_empty(shared, port);
    free(port->tx_link.heap);
    free(port->rx_link.heap);
    if (port->file) {
        fclose(port->file);
    }
    free(port);
}

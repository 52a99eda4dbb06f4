/* SPDX-License-Identifier: Apache-2.0 */
#include "ports/events.h"

#include <unistd.h>

void gl_report(gl_shared *shared, gl_port *port, uint32_t kind, int error, uint32_t length) {
    if (port->reported >> kind & 1) {
        return;
    }
    gl_event event = {kind, port->number, error, length};
    if (write(shared->event_fd, &event, sizeof event) == sizeof event) {
        port->reported |= (uint8_t)(1u << kind);
    }
}

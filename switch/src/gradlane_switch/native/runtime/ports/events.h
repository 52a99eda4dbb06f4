/* SPDX-License-Identifier: Apache-2.0
 * What ports report. */
#ifndef GL_EVENTS_H
#define GL_EVENTS_H

#include "ports/port.h"
#include "ports/shared.h"

/* Reports an event for the log, once. */
void gl_report(gl_shared *shared, gl_port *port, uint32_t kind, int error, uint32_t length);

#endif

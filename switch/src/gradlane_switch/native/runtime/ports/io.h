/* SPDX-License-Identifier: Apache-2.0
 * How each kind of port gets frames in and out: sockets, TAP interfaces, pcap files. */
#ifndef GL_IO_H
#define GL_IO_H

#include "ports/port.h"

/* By GL_PORT_PACKET ... */
extern const gl_io gl_kinds[4];

#endif

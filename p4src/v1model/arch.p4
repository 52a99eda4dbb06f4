// SPDX-License-Identifier: Apache-2.0
// What only v1model targets have: their numbers for what every target has.

#ifndef GRADLANE_ARCH_P4
#define GRADLANE_ARCH_P4

// Meter colours (TNA numbers RED 3).
enum bit<2> Color { GREEN = 0, YELLOW = 1, RED = 2 }

// Packets to and from the controller (BMv2 and gradlane-switch: --cpu-port 255).
const port_t CPU_PORT = 255;

// BMv2 tells the depth of a queue in packets.
const bit<8> DEPTH_UNIT = 0;

#endif

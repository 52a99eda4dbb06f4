// SPDX-License-Identifier: Apache-2.0
// What only v1model targets have: their numbers for what every target has.

#ifndef GRADLANE_ARCH_P4
#define GRADLANE_ARCH_P4

// Meter colours (TNA numbers RED 3).
enum bit<2> Color { GREEN = 0, YELLOW = 1, RED = 2 }

// How the controls in shared/ name externs. `index_t` is the type of a meter's index where a target has one.
#define DIRECT_COUNTER direct_counter(CounterType.packets_and_bytes)
#define PACKET_METER(index_t, cells) meter(cells, MeterType.packets)
#define BYTE_METER(index_t, cells) meter(cells, MeterType.bytes)
#define EXECUTE_METER(meter, index, color) meter.execute_meter((bit<32>)index, color)

// What the guard asks for, by TNA's names.
typedef bit<3> DigestType_t;
const DigestType_t DIGEST_VIOLATION = 1;

// Packets to and from the controller (BMv2 and gradlane-switch: --cpu-port 255).
const port_t CPU_PORT = 255;

const bit<32> SENDERS = 8192;
const bit<32> JOB_SHARES = 8192;
// Cells of `decisions`: job index (8 bits) ++ reason (5) ++ queue class (3) ++ drop precedence (3).
const bit<32> DECISIONS = 524288;
// Cells of `sent`: egress port (9 bits) ++ way (2) ++ queue class (3).
const bit<32> SENT_CELLS = 16384;

// What a frame followed on its way out, or that it is a slice without payload.
enum bit<2> Way { PATH = 0, TREE = 1, TRIMMED_IPV4 = 2, TRIMMED_IPV6 = 3 }

// BMv2 tells the depth of a queue in packets.
const bit<8> DEPTH_UNIT = 0;

#endif

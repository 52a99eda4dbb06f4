// SPDX-License-Identifier: Apache-2.0
// What every program of the corpus begins with. A program adds the header `subject_t`, its tables and its statements;
// rest.p4, included at the end, adds the blocks that it has not defined.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

// What follows an Ethernet header of any other type is payload: such frames pass every program unchanged.
const bit<16> SUBJECT = 0x1234;

#define HEADERS struct headers_t { ethernet_t ethernet; subject_t subject; }
#define NO_METADATA struct metadata_t { }

#define BLOCK inout headers_t h, inout metadata_t m, inout standard_metadata_t s
#define PARSER parser P(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s)
#define VERIFY control V(inout headers_t h, inout metadata_t m)
#define INGRESS control I(BLOCK)
#define EGRESS control E(BLOCK)
#define UPDATE control U(inout headers_t h, inout metadata_t m)
#define DEPARSER control D(packet_out packet, in headers_t h)

#define START state start { \
        packet.extract(h.ethernet); \
        transition select(h.ethernet.type) { SUBJECT: subject; default: accept; } \
    }

// A frame leaves at one of the ports 1 to 4, by its destination, unless the program's subject says otherwise.
#define FORWARD if (h.ethernet.isValid()) { s.egress_spec = (bit<9>)h.ethernet.dst[1:0] + 1; } else { s.egress_spec = 1; }

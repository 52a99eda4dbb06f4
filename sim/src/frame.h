/* SPDX-License-Identifier: GPL-2.0-only
 *
 * The header of the datagrams by which pFabric and trimming carry a flow's packets. Queues read it too.
 */
#pragma once

#include <cstdint>

extern "C" {
#include "base/bits.h"
}

namespace sim {

enum class FrameKind : uint8_t { DATA, TRIMMED, ACK, NACK, PULL, PROBE };

struct Frame {
    FrameKind kind = FrameKind::DATA;
    uint32_t flow = 0, sequence = 0;
    uint32_t remaining = 0; /* bytes of the flow: pFabric's priority; the fewer, the sooner */
    static constexpr unsigned BYTES = 16, PFABRIC_PORT = 47600, TRIMMING_PORT = 47700, PORTS = 64;

    void write(uint8_t* to) const {
        to[0] = static_cast<uint8_t>(kind), to[1] = to[2] = to[3] = 0;
        put32(to + 4, flow), put32(to + 8, sequence), put32(to + 12, remaining);
    }
    static Frame read(const uint8_t* from) {
        return {static_cast<FrameKind>(from[0]), get32(from + 4), get32(from + 8), get32(from + 12)};
    }
};

/* The beginning of a packet that has such a header. */
struct FramedHead {
    static constexpr unsigned IPV4 = 20, UDP = 8, BYTES = IPV4 + UDP + Frame::BYTES;
    /* `first`: the first port of its protocol. */
    static bool is(const uint8_t* packet, uint32_t held, unsigned first) {
        const unsigned port = get16(packet + IPV4 + 2);
        return held >= BYTES && packet[9] == 17 && port >= first && port < first + Frame::PORTS;
    }
    static Frame frame(const uint8_t* packet) { return Frame::read(packet + IPV4 + UDP); }
};

} // namespace sim

/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Messages over ns-3's TCP. A message is known to be there as soon as the receiver has read the byte stream up to its
 * end. Connections stay open. On a fabric with "pias" queues, hosts tag each packet by how much of its message went
 * before it.
 */
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "ns3/socket.h"

#include "carrier.h"

namespace sim {

class TcpCarrier : public Carrier {
  public:
    /* `spec`: "congestion" ("dctcp" or "cubic"), "min_rto" (ns), "segment" (bytes), "initial_window" (segments),
     * "delayed_acks" (segments), "buffer" (bytes, at each end), "class" (of IPv4's DSCP), and "connections": "one" for
     * each pair of hosts, in order, or "pooled": as many as a pair's messages at a time. */
    TcpCarrier(Fabric& fabric, const Json& spec, unsigned number);
    void open(unsigned from, unsigned to) override;
    void send(unsigned from, unsigned to, uint64_t bytes, std::function<void()> delivered) override;
    Json result() const override;

  private:
    struct Message {
        uint64_t begin, end; /* in the byte stream */
        std::function<void()> delivered;
    };
    struct Connection {
        ns3::Ptr<ns3::Socket> out, in;
        std::deque<Message> open;                       /* not delivered */
        uint64_t queued = 0, written = 0, received = 0; /* bytes of the stream */
        bool connected = false;
    };
    using Port = std::pair<unsigned, uint16_t>; /* of a host */
    Fabric& fabric_;
    const Json spec_;
    const bool dctcp_, pooled_;
    const uint16_t port_;
    const uint32_t segment_;
    const std::vector<uint64_t> thresholds_; /* of PIAS; bytes */
    std::vector<ns3::Ptr<ns3::Socket>> listeners_;
    std::map<std::pair<unsigned, unsigned>, std::vector<std::unique_ptr<Connection>>> connections_;
    std::map<Port, Connection*> by_port_; /* of the sender */
    uint64_t count_ = 0;

    ns3::Ptr<ns3::Socket> make_socket(unsigned host);
    void prepare(unsigned host);
    Connection& connect(unsigned from, unsigned to);
    void accept(unsigned host, const ns3::Ptr<ns3::Socket>& socket, const ns3::Address& address);
    void feed(Connection& connection);
    void read(Connection& connection);
    /* The TOS of a packet of this carrier. */
    std::optional<uint8_t> tag(unsigned host, const uint8_t* packet, uint32_t held) const;
};

} // namespace sim

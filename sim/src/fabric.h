/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Hosts, switches and links. Switches forward IPv4 by the shortest ways; what a Gradlane switch decides beside that is its
 * Policy. Nodes are numbered: the hosts from 0 on, then the switches. A node's ports are numbered from 1 on, in the order
 * of the links.
 */
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "ns3/node.h"
#include "ns3/point-to-point-channel.h"
#include "ns3/point-to-point-net-device.h"
#include "ns3/random-variable-stream.h"

#include "policy.h"
#include "port_queue.h"

namespace sim {

using Json = nlohmann::json;

/* One direction of a link: what leaves a node by a port. */
struct Port {
    ns3::Ptr<ns3::PointToPointNetDevice> device;
    ns3::Ptr<PortQueue> queue;
    uint32_t node = 0, peer = 0;
    uint64_t rate = 0; /* bit/s */
    double loss = 0;   /* of what arrives at the other end, by chance */
    unsigned chosen_bits = 0; /* what comes in here has these bits of its flow's number in common */
    bool up = true;
    uint64_t lost = 0; /* by chance, or as the link was down */
};

class Fabric {
  public:
    /* `spec`: "hosts", "switches", "links", "queue", "framing"; see gradlane_sim/fabrics.py. */
    explicit Fabric(const Json& spec);

    unsigned hosts() const { return hosts_; }
    unsigned nodes() const { return static_cast<unsigned>(nodes_.size()); }
    ns3::Ptr<ns3::Node> node(unsigned number) const { return nodes_[number]; }
    std::vector<Port>& ports(unsigned node) { return ports_[node]; } /* port k is ports(node)[k - 1] */
    Policy& policy(unsigned node) { return policies_[node - hosts_]; }
    const PolicyCounts& counts(unsigned node) const { return policies_[node - hosts_].counts(); }
    uint32_t framing() const { return framing_; }

    static uint32_t address(unsigned host) { return 0x0A000001U + host; }
    static unsigned host_of(uint32_t address) { return address - 0x0A000001U; }

    /* What comes to a host and is a datagram to this UDP port: its payload and TOS, and who sent it. */
    using Receiver = std::function<void(unsigned from, const uint8_t* datagram, uint32_t bytes, uint8_t tos)>;
    void receive(unsigned host, uint16_t udp_port, Receiver receiver);
    /* All else that comes to a host: for a stack of its own. */
    void receive_others(unsigned host, ns3::NetDevice::ReceiveCallback others);
    /* Sends a datagram of a host; `zeros`: how many bytes of 0 follow. */
    void send(unsigned from, unsigned to, uint16_t source_port, uint16_t udp_port, uint8_t tos, const uint8_t* datagram,
              uint32_t bytes, uint32_t zeros = 0) {
        send_to(from, address(to), source_port, udp_port, tos, datagram, bytes, zeros);
    }
    /* The same, to any address: a group's. */
    void send_to(unsigned from, uint32_t destination, uint16_t source_port, uint16_t udp_port, uint8_t tos, const uint8_t* datagram,
                 uint32_t bytes, uint32_t zeros = 0);
    const Json& queue() const { return queue_; }

    /* Told of every slice that a switch drops or trims by policy, and of which kind it was. */
    std::function<void(const uint8_t* packet, uint8_t kind)> on_taken;

    /* From now on what is sent by that link is lost, or is not any more. A switch at its end goes by others at once, where it has
     * some, all else when routes are found anew. */
    void set_link(unsigned a, unsigned b, bool up);
    /* Of each switch to each switch with hosts: all ports that are up and on a shortest way, in order, as often as their links are
     * faster than the slowest of them. */
    void find_routes();
    /* By node: the number of one of those that it is connected to, the same for all of these. */
    std::vector<unsigned> parts() const;

  private:
    struct Gathered {
        std::map<uint16_t, Receiver> receivers;
        ns3::NetDevice::ReceiveCallback others; /* of the node's own stack */
    };
    unsigned hosts_;
    uint32_t framing_;
    Json queue_;
    bool policed_;
    std::vector<ns3::Ptr<ns3::Node>> nodes_;
    std::vector<std::vector<Port>> ports_;
    std::vector<Policy> policies_;
    std::vector<std::vector<std::vector<uint16_t>>> routes_; /* [switch][switch of the destination] -> ports that are up */
    std::vector<std::vector<uint16_t>> local_;               /* [host] -> the only port of its switch towards it */
    std::vector<unsigned> switch_of_;                        /* [host] */
    std::vector<Gathered> receivers_;
    std::vector<uint16_t> living_; /* of the members of a route, while a link is down */
    unsigned links_down_ = 0;
    ns3::Ptr<ns3::UniformRandomVariable> random_;

    void add_link(const Json& link, const Json& queue);
    const std::vector<uint16_t>& members(unsigned node, unsigned host);
    void leave(unsigned node, uint16_t number, uint8_t queue_class, const ns3::Ptr<ns3::Packet>& packet);
    bool arrive_at_switch(unsigned node, unsigned port, ns3::Ptr<const ns3::Packet> packet);
    bool arrive_at_host(unsigned host, ns3::Ptr<ns3::NetDevice> device, ns3::Ptr<const ns3::Packet> packet, uint16_t protocol,
                        const ns3::Address& from);
};

} // namespace sim

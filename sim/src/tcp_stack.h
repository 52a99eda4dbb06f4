/* SPDX-License-Identifier: GPL-2.0-only
 *
 * A host's TCP: ns-3's, which looks through all connections of the host for each packet. With hundreds of them that
 * took most of the time, so established ones are found here.
 */
#pragma once

#include <unordered_map>

#include "ns3/ipv4-end-point.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/tcp-l4-protocol.h"

#include "fabric.h"

namespace sim {

class TcpStack : public ns3::Object {
  public:
    static ns3::TypeId GetTypeId();
    /* That of a host, installed if it has none. */
    static ns3::Ptr<TcpStack> of(Fabric& fabric, unsigned host);
    ns3::Ptr<ns3::Socket> make_socket(ns3::TypeId congestion);
    /* What comes to this socket, which stays open, is brought to it at once from now on. */
    void add(const ns3::Ptr<ns3::Socket>& socket);

  private:
    ns3::Ptr<ns3::Ipv4L3Protocol> ipv4_;
    ns3::Ptr<ns3::TcpL4Protocol> tcp_;
    ns3::Ptr<ns3::Ipv4Interface> interface_;
    std::unordered_map<uint64_t, ns3::Ipv4EndPoint*> connections_;

    static uint64_t key(uint32_t remote, uint16_t remote_port, uint16_t local_port);
    void receive(const ns3::Ptr<ns3::NetDevice>& device, const ns3::Ptr<const ns3::Packet>& packet, uint16_t protocol,
                 const ns3::Address& from);
};

} // namespace sim

/* SPDX-License-Identifier: GPL-2.0-only */
#include "tcp_stack.h"

#include <stdexcept>

#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-static-routing-helper.h"
#include "ns3/rtt-estimator.h"
#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-recovery-ops.h"
#include "ns3/tcp-socket-base.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

constexpr uint32_t TCP = 6, IPV4_HEAD = 20, PORTS = 4;

/* ns-3 has no way to ask a socket for its end point. */
struct EndPointOf : ns3::TcpSocketBase {
    static ns3::Ipv4EndPoint* get(ns3::TcpSocketBase& socket) { return socket.*(&EndPointOf::m_endPoint); }
};

/* ns-3 3.44 goes back to its open state from a window that it made smaller for marks with the duplicate ACKs that it had counted
 * in it, which its next one takes for a fault of the program. */
class TcpSocket : public ns3::TcpSocketBase {
  private:
    void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override {
        const auto state = m_tcb->m_congState.Get();
        const bool reduced = state == ns3::TcpSocketState::CA_CWR && header.GetAckNumber() > m_recover;
        if (reduced || state == ns3::TcpSocketState::CA_OPEN) m_dupAckCount = 0;
        TcpSocketBase::ReceivedAck(packet, header);
    }
};

template <typename T> ns3::Ptr<T> made(ns3::TypeId type) {
    ns3::ObjectFactory factory;
    factory.SetTypeId(type);
    return factory.Create<T>();
}

} // namespace

NS_OBJECT_ENSURE_REGISTERED(TcpStack);

ns3::TypeId TcpStack::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::TcpStack").SetParent<ns3::Object>().AddConstructor<TcpStack>();
    return id;
}

ns3::Ptr<TcpStack> TcpStack::of(Fabric& fabric, unsigned host) {
    const auto node = fabric.node(host);
    if (const auto found = node->GetObject<TcpStack>()) return found;
    ns3::InternetStackHelper helper;
    const ns3::Ipv4StaticRoutingHelper routing;
    helper.SetRoutingHelper(routing);
    helper.SetIpv6StackInstall(false);
    helper.Install(node);
    const auto stack = ns3::CreateObject<TcpStack>();
    stack->ipv4_ = node->GetObject<ns3::Ipv4L3Protocol>();
    stack->tcp_ = node->GetObject<ns3::TcpL4Protocol>();
    const uint32_t interface = stack->ipv4_->AddInterface(fabric.ports(host)[0].device);
    stack->ipv4_->AddAddress(interface, {ns3::Ipv4Address(Fabric::address(host)), ns3::Ipv4Mask("255.0.0.0")});
    stack->ipv4_->SetUp(interface);
    stack->interface_ = stack->ipv4_->GetInterface(interface);
    node->AggregateObject(stack);
    fabric.receive_others(host, [raw = ns3::PeekPointer(stack)](ns3::Ptr<ns3::NetDevice> device,
                                                                ns3::Ptr<const ns3::Packet> packet, uint16_t protocol,
                                                                const ns3::Address& from) {
        raw->receive(device, packet, protocol, from);
        return true;
    });
    return stack;
}

/* As TcpL4Protocol::CreateSocket does. */
ns3::Ptr<ns3::Socket> TcpStack::make_socket(ns3::TypeId congestion) {
    ns3::TypeIdValue rtt, recovery;
    tcp_->GetAttribute("RttEstimatorType", rtt);
    tcp_->GetAttribute("RecoveryType", recovery);
    const auto socket = ns3::CreateObject<TcpSocket>();
    socket->SetNode(tcp_->GetObject<ns3::Node>());
    socket->SetTcp(tcp_);
    socket->SetRtt(made<ns3::RttEstimator>(rtt.Get()));
    socket->SetCongestionControlAlgorithm(made<ns3::TcpCongestionOps>(congestion));
    socket->SetRecoveryAlgorithm(made<ns3::TcpRecoveryOps>(recovery.Get()));
    tcp_->AddSocket(socket);
    return socket;
}

uint64_t TcpStack::key(uint32_t remote, uint16_t remote_port, uint16_t local_port) {
    return static_cast<uint64_t>(remote) << 32 | static_cast<uint32_t>(remote_port) << 16 | local_port;
}

void TcpStack::add(const ns3::Ptr<ns3::Socket>& socket) {
    const auto base = ns3::DynamicCast<ns3::TcpSocketBase>(socket);
    ns3::Ipv4EndPoint* const end = base ? EndPointOf::get(*base) : nullptr;
    if (!end) throw std::logic_error("a TCP connection has no end point");
    connections_[key(end->GetPeerAddress().Get(), end->GetPeerPort(), end->GetLocalPort())] = end;
}

void TcpStack::receive(const ns3::Ptr<ns3::NetDevice>& device, const ns3::Ptr<const ns3::Packet>& packet,
                       uint16_t protocol, const ns3::Address& from) {
    uint8_t head[IPV4_HEAD + PORTS] = {0};
    packet->CopyData(head, sizeof head);
    if (head[9] == TCP) {
        const auto found =
            connections_.find(key(get32(head + 12), get16(head + IPV4_HEAD), get16(head + IPV4_HEAD + 2)));
        if (found != connections_.end()) {
            const auto segment = packet->Copy();
            ns3::Ipv4Header header;
            segment->RemoveHeader(header);
            found->second->ForwardUp(segment, header, get16(head + IPV4_HEAD), interface_);
            return;
        }
    }
    ipv4_->Receive(device, packet, protocol, from, device->GetAddress(), ns3::NetDevice::PACKET_HOST);
}

} // namespace sim

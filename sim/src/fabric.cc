/* SPDX-License-Identifier: GPL-2.0-only */
#include "fabric.h"

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "ns3/data-rate.h"
#include "ns3/simulator.h"

#include "queue_factory.h"
#include "raw_header.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

constexpr uint16_t IPV4 = 0x0800;
enum { UDP = 17, TTL = 64, PPP_BYTES = 2 };
/* The longest SUM. */
enum { MOST_SUM_BYTES = DECIDING_BYTES + GL_SUM_BYTES + GL_MAX_SUM_WORDS * GL_SUM_WORD };

} // namespace

Fabric::Fabric(const Json& spec)
    : hosts_(spec.at("hosts")), framing_(spec.at("framing")), random_(ns3::CreateObject<ns3::UniformRandomVariable>()) {
    const unsigned switches = spec.at("switches");
    for (unsigned i = 0; i < hosts_ + switches; i++) nodes_.push_back(ns3::CreateObject<ns3::Node>());
    ports_.resize(nodes_.size());
    policies_.resize(switches);
    switch_of_.assign(hosts_, UINT32_MAX);
    local_.resize(hosts_);
    receivers_.resize(hosts_);
    random_->SetStream(1);
    queue_ = spec.at("queue");
    policed_ = queue_.at("kind") == "priority";
    for (const Json& link : spec.at("links")) add_link(link, queue_);
    for (unsigned h = 0; h < hosts_; h++)
        if (ports_[h].size() != 1) throw std::invalid_argument("host " + std::to_string(h) + " must have one link");
    find_routes();
}

void Fabric::add_link(const Json& link, const Json& queue) {
    const unsigned ends[2] = {link.at("a"), link.at("b")};
    const uint64_t rate = link.at("rate");
    const auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
    channel->SetAttribute("Delay", ns3::TimeValue(ns3::NanoSeconds(link.at("delay").get<int64_t>())));
    for (int side = 0; side < 2; side++) {
        const unsigned node = ends[side], peer = ends[1 - side];
        if (node >= nodes_.size()) throw std::invalid_argument("a link ends at node " + std::to_string(node) + ", which is none");
        Port port;
        port.node = node, port.peer = peer, port.rate = rate;
        port.loss = link.value("loss", 0.0);
        port.device = ns3::CreateObject<ns3::PointToPointNetDevice>();
        port.device->SetAddress(ns3::Mac48Address::Allocate());
        port.device->SetDataRate(ns3::DataRate(rate));
        /* Everything of a frame that the device does not count, in time. */
        port.device->SetInterframeGap(ns3::Seconds(8.0 * (framing_ - PPP_BYTES) / static_cast<double>(rate)));
        const bool host = node < hosts_;
        port.queue = make_queue(queue, host, link.at("buffer").get<uint64_t>(), framing_);
        port.device->SetQueue(port.queue);
        port.device->Attach(channel);
        nodes_[node]->AddDevice(port.device);
        if (link.contains("chosen_bits")) port.chosen_bits = link.at("chosen_bits")[side];
        ports_[node].push_back(port);
        const unsigned number = static_cast<unsigned>(ports_[node].size());
        if (host) {
            port.device->SetReceiveCallback([this, node](ns3::Ptr<ns3::NetDevice> device, ns3::Ptr<const ns3::Packet> packet,
                                                         uint16_t protocol, const ns3::Address& from) {
                return arrive_at_host(node, device, packet, protocol, from);
            });
        } else {
            port.device->SetReceiveCallback([this, node, number](ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet> packet,
                                                                 uint16_t, const ns3::Address&) {
                return arrive_at_switch(node, number, packet);
            });
            if (peer < hosts_) {
                switch_of_[peer] = node;
                local_[peer] = {static_cast<uint16_t>(number)};
            }
        }
    }
}

void Fabric::find_routes() {
    const unsigned switches = static_cast<unsigned>(policies_.size());
    routes_.assign(switches, std::vector<std::vector<uint16_t>>(switches));
    for (unsigned target = 0; target < switches; target++) {
        std::vector<unsigned> distance(switches, UINT32_MAX);
        std::deque<unsigned> next{target};
        distance[target] = 0;
        while (!next.empty()) {
            const unsigned at = next.front();
            next.pop_front();
            for (const Port& port : ports_[hosts_ + at]) {
                if (port.peer < hosts_ || !port.up || distance[port.peer - hosts_] != UINT32_MAX) continue;
                distance[port.peer - hosts_] = distance[at] + 1;
                next.push_back(port.peer - hosts_);
            }
        }
        for (unsigned s = 0; s < switches; s++) {
            if (s == target || distance[s] == UINT32_MAX) continue;
            const std::vector<Port>& ports = ports_[hosts_ + s];
            const auto leads = [&](const Port& port) {
                return port.peer >= hosts_ && port.up && distance[port.peer - hosts_] + 1 == distance[s];
            };
            uint64_t slowest = UINT64_MAX;
            for (const Port& port : ports)
                if (leads(port)) slowest = std::min(slowest, port.rate);
            for (unsigned k = 0; k < ports.size(); k++)
                if (leads(ports[k]))
                    routes_[s][target].insert(routes_[s][target].end(), ports[k].rate / slowest, static_cast<uint16_t>(k + 1));
        }
    }
}

void Fabric::set_link(unsigned a, unsigned b, bool up) {
    for (const auto& [node, peer] : {std::pair{a, b}, std::pair{b, a}})
        for (Port& port : ports_[node])
            if (port.peer == peer && port.up != up) {
                port.up = up;
                links_down_ += up ? -1U : 1U;
            }
}

std::vector<unsigned> Fabric::parts() const {
    std::vector<unsigned> part(nodes_.size(), UINT32_MAX);
    for (unsigned first = 0; first < nodes_.size(); first++) {
        std::vector<unsigned> next;
        if (part[first] == UINT32_MAX) next.push_back(first);
        while (!next.empty()) {
            const unsigned at = next.back();
            next.pop_back();
            part[at] = first;
            for (const Port& port : ports_[at])
                if (port.up && part[port.peer] == UINT32_MAX) next.push_back(port.peer);
        }
    }
    return part;
}

/* By which ports a switch sends to a host. */
const std::vector<uint16_t>& Fabric::members(unsigned node, unsigned host) {
    static const std::vector<uint16_t> nowhere;
    if (host >= hosts_) return nowhere;
    const bool here = switch_of_[host] == node;
    const std::vector<uint16_t>& all = here ? local_[host] : routes_[node - hosts_][switch_of_[host] - hosts_];
    if (!links_down_) return all;
    living_.clear();
    for (const uint16_t k : all)
        if (ports_[node][k - 1].up) living_.push_back(k);
    return living_;
}

bool Fabric::arrive_at_switch(unsigned node, unsigned number, ns3::Ptr<const ns3::Packet> packet) {
    Port& in = ports_[node][number - 1];
    if (!in.up || (in.loss > 0 && random_->GetValue() < in.loss)) {
        in.lost++;
        return true;
    }
    uint8_t head[MOST_SUM_BYTES] = {0};
    uint32_t held = packet->CopyData(head, DECIDING_BYTES);
    const bool from_fabric = in.peer >= hosts_, sum = policy(node).is_sum(head, held, from_fabric);
    if (sum) held = packet->CopyData(head, sizeof head);
    const unsigned host = host_of(get32(head + 16)), s = node - hosts_;
    const uint8_t tos = head[1], kind = head[IPV4_BYTES + UDP_BYTES] & 15;
    const uint64_t now = static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds());
    const Entry entry{static_cast<uint16_t>(number), from_fabric, in.chosen_bits};
    const Decision d = policies_[s].decide(head, held, packet->GetSize() + framing_, entry, members(node, host), now);
    if (is_taken(d.reason) && on_taken) on_taken(head, kind);
    if (is_drop(d.reason)) return true;
    for (const Decision::Copy& copy : d.copies) {
        head[1] = copy.tos;
        leave(node, copy.egress, d.queue_class, ns3::Create<ns3::Packet>(head, held));
    }
    if (!d.copies.empty()) return true;
    ns3::Ptr<ns3::Packet> out = packet->Copy();
    if (d.trimmed || sum) {
        out = ns3::Create<ns3::Packet>(head, d.trimmed ? uint32_t{DECIDING_BYTES} : held);
    } else if (d.tos != tos && !(d.reason == Reason::DROPPED_NO_ROUTE)) {
        out->RemoveAtStart(IPV4_BYTES);
        out->AddHeader(RawHeader(head, IPV4_BYTES));
    }
    leave(node, d.egress, d.queue_class, out);
    return true;
}

void Fabric::leave(unsigned node, uint16_t number, uint8_t queue_class, const ns3::Ptr<ns3::Packet>& packet) {
    Port& egress = ports_[node][number - 1];
    /* The rivals' queues go by the TOS. */
    if (policed_) egress.queue->set_class(queue_class);
    egress.device->Send(packet, egress.device->GetBroadcast(), IPV4);
}

bool Fabric::arrive_at_host(unsigned host, ns3::Ptr<ns3::NetDevice> device, ns3::Ptr<const ns3::Packet> packet, uint16_t protocol,
                            const ns3::Address& from) {
    Port& in = ports_[host][0];
    if (!in.up || (in.loss > 0 && random_->GetValue() < in.loss)) {
        in.lost++;
        return true;
    }
    Gathered& to = receivers_[host];
    uint8_t bytes[9216];
    const uint32_t size = packet->GetSize();
    if (size <= sizeof bytes && !to.receivers.empty()) {
        packet->CopyData(bytes, IPV4_BYTES + UDP_BYTES);
        const auto receiver = bytes[9] == UDP ? to.receivers.find(get16(bytes + IPV4_BYTES + 2)) : to.receivers.end();
        if (receiver != to.receivers.end()) {
            packet->CopyData(bytes, size);
            receiver->second(host_of(get32(bytes + 12)), bytes + IPV4_BYTES + UDP_BYTES, size - IPV4_BYTES - UDP_BYTES, bytes[1]);
            return true;
        }
    }
    return to.others.IsNull() ? true : to.others(device, packet, protocol, from);
}

void Fabric::receive(unsigned host, uint16_t udp_port, Receiver receiver) {
    receivers_[host].receivers[udp_port] = std::move(receiver);
}

void Fabric::receive_others(unsigned host, ns3::NetDevice::ReceiveCallback others) { receivers_[host].others = others; }

void Fabric::send_to(unsigned from, uint32_t destination, uint16_t source_port, uint16_t udp_port, uint8_t tos,
                     const uint8_t* datagram, uint32_t bytes, uint32_t zeros) {
    uint8_t head[IPV4_BYTES + UDP_BYTES] = {0x45, tos};
    put16(head + 2, IPV4_BYTES + UDP_BYTES + bytes + zeros);
    head[8] = TTL, head[9] = UDP;
    put32(head + 12, address(from));
    put32(head + 16, destination);
    put16(head + IPV4_BYTES, source_port);
    put16(head + IPV4_BYTES + 2, udp_port);
    put16(head + IPV4_BYTES + 4, UDP_BYTES + bytes + zeros);
    const auto packet = zeros ? ns3::Create<ns3::Packet>(zeros) : ns3::Create<ns3::Packet>(datagram, bytes);
    if (zeros) packet->AddHeader(RawHeader(datagram, bytes));
    packet->AddHeader(RawHeader(head, sizeof head));
    const Port& port = ports_[from][0];
    port.device->Send(packet, port.device->GetBroadcast(), IPV4);
}

} // namespace sim

/* SPDX-License-Identifier: GPL-2.0-only */
#include "capture.h"

#include <stdexcept>

#include "ns3/pcap-file-wrapper.h"
#include "ns3/simulator.h"

namespace sim {

namespace {
constexpr uint32_t LINK_PPP = 9;
}

void capture(Fabric& fabric, const Json& spec) {
    const unsigned node = spec.at("node"), port = spec.at("port");
    if (node >= fabric.nodes() || port < 1 || port > fabric.ports(node).size())
        throw std::invalid_argument("pcap: node " + std::to_string(node) + " has no port " + std::to_string(port));
    const std::string name = spec.at("file");
    const auto file = ns3::CreateObject<ns3::PcapFileWrapper>();
    file->Open(name, std::ios::out | std::ios::binary);
    file->Init(LINK_PPP);
    if (file->Fail()) throw std::invalid_argument("pcap: " + name + " can't be written");
    fabric.ports(node)[port - 1].device->TraceConnectWithoutContext(
        "PromiscSniffer", ns3::Callback<void, ns3::Ptr<const ns3::Packet>>([file](ns3::Ptr<const ns3::Packet> packet) {
            file->Write(ns3::Simulator::Now(), packet);
        }));
}

} // namespace sim

/* SPDX-License-Identifier: GPL-2.0-only */
#include "tcp_carrier.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/inet-socket-address.h"
#include "ns3/tcp-cubic.h"
#include "ns3/uinteger.h"

#include "linux_dctcp.h"
#include "tcp_stack.h"

extern "C" {
#include "base/bits.h"
}

namespace sim {

namespace {

constexpr uint16_t FIRST_PORT = 5001;
constexpr unsigned CONNECTION_TRIES = 30, DATA_TRIES = 1'000'000; /* a link may be down for long */
constexpr uint32_t TCP = 6, IPV4_HEAD = 20, TCP_HEAD = 20, TOP_CLASS = 7;

bool is_dctcp(const std::string& congestion) {
    if (congestion != "dctcp" && congestion != "cubic")
        throw std::invalid_argument("congestion \"" + congestion + "\": it must be dctcp or cubic");
    return congestion == "dctcp";
}

bool is_pooled(const std::string& connections) {
    if (connections != "one" && connections != "pooled")
        throw std::invalid_argument("connections \"" + connections + "\": it must be one or pooled");
    return connections == "pooled";
}

} // namespace

TcpCarrier::TcpCarrier(Fabric& fabric, const Json& spec, unsigned number)
    : fabric_(fabric), spec_(spec), dctcp_(is_dctcp(spec.at("congestion"))),
      pooled_(is_pooled(spec.value("connections", "one"))), port_(static_cast<uint16_t>(FIRST_PORT + number)),
      segment_(spec.value("segment", 1460U)),
      thresholds_(fabric.queue().at("kind") == "pias" ? fabric.queue().at("thresholds").get<std::vector<uint64_t>>()
                                                      : std::vector<uint64_t>{}),
      listeners_(fabric.hosts()) {
    if (thresholds_.size() > TOP_CLASS) throw std::invalid_argument("thresholds: there are eight classes");
}

ns3::Ptr<ns3::Socket> TcpCarrier::make_socket(unsigned host) {
    const ns3::Time rto = ns3::NanoSeconds(spec_.at("min_rto").get<int64_t>());
    /* ns-3's own, 1 s, belongs to the Internet; a socket has no attribute for it. */
    ns3::Config::SetDefault("ns3::RttEstimator::InitialEstimation", ns3::TimeValue(rto));
    const auto socket =
        TcpStack::of(fabric_, host)->make_socket(dctcp_ ? LinuxDctcp::GetTypeId() : ns3::TcpCubic::GetTypeId());
    const uint32_t buffer = spec_.value("buffer", 4'000'000U);
    socket->SetAttribute("SegmentSize", ns3::UintegerValue(segment_));
    socket->SetAttribute("InitialCwnd", ns3::UintegerValue(spec_.value("initial_window", 10U)));
    socket->SetAttribute("SndBufSize", ns3::UintegerValue(buffer));
    socket->SetAttribute("RcvBufSize", ns3::UintegerValue(buffer));
    socket->SetAttribute("DelAckCount", ns3::UintegerValue(spec_.value("delayed_acks", 2U)));
    socket->SetAttribute("DelAckTimeout",
                         ns3::TimeValue(ns3::NanoSeconds(std::max<int64_t>(1, rto.GetNanoSeconds() / 5))));
    socket->SetAttribute("ConnTimeout", ns3::TimeValue(rto));
    socket->SetAttribute("ConnCount", ns3::UintegerValue(CONNECTION_TRIES));
    socket->SetAttribute("DataRetries", ns3::UintegerValue(DATA_TRIES));
    socket->SetAttribute("MinRto", ns3::TimeValue(rto));
    socket->SetAttribute("ClockGranularity", ns3::TimeValue(ns3::MicroSeconds(1)));
    /* ns-3's timestamps count ms, too few for a fabric's round trips. */
    socket->SetAttribute("Timestamp", ns3::BooleanValue(false));
    socket->SetIpTos(static_cast<uint8_t>(spec_.value("class", 0U) << 5));
    return socket;
}

void TcpCarrier::prepare(unsigned host) {
    if (listeners_.at(host)) return;
    const auto listener = make_socket(host);
    listener->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), port_));
    listener->Listen();
    using Request = ns3::Callback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>;
    using Accepted = ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>;
    listener->SetAcceptCallback(
        Request([](ns3::Ptr<ns3::Socket>, const ns3::Address&) { return true; }),
        Accepted([this, host](ns3::Ptr<ns3::Socket> socket, const ns3::Address& from) { accept(host, socket, from); }));
    listeners_[host] = listener;
    if (thresholds_.empty()) return;
    auto& tag_of_port = fabric_.ports(host)[0].queue->tag;
    /* Each carrier tags what is its own. */
    tag_of_port = [this, host, before = tag_of_port](const uint8_t* packet, uint32_t held) {
        const std::optional<uint8_t> own = tag(host, packet, held);
        return own ? *own : before ? before(packet, held) : packet[1];
    };
}

void TcpCarrier::accept(unsigned host, const ns3::Ptr<ns3::Socket>& socket, const ns3::Address& address) {
    const auto from = ns3::InetSocketAddress::ConvertFrom(address);
    Connection& connection = *by_port_.at({Fabric::host_of(from.GetIpv4().Get()), from.GetPort()});
    connection.in = socket;
    TcpStack::of(fabric_, host)->add(socket);
    socket->SetRecvCallback(
        ns3::Callback<void, ns3::Ptr<ns3::Socket>>([this, &connection](ns3::Ptr<ns3::Socket>) { read(connection); }));
    read(connection);
}

TcpCarrier::Connection& TcpCarrier::connect(unsigned from, unsigned to) {
    prepare(from);
    prepare(to);
    auto& pool = connections_[{from, to}];
    Connection& connection = *pool.emplace_back(std::make_unique<Connection>());
    count_++;
    connection.out = make_socket(from);
    connection.out->Bind();
    ns3::Address name;
    connection.out->GetSockName(name);
    by_port_[{from, ns3::InetSocketAddress::ConvertFrom(name).GetPort()}] = &connection;
    using Connected = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;
    connection.out->SetConnectCallback(Connected([this, from, &connection](ns3::Ptr<ns3::Socket> socket) {
                                           TcpStack::of(fabric_, from)->add(socket);
                                           connection.connected = true;
                                           feed(connection);
                                       }),
                                       Connected());
    connection.out->SetSendCallback(ns3::Callback<void, ns3::Ptr<ns3::Socket>, uint32_t>(
        [this, &connection](ns3::Ptr<ns3::Socket>, uint32_t) { feed(connection); }));
    connection.out->Connect(ns3::InetSocketAddress(ns3::Ipv4Address(Fabric::address(to)), port_));
    return connection;
}

void TcpCarrier::open(unsigned from, unsigned to) {
    if (connections_[{from, to}].empty()) connect(from, to);
}

void TcpCarrier::send(unsigned from, unsigned to, uint64_t bytes, std::function<void()> delivered) {
    if (!bytes || from == to) throw std::invalid_argument("a message must have bytes, and go to another host");
    const auto& pool = connections_[{from, to}];
    const auto idle =
        std::find_if(pool.begin(), pool.end(), [this](const auto& c) { return !pooled_ || c->open.empty(); });
    Connection& connection = idle == pool.end() ? connect(from, to) : **idle;
    connection.open.push_back({connection.queued, connection.queued + bytes, std::move(delivered)});
    connection.queued += bytes;
    feed(connection);
}

void TcpCarrier::feed(Connection& c) {
    while (c.connected && c.written < c.queued) {
        const uint64_t room = c.out->GetTxAvailable();
        /* Not in crumbs: each piece costs time. */
        const uint64_t bytes = std::min(c.queued - c.written, room / segment_ * segment_);
        if (!bytes) return;
        /* Counted first, as sending calls back. */
        c.written += bytes;
        if (c.out->Send(ns3::Create<ns3::Packet>(static_cast<uint32_t>(bytes)), 0) < 0)
            throw std::logic_error("TCP refuses what it has room for");
    }
}

void TcpCarrier::read(Connection& c) {
    while (const auto packet = c.in->Recv(UINT32_MAX, 0)) {
        if (!packet->GetSize()) break;
        c.received += packet->GetSize();
    }
    while (!c.open.empty() && c.open.front().end <= c.received) {
        const auto delivered = std::move(c.open.front().delivered);
        c.open.pop_front();
        delivered();
    }
}

/* PIAS: the more bytes of its message went before, the lower a packet's class; what carries none goes first. */
std::optional<uint8_t> TcpCarrier::tag(unsigned host, const uint8_t* packet, uint32_t held) const {
    if (packet[9] != TCP || held < IPV4_HEAD + TCP_HEAD) return std::nullopt;
    const uint8_t* const tcp = packet + IPV4_HEAD;
    unsigned queue_class = TOP_CLASS;
    const auto found = by_port_.find({host, get16(tcp)});
    if (found != by_port_.end() && get16(tcp + 2) == port_ && get16(packet + 2) > IPV4_HEAD + (tcp[12] >> 4) * 4U) {
        const Connection& c = *found->second;
        /* ns-3's streams begin with sequence number 1, and may be longer than those numbers. */
        const uint64_t offset =
            c.written - static_cast<uint32_t>(static_cast<uint32_t>(c.written) + 1 - get32(tcp + 4));
        for (const Message& m : c.open) {
            if (offset >= m.end) continue;
            const uint64_t before = offset >= m.begin ? offset - m.begin : 0;
            queue_class -= static_cast<unsigned>(
                std::count_if(thresholds_.begin(), thresholds_.end(), [before](uint64_t t) { return before >= t; }));
            break;
        }
    } else if (found == by_port_.end() && get16(tcp) != port_) {
        return std::nullopt;
    }
    return static_cast<uint8_t>(queue_class << 5 | (packet[1] & 3));
}

Json TcpCarrier::result() const {
    size_t open = 0;
    for (const auto& [pair, pool] : connections_)
        for (const auto& c : pool) open += c->open.size();
    return {{"connections", count_}, {"open", open}};
}

} // namespace sim

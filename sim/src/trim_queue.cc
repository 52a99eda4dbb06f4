/* SPDX-License-Identifier: GPL-2.0-only */
#include "trim_queue.h"

#include "frame.h"
#include "raw_header.h"

namespace sim {

NS_OBJECT_ENSURE_REGISTERED(TrimQueue);

ns3::TypeId TrimQueue::GetTypeId() {
    static ns3::TypeId id = ns3::TypeId("sim::TrimQueue").SetParent<PortQueue>().AddConstructor<TrimQueue>();
    return id;
}

bool TrimQueue::put(bool first, ns3::Ptr<ns3::Packet> packet) {
    const uint32_t bytes = frame_bytes(packet);
    if (depth_ + bytes > capacity_ || (!first && data_bytes_ + bytes > threshold_)) {
        refused(bytes);
        return false;
    }
    if (!first) {
        mark_if_above(data_bytes_, packet);
        data_bytes_ += bytes;
    }
    entered(bytes);
    (first ? headers_ : data_).push_back(packet);
    return true;
}

bool TrimQueue::Enqueue(ns3::Ptr<ns3::Packet> packet) {
    uint8_t head[PPP + FramedHead::BYTES] = {0};
    const uint32_t held = packet->CopyData(head, sizeof head) - PPP;
    uint8_t* const ip = head + PPP;
    if (ip[1] >> 5 == TOP_CLASS) return put(true, packet);
    const bool fits = data_bytes_ + frame_bytes(packet) <= threshold_ && depth_ + frame_bytes(packet) <= capacity_;
    if (fits || !FramedHead::is(ip, held, Frame::TRIMMING_PORT) || FramedHead::frame(ip).kind != FrameKind::DATA)
        return put(false, packet);
    Frame frame = FramedHead::frame(ip);
    frame.kind = FrameKind::TRIMMED;
    frame.write(ip + FramedHead::IPV4 + FramedHead::UDP);
    ip[1] = static_cast<uint8_t>(TOP_CLASS << 5 | (ip[1] & 3));
    put16(ip + 2, FramedHead::BYTES);
    put16(ip + FramedHead::IPV4 + 4, FramedHead::UDP + Frame::BYTES);
    const auto header = ns3::Create<ns3::Packet>();
    header->AddHeader(RawHeader(head, sizeof head));
    counts_.trimmed++;
    return put(true, header);
}

ns3::Ptr<ns3::Packet> TrimQueue::Dequeue() {
    auto& from = headers_.empty() ? data_ : headers_;
    if (from.empty()) return nullptr;
    const ns3::Ptr<ns3::Packet> packet = from.front();
    const uint32_t bytes = frame_bytes(packet);
    left(bytes);
    if (&from == &data_) data_bytes_ -= bytes;
    from.pop_front();
    return packet;
}

ns3::Ptr<const ns3::Packet> TrimQueue::Peek() const {
    if (!headers_.empty()) return headers_.front();
    return data_.empty() ? nullptr : data_.front();
}

} // namespace sim

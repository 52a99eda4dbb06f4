/* SPDX-License-Identifier: GPL-2.0-only
 *
 * Bytes in front of a packet, as ns-3 takes them.
 */
#pragma once

#include <algorithm>
#include <array>

#include "ns3/header.h"

namespace sim {

class RawHeader : public ns3::Header {
  public:
    enum { MOST = 128 };
    RawHeader() = default;
    RawHeader(const uint8_t* bytes, uint32_t size) : size_(size) { std::copy(bytes, bytes + size, bytes_.begin()); }
    static ns3::TypeId GetTypeId() {
        static ns3::TypeId id = ns3::TypeId("sim::RawHeader").SetParent<ns3::Header>().AddConstructor<RawHeader>();
        return id;
    }
    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return size_; }
    void Serialize(ns3::Buffer::Iterator at) const override { at.Write(bytes_.data(), size_); }
    uint32_t Deserialize(ns3::Buffer::Iterator at) override {
        at.Read(bytes_.data(), size_);
        return size_;
    }
    void Print(std::ostream& out) const override { out << size_ << " bytes"; }

  private:
    std::array<uint8_t, MOST> bytes_{};
    uint32_t size_ = 0;
};

} // namespace sim

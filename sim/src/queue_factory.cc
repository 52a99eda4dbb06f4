/* SPDX-License-Identifier: GPL-2.0-only */
#include "queue_factory.h"

#include <stdexcept>

#include "fifo_queue.h"
#include "pfabric_queue.h"
#include "trim_queue.h"

namespace sim {

ns3::Ptr<PortQueue> make_queue(const nlohmann::json& spec, bool host, uint64_t capacity, uint32_t framing) {
    const std::string kind = spec.at("kind");
    ns3::Ptr<PortQueue> queue;
    uint64_t mark = spec.value("mark", uint64_t{0});
    if (kind == "pfabric") {
        queue = ns3::CreateObject<PfabricQueue>();
    } else if (kind == "priority" || kind == "pias" || (host && (kind == "mark" || kind == "trim"))) {
        const auto priority = ns3::CreateObject<PriorityQueue>();
        priority->mark_by_port(kind == "pias");
        queue = priority;
    } else if (kind == "mark") {
        queue = ns3::CreateObject<FifoQueue>();
        mark = spec.at("threshold");
    } else if (kind == "trim") {
        const auto trim = ns3::CreateObject<TrimQueue>();
        trim->set_threshold(spec.at("threshold"));
        queue = trim;
    } else {
        throw std::invalid_argument("queue \"" + kind + "\": it must be priority, mark, pias, pfabric or trim");
    }
    queue->configure(host && kind != "pfabric" ? 0 : capacity, framing);
    if (mark && !host) queue->mark_above(mark);
    return queue;
}

} // namespace sim

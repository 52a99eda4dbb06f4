/* SPDX-License-Identifier: GPL-2.0-only */
#include "faults.h"

#include <algorithm>
#include <stdexcept>

#include "ns3/simulator.h"

namespace sim {

namespace {

/* A rank of which nothing has come for so long is dead: DEAD_SECONDS of gradlane/control/signs.py. */
constexpr int64_t SILENCE = 7'500'000'000;
/* Until the controller's routes lead around a link between switches (docs/measurements/controller.md: 0.48 s with 32 switches); what
 * is at its end goes around it at once. */
constexpr int64_t KNOWN_AFTER = 500'000'000;

int64_t now() { return ns3::Simulator::Now().GetNanoSeconds(); }

template <class F> void after(int64_t ns, F then) { ns3::Simulator::Schedule(ns3::NanoSeconds(ns), then); }

} // namespace

Faults::Faults(Fabric& fabric, const Json& spec) : fabric_(fabric), cut_off_(fabric.hosts(), -1) {
    for (const Json& fault : spec) add(fault);
}

void Faults::add(const Json& fault) {
    const int64_t at = fault.at("at"), known_after = fault.value("known_after", KNOWN_AFTER);
    const std::string kind = fault.at("kind");
    if (kind == "host") {
        const unsigned host = fault.at("host");
        if (host >= fabric_.hosts()) throw std::invalid_argument("there is no host " + std::to_string(host) + " that could stop");
        after(at, [this, host] { on_stop(host); });
        after(at + fault.at("named_after").get<int64_t>(), [this, host] { on_silent(host); });
    } else if (kind == "switch") {
        const unsigned node = fault.at("switch");
        if (node < fabric_.hosts() || node >= fabric_.nodes())
            throw std::invalid_argument("there is no switch " + std::to_string(node) + " that could die");
        std::vector<std::pair<unsigned, unsigned>> links;
        for (const Port& port : fabric_.ports(node)) links.push_back({node, port.peer});
        after(at, [this, links, known_after] { change_links(links, false, known_after); });
        if (fault.contains("back"))
            after(fault.at("back"), [this, node, links, known_after] {
                on_restart(node);
                change_links(links, true, known_after);
            });
    } else if (kind == "link") {
        const std::pair<unsigned, unsigned> link{fault.at("a"), fault.at("b")};
        const bool up = fault.at("up");
        after(at, [this, link, up, known_after] { change_links({link}, up, known_after); });
    } else {
        throw std::invalid_argument("fault \"" + kind + "\": it must be host, switch or link");
    }
}

void Faults::change_links(const std::vector<std::pair<unsigned, unsigned>>& links, bool up, int64_t known_after) {
    for (const auto& [a, b] : links) fabric_.set_link(a, b, up);
    after(known_after, [this] { fabric_.find_routes(); });
    look();
    after(SILENCE, [this] { look(); });
}

/* Who is cut off from the most hosts that are connected, and for how long. */
void Faults::look() {
    const std::vector<unsigned> parts = fabric_.parts();
    std::vector<unsigned> sizes(fabric_.nodes());
    for (unsigned host = 0; host < fabric_.hosts(); host++) sizes[parts[host]]++;
    const unsigned most = static_cast<unsigned>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
    for (unsigned host = 0; host < fabric_.hosts(); host++) {
        if (parts[host] == most) {
            cut_off_[host] = -1;
        } else if (cut_off_[host] < 0) {
            cut_off_[host] = now();
        } else if (now() - cut_off_[host] >= SILENCE) {
            on_silent(host);
        }
    }
}

} // namespace sim

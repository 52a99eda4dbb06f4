/* SPDX-License-Identifier: GPL-2.0-only
 *
 * ledger-replay: what the ledger makes of datagrams, without ns-3. From standard input (JSON): "tolerated" (parts per million of
 * [pushes, pulls]), "workers", "droppable" (magnitudes up to this one are) and "events": ["sent", ns, from, to, datagram in hexadecimal],
 * ["delivered", datagram] or ["taken", kind, datagram]. To standard output: "violations", "stops", "missing", and of
 * sums "results" and "left_out".
 */
#include <iostream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "ledger.h"

namespace {

using Json = nlohmann::json;

std::vector<uint8_t> bytes_of(const std::string& digits) {
    std::vector<uint8_t> found;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) found.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    return found;
}

Json replay(const Json& input) {
    sim::Ledger ledger;
    ledger.tolerated = [&input](uint16_t, uint16_t, bool pull) { return input.at("tolerated").at(pull).get<uint32_t>(); };
    ledger.droppable = [&input](uint16_t, uint16_t, uint8_t magnitude) { return magnitude <= input.at("droppable"); };
    ledger.workers = [&input](uint16_t) { return input.at("workers").get<unsigned>(); };
    ledger.submitted = [](uint16_t, uint16_t, uint32_t, uint16_t) { return 0; };
    for (const Json& e : input.at("events")) {
        const std::vector<uint8_t> datagram = bytes_of(e.back());
        const uint32_t bytes = static_cast<uint32_t>(datagram.size());
        if (e.at(0) == "sent") ledger.sent(datagram.data(), bytes, e.at(2), e.at(3), e.at(1));
        else if (e.at(0) == "delivered") ledger.delivered(datagram.data(), bytes, 0);
        else if (e.at(0) == "taken") ledger.taken(datagram.data(), e.at(1));
        else throw std::invalid_argument("an event is sent, delivered or taken");
    }
    return {{"violations", ledger.violations()}, {"stops", ledger.stops()}, {"missing", ledger.slices_missing()},
            {"results", ledger.sums().results()}, {"left_out", ledger.sums().missing()}};
}

} // namespace

int main() {
    try {
        std::cout << replay(Json::parse(std::cin)).dump() << std::endl;
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}

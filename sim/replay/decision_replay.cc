/* SPDX-License-Identifier: GPL-2.0-only
 *
 * decision-replay: what workers whose gradients a switch sums decide, without ns-3. From standard input (JSON), of each question: "least" (us), and
 * "states" and "before", by rank [waits (us), [[tensor, completed, begun]...]]. To standard output: "stuck", "reruns" and "late",
 * [tensor, step] each, or "contradiction".
 */
#include <iostream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "sum_decision.h"

namespace {

using Json = nlohmann::json;

std::vector<sim::SumState> states_of(const Json& rows) {
    std::vector<sim::SumState> found;
    for (const Json& row : rows) {
        sim::SumState& state = found.emplace_back();
        state.waits = row.at(0);
        for (const Json& s : row.at(1)) state.streams[s.at(0)] = {s.at(1), s.at(2)};
    }
    return found;
}

Json decided(const Json& input) {
    try {
        const sim::SumDecision d = sim::decide(states_of(input.at("states")), states_of(input.at("before")), input.at("least"));
        return {{"stuck", d.stuck}, {"reruns", d.reruns}, {"late", d.late}};
    } catch (const std::logic_error& problem) {
        return {{"contradiction", problem.what()}};
    }
}

} // namespace

int main() {
    try {
        Json found = Json::array();
        for (const Json& one : Json::parse(std::cin)) found.push_back(decided(one));
        std::cout << found.dump() << std::endl;
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}

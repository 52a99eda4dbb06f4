/* SPDX-License-Identifier: GPL-2.0-only */
#include "groups.h"

#include <algorithm>
#include <iostream>
#include <stdexcept>

#include "ns3/simulator.h"

extern "C" {
#include "plan/submission.h"
}

namespace sim {

namespace {

constexpr unsigned MOST_GROUPS = UINT16_MAX + 1 - GL_FIRST_GROUP; /* as the exchange of an agent has */

Ranks all(unsigned workers) {
    Ranks found(workers);
    for (unsigned rank = 0; rank < workers; rank++) found[rank] = static_cast<uint16_t>(rank);
    return found;
}

} // namespace

Groups::Groups(const Json& spec, uint16_t job, unsigned workers)
    : job_(job), workers_(workers), asked_(spec.is_object() && spec.at("kind") == "asked"),
      behind_(spec.is_object() && spec.at("delay") == 1) {
    if (!spec.is_object()) number_of(all(workers));
    if (!spec.is_object() || asked_) return;
    for (const Json& partition : spec.at("partitions")) {
        std::vector<unsigned> of(workers);
        for (unsigned rank = 0; rank < workers; rank++) of[rank] = number_of({static_cast<uint16_t>(rank)});
        for (const Json& group : partition) {
            const Ranks ranks = group;
            const unsigned number = number_of(ranks);
            for (const uint16_t rank : ranks) of.at(rank) = number;
        }
        schedule_.push_back(of);
    }
}

unsigned Groups::number_of(const Ranks& group) {
    if (group.empty() || group.back() >= workers_ ||
        std::adjacent_find(group.begin(), group.end(), std::greater_equal<>()) != group.end())
        throw std::invalid_argument("a group must have ascending ranks, 0 to " + std::to_string(workers_ - 1));
    const auto [at, fresh] = numbers_.try_emplace(group, static_cast<unsigned>(groups_.size()));
    if (fresh) groups_.push_back(group);
    if (groups_.size() > MOST_GROUPS)
        throw std::invalid_argument("job " + std::to_string(job_) + " has more than " + std::to_string(MOST_GROUPS) +
                                    " groups");
    return at->second;
}

unsigned Groups::after(unsigned rank, uint32_t step) {
    return asked_ ? ask(rank, step, false) : schedule_.empty() ? 0 : schedule_[(step - 1) % schedule_.size()][rank];
}

unsigned Groups::left(unsigned rank, uint32_t step) {
    return asked_ ? ask(rank, step, true) : number_of({static_cast<uint16_t>(rank)});
}

unsigned Groups::ask(unsigned rank, uint32_t step, bool pause) {
    std::cout << Json{{"ask", {{"job", job_}, {"rank", rank}, {"step", step - 1}, {"pause", pause},
                               {"now", ns3::Simulator::Now().GetSeconds()}}}}.dump() << std::endl;
    Json answer;
    try {
        std::cin >> answer;
    } catch (const Json::parse_error&) {
        throw std::invalid_argument("rank " + std::to_string(rank) +
                                    " asks for its group, and nobody answers: `gradlane_sim run` does");
    }
    const Ranks group = answer;
    const unsigned number = number_of(group);
    if (!std::binary_search(group.begin(), group.end(), rank))
        throw std::invalid_argument("rank " + std::to_string(rank) + " is not in the group that it was told");
    return number;
}

std::vector<Ranks> Groups::meeting() const {
    if (asked_) return {all(workers_)};
    return groups_;
}

} // namespace sim

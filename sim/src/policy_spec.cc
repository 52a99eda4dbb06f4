/* SPDX-License-Identifier: GPL-2.0-only */
#include "policy_spec.h"

#include <string>

namespace sim {

namespace {

using Json = nlohmann::json;

std::vector<Range> ranges(const Json& rows) {
    std::vector<Range> found;
    for (const Json& r : rows) found.push_back({r.at(0), r.at(1), r.at(2), r.at(3), r.at(4)});
    return found;
}

/* "rate" (bit/s), and "thresholds": from which occupancies (bytes) it is yellow and red. */
Meter meter(const Json& spec) {
    return Meter(spec.at("rate").get<uint64_t>() / 8, spec.at("thresholds").at(0), spec.at("thresholds").at(1));
}

void read_sums(SumSlots& sums, const Json& spec) {
    for (const Json& t : spec.at("trees")) {
        SumTree& tree = sums.trees[{t.at("job"), t.at("bucket")}];
        tree.all = t.at("all"), tree.here = t.at("here"), tree.up = t.at("up"), tree.address = t.at("address");
        tree.group = t.at("group").get<std::vector<uint16_t>>();
        tree.slot_base = t.at("slots").at(0), tree.slot_mask = t.at("slots").at(1), tree.epoch = t.at("epoch");
    }
    for (const Json& row : spec.at("contributors")) sums.contributors[{row.at(0), row.at(1), row.at(2)}] = row.at(3);
    for (const Json& row : spec.at("subtrees")) sums.subtrees[{row.at(0), row.at(1)}] = {row.at(2), row.at(3)};
}

} // namespace

void read_policy(Policy& policy, const Json& spec) {
    static const std::map<std::string, BudgetShare::Part> parts = {
        {"nothing", BudgetShare::NOTHING}, {"whole", BudgetShare::WHOLE},     {"rest_of_half", BudgetShare::REST_OF_HALF},
        {"half", BudgetShare::HALF},       {"quarter", BudgetShare::QUARTER}, {"eighth", BudgetShare::EIGHTH},
        {"sixteenth", BudgetShare::SIXTEENTH}};
    for (const Json& j : spec.at("jobs")) {
        JobPolicy job;
        job.slot_base = j.at("slots").at(0), job.slot_mask = j.at("slots").at(1);
        job.max_share = j.at("max_share"), job.trim = j.at("trim"), job.spray = j.at("spray");
        job.classes = ranges(j.at("classes"));
        job.precedences = ranges(j.at("precedences"));
        policy.jobs[j.at("id")] = job;
    }
    for (const Json& p : spec.at("ports")) {
        policy.ports[p.at("port")] = {p.at("metered_from"), p.at("yellow"), p.at("red"), p.at("to_fabric")};
        if (p.contains("thresholds")) policy.virtual_queues.emplace(p.at("port"), meter(p));
    }
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++) policy.budget_shares[from][to].part = parts.at(spec.at("budget_shares").at(from).at(to));
    for (const Json& s : spec.value("job_shares", Json::array()))
        policy.job_shares.emplace(std::pair<uint16_t, uint16_t>(s.at("job"), s.at("port")),
                                  Policy::Share{meter(s), s.at("excess_class")});
    for (const Json& r : spec.value("control_rates", Json::array())) policy.control_rates.emplace(r.at("port"), meter(r));
    if (spec.contains("sums")) read_sums(policy.sums, spec.at("sums"));
    for (const Json& row : spec.value("dscp_classes", Json::array())) policy.dscp_classes[row.at(0)] = row.at(1);
}

} // namespace sim

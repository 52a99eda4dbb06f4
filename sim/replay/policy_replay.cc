/* SPDX-License-Identifier: GPL-2.0-only
 *
 * policy-replay: what the policy of a simulated switch does with packets, without ns-3. From standard input (JSON): "policy" and
 * "packets", each {"at": ns, "frame_bytes", "port", "from_fabric", "chosen_bits", "members": egress ports of its route, "bytes": of
 * the IPv4 packet, in hexadecimal}. To standard output: "fates" [reason, egress, class, precedence, trimmed, copies (egress, TOS) of a
 * sum, packet as it leaves, of which all that is no SUM has its head alone], "reasons", "drops" [layer, upper half of the magnitude,
 * count], and "sums" [job, event, count].
 */
#include <iostream>
#include <stdexcept>

#include "policy_spec.h"

namespace {

using Json = nlohmann::json;

std::vector<uint8_t> bytes_of(const std::string& digits) {
    std::vector<uint8_t> found;
    for (size_t i = 0; i + 1 < digits.size(); i += 2) found.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
    if (found.size() < sim::IPV4_BYTES) throw std::invalid_argument("a packet has an IPv4 header at least");
    return found;
}

std::string digits_of(const uint8_t* bytes, size_t count) {
    static const char digits[] = "0123456789abcdef";
    std::string found;
    for (size_t i = 0; i < count; i++) found += {digits[bytes[i] >> 4], digits[bytes[i] & 15]};
    return found;
}

Json replay(const Json& input) {
    sim::Policy policy;
    sim::read_policy(policy, input.at("policy"));
    Json fates = Json::array(), drops = Json::array();
    for (const Json& p : input.at("packets")) {
        const std::vector<uint8_t> packet = bytes_of(p.at("bytes"));
        const bool is_sum = policy.is_sum(packet.data(), static_cast<uint32_t>(packet.size()), p.at("from_fabric"));
        std::vector<uint8_t> head(is_sum ? packet.size() : size_t{sim::DECIDING_BYTES});
        const size_t held = std::min(packet.size(), head.size());
        std::copy_n(packet.begin(), held, head.begin());
        const sim::Decision d =
            policy.decide(head.data(), static_cast<uint32_t>(held), p.at("frame_bytes"),
                          {p.at("port"), p.at("from_fabric"), p.at("chosen_bits")}, p.at("members").get<std::vector<uint16_t>>(), p.at("at"));
        Json copies = Json::array();
        for (const sim::Decision::Copy& copy : d.copies) copies.push_back({copy.egress, copy.tos});
        fates.push_back({d.reason, d.egress, d.queue_class, d.precedence, d.trimmed, copies, digits_of(head.data(), held)});
    }
    for (const auto& [where, count] : policy.counts().drops) drops.push_back({where.first, where.second, count});
    Json sums = Json::array();
    for (const auto& [what, count] : policy.sums.counts) sums.push_back({what.first, what.second, count});
    return {{"fates", fates}, {"reasons", policy.counts().reasons}, {"drops", drops}, {"sums", sums}};
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

/* SPDX-License-Identifier: GPL-2.0-only
 *
 * gradlane-sim: reads what to simulate (JSON) from standard input, tells progress on standard error, a line of JSON each, and
 * writes what happened (JSON) to standard output. What the input has: gradlane_sim/specification.py. Where groups are decided
 * while it runs, it writes a line for each question, {"ask": ...}, and reads the answer, the ranks of the group.
 */
#include <chrono>
#include <fstream>
#include <iostream>

#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"

#include "agent.h"
#include "background.h"
#include "capture.h"
#include "fabric.h"
#include "faults.h"
#include "gradlane_job.h"
#include "ledger.h"
#include "message_job.h"
#include "policy_spec.h"

namespace sim {
namespace {

double wall() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Simulation {
  public:
    explicit Simulation(const Json& spec) : spec_(spec), fabric_(spec.at("fabric")), faults_(fabric_, spec.value("faults", Json::array())), limit_(spec.at("limit")) {
        for (unsigned h = 0; h < fabric_.hosts(); h++) agents_.push_back(std::make_unique<Agent>(fabric_, h, ledger_));
        for (const Json& p : spec.at("policies")) read_policy(fabric_.policy(p.at("switch")), p);
        ledger_.tolerated = [this](uint16_t job, uint16_t layer, bool pull) { return gradlane(job)->tolerated(layer, pull); };
        ledger_.droppable = [this](uint16_t job, uint16_t layer, uint8_t magnitude) {
            return gradlane(job)->droppable(layer, magnitude);
        };
        ledger_.workers = [this](uint16_t job) { return gradlane(job)->workers(); };
        ledger_.submitted = [this](uint16_t job, uint16_t rank, uint32_t step, uint16_t tensor) {
            return gradlane(job)->submission_time(rank, step, tensor);
        };
        fabric_.on_taken = [this](const uint8_t* packet, uint8_t kind) { ledger_.taken(packet + IPV4_BYTES + UDP_BYTES, kind); };
        for (const Json& j : spec.at("jobs")) {
            if (j.at("carrier").at("kind") == "gradlane") {
                auto job = std::make_unique<GradlaneJob>(j, fabric_, agents_);
                by_number_[job->number()] = job.get();
                jobs_.push_back(std::move(job));
            } else {
                auto job = std::make_unique<MessageJob>(j, make_carrier(fabric_, j.at("carrier"), carriers_++));
                message_jobs_.push_back(job.get());
                jobs_.push_back(std::move(job));
            }
        }
        for (auto& job : jobs_) job->on_over = [this] { job_over(); };
        if (spec.contains("background")) {
            const Json& b = spec.at("background");
            background_ = std::make_unique<Background>(b, make_carrier(fabric_, b.at("carrier"), carriers_++));
            background_->on_over = [this] { job_over(); };
            ns3::Simulator::Schedule(ns3::NanoSeconds(0), &Background::start, background_.get());
        }
        if (spec.contains("pcap")) capture(fabric_, spec.at("pcap"));
        faults_.on_stop = [this](unsigned host) {
            agents_[host]->stop();
            fabric_.set_link(host, fabric_.ports(host)[0].peer, false); /* for those whose host is no agent */
        };
        faults_.on_restart = [this](unsigned node) { fabric_.policy(node).restart(); };
        faults_.on_silent = [this](unsigned host) {
            for (auto& job : jobs_) job->drop(host);
        };
    }

    Json run() {
        const double began = wall();
        for (size_t i = 0; i < jobs_.size(); i++)
            ns3::Simulator::Schedule(ns3::NanoSeconds(spec_.at("jobs")[i].value("start", int64_t{0})), &Job::start, jobs_[i].get());
        ns3::Simulator::Stop(ns3::NanoSeconds(limit_));
        beat(began);
        ns3::Simulator::Run();
        for (auto& job : jobs_)
            if (!job->over()) job->fail("not over after " + std::to_string(limit_ / 1e9) + " s; " + job->waiting());
        return result(wall() - began);
    }

  private:
    const Json& spec_;
    Fabric fabric_;
    Faults faults_;
    Ledger ledger_;
    std::vector<std::unique_ptr<Agent>> agents_;
    std::vector<std::unique_ptr<Job>> jobs_;
    std::map<uint16_t, GradlaneJob*> by_number_;
    std::vector<MessageJob*> message_jobs_;
    std::unique_ptr<Background> background_;
    unsigned carriers_ = 0;
    const int64_t limit_; /* ns */

    GradlaneJob* gradlane(uint16_t job) const { return by_number_.at(job); }

    /* Where there are jobs, flows beside them don't count. */
    void job_over() {
        for (auto& job : jobs_)
            if (!job->over()) return;
        if (jobs_.empty() && !background_->over()) return;
        ns3::Simulator::Stop();
    }

    /* A line of progress each second of real time. */
    void beat(double began, double last = 0) {
        const double at = wall();
        if (at - last >= 1) {
            last = at;
            std::cerr << Json{{"simulated", ns3::Simulator::Now().GetSeconds()}, {"wall", at - began}, {"events", ns3::Simulator::GetEventCount()}}.dump() << std::endl;
        }
        ns3::Simulator::Schedule(ns3::MicroSeconds(100), [this, began, last] { beat(began, last); });
    }

    Json result(double seconds) {
        Json switches = Json::array(), jobs = Json::array(), messages = Json::array(), links = Json::array();
        for (unsigned n = fabric_.hosts(); n < fabric_.nodes(); n++) {
            const PolicyCounts& counts = fabric_.counts(n);
            Json drops = Json::array();
            for (const auto& [where, count] : counts.drops) drops.push_back({where.first, where.second, count});
            Json sums = Json::array();
            for (const auto& [what, count] : fabric_.policy(n).sums.counts) sums.push_back({what.first, what.second, count});
            switches.push_back({{"node", n}, {"reasons", counts.reasons}, {"drops", drops}, {"sums", sums}});
        }
        for (unsigned n = 0; n < fabric_.nodes(); n++)
            for (const Port& port : fabric_.ports(n)) {
                const QueueCounts& c = port.queue->counts();
                links.push_back({{"from", n}, {"to", port.peer}, {"rate", port.rate}, {"packets", c.enqueued},
                                 {"bytes", c.bytes}, {"dropped", c.dropped}, {"marked", c.marked},
                                 {"trimmed", c.trimmed}, {"depth_max", c.depth_max},
                                 {"depth_mean", c.byte_seconds / ns3::Simulator::Now().GetSeconds()},
                                 {"waiting", port.queue->depth()}, {"lost", port.lost}});
            }
        for (const auto& job : jobs_) jobs.push_back(job->result());
        for (const MessageTime& m : ledger_.times()) messages.push_back({m.job, m.from, m.to, m.pull, m.bytes, m.start, m.end});
        for (const MessageJob* job : message_jobs_)
            for (const MessageTime& m : job->times()) messages.push_back({m.job, m.from, m.to, m.pull, m.bytes, m.start, m.end});
        uint64_t turns = 0;
        for (const auto& agent : agents_) turns += agent->turns();
        return {{"jobs", jobs},
                {"flows", background_ ? background_->result() : Json::array()},
                {"background", background_ ? background_->carrier().result() : Json::object()},
                {"messages", messages},
                {"switches", switches},
                {"links", links},
                {"violations", ledger_.violations()},
                {"stops", ledger_.stops()},
                {"slices_missing", ledger_.slices_missing()},
                {"sums", {{"results", ledger_.sums().results()}, {"missing", ledger_.sums().missing()}}},
                {"turns", turns},
                {"simulated", ns3::Simulator::Now().GetSeconds()},
                {"events", ns3::Simulator::GetEventCount()},
                {"wall", seconds}};
    }
};

} // namespace
} // namespace sim

int main() {
    try {
        sim::Json spec;
        std::cin >> spec; /* answers to what workers ask may follow */
        ns3::RngSeedManager::SetSeed(spec.value("seed", 1U));
        sim::Simulation simulation(spec);
        const sim::Json result = simulation.run();
        std::cout << result.dump() << std::endl;
        ns3::Simulator::Destroy();
    } catch (const std::exception& error) {
        std::cerr << sim::Json{{"error", error.what()}}.dump() << std::endl;
        return 1;
    }
}

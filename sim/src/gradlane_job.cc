/* SPDX-License-Identifier: GPL-2.0-only */
#include "gradlane_job.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "ns3/simulator.h"

extern "C" {
#include "arithmetic/fixed_point.h"
#include "reduced_by_hosts.h"
#include "sums/stream.h"
}

namespace sim {

namespace {

constexpr uint64_t TOKEN = 0x1122334455667788;
constexpr uint32_t FIRST_GENERATION = 1;
constexpr unsigned MAGNITUDES = 8192 + 251; /* a prime more than a message has slices, so that ranks differ */

std::vector<gl_range> ranges(const Json& rows) {
    std::vector<gl_range> found;
    for (const Json& r : rows) found.push_back({r.at(0), r.at(1), r.at(2), r.at(3), r.at(4)});
    return found;
}

uint8_t algorithm_of(const std::string& name) {
    if (name == "direct" || name == "switch") return GL_DIRECT;
    if (name == "ring") return GL_RING;
    if (name == "stragglar") return GL_STRAGGLAR;
    if (name == "grid") return GL_GRID;
    throw std::invalid_argument("algorithm \"" + name + "\": it must be direct, ring, stragglar, grid or switch");
}

bool is_exact(const Json& losses) {
    return std::all_of(losses.begin(), losses.end(), [](const Json& r) { return r.at(2) == 0 && r.at(3) == 0; });
}

} // namespace

GradlaneJob::GradlaneJob(const Json& spec, Fabric& fabric, std::vector<std::unique_ptr<Agent>>& agents)
    : Job(spec), agents_(agents), slice_bytes_(spec.at("carrier").at("slice_bytes")),
      algorithm_(algorithm_of(spec.at("algorithm"))),
      check_(spec.value("check", false) && (grouped_ || is_exact(spec.at("carrier").at("losses")))),
      skipped_(spec.at("carrier").value("sums", Json::object()).value("known", false)) {
    const Json& t = spec.at("carrier");
    for (const Json& r : t.at("losses")) losses_.push_back({r.at(0), r.at(1), r.at(2), r.at(3)});
    classes_ = ranges(t.at("classes"));
    precedences_ = ranges(t.at("precedences"));
    uint64_t elements = 0;
    for (const Tensor& tensor : tensors_) {
        first_.push_back(elements);
        elements += tensor.bytes / sizeof(float);
        layers_.emplace_back(tensor.bytes / slice_bytes_ + 1, tensor.layer);
    }
    std::minstd_rand random(static_cast<unsigned>(spec.value("seed", 1)));
    values_.resize(elements + workers_);
    std::uniform_real_distribution<float> uniform(-1, 1);
    /* Sums of whole numbers are the same in any order, as rings have others. */
    for (float& value : values_) value = algorithm_ == GL_DIRECT ? uniform(random) : static_cast<float>(random() % 2001) - 1000;
    magnitudes_.resize(elements * sizeof(float) / slice_bytes_ + 2 + MAGNITUDES);
    for (uint8_t& magnitude : magnitudes_) magnitude = static_cast<uint8_t>(random() >> 8);
    racks_ = t.value("racks", std::vector<uint16_t>());
    if (!racks_.empty() && racks_.size() != workers_) throw std::invalid_argument("racks: one for each worker, or none");
    outs_.resize(check_ ? workers_ : 1);
    for (auto& out : outs_) out.resize(elements);
    const Json& sums = t.value("sums", Json());
    const uint32_t group = sums.is_null() ? 0 : sums.at("group").get<uint32_t>();
    for (unsigned rank = 0; rank < hosts_.size(); rank++) {
        Agent& agent = *agents[hosts_[rank]];
        gl_config config = {};
        config.job = number_, config.rank = static_cast<uint16_t>(rank);
        config.workers = static_cast<uint16_t>(workers_), config.servers = static_cast<uint16_t>(servers_);
        config.slice_bytes = slice_bytes_, config.token = TOKEN, config.message_base = 1;
        config.window = t.at("window"), config.rate = t.at("rate"), config.buffer = t.at("buffer");
        config.loss_count = static_cast<uint32_t>(losses_.size()), config.losses = losses_.data();
        config.critical = 1'000'000, config.port = agent.port(), config.weight = t.value("weight", 1U);
        config.memory = t.at("memory");
        config.racks = racks_.empty() ? nullptr : racks_.data();
        config.tag = t.value("tag", false);
        config.class_count = static_cast<uint32_t>(classes_.size()), config.classes = classes_.data();
        config.precedence_count = static_cast<uint32_t>(precedences_.size()), config.precedences = precedences_.data();
        if (!sums.is_null())
            config.sums = {sums.at("lanes").get<uint8_t>(), sums.at("slots"), sums.at("window"), FIRST_GENERATION};
        gl_engine* const engine = gl_engine_new(&config);
        if (!engine) throw std::invalid_argument("the engine refuses the configuration of job " + std::to_string(number_));
        engines_.push_back(engine);
        knows_.emplace_back();
        for (unsigned of = 0; grouped_ && of < groups_.count(); of++) tell_group(rank, of);
        agent.add({number_, static_cast<uint16_t>(rank), engine, hosts_, group, [this, rank](const gl_event& e) { on_event(rank, e); }});
    }
    if (!sums.is_null()) start_sums(sums, fabric);
}

void GradlaneJob::start_sums(const Json& sums, Fabric& fabric) {
    const unsigned lanes = sums.at("lanes");
    /* A result's greatest element is at least a quarter of what the exponent is chosen for, and each worker rounds half a unit. */
    resolution_ = gl_lane_limit(lanes, workers_) / (lanes == GL_TYPE_INT16_LANES ? 128 : 2048);
    for (unsigned rank = 0; rank < hosts_.size(); rank++)
        for (unsigned tensor = 0; tensor < tensors_.size(); tensor++) {
            const uint64_t elements = tensors_[tensor].bytes / sizeof(float);
            const gl_sum_stream stream = {static_cast<uint16_t>(tensor), GL_TYPE_FLOAT32, 1, &elements};
            if (gl_engine_sums_open(engines_[rank], &stream))
                throw std::invalid_argument("there are no slots for tensor " + std::to_string(tensor) + " of job " + std::to_string(number_));
        }
    if (skipped_) skip_step();
    control_ = std::make_unique<SumControl>(engines_, FIRST_GENERATION);
    control_->now = Agent::now;
    control_->fail = [this](const std::string& why) { fail(why); };
    control_->wake = [this](unsigned rank) { agents_[hosts_[rank]]->wake(); };
    control_->connected = [this, &fabric] {
        const std::vector<unsigned> parts = fabric.parts();
        std::vector<bool> found;
        for (const unsigned host : hosts_)
            found.push_back(parts[host] == parts[hosts_[0]] && !agents_[host]->stopped() && !agents_[hosts_[0]]->stopped());
        return found;
    };
    ns3::Simulator::Schedule(ns3::MicroSeconds(SumControl::TICK), &GradlaneJob::look, this);
}

void GradlaneJob::skip_step() {
    for (unsigned tensor = 0; tensor < tensors_.size(); tensor++)
        for (unsigned rank = 0; rank < workers_; rank++)
            reduced_by_hosts(engines_[rank], static_cast<uint16_t>(tensor * MOST_PARTS), mean_of(0).data() + first_[tensor]);
}

void GradlaneJob::look() {
    if (over()) return;
    control_->look();
    ns3::Simulator::Schedule(ns3::MicroSeconds(SumControl::TICK), &GradlaneJob::look, this);
}

/* What switches may sum has a stream, whose parts have numbers of their own. */
unsigned GradlaneJob::parts() const { return control_ ? MOST_PARTS : 1; }

/* Collectives of a group have numbers of their own on the wire, and count on. */
Operation GradlaneJob::operation_of(uint32_t step, uint16_t tensor) const {
    if (!grouped_) return {0, step - skipped_, tensor / parts()};
    const unsigned count = static_cast<unsigned>(tensors_.size());
    return {tensor - static_cast<unsigned>(GL_FIRST_GROUP), (step - 1) / count + 1, (step - 1) % count};
}

/* As the agent of a member does when it makes a group: those of a schedule before the training, others once they are decided. */
void GradlaneJob::tell_group(unsigned rank, unsigned group) {
    const Ranks& members = groups_.members(group);
    if (knows_[rank].size() <= group) knows_[rank].resize(group + 1);
    if (knows_[rank][group] || !std::binary_search(members.begin(), members.end(), rank)) return;
    knows_[rank][group] = true;
    const uint16_t tensor = static_cast<uint16_t>(GL_FIRST_GROUP + group);
    if (gl_engine_group(engines_[rank], tensor, members.data(), static_cast<unsigned>(members.size()))) throw std::bad_alloc();
}

void GradlaneJob::submit(unsigned rank, const Operation& operation) {
    gl_submission s = {};
    const unsigned tensor = operation.tensor;
    const Tensor& is = tensors_[tensor];
    auto& out = outs_[outs_.size() == 1 ? 0 : rank];
    if (control_) s.generation = control_->begin(operation.number + skipped_);
    s.collective = GL_ALL_REDUCE, s.algorithm = algorithm_;
    s.element_type = GL_TYPE_FLOAT32;
    s.elements = is.bytes / sizeof(float);
    s.in = reinterpret_cast<const uint8_t*>(values_.data() + first_[tensor] + rank);
    s.out = reinterpret_cast<uint8_t*>(out.data() + first_[tensor]);
    s.root = static_cast<uint16_t>(workers_ - 1); /* StragglAR's straggler, as job_files.py has it */
    if (grouped_) { /* as exchange/group.c submits them: exact, and of no layer */
        tell_group(rank, operation.group);
        s.step = (operation.number - 1) * static_cast<uint32_t>(tensors_.size()) + tensor + 1;
        s.tensor = static_cast<uint16_t>(GL_FIRST_GROUP + operation.group);
        s.reduction = GL_MEAN;
        s.group = groups_.members(operation.group).data();
        s.group_size = static_cast<uint16_t>(groups_.members(operation.group).size());
    } else {
        s.step = operation.number + skipped_, s.tensor = static_cast<uint16_t>(tensor * parts());
        s.reduction = GL_MEAN_OF_ARRIVED;
        s.layers = layers_[tensor].data();
        s.magnitudes = magnitudes_.data() + (rank * 31 + operation.number * 7) % 251;
        s.push_loss = tolerated(is.layer, false), s.pull_loss = tolerated(is.layer, true);
        s.shares = shares_.empty() ? nullptr : shares_.data();
    }
    if (gl_submit(engines_[rank], &s, Agent::now())) {
        fail("rank " + std::to_string(rank) + " can't submit step " + std::to_string(s.step) + " of tensor " +
             std::to_string(s.tensor));
        return;
    }
    agents_[hosts_[rank]]->wake();
}

const std::vector<float>& GradlaneJob::mean_of(unsigned group) {
    std::vector<float>& mean = expected_[group];
    if (!mean.empty()) return mean;
    const Ranks& members = groups_.members(group);
    mean.resize(values_.size() - workers_);
    for (uint64_t i = 0; i < mean.size(); i++) {
        float sum = values_[i + members[0]];
        for (size_t k = 1; k < members.size(); k++) sum += values_[i + members[k]];
        mean[i] = sum / static_cast<float>(members.size());
    }
    return mean;
}

void GradlaneJob::compare(unsigned rank, const Operation& operation) {
    const uint64_t elements = tensors_[operation.tensor].bytes / sizeof(float), first = first_[operation.tensor];
    compared_++;
    const float *const out = outs_[rank].data() + first, *const mean = mean_of(operation.group).data() + first;
    if (!control_) {
        wrong_ += std::memcmp(out, mean, elements * sizeof(float)) != 0;
        return;
    }
    const auto [at, is_first] = found_.try_emplace(operation, out, out + elements);
    float most = 0;
    for (uint64_t i = 0; i < elements; i++) most = std::max(most, std::abs(mean[i]));
    const float unit = most / static_cast<float>(std::max(1U, resolution_));
    bool wrong = !is_first && std::memcmp(out, at->second.data(), elements * sizeof(float)) != 0;
    for (uint64_t i = 0; i < elements && !wrong; i++) wrong = !(std::abs(out[i] - mean[i]) <= unit);
    wrong_ += wrong;
    if (++same_[operation] == workers_) found_.erase(at), same_.erase(operation);
}

void GradlaneJob::on_event(unsigned rank, const gl_event& event) {
    if (over()) return;
    switch (event.kind) {
    case GL_EVENT_COMPLETED:
        if (rank >= workers_) return;
        if (check_) compare(rank, operation_of(event.step, event.tensor));
        completed(rank, operation_of(event.step, event.tensor));
        break;
    case GL_EVENT_LOST:
    case GL_EVENT_MISSED: lost_slices_ += event.lost_slices; break;
    case GL_EVENT_OVER_BUDGET: fail("rank " + std::to_string(event.source) + " would be missing in too many sums"); break;
    case GL_EVENT_MISMATCH: fail("rank " + std::to_string(event.source) + " disagrees about a tensor's shape"); break;
    case GL_EVENT_FAILED: fail("rank " + std::to_string(rank) + " is out of memory"); break;
    default: break;
    }
}

uint32_t GradlaneJob::tolerated(uint16_t layer, bool pull) const {
    if (grouped_) return 0;
    for (const gl_loss& l : losses_)
        if (l.first_layer <= layer && layer <= l.last_layer) return pull ? l.pull : l.push;
    return 0;
}

bool GradlaneJob::droppable(uint16_t layer, uint8_t magnitude) const {
    return std::any_of(precedences_.begin(), precedences_.end(), [layer, magnitude](const gl_range& r) {
        return r.first_layer <= layer && layer <= r.last_layer && r.least <= magnitude && magnitude <= r.most;
    });
}

void GradlaneJob::drop(unsigned host) {
    for (unsigned rank = 0; rank < hosts_.size(); rank++)
        if (hosts_[rank] == host) {
            for (gl_engine* engine : engines_) gl_engine_drop(engine, static_cast<uint16_t>(rank));
            fail("rank " + std::to_string(rank) + " is dead: host " + std::to_string(host) + " was not heard of");
        }
}

std::string GradlaneJob::waiting() const {
    for (unsigned rank = 0; rank < engines_.size(); rank++) {
        gl_waiting w;
        if (!gl_oldest(engines_[rank], Agent::now(), &w)) continue;
        for (unsigned r = 0; r < hosts_.size(); r++)
            if (w.missing[r / 64] >> (r % 64) & 1)
                return "rank " + std::to_string(rank) + " waits for rank " + std::to_string(r) + " in step " + std::to_string(w.step);
    }
    return "";
}

Json GradlaneJob::result() const {
    Json found = Job::result();
    gl_statistics sum = {};
    uint64_t* const to = reinterpret_cast<uint64_t*>(&sum);
    for (gl_engine* engine : engines_) {
        const uint64_t* const from = reinterpret_cast<const uint64_t*>(gl_engine_statistics(engine));
        for (size_t i = 0; i < sizeof sum / sizeof *to; i++) to[i] += from[i];
    }
    found["statistics"] = {
        {"slices_sent", sum.slices_sent},       {"slices_repaired", sum.slices_repaired}, {"slices_expected", sum.slices_expected},
        {"slices_lost", sum.slices_lost},       {"slices_late", sum.slices_late},         {"slices_duplicate", sum.slices_duplicate},
        {"budget_total", sum.budget_total},     {"budget_violations", sum.budget_violations}, {"trimmed", sum.trimmed},
        {"probes_sent", sum.probes_sent},       {"reports_sent", sum.reports_sent},       {"ecn_marked", sum.ecn_marked},
        {"no_memory", sum.no_memory},           {"messages_sent", sum.messages_sent},
    };
    if (control_) {
        found["statistics"].update({
            {"sums_sent", sum.sums_sent},           {"sums_repaired", sum.sums_repaired},   {"sums_received", sum.sums_received},
            {"sums_duplicate", sum.sums_duplicate}, {"sums_refused", sum.sums_refused},     {"sums_closed", sum.sums_closed},
            {"sums_left_out", sum.sums_left_out},   {"sums_over_budget", sum.sums_over_budget}, {"sum_reruns", sum.sum_reruns},
            {"sums_clipped", sum.sums_clipped},     {"summed_bytes", sum.summed_bytes},
        });
        found["sums"] = {{"halts", control_->halts()}, {"fallbacks", control_->fallbacks()}, {"by_switch", control_->by_switch()}};
    }
    found["compared"] = compared_;
    found["wrong"] = wrong_;
    found["lost_slices"] = lost_slices_;
    return found;
}

} // namespace sim

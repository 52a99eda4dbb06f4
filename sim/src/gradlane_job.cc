/* SPDX-License-Identifier: GPL-2.0-only */
#include "gradlane_job.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

namespace sim {

namespace {

constexpr uint64_t TOKEN = 0x1122334455667788;
constexpr unsigned MAGNITUDES = 8192 + 251; /* a prime more than a message has slices, so that ranks differ */

std::vector<gl_range> ranges(const Json& rows) {
    std::vector<gl_range> found;
    for (const Json& r : rows) found.push_back({r.at(0), r.at(1), r.at(2), r.at(3), r.at(4)});
    return found;
}

uint8_t algorithm_of(const std::string& name) {
    if (name == "direct") return GL_DIRECT;
    if (name == "ring") return GL_RING;
    if (name == "stragglar") return GL_STRAGGLAR;
    if (name == "grid") return GL_GRID;
    throw std::invalid_argument("algorithm \"" + name + "\": it must be direct, ring, stragglar or grid");
}

} // namespace

GradlaneJob::GradlaneJob(const Json& spec, std::vector<std::unique_ptr<Agent>>& agents)
    : Job(spec), agents_(agents), slice_bytes_(spec.at("carrier").at("slice_bytes")),
      algorithm_(algorithm_of(spec.at("algorithm"))), exact_(true) {
    const Json& t = spec.at("carrier");
    for (const Json& r : t.at("losses")) losses_.push_back({r.at(0), r.at(1), r.at(2), r.at(3)});
    for (const gl_loss& loss : losses_) exact_ &= !loss.push && !loss.pull;
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
    const bool check = spec.value("check", false) && exact_;
    outs_.resize(check ? workers_ : 1);
    for (auto& out : outs_) out.resize(elements);
    if (check) {
        expected_.resize(elements);
        for (uint64_t i = 0; i < elements; i++) {
            float sum = values_[i];
            for (unsigned r = 1; r < workers_; r++) sum += values_[i + r];
            expected_[i] = sum / static_cast<float>(workers_);
        }
    }
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
        config.tag = t.value("tag", false);
        config.class_count = static_cast<uint32_t>(classes_.size()), config.classes = classes_.data();
        config.precedence_count = static_cast<uint32_t>(precedences_.size()), config.precedences = precedences_.data();
        gl_engine* const engine = gl_engine_new(&config);
        if (!engine) throw std::invalid_argument("the engine refuses the configuration of job " + std::to_string(number_));
        engines_.push_back(engine);
        agent.add({number_, static_cast<uint16_t>(rank), engine, hosts_, [this, rank](const gl_event& e) { on_event(rank, e); }});
    }
}

void GradlaneJob::submit(unsigned rank, uint32_t step, unsigned tensor) {
    gl_submission s = {};
    const Tensor& is = tensors_[tensor];
    auto& out = outs_[outs_.size() == 1 ? 0 : rank];
    s.step = step, s.tensor = static_cast<uint16_t>(tensor);
    s.collective = GL_ALL_REDUCE, s.algorithm = algorithm_;
    s.element_type = GL_TYPE_FLOAT32, s.reduction = GL_MEAN_OF_ARRIVED;
    s.elements = is.bytes / sizeof(float);
    s.in = reinterpret_cast<const uint8_t*>(values_.data() + first_[tensor] + rank);
    s.out = reinterpret_cast<uint8_t*>(out.data() + first_[tensor]);
    s.layers = layers_[tensor].data();
    s.magnitudes = magnitudes_.data() + (rank * 31 + step * 7) % 251;
    const gl_loss* const loss = [&]() -> const gl_loss* {
        for (const gl_loss& l : losses_)
            if (l.first_layer <= is.layer && is.layer <= l.last_layer) return &l;
        return nullptr;
    }();
    s.push_loss = loss ? loss->push : 0, s.pull_loss = loss ? loss->pull : 0;
    if (gl_submit(engines_[rank], &s, Agent::now())) {
        fail("rank " + std::to_string(rank) + " can't submit step " + std::to_string(step) + " of tensor " + std::to_string(tensor));
        return;
    }
    agents_[hosts_[rank]]->wake();
}

void GradlaneJob::compare(unsigned rank, unsigned tensor) {
    const uint64_t elements = tensors_[tensor].bytes / sizeof(float);
    compared_++;
    wrong_ += std::memcmp(outs_[rank].data() + first_[tensor], expected_.data() + first_[tensor], elements * sizeof(float)) != 0;
}

void GradlaneJob::on_event(unsigned rank, const gl_event& event) {
    if (over()) return;
    switch (event.kind) {
    case GL_EVENT_COMPLETED:
        if (rank >= workers_) return;
        if (!expected_.empty()) compare(rank, event.tensor);
        completed(rank, event.step, event.tensor);
        break;
    case GL_EVENT_LOST:
    case GL_EVENT_MISSED: lost_slices_ += event.lost_slices; break;
    case GL_EVENT_MISMATCH: fail("rank " + std::to_string(event.source) + " disagrees about a tensor's shape"); break;
    case GL_EVENT_FAILED: fail("rank " + std::to_string(rank) + " is out of memory"); break;
    default: break;
    }
}

uint32_t GradlaneJob::tolerated(uint16_t layer, bool pull) const {
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
    found["compared"] = compared_;
    found["wrong"] = wrong_;
    found["lost_slices"] = lost_slices_;
    return found;
}

} // namespace sim

/* SPDX-License-Identifier: GPL-2.0-only */
#include "carrier.h"

#include <stdexcept>

#include "pfabric_carrier.h"
#include "tcp_carrier.h"
#include "trimming_carrier.h"

namespace sim {

std::unique_ptr<Carrier> make_carrier(Fabric& fabric, const Json& spec, unsigned number) {
    const std::string kind = spec.at("kind");
    if (kind == "tcp") return std::make_unique<TcpCarrier>(fabric, spec, number);
    if (kind == "pfabric") return std::make_unique<PfabricCarrier>(fabric, spec, number);
    if (kind == "trimming") return std::make_unique<TrimmingCarrier>(fabric, spec, number);
    throw std::invalid_argument("carrier \"" + kind + "\": it must be gradlane, tcp, pfabric or trimming");
}

} // namespace sim

// SPDX-License-Identifier: Apache-2.0
// A router whose controllers see names, as SONiC's do: of VRFs, next hops and ports; and one port of another width.
#include <core.p4>
#include <v1model.p4>

@p4runtime_translation_mappings({ {"", 0}, })
@p4runtime_translation("", string)
type bit<10> vrf_id_t;
@p4runtime_translation("", string)
type bit<2> next_hop_id_t;
@p4runtime_translation("", string)
type bit<9> port_id_t;
@p4runtime_translation("example.org/port", bit<32>)
type bit<9> wide_port_t;

@controller_header("packet_in")
header packet_in_t { port_id_t ingress_port; port_id_t target_egress_port; }

@controller_header("packet_out")
header packet_out_t { port_id_t egress_port; bit<1> submit; @padding bit<6> pad; }

header ipv4_t { bit<32> dst; bit<8> vrf; bit<8> mark; }

struct headers_t { packet_out_t packet_out; ipv4_t ipv4; }
struct metadata_t { vrf_id_t vrf; next_hop_id_t next_hop; port_id_t port; wide_port_t wide; }

parser P(packet_in packet, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    state start {
        transition select(s.ingress_port) { 510: from_controller; default: from_port; }
    }
    state from_controller { packet.extract(h.packet_out); transition from_port; }
    state from_port { packet.extract(h.ipv4); transition accept; }
}

control V(inout headers_t h, inout metadata_t m) { apply { } }

control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {
    action_selector(HashAlgorithm.crc16, 16, 8) choices;
    action set_vrf(vrf_id_t vrf) { m.vrf = vrf; }
    action set_next_hop(next_hop_id_t next_hop) { m.next_hop = next_hop; }
    action send(port_id_t port) { s.egress_spec = (bit<9>)port; }
    action mark(bit<8> value) { h.ipv4.mark = value; }
    action watch(wide_port_t port) { h.ipv4.mark = (bit<8>)(bit<9>)port; }
    table classify {
        key = { h.ipv4.vrf: exact; }
        actions = { set_vrf; NoAction; }
    }
    table routes {
        key = { m.vrf: exact; h.ipv4.dst: lpm; }
        actions = { set_next_hop; NoAction; }
        size = 64;
    }
    table spread {
        key = { m.vrf: exact; h.ipv4.dst: selector; }
        actions = { set_next_hop; NoAction; }
        implementation = choices;
    }
    table next_hops {
        key = { m.next_hop: exact; }
        actions = { send; NoAction; }
    }
    table acl {
        key = { m.port: optional; h.ipv4.dst: ternary; }
        actions = { mark; NoAction; }
    }
    table by_mask {
        key = { m.wide: ternary; }
        actions = { watch; NoAction; }
    }
    table by_prefix {
        key = { m.wide: lpm; }
        actions = { mark; NoAction; }
    }
    table by_range {
        key = { m.wide: range; }
        actions = { mark; NoAction; }
    }
    apply {
        m.port = (port_id_t)s.ingress_port;
        m.wide = (wide_port_t)s.ingress_port;
        s.egress_spec = 511;
        if (h.packet_out.isValid()) {
            s.egress_spec = (bit<9>)h.packet_out.egress_port;
            h.packet_out.setInvalid();
        } else {
            classify.apply();
            routes.apply();
            if (h.ipv4.vrf == 9) { spread.apply(); }
            next_hops.apply();
            acl.apply();
            by_mask.apply();
            by_prefix.apply();
            by_range.apply();
        }
    }
}

control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control U(inout headers_t h, inout metadata_t m) { apply { } }
control D(packet_out packet, in headers_t h) { apply { packet.emit(h); } }

V1Switch(P(), V(), I(), E(), U(), D()) main;

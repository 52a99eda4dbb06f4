// SPDX-License-Identifier: Apache-2.0
// Stands in for p4c's tna.p4: what the controls of p4src/tna name of it, for a v1model target. Its externs are translated
// in the text (translate.py), as P4 has no means to define one.

#ifndef TNA_P4
#define TNA_P4

#include <v1model.p4>

typedef bit<9> PortId_t;
typedef bit<5> QueueId_t;
typedef bit<10> MirrorId_t;
typedef bit<3> MirrorType_t;
typedef bit<3> DigestType_t;

const bit<16> PARSER_ERROR_OK = 0;

struct ingress_intrinsic_metadata_t {
    PortId_t ingress_port;
}

struct ingress_intrinsic_metadata_from_parser_t {
    bit<16> parser_err;
}

struct ingress_intrinsic_metadata_for_deparser_t {
    bit<3> drop_ctl;
    bit<3> digest_type;
    bit<3> mirror_type;
}

struct ingress_intrinsic_metadata_for_tm_t {
    PortId_t  ucast_egress_port;
    bit<1>    bypass_egress;
    QueueId_t qid;
    bit<16>   mcast_grp_a;
}

struct egress_intrinsic_metadata_t {
    PortId_t egress_port;
    bit<19>  deq_qdepth;
    bit<18>  deq_timedelta;
}

struct egress_intrinsic_metadata_from_parser_t {
    bit<16> parser_err;
}

struct egress_intrinsic_metadata_for_deparser_t {
    bit<3> drop_ctl;
}

struct egress_intrinsic_metadata_for_output_port_t {
    bit<1> update_delay_on_tx;
}

bit<16> min(in bit<16> one, in bit<16> other) {
    return one < other ? one : other;
}

#endif

// SPDX-License-Identifier: Apache-2.0
// Who may send to a multicast group: an aggregator, from its port, gradients of its job. What comes from the fabric was
// asked where it entered.

control Replication(in headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
    @id(0x01000020)
    action admit() { }

    @id(0x01000021)
    action exclude() {
        meta.drop = true;
        meta.reason = Reason.DROPPED_GROUP;
    }

    @entry_restriction("ingress_port != 0; group != 0; job != 0")
    @id(0x02000011)
    table aggregators {
        key = {
            ingress_port: exact @name("ingress_port");
            meta.next_hop: exact @name("group");
            hdr.gradlane.job: exact @name("job");
        }
        actions = { admit; @defaultonly exclude; }
        const default_action = exclude();
        size = AGGREGATORS;
    }

    apply {
        if (meta.multicast && meta.from_fabric == 0 && !meta.drop && !meta.punt) {
            if (meta.gradient) {
                aggregators.apply();
            } else {
                exclude();
            }
        }
    }
}

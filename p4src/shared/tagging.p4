// SPDX-License-Identifier: Apache-2.0
// Turns what the host states (layer, magnitude) into two independent tags: the queue class and the drop precedence.
// The two tags are the DSCP field, so any switch downstream understands them; another switch of the fabric trusts them.

control Tagging(in headers_t hdr, inout metadata_t meta, in port_t ingress_port) {
#ifndef SMALLER_PROFILE
    // What a port's host may send in the top class. A cell without a configuration lets everything through.
    @id(0x14000003)
    BYTE_METER(port_t, PORTS) control_rates;
#endif

    @id(0x01000001)
    action set_queue_class(queue_class_t queue_class) {
        meta.queue_class = queue_class;
    }

    @id(0x01000002)
    action set_drop_precedence(drop_precedence_t drop_precedence) {
        meta.drop_precedence = drop_precedence;
    }

    // By layer: what the next forward pass needs first is served first.
    @entry_restriction("job != 0")
    @id(0x02000002)
    table queue_classes {
        key = {
            hdr.gradlane.job: exact @name("job");
            hdr.gradlane.layer: range @name("layer");
        }
        actions = { set_queue_class; }
        const default_action = set_queue_class(BEST_EFFORT);
        size = RANGES;
    }

    // By magnitude, and by layer where the policy says so: small gradients go first.
    @entry_restriction("job != 0")
    @id(0x02000003)
    table drop_precedences {
        key = {
            hdr.gradlane.job: exact @name("job");
            hdr.gradlane.layer: range @name("layer");
            hdr.gradlane.magnitude: range @name("magnitude");
        }
        actions = { set_drop_precedence; }
        const default_action = set_drop_precedence(PROTECTED);
        size = RANGES;
    }

    // Ordinary traffic keeps its DSCP; the classes that operators agreed on for it are listed here.
    @id(0x02000004)
    table dscp_classes {
        key = {
            meta.dscp: exact @name("dscp");
        }
        actions = { set_queue_class; }
        const default_action = set_queue_class(BEST_EFFORT);
        size = DSCP_CLASSES;
    }

    apply {
        if (!meta.gradient) {
            dscp_classes.apply();
        } else if (meta.from_fabric == 1) {
            meta.queue_class = meta.dscp[5:3];
            meta.drop_precedence = meta.dscp[2:0];
        } else if (hdr.gradlane.kind == KIND_DATA || hdr.gradlane.kind == KIND_REPAIR
                   || (hdr.gradlane.kind == KIND_TRACE && hdr.gradlane.flags & FLAG_RETURNED == 0)) {
            queue_classes.apply();
            if (hdr.gradlane.kind == KIND_DATA && hdr.gradlane.budget != 0) {
                drop_precedences.apply();
            }
        } else {
            meta.queue_class = CONTROL_CLASS;
        }
#ifndef SMALLER_PROFILE
        // The guard has seen that a gradient's sender is a member.
        if (meta.from_fabric == 0 && meta.queue_class == CONTROL_CLASS) {
            Color color = Color.RED;
            if (meta.gradient || meta.member) {
                EXECUTE_METER(control_rates, ingress_port, color);
            }
            if (color != Color.GREEN) {
                meta.demoted = true;
                meta.reason = Reason.DEMOTED;
                meta.queue_class = BEST_EFFORT;
            }
        }
#endif
    }
}

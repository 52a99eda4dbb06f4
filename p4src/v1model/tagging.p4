// SPDX-License-Identifier: Apache-2.0
// Turns what the host states (layer, magnitude) into two independent tags: the queue class and the drop precedence.
// The two tags are the DSCP field, so any switch downstream understands them.

control Tagging(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    action set_queue_class(queue_class_t queue_class) {
        meta.queue_class = queue_class;
    }

    action set_drop_precedence(drop_precedence_t drop_precedence) {
        meta.drop_precedence = drop_precedence;
    }

    // By layer: what the next forward pass needs first is served first.
    @id(0x02000002)
    table queue_classes {
        key = {
            hdr.gradlane.job: exact @name("job");
            hdr.gradlane.layer: range @name("layer");
        }
        actions = { set_queue_class; }
        const default_action = set_queue_class(BEST_EFFORT);
        size = 1024;
    }

    // By magnitude, and by layer where the policy says so: small gradients go first.
    @id(0x02000003)
    table drop_precedences {
        key = {
            hdr.gradlane.job: exact @name("job");
            hdr.gradlane.layer: range @name("layer");
            hdr.gradlane.magnitude: range @name("magnitude");
        }
        actions = { set_drop_precedence; }
        const default_action = set_drop_precedence(PROTECTED);
        size = 1024;
    }

    // Ordinary traffic keeps its DSCP; the classes that operators agreed on for it are listed here.
    @id(0x02000004)
    table dscp_classes {
        key = {
            hdr.ipv4.dscp: exact @name("dscp");
        }
        actions = { set_queue_class; }
        const default_action = set_queue_class(BEST_EFFORT);
        size = 64;
    }

    apply {
        if (hdr.gradlane.isValid()) {
            if (hdr.gradlane.kind == KIND_DATA || hdr.gradlane.kind == KIND_REPAIR) {
                queue_classes.apply();
                if (hdr.gradlane.kind == KIND_DATA && hdr.gradlane.budget != 0) {
                    drop_precedences.apply();
                }
            } else {
                meta.queue_class = CONTROL_CLASS;
            }
            hdr.ipv4.dscp = meta.queue_class ++ meta.drop_precedence;
            hdr.ipv4.ecn = meta.drop_precedence == PROTECTED ? ECN_CAPABLE : ECN_NOT_CAPABLE;
        } else {
            dscp_classes.apply();
        }
    }
}

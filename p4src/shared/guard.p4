// SPDX-License-Identifier: Apache-2.0
// What enters at a host's port comes from the addresses that the controller has placed there, and gradients only of jobs
// that it has placed there, too. What a job may do in the network is looked up by its number, at every switch of its path.

struct guard_violation_t {
    bit<16> ingress_port;
    bit<16> job;
    ipv6_t  source;
}

control Guard(inout headers_t hdr, inout metadata_t meta, in port_t ingress_port, inout DigestType_t digest_type) {
    DIRECT_COUNTER permitted;

    @id(0x01000005)
    action permit() {
        permitted.count();
    }

    // What is refused counts for no job.
    @id(0x01000006)
    action refuse() {
        meta.drop = true;
        meta.reason = Reason.DROPPED_GUARD;
        meta.job_index = 0;
        digest_type = DIGEST_VIOLATION;
        permitted.count();
    }

    @entry_restriction("ingress_port != 0; ingress_port != 511; source != 0; job != 0")
    @id(0x02000001)
    table senders {
        key = {
            ingress_port: exact @name("ingress_port");
            meta.source: exact @name("source");
            hdr.gradlane.job: exact @name("job");
        }
        actions = { permit; @defaultonly refuse; }
        const default_action = refuse();
        counters = permitted;
        size = SENDERS;
    }

#ifndef SMALLER_PROFILE
    @id(0x0100001E)
    action known(bit<1> member) {
        meta.member = (bool)member;
    }

    @id(0x0100001F)
    action unknown() {
        meta.drop = true;
        meta.reason = Reason.DROPPED_SOURCE;
        meta.job_index = 0;
    }

    // Source 0: what is not IP, and neighbour discovery.
    @entry_restriction("ingress_port != 0; mac != mac('00:00:00:00:00:00')")
    @id(0x02000010)
    table sources {
        key = {
            ingress_port: exact @name("ingress_port");
            hdr.ethernet.src: exact @name("mac");
            meta.source: exact @name("source");
        }
        actions = { known; @defaultonly unknown; }
        const default_action = unknown();
        size = SOURCES;
    }
#endif

    // Index 0 is no job. The slots are in the register, and as many as a power of two.
    @action_restriction("
        job_index != 0;
        slot_base < 0x10000;
        slot_mask == 0x0000 || slot_mask == 0x0001 || slot_mask == 0x0003 || slot_mask == 0x0007 ||
        slot_mask == 0x000F || slot_mask == 0x001F || slot_mask == 0x003F || slot_mask == 0x007F ||
        slot_mask == 0x00FF || slot_mask == 0x01FF || slot_mask == 0x03FF || slot_mask == 0x07FF ||
        slot_mask == 0x0FFF || slot_mask == 0x1FFF || slot_mask == 0x3FFF || slot_mask == 0x7FFF ||
        slot_mask == 0xFFFF;
    ")
    @id(0x01000007)
    action set_job(job_index_t job_index, bit<32> slot_base, bit<32> slot_mask, bit<16> max_share, bit<1> trim,
                   bit<1> spray) {
        meta.job_index = job_index;
        meta.slot_base = slot_base;
        meta.slot_mask = slot_mask;
        meta.max_share = max_share;
        meta.trim = (bool)trim;
        meta.spray = (bool)spray;
    }

    // A job that is not here has no budget, so nothing of it is ever dropped by policy.
    @id(0x01000008)
    action unknown_job() { }

    @entry_restriction("job != 0")
    @id(0x02000008)
    table jobs {
        key = {
            hdr.gradlane.job: exact @name("job");
        }
        actions = { set_job; @defaultonly unknown_job; }
        const default_action = unknown_job();
        size = JOBS;
    }

    apply {
        // Before it matters whether the header holds together: Tofino looks up its tables side by side.
        if (hdr.gradlane.isValid()) {
            jobs.apply();
        }
        if (!meta.gradient) {
            meta.job_index = 0;
        } else if (meta.from_fabric == 0) {
            senders.apply();
        }
#ifndef SMALLER_PROFILE
        if (meta.from_fabric == 0 && !meta.drop) {
            sources.apply();
        }
#endif
    }
}

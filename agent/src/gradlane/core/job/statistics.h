/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What an engine counts; docs/protocol.md explains each.
 */
#ifndef GRADLANE_STATISTICS_H
#define GRADLANE_STATISTICS_H

#include <stdint.h>

typedef struct {
    uint64_t datagrams_sent, datagrams_received;
    uint64_t slices_sent, slices_repaired, slices_expected, slices_delivered, slices_lost, slices_duplicate, slices_late;
    uint64_t budget_total; /* budgets of the messages received, in slices */
    uint64_t budget_violations;
    uint64_t trimmed;
    uint64_t slices_copied; /* as all receive buffers were held */
    uint64_t probes_sent, bitmaps_sent, stops_sent, reports_sent;
    uint64_t traces_sent, traces_returned, bad_trace;
    uint64_t ecn_marked;
    uint64_t bad_header, bad_token, bad_job, bad_source, bad_range, bad_length, bad_budget, bad_class, bad_message, no_memory;
    uint64_t messages_sent, messages_received;
    /* Slices that a switch sums: contributions, those of them sent again, results; what was not awaited any more, what was
     * refused. Elements that were too large; bytes of tensors (partitions) that were reduced so; those reduced again by hosts. */
    uint64_t sums_sent, sums_repaired, sums_received, sums_duplicate, sums_refused, sums_clipped, summed_bytes, sum_reruns;
    /* Sums that lack somebody: those that this rank has closed as their closer, its own slices that it is missing in, and those
     * that were refused as a worker would be missing in more than its budget. */
    uint64_t sums_closed, sums_left_out, sums_over_budget;
    uint64_t memory_used; /* bytes of slices that wait to be reduced, or to be stopped; and what is taken of the job's memory */
} gl_statistics;

/* What went to a peer and came from it, or was of a loss class. */
typedef struct {
    uint64_t slices_sent, slices_repaired, bytes_sent; /* bytes: of UDP payload, both ways */
    uint64_t slices_expected, slices_delivered, slices_lost, slices_duplicate, slices_late, budget_total, ecn_marked;
    uint64_t bytes_received;
} gl_counts;

#endif

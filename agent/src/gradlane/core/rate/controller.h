/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * A congestion controller: how the rate of a flow follows what its receivers report. The flow (flow.c) keeps account of what
 * is in flight, of shares and of losses; a controller sets `rate`, and tells how much may be in flight. Another one is
 * another table of these functions.
 */
#ifndef GRADLANE_CONTROLLER_H
#define GRADLANE_CONTROLLER_H

#include <stddef.h>
#include <stdint.h>

#include "rate/rtt.h"

typedef struct flow flow;

/* What a REPORT says that none before it has said. */
typedef struct {
    uint32_t delivered, marked; /* slices that have arrived, and of them ECN-marked */
    uint32_t missing;           /* slices sent before `sequence` that turn out not to have arrived */
    uint32_t sequence;
    uint32_t queue;             /* us of queueing that the last slice has met; NO_QUEUE: not known */
} progress;

struct controller {
    size_t bytes; /* of its state of one flow, which is zeros at first */
    /* The flow is new; its rate and its share are the link's. */
    void (*start)(flow *f);
    /* It has sent nothing for `idle` us, and is about to. */
    void (*begin)(flow *f, uint64_t idle, uint64_t now);
    /* Its receivers leave it this share of their ports, bytes per us. */
    void (*share)(flow *f, double share);
    void (*report)(flow *f, rtt *to, const progress *p, uint64_t now);
    /* Nothing of a full window was heard of for long. */
    void (*stall)(flow *f);
    /* Bytes that may be in flight. */
    double (*window)(const flow *f);
};
typedef struct controller controller;

/* The controller that is used. */
extern const controller delay_controller;

#endif

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Which streams are going to come.
 */
#ifndef GRADLANE_STREAMS_H
#define GRADLANE_STREAMS_H

#include "operation/operation.h"

/* As gl_engine_group (engine.h). */
bool streams_of_group(operations *all, uint16_t tensor, const uint16_t *ranks, unsigned count);
void streams_free(operations *all);

/* The streams of a message's phase, as its first one comes: the operation tells who is going to send; before it is submitted
 * here, it may be everybody, or all members of its group. */
void expect_streams(operations *all, const rx_message *first, uint64_t now);

/* A message came before the plan was known, so that all who might send were expected: those that the plan has nothing of are
 * no more. */
void plan_streams(operations *all, const operation *o);

#endif

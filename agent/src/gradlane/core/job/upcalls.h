/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * All the calls that go up: what the sender (tx) and the receiver (rx) tell the operations above them. Whoever makes them
 * hands over this table (job.h).
 */
#ifndef GRADLANE_UPCALLS_H
#define GRADLANE_UPCALLS_H

#include <stdbool.h>
#include <stdint.h>

struct rx_message;
struct tx_message;

typedef struct {
    /* All receivers have stopped a message; `received` has a bit for each slice that arrived. The message may be freed. */
    void (*stopped)(void *above, struct tx_message *m, const uint8_t *received);
    /* A message begins to come: it gets the link that it is of, or none yet, or is left out. False: it is refused, which has been
     * counted. */
    bool (*attach)(void *above, struct rx_message *m, uint64_t now);
    /* A slice that was awaited has arrived; a message is over, and what has not arrived of it is lost for good. Both may end the
     * operation, and the message's part in it. */
    void (*arrived)(void *above, struct rx_message *m, uint32_t slice, uint16_t layer, const uint8_t *payload,
                    uint32_t length);
    void (*lost)(void *above, struct rx_message *m);
} upcalls;

#endif

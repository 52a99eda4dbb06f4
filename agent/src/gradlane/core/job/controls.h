/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Control datagrams that wait to be sent: they go before everything that is paced, to each receiver in turn.
 */
#ifndef GRADLANE_CONTROLS_H
#define GRADLANE_CONTROLS_H

#include "job/job.h"

struct control {
    control *next;
    uint32_t length;
    uint8_t bytes[];
};

/* Those to one receiver. */
struct mail {
    control *first, **end;
    mail *next; /* of the receivers that some wait for */
};

/* `like`: the header, which gets its kind, this rank as source, and the payload's length. */
void send_control(job *j, unsigned to, unsigned kind, const uint8_t *like, const void *payload, uint16_t length);
/* Takes a control out, which is then the caller's to free; `at`: what points to it. */
control *take_control(mail *m, control **at);
/* The first receiver has had some: it is that of those behind it. */
void mail_sent(job *j);
/* What waits for a receiver is dropped. */
void mail_drop(job *j, unsigned to);

#endif

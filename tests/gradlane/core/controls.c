/* SPDX-License-Identifier: Apache-2.0
 * Control datagrams, against lists of them: each is sent once, to its receiver, and a batch goes to each receiver that some
 * wait for in turn, however many wait for another one. What waits for a rank that is dropped is not sent. */
#include "many_ranks.h"

#include "base/bits.h"
#include "job/controls.h"

enum { RANKS = 40, TURNS = 50000, MOST = 1000, NUMBERS = 1 << 20 };

static job j;
static tx x;
static gl_batch batch;
static uint32_t next[RANKS + 1];                 /* the number of the next one */
static uint16_t waits[RANKS + 1][NUMBERS];       /* bytes; 0: it has been sent, or dropped */
static uint32_t oldest[RANKS + 1];
static unsigned count[RANKS + 1], queue[RANKS + 2], queued;

static void leave(unsigned at) {
    for (queued--; at < queued; at++) queue[at] = queue[at + 1];
}

static void put(unsigned to) {
    static const uint8_t payload[MOST];
    uint8_t h[GL_HEADER] = {0};
    const unsigned length = draw(3) ? GL_REPORT : draw(MOST);
    if (next[to] == NUMBERS) return;
    put32(h + GL_AT_MESSAGE, next[to]);
    send_control(&j, to, GL_KIND_REPORT, h, payload, (uint16_t)length);
    waits[to][next[to]++] = (uint16_t)(GL_HEADER + length);
    if (!count[to]++) queue[queued++] = to;
}

static void drop(unsigned to) {
    mail_drop(&j, to);
    for (uint32_t i = oldest[to]; i < next[to]; i++) waits[to][i] = 0;
    for (unsigned i = 0; i < queued; i++)
        if (queue[i] == to) leave(i);
    count[to] = 0;
}

/* Of the first ones to a receiver, as many as a batch has. */
static unsigned longest_of(unsigned to) {
    unsigned longest = 0, seen = 0;
    while (oldest[to] < next[to] && !waits[to][oldest[to]]) oldest[to]++;
    for (uint32_t i = oldest[to]; i < next[to] && seen < GL_BATCH; i++) {
        seen += waits[to][i] > 0;
        if (waits[to][i] > longest) longest = waits[to][i];
    }
    return longest;
}

static void send(void) {
    require((tx_transmit(&x, &batch, 1000000) > 0) == (queued > 0), "something is sent though nothing waits, or nothing");
    if (!queued) return;
    const unsigned to = queue[0];
    require(batch.to == to, "it is another receiver's turn");
    require(batch.segment == longest_of(to), "the longest is not the first, so others do not fit behind it");
    size_t length = 0;
    for (int n = 0, i = 0; n < batch.datagrams; n++) {
        const uint32_t number = get32((const uint8_t *)batch.iov[i].iov_base + GL_AT_MESSAGE);
        require(n == 0 || length == batch.segment, "a shorter one is not the last");
        length = 0;
        for (int k = 0; k < batch.pieces[n]; k++) length += batch.iov[i++].iov_len;
        require(length <= batch.segment && (n || length == batch.segment), "a longer one follows");
        require(number < next[to] && waits[to][number] == length, "it was sent before, or to somebody else");
        waits[to][number] = 0, count[to]--;
    }
    leave(0);
    if (count[to]) queue[queued++] = to;
}

int main(void) {
    srand(1);
    begin(&j, &x, RANKS);
    for (unsigned n = 0; n < TURNS; n++) {
        for (unsigned more = draw(n % 500 < 250 ? 30 : 3); more--;) put(draw(2) ? 7 : 1 + draw(RANKS));
        if (draw(200) == 0) drop(draw(2) ? 7 : 1 + draw(RANKS));
        send();
    }
    while (queued) send();
    for (unsigned to = 0; to <= RANKS; to++) require(!count[to], "something was never sent");
    for (unsigned more = 50; more--;) put(1 + draw(RANKS)); /* is freed with the job */
    tx_free(&x), job_free(&j);
    return 0;
}

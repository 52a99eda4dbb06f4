/* SPDX-License-Identifier: Apache-2.0
 * Digests (P4Runtime specification, 9.7): a value is kept once, from when it is learned until its list has been told
 * and acknowledged, or that took too long. So what packets repeat costs no more than looking it up. There is room for so
 * many values; without room, new ones are lost, and counted, until the controller has taken or acknowledged others. */
#include "state/digests.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 2 * GL_DIGEST_VALUES };

typedef struct value value;

struct value {
    value *next;             /* of those that wait, that were told, or that are free */
    value *same;             /* in the same bucket */
    uint64_t time;           /* ns: when it was learned, or told */
    uint64_t list;           /* in which it was told */
    uint32_t bucket;
    uint8_t bytes[];
};

typedef struct {
    value *first, *last;
} fifo;

struct gl_digest {
    gl_digest_config config;
    uint32_t size;           /* bytes of a value */
    uint32_t waiting_count;
    fifo waiting, told;      /* in order of time; those of a list are neighbours */
    value *free;
    uint8_t *values;         /* all of them */
    uint64_t last_list;
    value *buckets[BUCKETS];
};

static size_t stride(uint32_t size) {
    return (sizeof(value) + size + 7) & ~(size_t)7;
}

static void append(fifo *queue, value *item) {
    item->next = NULL;
    *(queue->first ? &queue->last->next : &queue->first) = item;
    queue->last = item;
}

static value *take_first(fifo *queue) {
    value *item = queue->first;
    queue->first = item->next;
    return item;
}

static uint64_t mixed(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t bucket_of(uint64_t secret, const uint8_t *bytes, uint32_t size) {
    uint64_t hash = secret;
    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < 8 ? size - at : 8);
        hash = mixed(hash ^ word, secret | 1) + at;
    }
    return (uint32_t)(hash >> 32) % BUCKETS;
}

/* Makes a value unknown; it is in no queue any more. */
static void forget(gl_digest *digest, value *item) {
    value **link = &digest->buckets[item->bucket];
    while (*link != item) {
        link = &(*link)->same;
    }
    *link = item->same;
    item->next = digest->free;
    digest->free = item;
}

/* Forgets what the controller has not acknowledged in time. */
static void expire(gl_digest *digest, uint64_t now) {
    while (digest->told.first && now >= digest->told.first->time &&
           now - digest->told.first->time >= digest->config.ack_timeout) {
        forget(digest, take_first(&digest->told));
    }
}

gl_learned gl_digest_learn(gl_mailbox *mailbox, uint32_t index, uint64_t now, const uint8_t *bytes, uint32_t size) {
    gl_digest *digest = mailbox->digests[index];
    if (!digest || digest->size != size) {
        return GL_LEARNED_NOTHING;
    }
    expire(digest, now);
    uint32_t bucket = bucket_of(mailbox->secret, bytes, size);
    for (const value *item = digest->buckets[bucket]; item; item = item->same) {
        if (!memcmp(item->bytes, bytes, size)) {
            return GL_LEARNED_NOTHING;
        }
    }
    value *item = digest->free;
    if (!item) {
        return GL_LEARNED_TOO_MUCH;
    }
    digest->free = item->next;
    item->time = now;
    item->bucket = bucket;
    memcpy(item->bytes, bytes, size);
    item->same = digest->buckets[bucket];
    digest->buckets[bucket] = item;
    append(&digest->waiting, item);
    uint32_t count = ++digest->waiting_count;
    return count == 1 || count == digest->config.most ? GL_LEARNED_NEWS : GL_LEARNED;
}

static void end(gl_digest *digest) {
    if (digest) {
        free(digest->values);
        free(digest);
    }
}

static gl_digest *begin(uint32_t size) {
    gl_digest *digest = calloc(1, sizeof *digest);
    uint8_t *values = malloc(GL_DIGEST_VALUES * stride(size));
    if (!digest || !values) {
        free(values);
        free(digest);
        return NULL;
    }
    digest->size = size;
    digest->values = values;
    for (uint32_t i = GL_DIGEST_VALUES; i-- > 0;) {
        value *item = (value *)(values + i * stride(size));
        item->next = digest->free;
        digest->free = item;
    }
    return digest;
}

int gl_digest_want(gl_state *state, uint32_t index, uint32_t size, const gl_digest_config *config) {
    gl_digest **wanted = &state->mailbox.digests[index], *old = *wanted;
    gl_digest *fresh = old || !config ? NULL : begin(size);
    if (config && !old && !fresh) {
        return -1;
    }
    gl_acquire(&state->mailbox.lock);
    if (!config || fresh) {
        *wanted = fresh;
    }
    if (config) {
        (*wanted)->config = *config;
    }
    gl_release(&state->mailbox.lock);
    if (!config) {
        end(old);
    }
    return 0;
}

static uint64_t due_time(const gl_digest *digest) {
    const gl_digest_config *config = &digest->config;
    if (!digest->waiting_count) {
        return UINT64_MAX;
    }
    return config->most && digest->waiting_count >= config->most ? 0 : digest->waiting.first->time + config->timeout;
}

uint64_t gl_digest_due(gl_state *state, uint32_t index) {
    gl_acquire(&state->mailbox.lock);
    uint64_t due = due_time(state->mailbox.digests[index]);
    gl_release(&state->mailbox.lock);
    return due;
}

uint32_t gl_digest_take(gl_state *state, uint32_t index, uint64_t now, uint32_t room, uint8_t *out, uint64_t *list) {
    gl_acquire(&state->mailbox.lock);
    gl_digest *digest = state->mailbox.digests[index];
    uint32_t count = 0;
    if (due_time(digest) <= now) {
        uint32_t most = digest->config.most && digest->config.most < room ? digest->config.most : room;
        *list = ++digest->last_list;
        for (; count < most && digest->waiting_count; count++, digest->waiting_count--) {
            value *item = take_first(&digest->waiting);
            memcpy(out + (size_t)count * digest->size, item->bytes, digest->size);
            item->time = now;
            item->list = *list;
            if (digest->config.ack_timeout) {
                append(&digest->told, item);
            } else {
                forget(digest, item);
            }
        }
    }
    gl_release(&state->mailbox.lock);
    return count;
}

void gl_digest_ack(gl_state *state, uint32_t index, uint64_t list) {
    gl_acquire(&state->mailbox.lock);
    gl_digest *digest = state->mailbox.digests[index];
    value *before = NULL, *item = digest->told.first;
    for (; item && item->list != list; item = item->next) {
        before = item;
    }
    while (item && item->list == list) {
        value *next = item->next;
        forget(digest, item);
        item = next;
    }
    *(before ? &before->next : &digest->told.first) = item;
    if (!item) {
        digest->told.last = before;
    }
    gl_release(&state->mailbox.lock);
}

void gl_digests_clear(gl_mailbox *mailbox) {
    for (uint32_t i = 0; mailbox->digests && i < mailbox->digest_count; i++) {
        end(mailbox->digests[i]);
    }
    free(mailbox->digests);
}

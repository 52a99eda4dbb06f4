/* SPDX-License-Identifier: Apache-2.0
 * Messages wait in lists of bounded size: forwarding never waits for a controller. Each port has a list, and they take
 * turns: packets that one host has punted take no room from those of others, and do not delay them. */
#include "state/mailbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "state/digests.h"

struct gl_mail {
    gl_mail *next;
    gl_mail_head head;
    uint8_t bytes[];
};

enum { MOST = 64 << 10 /* bytes of a list; a message that is longer goes alone */ };

int gl_mailbox_init(gl_mailbox *box, uint32_t digests) {
    gl_lock_init(&box->lock);
    box->event_fd = -1;
    box->digest_count = digests;
    box->digests = calloc(digests ? digests : 1, sizeof *box->digests);
    if (getrandom(&box->secret, sizeof box->secret, 0) != sizeof box->secret) {
        box->secret = (uint64_t)(uintptr_t)box->digests;
    }
    return box->digests ? 0 : -1;
}

/* There is something to take. */
static void announce(const gl_mailbox *box) {
    const uint64_t one = 1;
    /* This fails only when the counter is full, and then the reader wakes anyway. */
    (void)!(box->event_fd >= 0 && write(box->event_fd, &one, sizeof one));
}

static void take_place(gl_mailbox *box, gl_mails *mails) {
    mails->next = NULL;
    *(box->turn ? &box->last_turn->next : &box->turn) = mails;
    box->last_turn = mails;
}

/* Whether it found room. */
static int append(gl_mailbox *box, gl_mails *mails, gl_mail_head head, const uint8_t *bytes) {
    uint32_t size = (uint32_t)sizeof(gl_mail) + head.length;
    gl_mail *mail = !mails->first || (size <= MOST && mails->bytes <= MOST - size) ? malloc(size) : NULL;
    if (!mail) {
        return 0;
    }
    mail->next = NULL;
    mail->head = head;
    if (head.length) {
        memcpy(mail->bytes, bytes, head.length);
    }
    if (mails->first) {
        mails->last->next = mail;
    } else {
        mails->first = mail;
        if (!box->turn) {
            announce(box);
        }
        take_place(box, mails);
    }
    mails->last = mail;
    mails->bytes += size;
    return 1;
}

void gl_post(gl_state *state, uint32_t kind, uint32_t id, uint64_t now, const uint8_t *bytes, uint32_t length) {
    gl_mailbox *box = &state->mailbox;
    gl_acquire(&box->lock);
    if (kind == GL_MAIL_DIGEST) {
        gl_learned learned = gl_digest_learn(box, id, now, bytes, length);
        if (learned == GL_LEARNED_NEWS) {
            announce(box);
        }
        state->losses.digests += learned == GL_LEARNED_TOO_MUCH;
    } else {
        gl_mails *mails = &box->mails[kind == GL_MAIL_PACKET ? id % GL_PORTS : GL_PORTS];
        uint64_t *lost = kind == GL_MAIL_PACKET ? &state->losses.packets : &state->losses.log;
        *lost += !append(box, mails, (gl_mail_head){kind, id, length, now}, bytes);
    }
    gl_release(&box->lock);
}

int gl_mail_take(gl_state *state, gl_mail_head *head, uint8_t *bytes, uint32_t size) {
    gl_mailbox *box = &state->mailbox;
    gl_mail *mail = NULL;
    gl_acquire(&box->lock);
    gl_mails *mails = box->turn;
    if (mails) {
        *head = mails->first->head;
        if (head->length <= size) {
            mail = mails->first;
            mails->first = mail->next;
            mails->bytes -= (uint32_t)sizeof *mail + head->length;
            box->turn = mails->next;
            if (mails->first) {
                take_place(box, mails);
            }
        }
    }
    gl_release(&box->lock);
    if (!mail) {
        return mails ? -1 : 0;
    }
    memcpy(bytes, mail->bytes, head->length);
    free(mail);
    return 1;
}

void gl_mailbox_clear(gl_mailbox *box) {
    for (gl_mails *mails = box->turn; mails; mails = mails->next) {
        while (mails->first) {
            gl_mail *next = mails->first->next;
            free(mails->first);
            mails->first = next;
        }
    }
    gl_digests_clear(box);
}

void gl_controller(gl_state *state, uint32_t cpu_port, int event_fd) {
    gl_acquire(state->lock);
    state->cpu_port = cpu_port;
    state->mailbox.event_fd = event_fd;
    gl_release(state->lock);
}

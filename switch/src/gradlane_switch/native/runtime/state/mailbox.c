/* SPDX-License-Identifier: Apache-2.0
 * Messages wait in a list of bounded size: forwarding never waits for a controller. */
#include "state/mailbox.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gl_mail {
    gl_mail *next;
    gl_mail_head head;
    uint8_t bytes[];
};

static const uint64_t LIMIT = 16u << 20;  /* bytes */

void gl_post(gl_state *state, uint32_t kind, uint32_t id, uint64_t now, const uint8_t *bytes, uint32_t length) {
    gl_mailbox *box = &state->mailbox;
    uint64_t size = sizeof(gl_mail) + length;
    gl_mail *mail = box->bytes + size <= LIMIT ? malloc(size) : NULL;
    if (!mail) {
        state->losses.mail++;
        return;
    }
    mail->next = NULL;
    mail->head = (gl_mail_head){kind, id, length, now};
    if (length) {
        memcpy(mail->bytes, bytes, length);
    }
    const uint64_t one = 1;
    if (box->first) {
        box->last->next = mail;
    } else {
        box->first = mail;
        /* This fails only when the counter is full, and then the reader wakes anyway. */
        (void)!(box->event_fd >= 0 && write(box->event_fd, &one, sizeof one));
    }
    box->last = mail;
    box->bytes += size;
}

int gl_mail_take(gl_state *state, gl_mail_head *head, uint8_t *bytes, uint32_t size) {
    gl_mailbox *box = &state->mailbox;
    gl_acquire(state->lock);
    gl_mail *mail = box->first;
    if (mail && mail->head.length <= size) {
        box->first = mail->next;
        box->bytes -= sizeof *mail + mail->head.length;
    }
    gl_release(state->lock);
    if (!mail) {
        return 0;
    }
    *head = mail->head;
    if (mail->head.length > size) {
        return -1;
    }
    memcpy(bytes, mail->bytes, mail->head.length);
    free(mail);
    return 1;
}

void gl_mailbox_clear(gl_mailbox *mailbox) {
    while (mailbox->first) {
        gl_mail *next = mailbox->first->next;
        free(mailbox->first);
        mailbox->first = next;
    }
}

void gl_controller(gl_state *state, uint32_t cpu_port, int event_fd) {
    gl_acquire(state->lock);
    state->cpu_port = cpu_port;
    state->mailbox.event_fd = event_fd;
    gl_release(state->lock);
}

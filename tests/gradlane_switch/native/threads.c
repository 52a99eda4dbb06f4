/* SPDX-License-Identifier: Apache-2.0
 * The runtime as its threads use it, for ThreadSanitizer: one forwards, one sends, one is the controller's (it alone
 * changes tables), and one looks at the ports and changes them, and injects. The program is flooding.py's.
 *
 *   threads ROUNDS    prints how many packets came in, packets and digests were taken, and entries were written */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataplane/api.h"

enum { PORTS = 3, CPU = 500, STATIONS = 64, FRAME = 84, PUNT = 0, LEARN = 1, COPY = 2, DIGEST_BYTES = 7 };

void gl_program(gl_state *state, gl_packet *packet, uint64_t now, gl_host *host);

static gl_lock *lock;
static gl_state *state;
static gl_dataplane *dp;
static int hosts[PORTS + 1];
static int events, rounds;
static atomic_int running = 1;
static unsigned long taken, learned, written;

static void make_frame(uint8_t *frame, unsigned number) {
    memset(frame, 0, FRAME);
    frame[0] = (uint8_t)(1 + number % 3);
    frame[6] = (uint8_t)(number / 3);
}

static void *forward(void *unused) {
    return gl_run(dp) ? "gl_run" : unused;
}

static void *send_frames(void *unused) {
    uint8_t frame[FRAME];
    for (unsigned number = 0; running; number++) {
        make_frame(frame, number);
        send(hosts[1 + number % PORTS], frame, sizeof frame, MSG_DONTWAIT);
        if (number % 64 == 0) {
            usleep(200);
        }
    }
    return unused;
}

static void *manage(void *unused) {
    uint8_t frame[FRAME];
    gl_losses losses;
    gl_event event;
    for (unsigned number = 0; running; number++) {
        make_frame(frame, number);
        gl_inject(dp, CPU, frame, sizeof frame);
        gl_port_stats stats[2];
        gl_port_statistics(dp, 2, (uint32_t[]){1, GL_PORTS}, stats);
        gl_port_configure(dp, 2, 0, (gl_port_config){.rate = 1000000 * (number % 5), .buffer = 64000, .up = number % 7 != 0});
        gl_losses_read(state, &losses);
        gl_longest_wait(dp, 1);
        gl_waiting(dp);
        if (number % 50 == 0) {
            gl_port_stats last;
            gl_port_remove(dp, 3, &last);
            gl_port_add(dp, 3, GL_PORT_UDP, hosts[0], 2000, (gl_port_config){.up = 1});
        }
        while (read(events, &event, sizeof event) > 0) {
        }
        usleep(100);
    }
    return unused;
}

static void control(void) {
    static uint8_t bytes[1 << 17];
    gl_entry *stations[STATIONS] = {0};
    gl_counter counts[STATIONS];
    gl_mail_head head;
    uint64_t list;
    for (int round = 0; round < rounds; round++) {
        if (round % 100 == 0) {
            gl_digest_config config = {1000, 1000000, 16};
            gl_digest_want(state, 0, DIGEST_BYTES, round % 1000 == 900 ? NULL : &config);
        }
        uint32_t count = 0;
        for (int i = 0; i < 8; i++) {
            gl_entry **entry = &stations[(round * 8 + i) % STATIONS];
            if (*entry) {
                gl_table_remove(state, 0, *entry);
            }
            *entry = gl_entry_new(state, 0, (uint64_t[]){(uint64_t)(round * 8 + i) % STATIONS}, NULL, 0, 0, 0, NULL, NULL);
            gl_table_add(state, 0, *entry);
            written++;
        }
        while (count < STATIONS && stations[count]) {
            count++;
        }
        gl_entry_counters_read(state, count, stations, counts);
        gl_session_set(state, 1, 1, &(gl_replica){CPU, (uint16_t)round}, UINT32_MAX, 0);
        for (int i = 0; i < 32 && gl_mail_take(state, &head, bytes, sizeof bytes) > 0; i++) {
            taken++;
        }
        if (round % 1000 < 900) {
            uint32_t values = gl_digest_take(state, 0, UINT64_MAX / 2, 16, bytes, &list);
            learned += values;
            if (values && round % 2) {
                gl_digest_ack(state, 0, list);
            }
            gl_digest_due(state, 0);
        }
        usleep(50);
    }
}

static void set_up(void) {
    gl_table_shape shape = {.kind = GL_TABLE_EXACT, .words = 1};
    int channel[2], mail = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    lock = gl_lock_new();
    state = gl_state_new(lock, 2, 0, 0, 0, 1);
    gl_state_table(state, 0, &shape);
    gl_state_table(state, 1, &shape);
    gl_entry_set(state, gl_table_default(state, 1), 3, 0, NULL, NULL);
    for (uint32_t kind = PUNT; kind <= COPY; kind++) {
        gl_table_add(state, 1, gl_entry_new(state, 1, (uint64_t[]){kind + 1}, NULL, 0, kind, 0, NULL, NULL));
    }
    gl_controller(state, CPU, mail);
    if (pipe2(channel, O_NONBLOCK | O_CLOEXEC)) {
        exit(2);
    }
    events = channel[0];
    dp = gl_dataplane_new(lock, 2000, 64 << 20, 50000, 1, channel[1]);
    for (uint32_t port = 1; port <= PORTS; port++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends)) {
            exit(2);
        }
        hosts[port] = ends[0];
        hosts[0] = ends[1];  /* of the last port, which is removed and added again */
        gl_port_add(dp, port, GL_PORT_UDP, ends[1], 2000, (gl_port_config){.up = 1});
    }
    gl_dataplane_program(dp, gl_program, state);
}

int main(int count, char **words) {
    rounds = count == 2 ? atoi(words[1]) : 0;
    set_up();
    void *(*const bodies[])(void *) = {forward, send_frames, manage};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, bodies[i], NULL);
    }
    control();
    running = 0;
    pthread_join(threads[1], NULL);
    pthread_join(threads[2], NULL);
    gl_stop(dp, 0);
    void *failed = NULL;
    pthread_join(threads[0], &failed);
    gl_port_stats stats;
    gl_port_statistics(dp, 1, (uint32_t[]){1}, &stats);
    printf("%lu %lu %lu %lu\n", (unsigned long)stats.rx.packets, taken, learned, written);
    gl_dataplane_free(dp);
    gl_state_free(state);
    gl_lock_free(lock);
    return failed != NULL;
}

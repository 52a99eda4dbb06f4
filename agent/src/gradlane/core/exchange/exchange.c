/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The exchange's processes, their regions and commands.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "exchange/absence.h"
#include "exchange/joint.h"
#include "exchange/ownership.h"
#include "exchange/state.h"
#include "exchange/tensor.h"
#include "io/clock.h"

enum { COMMANDS = 64, EVENTS = 256 }; /* of a process, and of the engine, that are taken in a turn */

/* Returns whether there may be more. */
static bool take_commands(process *p, uint64_t now) {
    gl_exchange *x = p->exchange;
    gl_command c;
    int got = 1;
    for (unsigned n = 0; n < COMMANDS && !x->failure.kind && (got = gl_channel_take(p->channel, &c)) > 0; n++) {
        if (c.kind == GL_COMMAND_TENSOR)
            tensor_command(x, p, &c, now);
        else if (c.kind == GL_COMMAND_COLLECTIVE)
            group_command(x, p, &c, now);
        else
            fail(x, GL_FAILURE_PROCESS, p->number, 0, 0, "command %u does not exist", c.kind);
    }
    if (got < 0) fail(x, GL_FAILURE_PROCESS, p->number, 0, 0, "its command ring makes no sense");
    return got > 0 && !x->failure.kind;
}

/* Returns whether some is left. */
static bool work(gl_exchange *x, uint64_t now) {
    for (uint64_t worked = 0; worked < WORK_BYTES && !x->failure.kind;) {
        if (!x->work && !x->moving) return false;
        if (x->work) worked += tensor_work(x, now);
        if (x->moving && !x->failure.kind) worked += group_work(x, now);
    }
    return !x->failure.kind;
}

/* A job's turn is bounded, whatever its processes ask for: other jobs wait for it. The rest comes in the next. */
static void turn(gl_exchange *x, uint64_t now) {
    bool more = false;
    for (unsigned k = 0; k < x->config.processes; k++)
        if (x->processes[k].channel) more |= take_commands(&x->processes[k], now);
    more |= work(x, now);
    if (more) eventfd_write(x->again, 1);
}

static void on_kick(void *context, uint64_t now) {
    process *p = context;
    gl_channel_kicked(p->channel);
    turn(p->exchange, now);
}

static void on_again(void *context, uint64_t now) {
    gl_exchange *x = context;
    eventfd_t count;
    eventfd_read(x->again, &count);
    turn(x, now);
}

gl_exchange *gl_exchange_new(gl_runner *runner, gl_engine *engine, const gl_exchange_config *config, int notify) {
    if (!config->processes || config->processes > GL_MAX_PROCESSES || config->slice_bytes < 8) return NULL;
    gl_exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->config = *config, x->runner = runner, x->engine = engine, x->notify = notify;
    x->moving_tail = &x->moving;
    for (unsigned k = 0; k < config->processes; k++)
        x->processes[k] = (process){.exchange = x, .number = k, .kicks = -1};
    gl_tolerance_new(&x->tolerance, config->critical, config->threshold, config->window);
    x->again = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (x->again < 0) return free(x), NULL;
    if (gl_runner_watch(runner, x->again, on_again, x)) return close(x->again), free(x), NULL;
    gl_runner_deliver(runner, engine, gl_exchange_drain, x);
    return x;
}

void gl_exchange_stop(gl_exchange *x) {
    gl_runner_deliver(x->runner, x->engine, NULL, NULL);
    for (unsigned k = 0; k < x->config.processes; k++)
        if (x->processes[k].kicks >= 0) gl_runner_unwatch(x->runner, x->processes[k].kicks);
    gl_runner_unwatch(x->runner, x->again);
}

void gl_exchange_free(gl_exchange *x) {
    for (unsigned k = 0; k < x->config.processes; k++) {
        gl_channel_free(x->processes[k].channel);
        free(x->processes[k].regions);
    }
    close(x->again);
    for (unsigned i = 0; i < GL_MAX_TENSORS; i++) tensor_free(x->tensors[i]);
    for (unsigned i = 0; i < GL_MAX_GROUPS; i++) group_free(x->groups[i]);
    ownership_free(&x->ownership);
    free(x);
}

int gl_exchange_open(gl_exchange *x, unsigned number, void *memory, int kicks) {
    if (number >= x->config.processes || x->processes[number].channel) return -1;
    process *p = &x->processes[number];
    p->channel = gl_channel_new(memory, kicks);
    if (!p->channel) return -1;
    if (gl_runner_watch(x->runner, kicks, on_kick, p)) {
        gl_channel_free(p->channel);
        p->channel = NULL;
        return -1;
    }
    p->kicks = kicks;
    return 0;
}

int gl_exchange_region(gl_exchange *x, unsigned number, unsigned index, uint8_t *memory, uint64_t bytes) {
    if (number >= x->config.processes || index >= GL_MAX_REGIONS) return -1;
    process *p = &x->processes[number];
    if (!p->regions && !(p->regions = calloc(GL_MAX_REGIONS, sizeof *p->regions))) return -1;
    if (p->regions[index].memory) return -1;
    p->regions[index] = (region){.memory = memory, .bytes = bytes};
    return 0;
}

int gl_exchange_release_region(gl_exchange *x, unsigned number, unsigned index) {
    if (number >= x->config.processes || index >= GL_MAX_REGIONS || !x->processes[number].regions) return -1;
    region *r = &x->processes[number].regions[index];
    if (!r->memory || r->users) return -1;
    r->memory = NULL;
    return 0;
}

void gl_exchange_drop(gl_exchange *x, unsigned host) {
    if (host >= GL_MAX_RANKS || host == x->config.host) return;
    set_bit(x->dead, host);
    for (unsigned i = 0; i < GL_MAX_GROUPS; i++)
        if (x->groups[i]) group_drop(x, x->groups[i], host);
    gl_engine_drop(x->engine, (uint16_t)host);
}

void gl_exchange_close(gl_exchange *x, unsigned id) {
    if (id >= GL_MAX_GROUPS || x->groups[id]) return;
    set_bit(x->closed, id);
    gl_engine_close(x->engine, (uint16_t)(GL_FIRST_GROUP + id));
}

static bool is_closed(const gl_exchange *x, uint16_t tensor) {
    const group *g = tensor < GL_FIRST_GROUP ? NULL : x->groups[tensor - GL_FIRST_GROUP];
    return g && g->closed;
}

void gl_exchange_drain(void *context, gl_engine *engine, uint64_t now) {
    gl_exchange *x = context;
    gl_event *event;
    for (unsigned n = 0; n < EVENTS && (event = gl_next_event(engine)); n++) {
        if (x->failure.kind || is_closed(x, event->tensor)) {
            /* Nothing of it counts any more. */
        } else if (event->kind == GL_EVENT_FAILED)
            fail(x, GL_FAILURE_MEMORY, 0, 0, 0, "memory is out");
        else if (event->kind == GL_EVENT_MISMATCH)
            fail(x, GL_FAILURE_MISMATCH, event->source, event->tensor, event->step, "%u slices", event->slices);
        else if (event->kind == GL_EVENT_OVER_BUDGET)
            fail(x, GL_FAILURE_BUDGET, event->source, event->tensor, event->step, "sums");
        else if (event->tensor < GL_FIRST_GROUP)
            tensor_event(x, event, now);
        else
            group_event(x, event);
        gl_event_free(event);
    }
    if (work(x, now) || gl_engine_has_event(engine)) eventfd_write(x->again, 1);
}

void gl_exchange_sums_halt(gl_exchange *x) { gl_engine_sums_halt(x->engine); }

unsigned gl_exchange_sums_state(const gl_exchange *x, gl_sum_state *states, unsigned most) {
    return gl_engine_sums_state(x->engine, states, most);
}

int gl_exchange_sums_resume(gl_exchange *x, uint32_t generation, int by_switch, const gl_sum_rerun *reruns,
                            unsigned count) {
    const int refused = gl_engine_sums_resume(x->engine, generation, by_switch, reruns, count, gl_now());
    gl_runner_wake(x->runner);
    return refused;
}

void gl_exchange_go_on(gl_exchange *x, unsigned id, uint32_t step) {
    if (id < GL_MAX_TENSORS && x->tensors[id] && !x->failure.kind) absence_asked(x, x->tensors[id], step, gl_now());
    gl_runner_wake(x->runner);
}

void gl_exchange_grant(gl_exchange *x, uint32_t part) { gl_tolerance_grant(&x->tolerance, part); }

uint64_t gl_exchange_sums_overdue(const gl_exchange *x, uint64_t now) { return gl_engine_sums_overdue(x->engine, now); }

const gl_failure *gl_exchange_failure(const gl_exchange *x) { return &x->failure; }

void gl_exchange_counts(const gl_exchange *x, gl_exchange_statistics *s) {
    *s = x->statistics;
    s->windows = x->tolerance.windows, s->critical_windows = x->tolerance.critical_windows;
    s->critical = x->tolerance.critical;
    s->residual_slices = 0;
    for (unsigned i = 0; i < GL_MAX_TENSORS; i++)
        for (unsigned k = 0; x->tensors[i] && k < x->tensors[i]->count; k++)
            s->residual_slices += x->tensors[i]->partitions[k].residual.owed;
}

unsigned gl_exchange_under_way(const gl_exchange *x) { return x->under_way; }

static int consider(gl_oldest_operation *oldest, uint64_t age, uint32_t tensor, uint32_t step, uint64_t missing) {
    if (age >= oldest->age) *oldest = (gl_oldest_operation){age, tensor, step, missing};
    return 1;
}

int gl_exchange_oldest(const gl_exchange *x, gl_oldest_operation *oldest, uint64_t now) {
    const unsigned processes = x->config.processes;
    const uint64_t all = processes == 64 ? UINT64_MAX : (1ull << processes) - 1;
    int found = 0;
    *oldest = (gl_oldest_operation){0};
    for (unsigned i = 0; i < GL_MAX_TENSORS; i++) {
        const tensor *t = x->tensors[i];
        if (!t || !t->present) continue;
        const uint64_t missing = all & ~t->present;
        found = consider(oldest, now - t->since, t->id * GL_MAX_PARTITIONS, missing ? t->step + 1 : t->step, missing);
    }
    for (unsigned i = 0; i < GL_MAX_GROUPS; i++) {
        const group *g = x->groups[i];
        for (const joint *j = g ? g->joints : NULL; j; j = j->next) {
            uint64_t missing = 0;
            if (j->standing) continue;
            for (unsigned k = 0; k < processes; k++)
                if (g->member_of[k] >= 0 && !j->parts[g->member_of[k]].present) missing |= 1ull << k;
            found = consider(oldest, now - j->since, GL_FIRST_GROUP + g->id, j->sequence, missing);
        }
    }
    return found;
}

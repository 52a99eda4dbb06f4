/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Collectives of groups of processes, all exact but for sends and receives that say otherwise. Where a host has one member,
 * the engine works on its memory. Where it has several, the k-th command of each is brought together: they become one
 * operation between hosts (hierarchical), and its result is copied to each.
 */
#include "exchange/group.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/types.h"
#include "base/bits.h"
#include "exchange/joint.h"
#include "wire.h"

void group_free(group *g) {
    if (!g) return;
    for (joint *j = g->joints, *next; j; j = next) next = j->next, joint_free(j);
    free(g->hosts), free(g);
}

int gl_exchange_group(gl_exchange *x, const gl_group *like) {
    if (like->id >= GL_MAX_GROUPS || x->groups[like->id] || !like->host_count ||
        (!like->member_count || like->member_count > x->config.processes))
        return -1;
    group *g = calloc(1, sizeof *g);
    if (!g || !(g->hosts = malloc(like->host_count * sizeof *g->hosts))) return group_free(g), -1;
    memcpy(g->hosts, like->hosts, like->host_count * sizeof *g->hosts);
    memcpy(g->algorithms, like->algorithms, sizeof g->algorithms);
    g->id = like->id, g->host_count = like->host_count, g->member_count = like->member_count;
    g->closed = test_bit(x->closed, like->id);
    g->pair = like->pair, g->from = like->from, g->to = like->to;
    for (unsigned k = 0; k < GL_MAX_PROCESSES; k++) g->member_of[k] = -1;
    for (unsigned i = 0; i < like->member_count; i++) {
        if (like->members[i] >= x->config.processes) return group_free(g), -1;
        g->member_of[like->members[i]] = (int16_t)i;
    }
    if (gl_engine_group(x->engine, (uint16_t)(GL_FIRST_GROUP + g->id), g->hosts, g->host_count)) return group_free(g), -1;
    x->groups[like->id] = g;
    for (unsigned i = 0; i < g->host_count && !g->closed; i++)
        if (test_bit(x->dead, g->hosts[i])) group_drop(x, g, g->hosts[i]);
    return 0;
}

/* Where a region's part lies. False if it is not inside the region, or the process may not name its own memory. */
static bool locate(process *p, unsigned index, uint64_t offset, uint64_t bytes, region **in, uint8_t **at) {
    *in = NULL, *at = NULL;
    if (index == GL_NO_REGION) return true;
    if (index == GL_OWN_REGION) {
        *at = p->exchange->config.within ? (uint8_t *)(uintptr_t)offset : NULL;
        return *at && bytes <= UINTPTR_MAX - offset;
    }
    if (index >= GL_MAX_REGIONS || !p->regions || !p->regions[index].memory) return false;
    region *r = &p->regions[index];
    if (offset > r->bytes || bytes > r->bytes - offset) return false;
    *in = r, *at = r->memory + offset;
    return true;
}

/* Blocks of `elements` that a member's `in` and `out` have; 0: none is needed. */
static void blocks_of(const group *g, unsigned collective, unsigned *in, unsigned *out) {
    *in = *out = 1;
    switch (collective) {
        case GL_REDUCE_SCATTER: *in = size_of(g); break;
        case GL_ALL_GATHER: *out = size_of(g); break;
        case GL_ALL_TO_ALL: *in = *out = size_of(g); break;
        case GL_SEND: *out = 0; break;
        case GL_RECEIVE: *in = 0; break;
    }
}

/* Of other hosts' members only they know which of their processes they are. */
static bool has_member(const gl_exchange *x, const group *g, unsigned rank) {
    const unsigned host = rank / x->config.processes;
    if (host == x->config.host) return g->member_of[rank % x->config.processes] >= 0;
    for (unsigned i = 0; i < g->host_count; i++)
        if (g->hosts[i] == host) return true;
    return false;
}

/* NULL, or what is wrong with a command, apart from its memory. */
static const char *wrong(const gl_exchange *x, const group *g, const process *p, const gl_command *c) {
    const uint32_t item = gl_element_bytes(c->element_type);
    if (g->member_of[p->number] < 0) return "it is not a member of the group";
    if (c->collective < GL_ALL_REDUCE || c->collective > GL_RECEIVE) return "there is no such collective";
    if (!item) return "there is no such element type";
    if (!c->elements || c->elements > (1ull << 44) / item / size_of(g)) return "the number of elements is out of range";
    if (gl_is_reduction(c->collective) &&
        (c->reduction < GL_MEAN || c->reduction > GL_PRODUCT || (c->reduction == GL_MEAN && !gl_element_is_float(c->element_type))))
        return "there is no such reduction of this element type";
    const bool pair = c->collective == GL_SEND || c->collective == GL_RECEIVE;
    if (pair != g->pair) return "send and receive need a pair, all else a group";
    const uint32_t rank = (uint32_t)x->config.host * x->config.processes + p->number;
    if (pair && rank != (c->collective == GL_SEND ? g->from : g->to)) return "it is not that end of the pair";
    if (c->loss > (pair ? 1000000 : 0)) return "only send and receive may lose, and no more than all";
    if (c->standing > (c->collective == GL_RECEIVE)) return "only a receive is standing";
    if ((c->collective == GL_BROADCAST || c->collective == GL_REDUCE) && !has_member(x, g, c->root))
        return "the root is not in the group";
    return NULL;
}

/* Takes a command's memory into `part`. False if it is out of bounds, missing or half overlapping. */
static bool take_memory(const gl_exchange *x, const group *g, process *p, const gl_command *c, part *of) {
    const uint64_t bytes = c->elements * gl_element_bytes(c->element_type);
    unsigned in_blocks, out_blocks;
    blocks_of(g, c->collective, &in_blocks, &out_blocks);
    const uint32_t rank = (uint32_t)x->config.host * x->config.processes + p->number;
    if (c->collective == GL_BROADCAST && rank != c->root) in_blocks = 0;
    if (c->collective == GL_REDUCE && rank != c->root) out_blocks = 0;
    if (!locate(p, in_blocks ? c->in_region : GL_NO_REGION, c->in, in_blocks * bytes, &of->in_region, &of->in) ||
        !locate(p, out_blocks ? c->out_region : GL_NO_REGION, c->out, out_blocks * bytes, &of->out_region, &of->out))
        return false;
    if ((in_blocks && !of->in) || (out_blocks && !of->out)) return false;
    if (!of->in || !of->out) return true;
    if (of->in == of->out) return in_blocks == 1 && out_blocks == 1;
    return of->in + in_blocks * bytes <= of->out || of->out + out_blocks * bytes <= of->in;
}

/* Its bytes are moved, or it is submitted, when its turn comes. */
static void queue(gl_exchange *x, joint *j, uint8_t stage) {
    j->stage = stage;
    j->next_moving = NULL;
    *x->moving_tail = j;
    x->moving_tail = &j->next_moving;
}

static void unqueue(gl_exchange *x) {
    if (!(x->moving = x->moving->next_moving)) x->moving_tail = &x->moving;
}

/* `how`: GL_DONE or GL_LOST. */
static void joint_end(gl_exchange *x, joint *j, unsigned how) {
    group *g = j->group;
    *(j->before ? &j->before->next : &g->joints) = j->next;
    *(j->next ? &j->next->before : &g->last) = j->before;
    x->under_way--;
    x->statistics.completed += how == GL_DONE;
    x->statistics.elements += how == GL_DONE ? j->elements : 0;
    for (unsigned k = 0; k < x->config.processes; k++) {
        if (g->member_of[k] < 0) continue;
        const part *of = &j->parts[g->member_of[k]];
        if (of->in_region) of->in_region->users--;
        if (of->out_region) of->out_region->users--;
        if (of->present) completed(x, k, of->slot, how);
    }
    joint_free(j);
}

static unsigned size_class(uint64_t bytes) {
    const unsigned class = 63 - (unsigned)__builtin_clzll(bytes);
    return class < GL_SIZE_CLASSES ? class : GL_SIZE_CLASSES - 1;
}

/* Elements of a block that one submission may carry: a message of it has at most GL_MAX_SLICES slices (of a ring all slices
 * are one message, of StragglAR and a grid several parts; otherwise of an all-reduce each aggregator has a part of its own), and it takes no longer than a turn. */
static uint64_t most_elements(const gl_exchange *x, const group *g, const joint *j, unsigned algorithm) {
    const unsigned aggregators = x->config.servers ? x->config.servers : g->host_count;
    const unsigned parts = j->collective == GL_ALL_REDUCE && algorithm == GL_DIRECT ? aggregators : 1;
    const uint32_t item = gl_element_bytes(j->element_type), per_slice = x->config.slice_bytes / item;
    const uint64_t slices = SUBMISSION_MOST / x->config.slice_bytes, most = (uint64_t)GL_MAX_SLICES * parts;
    return (most < slices ? most : slices) * per_slice;
}

/* The operation between hosts, in as many submissions as it needs. Their numbers are given in the order of the group's calls. */
static void divide(const gl_exchange *x, joint *j) {
    group *g = j->group;
    const unsigned local = g->member_count;
    j->block = j->elements;
    if (j->collective == GL_REDUCE_SCATTER || j->collective == GL_ALL_GATHER) j->block *= local;
    if (j->collective == GL_ALL_TO_ALL) j->block *= (uint64_t)local * local;
    const uint64_t bytes = j->block * gl_element_bytes(j->element_type);
    j->algorithm = j->collective == GL_ALL_REDUCE ? g->algorithms[size_class(bytes)] : GL_DIRECT;
    j->most = most_elements(x, g, j, j->algorithm);
    j->steps = j->open = (unsigned)((j->block + j->most - 1) / j->most);
    j->step = g->step + 1;
    g->step += j->open;
}

/* Submits the next part. Returns its bytes. */
static uint64_t submit_next(gl_exchange *x, joint *j, uint64_t now) {
    const group *g = j->group;
    const uint32_t item = gl_element_bytes(j->element_type);
    const uint64_t first = j->submitted * j->most, elements = j->block - first < j->most ? j->block - first : j->most;
    const unsigned root = !g->pair ? j->root : j->collective == GL_SEND ? g->to : g->from;
    const gl_submission s = {
        .step = j->step + j->submitted, .tensor = (uint16_t)(GL_FIRST_GROUP + g->id),
        .collective = j->collective, .element_type = j->element_type, .reduction = j->reduction,
        .algorithm = j->algorithm,
        .root = j->algorithm == GL_STRAGGLAR ? x->config.straggler : (uint16_t)(root / x->config.processes),
        .group_size = g->host_count, .group = g->hosts, .elements = elements,
        .stride = j->block * item, .push_loss = j->loss, .standing = j->standing,
        .in = j->in ? j->in + first * item : NULL, .out = j->out ? j->out + first * item : NULL};
    if (++j->submitted == j->steps) unqueue(x); /* before it can be completed */
    submit(x, &s, now);
    return elements * item;
}

uint64_t group_work(gl_exchange *x, uint64_t now) {
    joint *j = x->moving;
    if (j->stage == SUBMITTING) return submit_next(x, j, now) + SUBMISSION_BYTES;
    const uint64_t worked = joint_move(x, j);
    if (worked) return worked;
    switch (j->stage) {
        case GATHERING: j->stage = j->group->host_count > 1 ? SUBMITTING : SETTLING; break;
        case SETTLING: j->stage = SCATTERING; break;
        default:
            unqueue(x);
            joint_end(x, j, GL_DONE);
    }
    return 0;
}

static void start(gl_exchange *x, joint *j) {
    if (!joint_prepare(x, j)) return;
    if (j->group->host_count > 1) divide(x, j);
    queue(x, j, GATHERING);
}

static bool alike(const joint *j, const gl_command *c, bool pair) {
    return (pair || (j->collective == c->collective && j->root == c->root)) && j->element_type == c->element_type &&
           (j->reduction == c->reduction || !gl_is_reduction(c->collective)) && j->elements == c->elements;
}

static joint *joint_new(gl_exchange *x, group *g, const gl_command *c, uint64_t now) {
    joint *j = calloc(1, sizeof *j + g->member_count * sizeof *j->parts);
    if (!j) return NULL;
    j->since = now, j->sequence = g->sequence++, j->collective = c->collective, j->element_type = c->element_type;
    j->reduction = gl_is_reduction(c->collective) ? c->reduction : GL_SUM;
    j->root = c->root, j->elements = c->elements, j->group = g, j->loss = c->loss, j->standing = c->standing;
    j->before = g->last;
    *(g->last ? &g->last->next : &g->joints) = j;
    g->last = j;
    for (unsigned i = 0; i < g->member_count; i++)
        if (!g->next_of[i]) g->next_of[i] = j;
    x->under_way++;
    x->statistics.submitted++;
    return j;
}

void group_command(gl_exchange *x, process *p, const gl_command *c, uint64_t now) {
    group *g = c->target < GL_MAX_GROUPS ? x->groups[c->target] : NULL;
    const char *problem = g ? wrong(x, g, p, c) : "there is no such group";
    part memory = {.slot = c->slot, .present = true};
    if (!problem && !take_memory(x, g, p, c, &memory)) problem = "its memory is missing, out of bounds or half overlapping";
    if (problem) {
        fail(x, GL_FAILURE_PROCESS, p->number, GL_FIRST_GROUP + c->target, 0, "collective %u of group %u: %s", c->collective,
             c->target, problem);
        return;
    }
    if (g->closed) {
        completed(x, p->number, c->slot, GL_LOST);
        return;
    }
    const int member = g->member_of[p->number];
    joint *j = g->next_of[member] ? g->next_of[member] : joint_new(x, g, c, now);
    if (!j) {
        fail(x, GL_FAILURE_MEMORY, 0, GL_FIRST_GROUP + g->id, 0, "memory is out");
    } else if (!alike(j, c, g->pair)) {
        fail(x, GL_FAILURE_PROCESS, p->number, GL_FIRST_GROUP + g->id, j->sequence,
             "collective %u of group %u, %llu elements of type %u: another process of this host calls collective %u, "
             "%llu elements of type %u", c->collective, c->target, (unsigned long long)c->elements, c->element_type,
             j->collective, (unsigned long long)j->elements, j->element_type);
    } else {
        g->next_of[member] = j->next;
        j->parts[member] = memory;
        if (memory.in_region) memory.in_region->users++;
        if (memory.out_region) memory.out_region->users++;
        if (++j->arrived == g->member_count) start(x, j);
    }
}

void group_event(gl_exchange *x, const gl_event *event) {
    group *g = x->groups[event->tensor - GL_FIRST_GROUP];
    if (event->kind != GL_EVENT_COMPLETED || !g) return;
    for (joint *j = g->joints; j; j = j->next)
        if (j->open && event->step - j->step < j->steps) {
            if (--j->open == 0) queue(x, j, SCATTERING);
            return;
        }
}

void group_drop(gl_exchange *x, group *g, unsigned host) {
    unsigned i = 0;
    while (i < g->host_count && g->hosts[i] != host) i++;
    if (g->closed || i == g->host_count) return;
    g->closed = true;
    gl_engine_close(x->engine, (uint16_t)(GL_FIRST_GROUP + g->id)); /* first: it works on their memory */
    for (joint **at = &x->moving; *at;) {
        if ((*at)->group == g)
            *at = (*at)->next_moving;
        else
            at = &(*at)->next_moving;
        if (!*at) x->moving_tail = at;
    }
    memset(g->next_of, 0, sizeof g->next_of);
    while (g->joints) joint_end(x, g->joints, GL_LOST);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of groups of processes, all exact. Where a host has one member, the engine works on its memory. Where it has
 * several, the k-th command of each is brought together: they become one operation between hosts (hierarchical), and its
 * result is copied to each.
 */
#include "exchange/group.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/types.h"
#include "wire.h"

void group_free(group *g) {
    if (!g) return;
    for (joint *j = g->joints, *next; j; j = next) {
        next = j->next;
        free(j->scratch_in), free(j->scratch_out), free(j);
    }
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
    g->pair = like->pair, g->from = like->from, g->to = like->to;
    g->joints_tail = &g->joints;
    for (unsigned k = 0; k < GL_MAX_PROCESSES; k++) g->member_of[k] = -1;
    for (unsigned i = 0; i < like->member_count; i++) {
        if (like->members[i] >= x->config.processes) return group_free(g), -1;
        g->member_of[like->members[i]] = (int16_t)i;
    }
    x->groups[like->id] = g;
    return 0;
}

/* Where a region's part lies. False if it is not inside the region. */
static bool locate(process *p, unsigned index, uint64_t offset, uint64_t bytes, region **in, uint8_t **at) {
    *in = NULL, *at = NULL;
    if (index == GL_NO_REGION) return true;
    if (index >= GL_MAX_REGIONS || !p->regions || !p->regions[index].memory) return false;
    region *r = &p->regions[index];
    if (offset > r->bytes || bytes > r->bytes - offset) return false;
    *in = r, *at = r->memory + offset;
    return true;
}

static unsigned size_of(const group *g) { return (unsigned)g->host_count * g->member_count; }

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

static void copy(gl_exchange *x, uint8_t *to, const uint8_t *from, uint64_t bytes) {
    if (to == from) return;
    memcpy(to, from, bytes);
    x->statistics.copied_bytes += bytes;
}

/* The host's blocks of an all-to-all are ordered by host, local sender, receiver's place; `bytes` of each. */
static void transpose(gl_exchange *x, const group *g, joint *j, uint64_t bytes, bool out) {
    const unsigned local = g->member_count;
    for (unsigned host = 0; host < g->host_count; host++)
        for (unsigned from = 0; from < local; from++)
            for (unsigned to = 0; to < local; to++) {
                const uint64_t block = ((uint64_t)host * local + from) * local + to;
                if (out)
                    copy(x, j->parts[to].out + (host * local + from) * bytes, j->out + block * bytes, bytes);
                else
                    copy(x, j->scratch_in + block * bytes, j->parts[from].in + (host * local + to) * bytes, bytes);
            }
}

static bool scratch(gl_exchange *x, const group *g, uint8_t **memory, uint64_t bytes) {
    *memory = malloc(bytes);
    if (!*memory) fail(x, GL_FAILURE_MEMORY, 0, GL_FIRST_GROUP + g->id, 0, "memory is out");
    return *memory != NULL;
}

static int root_member(const gl_exchange *x, const group *g, const joint *j) {
    return j->root / x->config.processes == x->config.host ? g->member_of[j->root % x->config.processes] : -1;
}

/* Brings the members' contributions together into j->in, and chooses where the result goes, j->out. */
static bool gather(gl_exchange *x, const group *g, joint *j) {
    const uint64_t bytes = j->elements * gl_element_bytes(j->element_type);
    const unsigned local = g->member_count, size = size_of(g);
    const int root = root_member(x, g, j);
    const uint8_t *sources[GL_MAX_PROCESSES];
    for (unsigned i = 0; i < local; i++) sources[i] = j->parts[i].in;
    j->in = j->parts[0].in, j->out = j->parts[0].out;
    switch (j->collective) {
        case GL_BROADCAST:
            if (root >= 0) {
                copy(x, j->parts[root].out, j->parts[root].in, bytes);
                j->out = j->parts[root].out;
            }
            j->in = j->out;
            return true;
        case GL_REDUCE:
            if (root >= 0) j->out = j->parts[root].out;
            else if (!scratch(x, g, &j->scratch_out, bytes)) return false;
            else j->out = j->scratch_out;
            break;
    }
    if (local == 1) return true;
    switch (j->collective) {
        case GL_ALL_REDUCE:
        case GL_REDUCE:
            reduce_local(j->out, sources, local, j->reduction, j->elements, j->element_type);
            j->in = j->out;
            break;
        case GL_REDUCE_SCATTER:
            if (!scratch(x, g, &j->scratch_in, bytes * size) || !scratch(x, g, &j->scratch_out, bytes * local)) return false;
            reduce_local(j->scratch_in, sources, local, j->reduction, j->elements * size, j->element_type);
            j->in = j->scratch_in, j->out = j->scratch_out;
            break;
        case GL_ALL_GATHER:
            if (!scratch(x, g, &j->scratch_in, bytes * local)) return false;
            for (unsigned i = 0; i < local; i++) copy(x, j->scratch_in + i * bytes, sources[i], bytes);
            j->in = j->scratch_in;
            break;
        case GL_ALL_TO_ALL:
            if (!scratch(x, g, &j->scratch_in, bytes * size * local) || !scratch(x, g, &j->scratch_out, bytes * size * local))
                return false;
            transpose(x, g, j, bytes, false);
            j->in = j->scratch_in, j->out = j->scratch_out;
            break;
    }
    return true;
}

/* Gives each member its part of the result. */
static void scatter(gl_exchange *x, const group *g, joint *j) {
    const uint64_t bytes = j->elements * gl_element_bytes(j->element_type);
    const unsigned local = g->member_count;
    if (local == 1) return;
    for (unsigned i = 0; i < local; i++)
        switch (j->collective) {
            case GL_ALL_REDUCE:
            case GL_BROADCAST: copy(x, j->parts[i].out, j->out, bytes); break;
            case GL_ALL_GATHER: copy(x, j->parts[i].out, j->out, bytes * size_of(g)); break;
            case GL_REDUCE_SCATTER: copy(x, j->parts[i].out, j->out + i * bytes, bytes); break;
        }
    if (j->collective == GL_ALL_TO_ALL) transpose(x, g, j, bytes, true);
}

/* What a host's members alone make of it: the operation between hosts would be one of a single host. */
static void settle_alone(gl_exchange *x, const group *g, joint *j) {
    const uint64_t bytes = j->elements * gl_element_bytes(j->element_type);
    if (g->pair) { /* both ends are here */
        const bool first_sends = j->parts[0].in != NULL;
        copy(x, j->parts[first_sends].out, j->parts[!first_sends].in, bytes);
    } else if (j->in != j->out)
        copy(x, j->out, j->in, bytes * (j->collective == GL_ALL_GATHER || j->collective == GL_REDUCE_SCATTER ? g->member_count
                                       : j->collective == GL_ALL_TO_ALL ? size_of(g) * g->member_count : 1));
}

static void joint_done(gl_exchange *x, group *g, joint *j) {
    if (!g->pair) scatter(x, g, j);
    joint **at = &g->joints;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
    if (!j->next) g->joints_tail = at;
    x->under_way--;
    x->statistics.completed++;
    x->statistics.elements += j->elements;
    for (unsigned k = 0; k < x->config.processes; k++) {
        if (g->member_of[k] < 0) continue;
        const part *of = &j->parts[g->member_of[k]];
        if (of->in_region) of->in_region->users--;
        if (of->out_region) of->out_region->users--;
        completed(x, k, of->slot);
    }
    free(j->scratch_in), free(j->scratch_out), free(j);
}

static unsigned size_class(uint64_t bytes) {
    const unsigned class = 63 - (unsigned)__builtin_clzll(bytes);
    return class < GL_SIZE_CLASSES ? class : GL_SIZE_CLASSES - 1;
}

/* Elements of a block that one submission may carry: a message of it has at most GL_MAX_SLICES slices. Of a ring all slices
 * are one message; otherwise of an all-reduce each aggregator has a part of its own. */
static uint64_t most_elements(const gl_exchange *x, const group *g, const joint *j, unsigned algorithm) {
    const unsigned aggregators = x->config.servers ? x->config.servers : g->host_count;
    const unsigned parts = j->collective == GL_ALL_REDUCE && algorithm == GL_DIRECT ? aggregators : 1;
    return (uint64_t)GL_MAX_SLICES * parts * (x->config.slice_bytes / gl_element_bytes(j->element_type));
}

/* Submits the operation between hosts, in as many parts as it needs. */
static void begin(gl_exchange *x, group *g, joint *j, uint64_t now) {
    const uint32_t item = gl_element_bytes(j->element_type);
    const unsigned local = g->member_count;
    uint64_t block = j->elements; /* elements of a host's block */
    if (j->collective == GL_REDUCE_SCATTER || j->collective == GL_ALL_GATHER) block *= local;
    if (j->collective == GL_ALL_TO_ALL) block *= (uint64_t)local * local;
    const unsigned algorithm = j->collective == GL_ALL_REDUCE ? g->algorithms[size_class(block * item)] : GL_DIRECT;
    const uint64_t most = most_elements(x, g, j, algorithm);
    const bool pair = g->pair, sends = j->collective == GL_SEND;
    j->step = g->step + 1;
    j->steps = j->open = (unsigned)((block + most - 1) / most);
    g->step += j->open;
    for (uint64_t first = 0; first < block; first += most) {
        const gl_submission s = {
            .step = j->step + (uint32_t)(first / most), .tensor = (uint16_t)(GL_FIRST_GROUP + g->id),
            .collective = j->collective, .element_type = j->element_type, .reduction = j->reduction,
            .algorithm = (uint8_t)algorithm,
            .root = (uint16_t)((pair ? (sends ? g->to : g->from) : j->root) / x->config.processes),
            .group_size = g->host_count, .group = g->hosts, .elements = block - first < most ? block - first : most,
            .stride = block * item, .in = j->in ? j->in + first * item : NULL, .out = j->out ? j->out + first * item : NULL};
        if (!submit(x, &s, now)) return;
    }
}

static void start(gl_exchange *x, group *g, joint *j, uint64_t now) {
    if (g->pair)
        j->in = j->parts[0].in, j->out = j->parts[0].out;
    else if (!gather(x, g, j))
        return;
    if (g->host_count > 1) {
        begin(x, g, j, now);
        return;
    }
    settle_alone(x, g, j);
    joint_done(x, g, j);
}

static bool alike(const joint *j, const gl_command *c, bool pair) {
    return (pair || (j->collective == c->collective && j->root == c->root)) && j->element_type == c->element_type &&
           (j->reduction == c->reduction || !gl_is_reduction(c->collective)) && j->elements == c->elements;
}

static joint *joint_of(gl_exchange *x, group *g, const gl_command *c, uint32_t sequence, uint64_t now) {
    joint *j = g->joints;
    while (j && j->sequence != sequence) j = j->next;
    if (j) return j;
    j = calloc(1, sizeof *j + g->member_count * sizeof *j->parts);
    if (!j) return NULL;
    j->since = now, j->sequence = sequence, j->collective = c->collective, j->element_type = c->element_type;
    j->reduction = gl_is_reduction(c->collective) ? c->reduction : GL_SUM;
    j->root = c->root, j->elements = c->elements;
    *g->joints_tail = j;
    g->joints_tail = &j->next;
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
    const int member = g->member_of[p->number];
    joint *j = joint_of(x, g, c, g->sequences[member]++, now);
    if (!j) {
        fail(x, GL_FAILURE_MEMORY, 0, GL_FIRST_GROUP + g->id, 0, "memory is out");
    } else if (!alike(j, c, g->pair)) {
        fail(x, GL_FAILURE_PROCESS, p->number, GL_FIRST_GROUP + g->id, j->sequence,
             "collective %u of group %u, %llu elements of type %u: another process of this host calls collective %u, "
             "%llu elements of type %u", c->collective, c->target, (unsigned long long)c->elements, c->element_type,
             j->collective, (unsigned long long)j->elements, j->element_type);
    } else {
        j->parts[member] = memory;
        if (memory.in_region) memory.in_region->users++;
        if (memory.out_region) memory.out_region->users++;
        if (++j->arrived == g->member_count) start(x, g, j, now);
    }
}

void group_event(gl_exchange *x, const gl_event *event) {
    group *g = x->groups[event->tensor - GL_FIRST_GROUP];
    if (event->kind != GL_EVENT_COMPLETED || !g) return;
    for (joint *j = g->joints; j; j = j->next)
        if (j->open && event->step - j->step < j->steps) {
            if (--j->open == 0) joint_done(x, g, j);
            return;
        }
}

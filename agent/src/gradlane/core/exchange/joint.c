/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * How the bytes of a group's members come together at their host, and go apart: as a list of moves, each of which can be left
 * after any piece, as the network and other jobs are served in between.
 */
#include "exchange/joint.h"

#include <stdlib.h>
#include <string.h>

#include "arithmetic/reduce.h"
#include "arithmetic/types.h"

enum { MOVE_BYTES = 256 }; /* what a move costs, however short it is */

/* `count` sources of `bytes` are combined, or one is copied. */
typedef struct {
    uint8_t *to;
    const uint8_t *from[GL_MAX_PROCESSES];
    unsigned count;
    uint64_t bytes;
} move;

static uint64_t bytes_of(const joint *j) { return j->elements * gl_element_bytes(j->element_type); }

static bool scratch(gl_exchange *x, const joint *j, uint8_t **memory, uint64_t bytes) {
    *memory = malloc(bytes);
    if (!*memory) fail(x, GL_FAILURE_MEMORY, 0, GL_FIRST_GROUP + j->group->id, j->sequence, "memory is out");
    return *memory != NULL;
}

static int root_member(const gl_exchange *x, const joint *j) {
    const unsigned processes = x->config.processes;
    return j->root / processes == x->config.host ? j->group->member_of[j->root % processes] : -1;
}

bool joint_prepare(gl_exchange *x, joint *j) {
    const group *g = j->group;
    const uint64_t bytes = bytes_of(j);
    const unsigned local = g->member_count, size = size_of(g);
    const int root = root_member(x, j);
    j->in = j->parts[0].in, j->out = j->parts[0].out;
    if (g->pair) return true;
    if (j->collective == GL_BROADCAST) {
        if (root >= 0) j->out = j->parts[root].out;
        j->in = j->out;
        return true;
    }
    if (j->collective == GL_REDUCE) {
        if (root < 0 && !scratch(x, j, &j->scratch_out, bytes)) return false;
        j->out = root < 0 ? j->scratch_out : j->parts[root].out;
    }
    if (local == 1) return true;
    switch (j->collective) {
        case GL_ALL_REDUCE:
        case GL_REDUCE: j->in = j->out; break;
        case GL_REDUCE_SCATTER:
            if (!scratch(x, j, &j->scratch_in, bytes * size) || !scratch(x, j, &j->scratch_out, bytes * local)) return false;
            j->in = j->scratch_in, j->out = j->scratch_out;
            break;
        case GL_ALL_GATHER:
            if (!scratch(x, j, &j->scratch_in, bytes * local)) return false;
            j->in = j->scratch_in;
            break;
        case GL_ALL_TO_ALL:
            if (!scratch(x, j, &j->scratch_in, bytes * size * local) || !scratch(x, j, &j->scratch_out, bytes * size * local))
                return false;
            j->in = j->scratch_in, j->out = j->scratch_out;
            break;
    }
    return true;
}

/* Each of these: the move `i` of a stage, false if there are fewer. */

static bool copy(move *m, uint8_t *to, const uint8_t *from, uint64_t bytes) {
    *m = (move){.to = to, .from = {from}, .count = 1, .bytes = bytes};
    return true;
}

/* All members' contributions in one. */
static bool combine(const joint *j, uint8_t *to, uint64_t bytes, move *m) {
    *m = (move){.to = to, .count = j->group->member_count, .bytes = bytes};
    for (unsigned k = 0; k < m->count; k++) m->from[k] = j->parts[k].in;
    return true;
}

/* The host's blocks of an all-to-all are ordered by host, local sender, receiver's place. */
static bool transpose(const joint *j, unsigned i, bool out, move *m) {
    const unsigned local = j->group->member_count, host = i / local / local, from = i / local % local, to = i % local;
    const uint64_t bytes = bytes_of(j);
    if (host >= j->group->host_count) return false;
    if (out) return copy(m, j->parts[to].out + ((uint64_t)host * local + from) * bytes, j->out + i * bytes, bytes);
    return copy(m, j->scratch_in + i * bytes, j->parts[from].in + ((uint64_t)host * local + to) * bytes, bytes);
}

static bool gather(const gl_exchange *x, const joint *j, unsigned i, move *m) {
    const uint64_t bytes = bytes_of(j);
    const unsigned local = j->group->member_count;
    const int root = root_member(x, j);
    if (j->group->pair) return false;
    if (j->collective == GL_BROADCAST) return root >= 0 && !i && copy(m, j->parts[root].out, j->parts[root].in, bytes);
    if (local == 1) return false;
    switch (j->collective) {
        case GL_ALL_REDUCE:
        case GL_REDUCE: return !i && combine(j, j->out, bytes, m);
        case GL_REDUCE_SCATTER: return !i && combine(j, j->scratch_in, bytes * size_of(j->group), m);
        case GL_ALL_GATHER: return i < local && copy(m, j->scratch_in + i * bytes, j->parts[i].in, bytes);
        case GL_ALL_TO_ALL: return transpose(j, i, false, m);
    }
    return false;
}

/* What a host's members alone make of it: the operation between hosts would be one of a single host. */
static bool settle(const gl_exchange *x, const joint *j, unsigned i, move *m) {
    const unsigned local = j->group->member_count;
    (void)x;
    if (i) return false;
    if (j->group->pair) { /* both ends are here */
        const bool first_sends = j->parts[0].in != NULL;
        return copy(m, j->parts[first_sends].out, j->parts[!first_sends].in, bytes_of(j));
    }
    const unsigned blocks = j->collective == GL_ALL_GATHER || j->collective == GL_REDUCE_SCATTER ? local
                            : j->collective == GL_ALL_TO_ALL                                     ? local * local
                                                                                                 : 1;
    return copy(m, j->out, j->in, bytes_of(j) * blocks);
}

static bool scatter(const gl_exchange *x, const joint *j, unsigned i, move *m) {
    const uint64_t bytes = bytes_of(j);
    const unsigned local = j->group->member_count;
    (void)x;
    if (j->group->pair || local == 1) return false;
    if (j->collective == GL_ALL_TO_ALL) return transpose(j, i, true, m);
    if (i >= local) return false;
    switch (j->collective) {
        case GL_ALL_REDUCE:
        case GL_BROADCAST: return copy(m, j->parts[i].out, j->out, bytes);
        case GL_ALL_GATHER: return copy(m, j->parts[i].out, j->out, bytes * size_of(j->group));
        case GL_REDUCE_SCATTER: return copy(m, j->parts[i].out, j->out + i * bytes, bytes);
    }
    return false;
}

static bool move_of(const gl_exchange *x, const joint *j, move *m) {
    switch (j->stage) {
        case GATHERING: return gather(x, j, j->move, m);
        case SETTLING: return settle(x, j, j->move, m);
        case SCATTERING: return scatter(x, j, j->move, m);
    }
    return false;
}

uint64_t joint_move(gl_exchange *x, joint *j) {
    move m;
    if (!move_of(x, j, &m)) {
        j->move = 0, j->moved = 0;
        return 0;
    }
    uint64_t bytes = m.to == m.from[0] && m.count == 1 ? 0 : m.bytes - j->moved; /* 0: it is there already */
    if (bytes > PIECE) bytes = PIECE;
    if (m.count == 1 && bytes) {
        memcpy(m.to + j->moved, m.from[0] + j->moved, bytes);
        x->statistics.copied_bytes += bytes;
    } else if (bytes) {
        for (unsigned k = 0; k < m.count; k++) m.from[k] += j->moved;
        reduce_local(m.to + j->moved, m.from, m.count, j->reduction, bytes / gl_element_bytes(j->element_type), j->element_type);
    }
    j->moved += bytes;
    if (!bytes || j->moved == m.bytes) j->move++, j->moved = 0;
    return bytes * m.count + MOVE_BYTES;
}

void joint_free(joint *j) {
    free(j->scratch_in), free(j->scratch_out), free(j);
}

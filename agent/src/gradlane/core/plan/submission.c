/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Whether a submission makes sense.
 */
#include "arithmetic/types.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "wire.h"

static uint32_t start_of(uint32_t slices, const uint32_t *shares, uint32_t index, uint32_t parts) {
    return (uint32_t)((uint64_t)slices * shares[index] / shares[parts]);
}

static bool fit(uint32_t slices, const uint32_t *shares, uint32_t parts) {
    for (uint32_t k = 0; k < parts; k++)
        if (start_of(slices, shares, k + 1, parts) - start_of(slices, shares, k, parts) > GL_MAX_SLICES) return false;
    return true;
}

uint32_t gl_shard_start(uint32_t slices, const uint32_t *shares, uint32_t index, uint32_t parts) {
    if (shares && (slices <= GL_MAX_SLICES || fit(slices, shares, parts))) return start_of(slices, shares, index, parts);
    return (uint32_t)((uint64_t)slices * index / parts);
}

/* Of owners: the servers, or the members of the group. */
static bool are_shares(const gl_config *c, const gl_submission *s) {
    const unsigned size = s->group ? s->group_size : c->workers, parts = owners_among(c, size);
    for (unsigned k = 0; k < parts; k++)
        if (s->shares[k + 1] < s->shares[k]) return false;
    return !s->shares[0] && s->shares[parts];
}

static bool is_member(const gl_config *c, const gl_submission *s, unsigned rank) {
    if (!s->group) return rank < c->workers;
    for (unsigned k = 0; k < s->group_size; k++)
        if (s->group[k] == rank) return true;
    return false;
}

int gl_is_reduction(unsigned collective) {
    return collective == GL_ALL_REDUCE || collective == GL_REDUCE_SCATTER || collective == GL_REDUCE;
}

bool submission_is_valid(const gl_config *c, const gl_submission *s) {
    const unsigned collective = s->collective, rank = c->rank;
    const bool reduces = gl_is_reduction(collective);
    const bool rooted = collective == GL_BROADCAST || collective == GL_REDUCE;
    const bool pair = collective == GL_SEND || collective == GL_RECEIVE;
    if (!s->elements || !gl_element_bytes(s->element_type)) return false;
    if (s->elements > UINT64_MAX / 8 || s->elements * gl_element_bytes(s->element_type) / c->slice_bytes > UINT32_MAX / 2)
        return false;
    if (collective < GL_ALL_REDUCE || collective > GL_RECEIVE) return false;
    if (s->algorithm < GL_DIRECT || s->algorithm > GL_GRID) return false;
    if (reduces && (s->reduction < GL_MEAN_OF_ARRIVED || s->reduction > GL_PRODUCT)) return false;
    if (reduces && s->reduction <= GL_MEAN && !gl_element_is_float(s->element_type)) return false;
    for (unsigned k = 0; s->group && k < s->group_size; k++)
        if (s->group[k] >= c->workers || (k && s->group[k] <= s->group[k - 1])) return false;
    if (!is_member(c, s, rank)) return false;
    const bool straggles = s->algorithm == GL_STRAGGLAR;
    if (straggles && (collective != GL_ALL_REDUCE || (s->group ? s->group_size : c->workers) > GL_STRAGGLAR_MOST)) return false;
    if (s->algorithm == GL_GRID && collective != GL_ALL_REDUCE) return false;
    if ((rooted || pair || straggles) && !is_member(c, s, s->root)) return false;
    if (pair && s->root == rank) return false;
    if (s->shares && !are_shares(c, s)) return false;
    if (s->late && (!c->late_steps || collective != GL_ALL_REDUCE || s->algorithm != GL_DIRECT || s->group || s->pull_loss ||
                    s->reduction != GL_MEAN_OF_ARRIVED || s->tensor >= GL_FIRST_GROUP))
        return false;
    if (s->late && !s->in && !s->out) return true;
    const bool receives = collective != GL_SEND && (collective != GL_REDUCE || s->root == rank);
    const bool sends = collective != GL_RECEIVE && (collective != GL_BROADCAST || s->root == rank);
    return (s->in || !sends) && (s->out || !receives);
}

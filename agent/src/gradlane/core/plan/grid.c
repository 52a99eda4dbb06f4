/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes of an all-reduce in two levels, as on a two-dimensional torus (Mikami et al., arXiv 1811.05233), but direct in each
 * level. Every member owns a part of the tensor. In each row one member, the part's delegate, reduces what the row contributes
 * to it, and sends the owner the sum; the result goes the same way back. So a member exchanges messages with its row, and with
 * about one member of each other row. The owner is the delegate of its own row, whose contributions it adds as they are.
 *
 * Rows are of racks, so what leaves a rack is what its rows have added up.
 */
#include "plan/grid.h"

#include <stdlib.h>

#include "plan/builder.h"

static unsigned root_of(unsigned n) {
    unsigned root = 1;
    while ((root + 1) * (root + 1) <= n) root++;
    return root;
}

/* Of a rack with so many of the n members. */
static unsigned rows_of(unsigned members, unsigned n) {
    const unsigned most = members * root_of(n) / n;
    for (unsigned rows = most; 2 * rows >= most && rows > 1; rows--)
        if (members % rows == 0) return rows;
    return most ? most : 1;
}

unsigned gl_grid_rows(const uint16_t *racks, unsigned n, uint16_t *starts) {
    unsigned count = 0;
    for (unsigned first = 0, next; first < n; first = next) {
        next = racks ? first : n;
        while (next < n && racks[next] == racks[first]) next++;
        const unsigned rows = rows_of(next - first, n);
        for (unsigned k = 0; k < rows; k++) starts[count++] = (uint16_t)(first + k * (next - first) / rows);
    }
    starts[count] = (uint16_t)n;
    return count;
}

typedef struct {
    unsigned start, end;
} row;

typedef struct {
    uint16_t *starts;
    unsigned rows, index, longest; /* index: of this member's row */
    row mine;
} layout;

static row row_at(const layout *of, unsigned index) { return (row){of->starts[index], of->starts[index + 1]}; }

/* False: memory is out. */
static bool lay_out(layout *to, const builder *p) {
    const unsigned n = p->size;
    *to = (layout){.starts = malloc((2 * n + 1) * sizeof *to->starts)};
    if (!to->starts) return false;
    uint16_t *racks = p->c->racks ? to->starts + n + 1 : NULL;
    for (unsigned k = 0; racks && k < n; k++) racks[k] = p->c->racks[rank_at(p, k)];
    to->rows = gl_grid_rows(racks, n, to->starts);
    for (unsigned k = 0; k < to->rows; k++) {
        const row it = row_at(to, k);
        if (it.end - it.start > to->longest) to->longest = it.end - it.start;
        if (it.start <= p->place && p->place < it.end) to->index = k, to->mine = it;
    }
    return true;
}

/* Parts that other rows own fall to a row's members by turns, from the one behind the row on. */
static unsigned delegate_of(row of, unsigned part, unsigned n) {
    if (part >= of.start && part < of.end) return part;
    return of.start + (part + n - of.end) % n % (of.end - of.start);
}

/* Streams that meet at a port: of a row, whose members begin at once, and those that other rows' sums or results join later,
 * of which no room is kept free before. */
static unsigned of_row(const layout *grid) { return grid->longest > 1 ? grid->longest - 1 : 1; }

static unsigned of_all(const layout *grid) { return of_row(grid) + grid->rows - 1; }

static void from_row(builder *p, node *n, const layout *grid) {
    p->meeting = of_row(grid);
    for (unsigned k = grid->mine.start; k < grid->mine.end; k++)
        if (k != p->place) from(p, n, rank_at(p, k), PUSH), prompt(p, rank_at(p, k));
}

static void to_row(builder *p, node *n, const layout *grid) {
    const row mine = grid->mine;
    const unsigned length = mine.end - mine.start;
    p->meeting = of_row(grid);
    for (unsigned k = 1; k < length; k++) to(p, n, rank_at(p, mine.start + (p->place - mine.start + k) % length), PULL);
}

/* What this member owns: each row begins with another owner, so that not all send to the same one at once. */
static void own(builder *p, const gl_submission *s, range its, const layout *grid) {
    node *n = add(p, its, s->in, s->out);
    result(p, n, false);
    from_row(p, n, grid);
    for (unsigned k = 1; k < grid->rows; k++) {
        const row other = row_at(grid, (grid->index + k) % grid->rows);
        const unsigned rank = rank_at(p, delegate_of(other, p->place, p->size));
        p->meeting = 1;
        from(p, n, rank, PUSH);
        p->meeting = of_all(grid);
        to(p, n, rank, PULL);
    }
    to_row(p, n, grid);
}

/* What this member's row contributes to a part that another row owns. */
static void pass_on(builder *p, const gl_submission *s, range its, const layout *grid, unsigned owner) {
    node *sum = add(p, its, s->in, NULL);
    from_row(p, sum, grid);
    p->meeting = of_all(grid);
    to(p, sum, rank_at(p, owner), PUSH);
    node *n = add(p, its, NULL, s->out);
    from(p, n, rank_at(p, owner), PULL), to_row(p, n, grid);
}

static void part_of(builder *p, const gl_submission *s, range r, const layout *grid, unsigned delegate, unsigned part) {
    const range its = shard(p, r, NULL, part, p->size);
    if (!its.slices) return;
    if (part == p->place) {
        own(p, s, its, grid);
    } else if (delegate == p->place) {
        pass_on(p, s, its, grid, part);
    } else {
        p->meeting = of_row(grid);
        to(p, add(p, its, s->in, NULL), rank_at(p, delegate), PUSH);
        p->meeting = of_all(grid);
        from(p, add(p, its, NULL, s->out), rank_at(p, delegate), PULL);
    }
}

void grid(builder *p, const gl_submission *s, range r) {
    const unsigned n = p->size;
    layout made;
    if (!lay_out(&made, p)) {
        p->failed = true;
        return;
    }
    const row mine = made.mine;
    const unsigned length = mine.end - mine.start;
    p->exact = p->plan->in_rows = true;
    for (unsigned k = 1; k <= length; k++) {
        const unsigned place = (p->place - mine.start + k) % length, delegate = mine.start + place;
        for (unsigned other = place; other < n - length; other += length)
            part_of(p, s, r, &made, delegate, (mine.end + other) % n);
        part_of(p, s, r, &made, delegate, delegate);
    }
    free(made.starts);
}

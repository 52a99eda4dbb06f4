/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes of an all-reduce in two levels, as on a two-dimensional torus (Mikami et al., arXiv 1811.05233), but direct in each
 * level. Every member owns a part of the tensor. In each row one member, the part's delegate, reduces what the row contributes
 * to it, and sends the owner the sum; the result goes the same way back. So a member exchanges messages with its row, and with
 * about one member of each other row. The owner is the delegate of its own row, whose contributions it adds as they are.
 */
#include "plan/grid.h"

#include "plan/builder.h"

static unsigned root_of(unsigned n) {
    unsigned root = 1;
    while ((root + 1) * (root + 1) <= n) root++;
    return root;
}

unsigned gl_grid_rows(unsigned n) {
    const unsigned root = root_of(n);
    for (unsigned rows = root; 2 * rows >= root && rows > 1; rows--)
        if (n % rows == 0) return rows;
    return root;
}

unsigned gl_grid_start(unsigned n, unsigned row) { return row * n / gl_grid_rows(n); }

typedef struct {
    unsigned start, end;
} row;

static row row_at(unsigned n, unsigned index) { return (row){gl_grid_start(n, index), gl_grid_start(n, index + 1)}; }

/* Parts that other rows own fall to a row's members by turns, from the one behind the row on. */
static unsigned delegate_of(row of, unsigned part, unsigned n) {
    if (part >= of.start && part < of.end) return part;
    return of.start + (part + n - of.end) % n % (of.end - of.start);
}

/* Streams that meet at a port: of a row, whose members begin at once, and those that other rows' sums or results join later,
 * of which no room is kept free before. */
static unsigned of_row(const builder *p) {
    const unsigned rows = gl_grid_rows(p->size), longest = (p->size + rows - 1) / rows;
    return longest > 1 ? longest - 1 : 1;
}

static unsigned of_all(const builder *p) { return of_row(p) + gl_grid_rows(p->size) - 1; }

static void from_row(builder *p, node *n, row mine) {
    p->meeting = of_row(p);
    for (unsigned k = mine.start; k < mine.end; k++)
        if (k != p->me) from(p, n, rank_of(p, k), PUSH), prompt(p, rank_of(p, k));
}

static void to_row(builder *p, node *n, row mine) {
    const unsigned length = mine.end - mine.start;
    p->meeting = of_row(p);
    for (unsigned k = 1; k < length; k++) to(p, n, rank_of(p, mine.start + (p->me - mine.start + k) % length), PULL);
}

/* What this member owns: each row begins with another owner, so that not all send to the same one at once. */
static void own(builder *p, const gl_submission *s, range its, row mine, unsigned rows, unsigned index) {
    node *n = add(p, its, s->in, s->out);
    result(p, n, false);
    from_row(p, n, mine);
    for (unsigned k = 1; k < rows; k++) {
        const unsigned rank = rank_of(p, delegate_of(row_at(p->size, (index + k) % rows), p->me, p->size));
        p->meeting = 1;
        from(p, n, rank, PUSH);
        p->meeting = of_all(p);
        to(p, n, rank, PULL);
    }
    to_row(p, n, mine);
}

/* What this member's row contributes to a part that another row owns. */
static void pass_on(builder *p, const gl_submission *s, range its, row mine, unsigned owner) {
    node *sum = add(p, its, s->in, NULL);
    from_row(p, sum, mine);
    p->meeting = of_all(p);
    to(p, sum, rank_of(p, owner), PUSH);
    node *n = add(p, its, NULL, s->out);
    from(p, n, rank_of(p, owner), PULL), to_row(p, n, mine);
}

static void part_of(builder *p, const gl_submission *s, range r, row mine, unsigned index, unsigned delegate, unsigned part) {
    const range its = shard(p, r, NULL, part, p->size);
    if (!its.slices) return;
    if (part == p->me) {
        own(p, s, its, mine, gl_grid_rows(p->size), index);
    } else if (delegate == p->me) {
        pass_on(p, s, its, mine, part);
    } else {
        p->meeting = of_row(p);
        to(p, add(p, its, s->in, NULL), rank_of(p, delegate), PUSH);
        p->meeting = of_all(p);
        from(p, add(p, its, NULL, s->out), rank_of(p, delegate), PULL);
    }
}

void grid(builder *p, const gl_submission *s, range r) {
    const unsigned n = p->size;
    unsigned index = 0;
    while (gl_grid_start(n, index + 1) <= p->me) index++;
    const row mine = row_at(n, index);
    const unsigned length = mine.end - mine.start;
    p->exact = p->plan->in_rows = true;
    for (unsigned k = 1; k <= length; k++) {
        const unsigned place = (p->me - mine.start + k) % length, delegate = mine.start + place;
        for (unsigned other = place; other < n - length; other += length)
            part_of(p, s, r, mine, index, delegate, (mine.end + other) % n);
        part_of(p, s, r, mine, index, delegate, delegate);
    }
}

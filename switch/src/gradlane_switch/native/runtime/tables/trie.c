/* SPDX-License-Identifier: Apache-2.0
 * The trie as the control plane changes it. A change makes a new array of at most 64 nodes or entries in
 * one node, and touches no other. */
#include "tables/trie.h"

#include <string.h>

/* Lines of blocks that a change can ask for: the nodes below a node, the entries of one, and a node that is split. */
enum { LINES_PER_CHANGE = 64 + 8 + 1, LONGEST_CHAIN = GL_WORD_LEVELS * GL_KEY_WORDS + GL_LONGEST_PREFIX / GL_STRIDE + 2 };

typedef struct {
    const uint64_t *key;
    uint32_t exact, width;
    uint32_t last;           /* the level where the prefix ends */
    uint32_t bit;            /* in gl_node.prefixes there */
} position;

static position position_of(const gl_trie *trie, const uint64_t *key) {
    uint32_t width = trie->width;
    position at = {.key = key, .exact = trie->exact, .width = width};
    uint32_t length = (uint32_t)key[at.exact + (width + 63) / 64];
    at.last = GL_WORD_LEVELS * at.exact + length / GL_STRIDE;
    uint32_t more = length % GL_STRIDE;
    at.bit = 1u << more | gl_chunk(at.key, at.exact, width, at.last) >> (GL_STRIDE - more);
    return at;
}

static uint32_t chunk_at(const position *at, uint32_t level) {
    return gl_chunk(at->key, at->exact, at->width, level);
}

int gl_trie_reserve(gl_trie *trie, uint32_t count) {
    uint32_t levels = GL_WORD_LEVELS * trie->exact + trie->width / GL_STRIDE + 1;
    /* Nodes of a chain that leaves out as much as it can have an array each. */
    return gl_blocks_reserve(trie->blocks, (size_t)count * (LINES_PER_CHANGE + levels / GL_SKIPPED + 2));
}

/* ---- Arrays in a node: what is asked for here has been reserved ---- */

static gl_node *add_branch(gl_trie *trie, gl_node *node, uint32_t chunk) {
    uint32_t count = gl_population(node->branches), place = gl_below(node->branches, chunk);
    gl_node *nodes = gl_block_get(trie->blocks, count + 1);
    if (count) {
        memcpy(nodes, node->nodes, sizeof *nodes * place);
        memcpy(nodes + place + 1, node->nodes + place, sizeof *nodes * (count - place));
        gl_block_put(trie->blocks, node->nodes, count);
    }
    node->nodes = nodes;
    node->branches |= UINT64_C(1) << chunk;
    return nodes + place;
}

static void remove_branch(gl_trie *trie, gl_node *node, uint32_t chunk) {
    uint32_t count = gl_population(node->branches), place = gl_below(node->branches, chunk);
    gl_node *old = node->nodes, *nodes = count > 1 ? gl_block_get(trie->blocks, count - 1) : NULL;
    node->branches &= ~(UINT64_C(1) << chunk);
    if (nodes) {
        memcpy(nodes, old, sizeof *nodes * place);
        memcpy(nodes + place, old + place + 1, sizeof *nodes * (count - place - 1));
        gl_block_put(trie->blocks, old, count);
    } else if (count > 1) {
        /* For want of memory the array stays where it is, less its last line. */
        memmove(old + place, old + place + 1, sizeof *old * (count - place - 1));
        gl_block_put(trie->blocks, old + count - 1, 1);
        nodes = old;
    } else {
        gl_block_put(trie->blocks, old, 1);
    }
    node->nodes = nodes;
}

static gl_entry **entries_of(gl_node *node) {
    return gl_population(node->prefixes) == 1 ? &node->entry : node->entries;
}

static uint32_t entry_lines(uint32_t count) {
    return gl_lines(sizeof(gl_entry *) * count);
}

static void add_prefix(gl_trie *trie, gl_node *node, uint32_t bit, gl_entry *entry) {
    uint32_t count = gl_population(node->prefixes), place = gl_below(node->prefixes, bit);
    if (count) {
        gl_entry **old = entries_of(node), **entries = gl_block_get(trie->blocks, entry_lines(count + 1));
        memcpy(entries, old, sizeof *entries * place);
        memcpy(entries + place + 1, old + place, sizeof *entries * (count - place));
        entries[place] = entry;
        if (count > 1) {
            gl_block_put(trie->blocks, old, entry_lines(count));
        }
        node->entries = entries;
    } else {
        node->entry = entry;
    }
    node->prefixes |= UINT64_C(1) << bit;
}

static void remove_prefix(gl_trie *trie, gl_node *node, uint32_t bit) {
    uint32_t count = gl_population(node->prefixes), place = gl_below(node->prefixes, bit);
    gl_entry **entries = entries_of(node);
    memmove(entries + place, entries + place + 1, sizeof *entries * (count - place - 1));
    node->prefixes &= ~(UINT64_C(1) << bit);
    if (count == 2) {
        node->entry = entries[0];
        gl_block_put(trie->blocks, entries, entry_lines(2));
    } else if (count > 2 && entry_lines(count) != entry_lines(count - 1)) {
        gl_block_put(trie->blocks, entries + count - 1, 1);
    }
}

/* ---- Changes ---- */

/* Puts a node between a node and its parent, at one of the levels that were left out, and returns it. */
static gl_node *split(gl_trie *trie, gl_node *node, uint32_t levels) {
    gl_node below = *node;
    uint64_t rest = below.path >> GL_STRIDE * levels;
    uint32_t chunk = rest & 63;
    *node = (gl_node){.path = below.path & ((UINT64_C(1) << GL_STRIDE * levels) - 1), .skipped = levels};
    below.path = rest >> GL_STRIDE;
    below.skipped -= levels + 1;
    *add_branch(trie, node, chunk) = below;
    return node;
}

void gl_trie_add(gl_trie *trie, const uint64_t *key, gl_entry *entry) {
    position at = position_of(trie, key);
    gl_node *node = &trie->root;
    uint32_t level = 0;
    for (;;) {
        /* The node's own level is reached, or the one where the new entry parts from it. */
        uint64_t path = node->path;
        uint32_t same = 0;
        while (same < node->skipped && level < at.last && chunk_at(&at, level) == (path & 63)) {
            path >>= GL_STRIDE;
            same++;
            level++;
        }
        if (same < node->skipped) {
            node = split(trie, node, same);
        }
        if (level == at.last) {
            break;
        }
        uint32_t chunk = chunk_at(&at, level++);
        if (node->branches >> chunk & 1) {
            node = node->nodes + gl_below(node->branches, chunk);
            continue;
        }
        node = add_branch(trie, node, chunk);
        for (; node->skipped < GL_SKIPPED && level < at.last; level++) {
            node->path |= (uint64_t)chunk_at(&at, level) << GL_STRIDE * node->skipped++;
        }
        level -= (uint32_t)node->skipped;
    }
    add_prefix(trie, node, at.bit, entry);
}

void gl_trie_remove(gl_trie *trie, const uint64_t *key) {
    position at = position_of(trie, key);
    gl_node *node = &trie->root, *chain[LONGEST_CHAIN];
    uint32_t levels[LONGEST_CHAIN], depth = 0, level = 0;
    while ((level += (uint32_t)node->skipped) < at.last) {
        chain[depth] = node;
        levels[depth++] = level;
        node = node->nodes + gl_below(node->branches, chunk_at(&at, level++));
    }
    remove_prefix(trie, node, at.bit);
    while (depth && !node->prefixes && !node->branches) {
        node = chain[--depth];
        remove_branch(trie, node, chunk_at(&at, levels[depth]));
    }
}

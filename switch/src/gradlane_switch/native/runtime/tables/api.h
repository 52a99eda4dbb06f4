/* SPDX-License-Identifier: Apache-2.0
 * What Python sees of entries, and of how tables store and compare keys. */
#ifndef GL_TABLES_API_H
#define GL_TABLES_API_H

#include "base/api.h"

/* Limits. */
enum {
    GL_LONGEST_PREFIX = 2048,
    GL_KEY_WORDS = 512,
    GL_PIECE = 8,          /* bits of a list's key that its index looks up together */
    GL_INDEXED = 64        /* pieces of a key that an index knows, at most */
};

/* What entries with an action profile choose their action from. */
typedef struct gl_choice gl_choice;
typedef struct gl_meter gl_meter;

/* A table entry: an action with its arguments. The key is in the table. */
typedef struct {
    uint32_t action;       /* position in the table's list of actions */
    int32_t priority;
    gl_counter counter;
    uint64_t place;        /* in a list the row; GL_NOWHERE: in no table */
    gl_choice *choice;     /* NULL: the action is the entry's own */
    gl_meter *meter;       /* NULL: the table has no direct meter */
    uint64_t last_hit;     /* ns, in a table with idle timeouts; 0: never */
    uint64_t arguments[];
} gl_entry;

enum { GL_TABLE_EXACT = 0, GL_TABLE_LPM = 1, GL_TABLE_LIST = 2 };

/* How a table's keys are stored and compared: see exact.h, trie.h and list.h. */
typedef struct {
    uint32_t kind;
    uint32_t words;          /* of the key; an LPM table's key ends with the prefix length */
    uint32_t argument_words; /* of an entry, at most */
    uint32_t prefix_width;   /* bits of an LPM table's prefix field */
    uint32_t metered;        /* entries have a meter */
    uint32_t indexed;        /* pieces of a list's key that its index knows */
    uint32_t first_range;    /* word from which on a list's key has ranges */
    uint64_t continued;
    uint16_t pieces[64];     /* those pieces, counted from the lowest bits of the first word */
} gl_table_shape;

#endif

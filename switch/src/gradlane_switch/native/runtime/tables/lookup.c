/* SPDX-License-Identifier: Apache-2.0 */
#include "tables/lookup.h"

void gl_lookup_init(gl_lookup *lookup, const gl_table_shape *shape, gl_blocks *blocks) {
    lookup->kind = shape->kind;
    switch (lookup->kind) {
    case GL_TABLE_EXACT:
        lookup->exact = (gl_exact){.words = shape->words, .key_at = shape->argument_words};
        break;
    case GL_TABLE_LPM: {
        uint32_t prefix_words = (shape->prefix_width + 63) / 64, length_words = 1;
        lookup->trie = (gl_trie){
            .blocks = blocks, .exact = shape->words - prefix_words - length_words, .width = shape->prefix_width,
        };
        break;
    }
    default:
        gl_list_init(&lookup->list, shape);
    }
}

void gl_lookup_free(gl_lookup *lookup) {
    switch (lookup->kind) {
    case GL_TABLE_EXACT:
        gl_exact_free(&lookup->exact);
        break;
    case GL_TABLE_LPM:
        break;  /* All it has are blocks. */
    default:
        gl_list_free(&lookup->list);
    }
}

int gl_lookup_reserve(gl_lookup *lookup, gl_lock *lock, uint32_t count) {
    switch (lookup->kind) {
    case GL_TABLE_EXACT:
        return gl_exact_reserve(&lookup->exact, lock, count);
    case GL_TABLE_LPM:
        return gl_trie_reserve(&lookup->trie, count);
    default:
        return gl_list_reserve(&lookup->list, lock, count);
    }
}

void gl_lookup_prepare_removal(gl_lookup *lookup) {
    if (lookup->kind == GL_TABLE_LPM) {
        (void)gl_trie_reserve(&lookup->trie, 1);
    }
}

void gl_lookup_add(gl_lookup *lookup, const uint64_t *key, gl_entry *entry) {
    switch (lookup->kind) {
    case GL_TABLE_EXACT:
        gl_exact_add(&lookup->exact, entry);
        break;
    case GL_TABLE_LPM:
        gl_trie_add(&lookup->trie, key, entry);
        break;
    default:
        gl_list_add(&lookup->list, key, entry);
    }
}

void gl_lookup_remove(gl_lookup *lookup, const uint64_t *key, gl_entry *entry) {
    switch (lookup->kind) {
    case GL_TABLE_EXACT:
        gl_exact_remove(&lookup->exact, entry);
        break;
    case GL_TABLE_LPM:
        gl_trie_remove(&lookup->trie, key);
        break;
    default:
        gl_list_remove(&lookup->list, entry);
    }
}

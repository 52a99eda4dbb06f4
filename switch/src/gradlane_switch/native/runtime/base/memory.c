/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t PAGE = 2 << 20, FIRST_SLAB = 1024;

struct gl_slab {
    gl_slab *next;
    size_t size;             /* this head included */
};

static size_t rounded(size_t size, size_t unit) {
    return (size + unit - 1) / unit * unit;
}

/* Whole large pages, as far as the system has them. */
static void *map_pages(size_t size) {
    uint8_t *whole = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) {
        return NULL;
    }
    uint8_t *memory = (uint8_t *)rounded((uintptr_t)whole, PAGE), *end = memory + size;
    if (memory > whole) {
        munmap(whole, (size_t)(memory - whole));
    }
    if (end < whole + size + PAGE) {
        munmap(end, (size_t)(whole + size + PAGE - end));
    }
    /* Where this is refused the pages are small ones. */
    (void)madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

void *gl_memory_new(size_t size) {
    size = rounded(size ? size : 1, size < PAGE ? GL_CACHE_LINE : PAGE);
    void *memory = size < PAGE ? aligned_alloc(GL_CACHE_LINE, size) : map_pages(size);
    if (memory) {
        memset(memory, 0, size);
    }
    return memory;
}

void gl_memory_free(void *memory, size_t size) {
    if (memory && size >= PAGE) {
        munmap(memory, rounded(size, PAGE));
    } else {
        free(memory);
    }
}

int gl_blocks_init(gl_blocks *blocks, uint32_t most) {
    *blocks = (gl_blocks){.free = calloc(most + 1, sizeof *blocks->free), .most = most};
    return blocks->free ? 0 : -1;
}

int gl_blocks_reserve(gl_blocks *blocks, size_t lines) {
    size_t wanted = lines * GL_CACHE_LINE;
    if (wanted <= blocks->left) {
        return 0;
    }
    size_t size = blocks->slabs ? 2 * blocks->slabs->size : FIRST_SLAB;
    size = size < 2 * PAGE ? size : 2 * PAGE;
    if (size < wanted + GL_CACHE_LINE) {
        size = rounded(wanted + GL_CACHE_LINE, wanted < PAGE ? FIRST_SLAB : PAGE);
    }
    gl_slab *slab = gl_memory_new(size);
    if (!slab) {
        return -1;
    }
    *slab = (gl_slab){blocks->slabs, size};
    blocks->slabs = slab;
    blocks->next = (uint8_t *)slab + GL_CACHE_LINE;
    blocks->left = size - GL_CACHE_LINE;
    return 0;
}

void *gl_block_get(gl_blocks *blocks, uint32_t lines) {
    void **block = blocks->free[lines];
    if (block) {
        blocks->free[lines] = *block;
        memset(block, 0, (size_t)lines * GL_CACHE_LINE);
        return block;
    }
    if (gl_blocks_reserve(blocks, lines)) {
        return NULL;
    }
    uint8_t *fresh = blocks->next;
    blocks->next += (size_t)lines * GL_CACHE_LINE;
    blocks->left -= (size_t)lines * GL_CACHE_LINE;
    return fresh;
}

void gl_block_put(gl_blocks *blocks, void *block, uint32_t lines) {
    *(void **)block = blocks->free[lines];
    blocks->free[lines] = block;
}

void gl_blocks_clear(gl_blocks *blocks) {
    while (blocks->slabs) {
        gl_slab *next = blocks->slabs->next;
        gl_memory_free(blocks->slabs, blocks->slabs->size);
        blocks->slabs = next;
    }
    free(blocks->free);
    *blocks = (gl_blocks){0};
}

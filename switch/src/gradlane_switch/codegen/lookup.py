# SPDX-License-Identifier: Apache-2.0
"""C that looks a key up in a table."""

from __future__ import annotations

from collections.abc import Sequence

from gradlane_switch.codegen.bits import number
from gradlane_switch.ir.expressions import split_words, words_of
from gradlane_switch.ir.layout import Layout, TableKind
from gradlane_switch.ir.tables import KeyPart


def key_words(layout: Layout, keys: Sequence[KeyPart], values: Sequence[str], masks: Sequence[int]) -> str:
    """Declares `k`, the words of a key: C expressions of the types for the fields, and the bits of each that count."""
    words: list[list[str]] = [[] for _ in range(layout.words)]
    for key, place, value, mask in zip(keys, layout.places, values, masks, strict=True):
        if key.width > 64:
            for word, kept in enumerate(split_words(mask, words_of(key.width))):
                words[place.word + word].append(f"({value}.w[{word}] & {number(kept)})")
            continue
        part = value if mask == (1 << key.width) - 1 else f"({value} & {number(mask)})"
        words[place.word].append(f"{part} << {place.shift}" if place.shift else part)
    packed = ", ".join(" | ".join(parts) for parts in words)
    return f"uint64_t k[{layout.words}] = {{ {packed} }};"


def lookup(layout: Layout, found_by: str, arguments: int) -> str:
    """The entry that `k` hits, or NULL. `found_by`: the table's gl_lookup; `arguments`: words of them in an entry."""
    count = layout.words
    if layout.kind is TableKind.EXACT:
        return f"gl_exact_find(&{found_by}.exact, k, {count}, {arguments})"
    if layout.kind is TableKind.LPM:
        return f"gl_trie_find(&{found_by}.trie, k, {count}, {layout.prefix_width})"
    return f"gl_list_find(&{found_by}.list, k, {count}, {layout.first_range}, {number(layout.continued)})"

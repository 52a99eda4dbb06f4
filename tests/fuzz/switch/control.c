/* SPDX-License-Identifier: Apache-2.0
 * What a controller does: entries, actions, profiles, counters, meters, registers, groups and sessions, all as api.h
 * wants them of its callers. */
#include <stdlib.h>

#include "fuzz.h"

enum { MOST_ENTRIES = 64, MOST_TABLES = 128, MEMBERS = 6, CHOICES = 3, PROFILES = 8, MOST_WORDS = 64, MOST_DIGESTS = 8 };

typedef struct {
    gl_entry *entry;
    int32_t priority;
    uint64_t key[MOST_WORDS], operand[MOST_WORDS];
} held_entry;

typedef struct {
    gl_entry *members[MEMBERS];
    gl_choice *choices[CHOICES];
} held_profile;

const fuzz_program *fuzz_current;
gl_state *fuzz_state;

static held_entry entries[MOST_TABLES][MOST_ENTRIES];
static uint32_t entry_counts[MOST_TABLES];
static uint32_t keyed[MOST_TABLES], keyed_count;  /* tables that may have entries */
static held_profile profiles[PROFILES];
static uint8_t mail[1 << 17];
static uint8_t wanted[MOST_DIGESTS];
static uint64_t told;                             /* the last list of any digest */

static const uint64_t *words(const fuzz_words *shape, uint64_t *out) {
    for (uint32_t i = 0; i < shape->count; i++) {
        out[i] = fuzz_number() & shape->bits[i];
    }
    return out;
}

/* The words of an action's data; `action` gets its position. */
static uint32_t any_action(const fuzz_table *table, uint32_t *action, uint64_t *data) {
    *action = fuzz_below(table->action_count + 1);
    if (*action == table->action_count) {
        return 0;
    }
    words(&table->actions[*action], data);
    return table->actions[*action].count;
}

/* Whether `low` is above `high` in one field of a range, whose words go from `first` to `last`. */
static int reversed(const uint64_t *low, const uint64_t *high, uint32_t first, uint32_t last) {
    for (uint32_t i = last + 1; i-- > first;) {
        if (low[i] != high[i]) {
            return low[i] > high[i];
        }
    }
    return 0;
}

/* A key that the table may hold, as layout.pack makes it. */
static void any_key(const fuzz_table *table, held_entry *made) {
    const gl_table_shape *shape = &table->shape;
    memset(made, 0, sizeof *made);
    words(&table->key, made->key);
    if (shape->kind == GL_TABLE_LPM) {
        uint32_t held = (shape->prefix_width + 63) / 64, length = (uint32_t)(fuzz_number() % (shape->prefix_width + 1));
        uint64_t *prefix = made->key + shape->words - 1 - held;
        for (uint32_t i = 0; i < held; i++) {
            uint32_t low = shape->prefix_width - length;  /* bits that are no part of it */
            prefix[i] &= low <= 64 * i ? ~UINT64_C(0) : low >= 64 * i + 64 ? 0 : ~UINT64_C(0) << (low - 64 * i);
        }
        made->key[shape->words - 1] = length;
    } else if (shape->kind == GL_TABLE_LIST) {
        made->priority = (int32_t)(fuzz_number() & INT32_MAX);
        words(&table->key, made->operand);
        for (uint32_t first = 0, last; first < shape->words; first = last + 1) {
            for (last = first; last >= shape->first_range && last + 1 < shape->words &&
                               shape->continued >> (last + 1 - shape->first_range) & 1; last++) {
            }
            for (uint32_t i = first; i <= last; i++) {
                if (i < shape->first_range) {
                    made->key[i] &= made->operand[i];
                } else if (i == first && reversed(made->key, made->operand, first, last)) {
                    for (uint32_t j = first; j <= last; j++) {
                        uint64_t low = made->operand[j];
                        made->operand[j] = made->key[j];
                        made->key[j] = low;
                    }
                }
            }
        }
    }
}

static int is_new(uint32_t index, const held_entry *made) {
    for (uint32_t i = 0; i < entry_counts[index]; i++) {
        const held_entry *other = &entries[index][i];
        if (other->priority == made->priority && !memcmp(other->key, made->key, sizeof made->key) &&
            !memcmp(other->operand, made->operand, sizeof made->operand)) {
            return 0;
        }
    }
    return 1;
}

static void insert(uint32_t index) {
    const fuzz_table *table = &fuzz_current->tables[index];
    held_entry made;
    uint64_t data[MOST_WORDS];
    uint32_t action = 0, count = 0;
    gl_choice *choice = NULL;
    any_key(table, &made);
    if (entry_counts[index] == MOST_ENTRIES || !is_new(index, &made)) {
        return;
    }
    if (table->profile >= 0) {
        action = table->action_count;
        choice = profiles[table->profile].choices[fuzz_below(CHOICES)];
    } else if (table->action_count) {
        count = any_action(table, &action, data);
    }
    made.entry = gl_entry_new(fuzz_state, index, made.key, made.operand, made.priority, action, count, data, choice);
    if (!made.entry) {
        return;
    }
    if (entry_counts[index] % 2) {
        gl_table_add(fuzz_state, index, made.entry);
    } else {
        /* As a batch does it. */
        gl_change changes[] = {
            {.kind = GL_CHANGE_ADD, .index = index, .target = made.entry},
            {.kind = GL_CHANGE_ENTRY_COUNTER, .target = made.entry, .counter = {1, 2}},
        };
        gl_table_reserve(fuzz_state, index, 1);
        gl_change_all(fuzz_state, 2, changes);
    }
    entries[index][entry_counts[index]++] = made;
}

static gl_meter_config any_meter(void) {
    return (gl_meter_config){fuzz_number(), fuzz_number(), fuzz_number(), fuzz_number(), fuzz_below(2)};
}

static void change_entry(uint32_t index, uint32_t how) {
    const fuzz_table *table = &fuzz_current->tables[index];
    if (!entry_counts[index]) {
        return;
    }
    uint32_t place = fuzz_below(entry_counts[index]), action;
    gl_entry *entry = entries[index][place].entry;
    uint64_t data[MOST_WORDS];
    gl_counter counter;
    switch (how) {
    case 0:
        gl_table_remove(fuzz_state, index, entry);
        entries[index][place] = entries[index][--entry_counts[index]];
        break;
    case 1:
        if (table->profile < 0 && table->action_count) {
            uint32_t count = any_action(table, &action, data);
            gl_entry_set(fuzz_state, entry, action, count, data, NULL);
        } else if (table->profile >= 0) {
            gl_choice *choice = profiles[table->profile].choices[fuzz_below(CHOICES)];
            gl_entry_set(fuzz_state, entry, table->action_count, 0, NULL, choice);
        }
        break;
    case 2:
        if (entry->meter) {
            gl_entry_meter_write(fuzz_state, entry, any_meter());
        }
        break;
    default:
        gl_entry_counters_read(fuzz_state, 1, &entry, &counter);
        gl_entry_counter_write(fuzz_state, entry, (gl_counter){fuzz_number(), fuzz_number()});
    }
}

static void set_default(uint32_t index) {
    const fuzz_table *table = &fuzz_current->tables[index];
    uint64_t data[MOST_WORDS];
    uint32_t action;
    if (table->action_count) {
        uint32_t count = any_action(table, &action, data);
        gl_entry_set(fuzz_state, gl_table_default(fuzz_state, index), action, count, data, NULL);
    }
}

/* ---- Other state ---- */

static void write_cells(void) {
    uint32_t what = fuzz_below(3);
    if (what == 0 && fuzz_current->counter_count) {
        uint32_t index = fuzz_below(fuzz_current->counter_count), cell = fuzz_below(fuzz_current->counters[index]);
        gl_counter out;
        gl_counters_write(fuzz_state, index, cell, 1, (gl_counter){fuzz_number(), fuzz_number()});
        gl_counters_read(fuzz_state, index, cell, 1, &out);
    } else if (what == 1 && fuzz_current->meter_count) {
        uint32_t index = fuzz_below(fuzz_current->meter_count), cell = fuzz_below(fuzz_current->meters[index].size);
        gl_meter_config out;
        gl_meters_write(fuzz_state, index, cell, 1, any_meter());
        gl_meters_configured(fuzz_state, index, cell, 1, &out);
    } else if (what == 2 && fuzz_current->register_count) {
        uint32_t index = fuzz_below(fuzz_current->register_count);
        const fuzz_register *array = &fuzz_current->registers[index];
        uint32_t cell = fuzz_below(array->size);
        uint64_t value[MOST_WORDS], out[MOST_WORDS];
        gl_registers_write(fuzz_state, index, cell, 1, words(&array->cell, value));
        gl_registers_read(fuzz_state, index, cell, 1, out);
    }
}

static void write_replicas(void) {
    gl_replica replicas[8];
    uint32_t what = fuzz_byte(), count = what / 2 % 8;
    for (uint32_t i = 0; i < count; i++) {
        replicas[i] = (gl_replica){(uint16_t)fuzz_port(), (uint16_t)fuzz_number()};
    }
    if (what % 2) {
        gl_group_set(fuzz_state, 1 + fuzz_below(8), count, replicas);
    } else {
        uint32_t limit = fuzz_below(4) ? UINT32_MAX : fuzz_byte();
        gl_session_set(fuzz_state, 1 + fuzz_below(8), count, replicas, limit, what / 16);
    }
}

static void write_profile(uint32_t index) {
    const fuzz_table *table = &fuzz_current->tables[index];
    if (table->profile < 0) {
        return;
    }
    held_profile *profile = &profiles[table->profile];
    uint32_t what = fuzz_below(3);
    if (what == 0) {
        gl_entry *chosen[8];
        uint64_t ports[8];
        uint32_t count = fuzz_below(8), watched = fuzz_below(2);
        for (uint32_t i = 0; i < count; i++) {
            chosen[i] = profile->members[fuzz_below(MEMBERS)];
            ports[i] = fuzz_below(3) ? fuzz_port() : GL_PORTS;
        }
        gl_choice *choice = profile->choices[fuzz_below(CHOICES)];
        gl_choice_set(fuzz_state, choice, count, chosen, watched ? ports : NULL);
    } else if (what == 1) {
        uint64_t data[MOST_WORDS];
        uint32_t action, count = any_action(table, &action, data);
        gl_entry_set(fuzz_state, profile->members[fuzz_below(MEMBERS)], action, count, data, NULL);
    } else {
        gl_port_state(fuzz_state, fuzz_port(), fuzz_below(2));
    }
}

static void read_mail(void) {
    gl_mail_head head;
    gl_losses losses;
    gl_losses_read(fuzz_state, &losses);
    for (uint32_t i = 0; i < 4; i++) {
        gl_mail_take(fuzz_state, &head, mail, fuzz_below(2) ? sizeof mail : fuzz_byte());
    }
}

/* The values of a list are distinct, and no more than there is room for and the controller takes. */
static void take_digest(uint32_t index) {
    uint32_t size = fuzz_current->digests[index], room = 1 + fuzz_below(16);
    uint8_t *values = malloc((size_t)size * room + 1);
    uint32_t count = gl_digest_take(fuzz_state, index, fuzz_clock, room, values, &told);
    fuzz_require(count <= room, "a digest's list is too long");
    fuzz_require(count || gl_digest_due(fuzz_state, index) > fuzz_clock, "a digest's list is due, and empty");
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            fuzz_require(memcmp(values + i * size, values + j * size, size) != 0, "a digest's list has a value twice");
        }
    }
    free(values);
}

static void use_digest(void) {
    if (!fuzz_current->digest_count) {
        return;
    }
    uint32_t index = fuzz_below(fuzz_current->digest_count), what = fuzz_below(8);
    if (what < 2) {
        gl_digest_config config = {fuzz_number(), fuzz_number() * fuzz_below(2), fuzz_below(8)};
        gl_digest_want(fuzz_state, index, fuzz_current->digests[index], what ? &config : NULL);
        wanted[index] = (uint8_t)what;
    } else if (wanted[index] && what < 6) {
        take_digest(index);
    } else if (wanted[index]) {
        gl_digest_ack(fuzz_state, index, told - fuzz_below(2));
    }
}

void fuzz_control(uint32_t what) {
    uint32_t table = what < 6 && keyed_count ? keyed[fuzz_below(keyed_count)] : 0;
    if (what < 6 && !keyed_count) {
        return;
    }
    switch (what) {
    case 0:
    case 1:
    case 2:
        insert(table);
        break;
    case 3:
        change_entry(table, fuzz_below(4));
        break;
    case 4:
        set_default(table);
        break;
    case 5:
        write_profile(table);
        break;
    case 6:
        write_cells();
        break;
    case 7:
        write_replicas();
        break;
    case 8:
        if (fuzz_below(2)) {
            read_mail();
        } else {
            use_digest();
        }
        break;
    default:
        gl_controller(fuzz_state, fuzz_below(2) ? GL_PORTS : fuzz_port(), -1);
    }
}

/* ---- From beginning to end ---- */

void fuzz_state_begin(gl_lock *lock) {
    fuzz_state = gl_state_new(lock, fuzz_current->table_count, fuzz_current->counter_count, fuzz_current->meter_count,
                              fuzz_current->register_count, fuzz_current->digest_count);
    memset(wanted, 0, sizeof wanted);
    fuzz_require(fuzz_current->digest_count <= MOST_DIGESTS, "MOST_DIGESTS is too low");
    memset(profiles, 0, sizeof profiles);
    fuzz_require(fuzz_current->table_count <= MOST_TABLES, "MOST_TABLES is too low");
    fuzz_require(fuzz_current->profile_count <= PROFILES, "PROFILES is too low");
    keyed_count = 0;
    for (uint32_t i = 0; i < fuzz_current->table_count; i++) {
        const fuzz_table *table = &fuzz_current->tables[i];
        gl_state_table(fuzz_state, i, &table->shape);
        const fuzz_entry *fallback = &table->fallback;
        gl_entry_set(fuzz_state, gl_table_default(fuzz_state, i), fallback->action, fallback->argument_count,
                     fallback->arguments, NULL);
        entry_counts[i] = 0;
        if (table->shape.words) {
            keyed[keyed_count++] = i;
        }
        for (uint32_t j = 0; j < table->entry_count; j++) {
            const fuzz_entry *entry = &table->entries[j];
            held_entry held = {.priority = entry->priority};
            memcpy(held.key, entry->key, sizeof *entry->key * table->shape.words);
            if (table->shape.kind == GL_TABLE_LIST) {
                memcpy(held.operand, entry->operand, sizeof *entry->operand * table->shape.words);
            }
            held.entry = gl_entry_new(fuzz_state, i, entry->key, entry->operand, entry->priority, entry->action,
                                      entry->argument_count, entry->arguments, NULL);
            gl_table_add(fuzz_state, i, held.entry);
            fuzz_require(entry_counts[i] < MOST_ENTRIES, "MOST_ENTRIES is too low");
            entries[i][entry_counts[i]++] = held;
        }
        if (table->profile >= 0 && !profiles[table->profile].choices[0]) {
            held_profile *profile = &profiles[table->profile];
            for (uint32_t j = 0; j < MEMBERS; j++) {
                profile->members[j] = gl_member_new(table->shape.argument_words);
            }
            for (uint32_t j = 0; j < CHOICES; j++) {
                profile->choices[j] = gl_choice_new();
                gl_choice_set(fuzz_state, profile->choices[j], j, profile->members, NULL);
            }
        }
    }
    for (uint32_t i = 0; i < fuzz_current->counter_count; i++) {
        gl_state_counter(fuzz_state, i, fuzz_current->counters[i]);
    }
    for (uint32_t i = 0; i < fuzz_current->meter_count; i++) {
        gl_state_meter(fuzz_state, i, fuzz_current->meters[i].size, fuzz_current->meters[i].counts_bytes);
    }
    for (uint32_t i = 0; i < fuzz_current->register_count; i++) {
        gl_state_register(fuzz_state, i, fuzz_current->registers[i].size, fuzz_current->registers[i].cell.count);
    }
}

void fuzz_state_end(void) {
    gl_state_free(fuzz_state);
    for (uint32_t i = 0; i < PROFILES && profiles[i].choices[0]; i++) {
        for (uint32_t j = 0; j < MEMBERS; j++) {
            gl_member_free(profiles[i].members[j]);
        }
        for (uint32_t j = 0; j < CHOICES; j++) {
            gl_choice_free(profiles[i].choices[j]);
        }
    }
}

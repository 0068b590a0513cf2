// SPDX-License-Identifier: Apache-2.0
/* The floors as a method of compare: `compare_floor VARIANT`. Ranks are processes like those of the
 * other methods, and pinned alike. Ranks that share a core yield 200 times before they sleep. With
 * VARIANT-futex they sleep at once.
 *
 * Besides the collectives there is the hand-over: ranks of one core let each other run in turn. It
 * bounds every collective with more ranks than cores. */
#include "floor.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum floor_kind { INLINE, SLOTS, MAPPED, COPIED, HAND_OVER };

enum { SHORTEST_PAST = 2048 };

static const struct variant {
    const char *name;
    enum floor_kind kind;
    bool two, streamed, past, turns;
} variants[] = {
    {"inline", INLINE, false, false, false, false},
    {"slots", SLOTS, false, false, false, false},
    {"slots-nt", SLOTS, false, true, false, false},
    {"slots-past", SLOTS, false, false, true, false},
    {"slots-turns", SLOTS, false, false, false, true},
    {"slots-two-phase", SLOTS, true, false, false, false},
    {"slots-two-phase-turns", SLOTS, true, false, false, true},
    {"slots-two-phase-past", SLOTS, true, false, true, false},
    {"pull", MAPPED, false, false, false, false},
    {"pull-nt", MAPPED, false, true, false, false},
    {"push", MAPPED, true, false, false, false},
    {"push-nt", MAPPED, true, true, false, false},
    {"copied", COPIED, false, false, false, false},
    {"copied-halves", COPIED, true, false, false, false},
    {"hand-over", HAND_OVER, false, false, false, false},
};

static const struct variant *chosen;
static bool sleeps_at_once; /* for ranks that share cores: the variant's name ends in "-futex" */
static struct floor state;
static char *shared_buffers; /* of the open point */
static size_t shared_stride; /* bytes of a rank's buffers in shared_buffers */

/* A sum of one input is a copy by a loop. */
static void copy_by_loop(char *dst, const char *src, size_t bytes, bool streamed)
{
    const size_t to_line = -(uintptr_t)dst % 64, head = to_line < bytes ? to_line : bytes;
    const size_t whole = (bytes - head) & ~(size_t)3;
    const void *one[1] = {src + head};
    memcpy(dst, src, head);
    compare_sum_of(COMPARE_FLOAT32)(dst + head, one, 1, whole, streamed);
    memcpy(dst + head + whole, src + head + whole, bytes - head - whole);
}

void floor_copy(void *dst, const void *src, size_t bytes)
{
#ifdef __x86_64__
    const uintptr_t behind = ((uintptr_t)dst - (uintptr_t)src) % 4096;
    if (bytes >= 1024 && (behind == 0 || behind >= 64)) {
        __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
        return;
    }
#endif
    copy_by_loop(dst, src, bytes, false);
}

void floor_copy_out(void *dst, const void *src, size_t bytes, bool streamed)
{
    if (streamed) {
        copy_by_loop(dst, src, bytes, true);
    } else {
        floor_copy(dst, src, bytes);
    }
}

/* ---- ranks that share cores ---- */

enum { CROWDED_POLLS = 20, CROWDED_YIELDS = 200 };

/* A signaller stores its flag and then loads `asleep`; a sleeper stores `asleep` and then polls the
 * flag. The sleeper's membarrier makes the two orders agree, so signalling has no fence. */
void floor_ring(const struct floor *f)
{
    const uint64_t asleep = atomic_load_explicit(&f->area->asleep, memory_order_relaxed);
    for (int q = 0; q < f->nranks; q++) {
        if ((asleep >> q & 1) != 0 && q != f->rank) {
            atomic_fetch_add_explicit(&f->area->bell[q].word, 1, memory_order_seq_cst);
            syscall(SYS_futex, &f->area->bell[q].word, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
    }
}

static uint32_t fall_asleep(const struct floor *f)
{
    const uint32_t heard = atomic_load_explicit(&f->area->bell[f->rank].word, memory_order_relaxed);
    atomic_fetch_or_explicit(&f->area->asleep, (uint64_t)1 << f->rank, memory_order_seq_cst);
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    return heard;
}

static void get_up(const struct floor *f)
{
    atomic_fetch_and_explicit(&f->area->asleep, ~((uint64_t)1 << f->rank), memory_order_relaxed);
}

void floor_relax_crowded(const struct floor *f, unsigned *polls)
{
    static uint32_t heard; /* the bell before the last poll */
    static bool in_bed;
    const unsigned done = (*polls)++, awake = CROWDED_POLLS + (unsigned)f->yields;
    if (done < CROWDED_POLLS && in_bed) { /* the last wait ended before it slept */
        get_up(f);
        in_bed = false;
    } else if (done >= CROWDED_POLLS && done < awake) {
        sched_yield();
    } else if (done == awake) {
        heard = fall_asleep(f);
        in_bed = true;
    } else if (done > awake) {
        syscall(SYS_futex, &f->area->bell[f->rank].word, FUTEX_WAIT, heard, NULL, NULL, 0);
        get_up(f);
        in_bed = false;
        *polls = awake; /* sleep again if the bell was for another wait */
    }
}

/* ---- hand-over ---- */

/* Ranks r, r + cores, r + 2 cores ... share a core. In one call the turn passes once round. */
static void hand_over(struct floor *f)
{
    const int cores = f->team->cores, first = f->rank % cores;
    const uint32_t ring = (uint32_t)((f->nranks - 1 - first) / cores + 1);
    const uint32_t place = (uint32_t)(f->rank / cores);
    _Atomic uint32_t *turn = &f->area->filled[first].word;
    const uint32_t mine = f->calls++ * ring + place;
    for (;;) {
        const uint32_t now = atomic_load_explicit(turn, memory_order_acquire);
        if (now == mine) {
            break;
        }
        if (sleeps_at_once) {
            syscall(SYS_futex, turn, FUTEX_WAIT, now, NULL, NULL, 0);
        } else {
            sched_yield();
        }
    }
    atomic_store_explicit(turn, mine + 1, memory_order_release);
    if (sleeps_at_once && ring > 1) {
        syscall(SYS_futex, turn, FUTEX_WAKE, COMPARE_RANKS_MAX, NULL, NULL, 0);
    }
}

/* ---- the method ---- */

static size_t page_rounded(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static size_t slots_bytes(int nranks)
{
    return page_rounded((size_t)nranks * 2 * FLOOR_RING_BYTES);
}

static size_t area_bytes(int nranks)
{
    return page_rounded(sizeof(struct floor_area)) + slots_bytes(nranks);
}

static bool start(struct compare_team *team, char *version, size_t cap)
{
    const size_t bytes = area_bytes(team->nranks);
    state = (struct floor){.team = team,
                           .rank = team->rank,
                           .nranks = team->nranks,
                           .crowded = team->nranks > team->cores,
                           .yields = sleeps_at_once ? 0 : CROWDED_YIELDS,
                           .two = chosen->two,
                           .streamed = chosen->streamed,
                           .past = chosen->past,
                           .turns = chosen->turns};
    /* If ranks share cores, each tile costs a turn of all of them. */
    state.slot_bytes = state.crowded ? FLOOR_SLOT_MAX : FLOOR_SLOT_MAX / 2;
    state.area = compare_team_map(team, 0, bytes);
    if (state.area == NULL) {
        return false;
    }
    state.slots = (char *)state.area + bytes - slots_bytes(team->nranks);
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
    state.can_copy = chosen->kind == COPIED && floor_copied_start(&state);
    snprintf(version, cap, "%s", chosen->name);
    return true;
}

static const char *prepare(const struct compare_point *p)
{
    const size_t bytes = p->count * p->elem_bytes;
    state.sum = compare_sum_of(p->type);
    /* The readers of lines and slots change with the collective, so all ranks start level. */
    state.credit = chosen->kind == INLINE ? state.calls : state.tiles;
    floor_set(&state, &state.area->done[state.rank], state.credit);
    if (compare_reduces(p->collective) && state.sum == NULL) {
        return "no such type";
    }
    if (chosen->kind == HAND_OVER) {
        return p->collective == COMPARE_HANDOVER ? NULL : "is no collective";
    }
    if (p->collective == COMPARE_HANDOVER) {
        return "is a collective";
    }
    if (chosen->streamed && bytes < (size_t)1 << 20) {
        return "fits the caches";
    }
    if (chosen->past && bytes < SHORTEST_PAST) {
        return "is too short to go past the caches";
    }
    if (chosen->kind == INLINE) {
        return floor_inline_refuse(p);
    }
    if (chosen->kind == COPIED) {
        return floor_copied_refuse(&state, p);
    }
    floor_slots_prepare(&state, p);
    return chosen->kind == SLOTS ? floor_slots_refuse(&state, p) : floor_mapped_refuse(&state, p);
}

/* Share every rank's input and output, one rank after another. All ranks have room for the largest
 * need. */
static bool share_buffers(struct compare_point *p)
{
    const size_t most = page_rounded(p->count * p->elem_bytes * (size_t)p->nranks);
    shared_stride = 2 * most;
    shared_buffers =
        compare_team_map(state.team, area_bytes(p->nranks), shared_stride * (size_t)p->nranks);
    if (shared_buffers == NULL) {
        return false;
    }
    for (int q = 0; q < p->nranks; q++) {
        state.out[q] = shared_buffers + (size_t)q * shared_stride;
        state.in[q] = p->collective == COMPARE_BROADCAST ? state.out[q] : state.out[q] + most;
    }
    p->send = state.in[p->rank];
    p->recv = state.out[p->rank];
    return true;
}

static void unshare_buffers(struct compare_point *p)
{
    compare_team_unmap(state.team, shared_buffers, area_bytes(p->nranks),
                       shared_stride * (size_t)p->nranks);
}

static bool call(const struct compare_point *p)
{
    switch (chosen->kind) {
    case INLINE:
        floor_inline_call(&state, p);
        break;
    case SLOTS:
        floor_slots_call(&state, p);
        break;
    case MAPPED:
        floor_mapped_call(&state, p);
        break;
    case COPIED:
        floor_copied_call(&state, p);
        break;
    default:
        hand_over(&state);
        break;
    }
    return true;
}

static void stop(void)
{
    munmap(state.area, area_bytes(state.nranks));
}

int main(int argc, char **argv)
{
    static const struct compare_method floor_method = {.start = start,
                                                       .prepare = prepare,
                                                       .share = share_buffers,
                                                       .unshare = unshare_buffers,
                                                       .call = call,
                                                       .stop = stop};
    const char *end = argc == 2 ? strstr(argv[1], "-futex") : NULL;
    const size_t length = argc != 2 ? 0 : end != NULL ? (size_t)(end - argv[1]) : strlen(argv[1]);
    sleeps_at_once = end != NULL;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (strlen(variants[i].name) == length && memcmp(variants[i].name, argv[1], length) == 0) {
            chosen = &variants[i];
        }
    }
    if (chosen == NULL) {
        fprintf(stderr, "compare_floor: started by compare.py, with a variant\n");
        return 2;
    }
    return compare_worker(&floor_method);
}

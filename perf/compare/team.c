// SPDX-License-Identifier: Apache-2.0
/* The memory that the ranks of one method share: a page with a barrier, the same for all methods,
 * and behind it memory for the floors. The descriptor comes from the driver, so the memory has no
 * name. */
#include "worker.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { POLLS = 2000, YIELDS = 100, NAP_NS = 20000, PAGE_BYTES = 65536 };
static_assert(sizeof(struct compare_page) <= PAGE_BYTES, "the page holds it");

bool compare_team_join(struct compare_team *team, int memory)
{
    if (ftruncate(memory, PAGE_BYTES) != 0) {
        perror("compare: memory of the ranks");
        return false;
    }
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (page == MAP_FAILED) {
        perror("compare: memory of the ranks");
        return false;
    }
    team->memory = memory;
    team->page = page;
    return true;
}

/* Nap in the end: the library of a waiting rank may have a thread that other ranks wait for. */
static void relax(const struct compare_team *team, int polls)
{
    if (polls >= POLLS + YIELDS) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    } else if (polls >= POLLS || team->nranks > team->cores) {
        sched_yield();
    }
}

void compare_team_barrier(struct compare_team *team)
{
    const uint32_t turn = ++team->barriers;
    atomic_store_explicit(&team->page->arrived[team->rank].word, turn, memory_order_release);
    for (int q = 0; q < team->nranks; q++) {
        _Atomic uint32_t *word = &team->page->arrived[q].word;
        for (int polls = 0; (int32_t)(atomic_load_explicit(word, memory_order_acquire) - turn) < 0;
             polls++) {
            relax(team, polls);
        }
    }
}

uint64_t compare_team_decide(struct compare_team *team, uint64_t value)
{
    if (team->rank == 0) {
        team->page->decision = value;
    }
    compare_team_barrier(team);
    const uint64_t decision = team->page->decision;
    compare_team_barrier(team); /* before rank 0 decides again */
    return decision;
}

void *compare_team_map(struct compare_team *team, size_t at, size_t bytes)
{
    compare_team_barrier(team); /* every rank has joined, which sets the length of a page */
    if (team->rank == 0 && ftruncate(team->memory, (off_t)(PAGE_BYTES + at + bytes)) != 0) {
        perror("compare: memory of the ranks");
    }
    compare_team_barrier(team);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, team->memory,
                      (off_t)(PAGE_BYTES + at));
    if (base == MAP_FAILED) {
        perror("compare: memory of the ranks");
        return NULL;
    }
    return base;
}

void compare_team_unmap(struct compare_team *team, void *base, size_t at, size_t bytes)
{
    munmap(base, bytes);
    compare_team_barrier(team);
    if (team->rank == 0 && ftruncate(team->memory, (off_t)(PAGE_BYTES + at)) != 0) {
        perror("compare: memory of the ranks");
    }
    compare_team_barrier(team);
}

// SPDX-License-Identifier: Apache-2.0
/* Waiting (spin, yield, sleep) and waking.
 *
 * A waiter does the following in turn:
 * 1. It polls 200 times, then with `pause` up to poll 2000.
 * 2. It yields 200 times or for 20 ms. A yield takes as long as the scheduler lets the other
 *    processes of the core run.
 * 3. It sleeps on the doorbell of the rank that it waits for.
 * With more ranks than cores it yields after 20 polls, so that the other rank can run. If the
 * scheduler has put the two ranks on one core, it yields after 200.
 *
 * A wait for messages yields between all polls after the first 20, and sleeps after 200: its socket
 * wakes it. A poll is a system call already, and nobody knows which other programs run on this core. With more
 * ranks than cores it yields after its first poll, and sleeps after 21: others of this job are known
 * to run then, and a switch by yields takes a third of one by sleeping. A yield of half a millisecond
 * let a program run that does not wait. Sleeping then is faster, because a thread that wakes takes
 * the core from that program; so the next waits sleep soon.
 *
 * A sleeper counts itself in `asleep` beside that doorbell, runs membarrier, polls once more, and
 * sleeps. A signaller stores its flag, then loads its own `asleep`, with only a compiler fence in
 * between. The sleeper's membarrier makes the two orders agree: store flag / load asleep against
 * store asleep / load flag. So the fast path has no fence, and one load serves all readers.
 *
 * If the system denies membarrier, a sleep is a nap of a millisecond. A lost wake-up then costs no
 * more than the nap.
 *
 * A communicator with config.progress calls it in steps 2 and 3, every 50 us. Its sleeps are as
 * short: the messages that it moves ring no doorbell.
 */
#include "exec/cpu/wait.h"

#include "exec/cpu/env.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BARE_POLLS = 200, PAUSED_POLLS = 2000, CROWDED_POLLS = 20, YIELDS = 200 };
enum { CROWDED_NEWS_POLLS = 21, HOGGED_US = 500, HOGS_MAX = 10 };
enum { YIELDING_US = 20 * 1000 };
enum { FEW_YIELDS = 20, NEWS_NS = 10 * 1000 * 1000, NAP_FOR_LINES_NS = 50 * 1000 };
enum { SLEEP_NS = 100 * 1000 * 1000, NAP_NS = 1000 * 1000, ASK_US = 100 * 1000 };
enum { PROGRESS_US = 50 };

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

bool kolo_membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

static kolo_status check_aborted(const struct kolo_exec_env *env)
{
    const int own =
        env->aborted != NULL ? atomic_load_explicit(env->aborted, memory_order_relaxed) : 0;
    const int told = atomic_load_explicit(&env->region[env->me]->head.abort, memory_order_relaxed);
    return (kolo_status)(own != 0 ? own : told);
}

void kolo_wait_progress(const struct kolo_exec_env *env, double *last_us)
{
    if (env->progress != NULL && kolo_now_us() - *last_us >= PROGRESS_US) {
        env->progress(env->progress_arg);
        *last_us = kolo_now_us();
    }
}

static long sleep_ns(const struct kolo_exec_env *env, long otherwise)
{
    return env->progress != NULL ? PROGRESS_US * 1000 : otherwise;
}

static void sleep_at(const struct kolo_exec_env *env, struct kolo_head *head, uint32_t heard)
{
    const struct timespec t = {0, sleep_ns(env, env->membarrier ? SLEEP_NS : NAP_NS)};
    syscall(SYS_futex, &head->doorbell, FUTEX_WAIT, heard, &t, NULL, 0);
}

static uint32_t fall_asleep(const struct kolo_exec_env *env, struct kolo_head *head)
{
    atomic_fetch_add_explicit(&head->asleep, 1, memory_order_seq_cst);
    if (env->membarrier) {
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    }
    return atomic_load_explicit(&head->doorbell, memory_order_seq_cst);
}

static void say_wait(struct kolo_exec_env *env, int32_t rank_and_one)
{
    if (env->waits_for != NULL) {
        atomic_store_explicit(env->waits_for, rank_and_one, memory_order_relaxed);
    }
}

/* OK if a wait that began at `begin` may go on. */
static kolo_status may_go_on(struct kolo_exec_env *env, int peer, double begin, double *asked)
{
    const double now = kolo_now_us(), waited = now - begin;
    if (now - *asked >= ASK_US || waited > env->timeout_us) {
        *asked = now;
        if (env->stalled != NULL) { /* it ends a wait that is over time, too */
            return env->stalled(env, peer, waited);
        }
    }
    if (waited > env->timeout_us && env->stalled == NULL) {
        env->blamed = peer;
        return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d waited %.0f ms for rank %d in tile %u", env->me,
                         env->timeout_us / 1e3, peer, env->epoch);
    }
    return KOLO_OK;
}

static kolo_status sleep_until(struct kolo_exec_env *env, _Atomic uint32_t *word, uint32_t want,
                               int peer)
{
    const double begin = kolo_now_us();
    double asked = begin;
    struct kolo_head *head = &env->region[peer]->head;
    kolo_status st = KOLO_OK;
    for (;;) {
        const uint32_t heard = fall_asleep(env, head);
        const bool there = kolo_reached(word, want);
        st = check_aborted(env);
        if (!there && st == KOLO_OK) {
            sleep_at(env, head, heard);
        }
        atomic_fetch_sub_explicit(&head->asleep, 1, memory_order_relaxed);
        if (there || st != KOLO_OK) {
            return there ? KOLO_OK : st;
        }
        KOLO_TRY(may_go_on(env, peer, begin, &asked));
        kolo_wait_progress(env, &env->progressed_us);
    }
}

static kolo_status wait_asleep(struct kolo_exec_env *env, _Atomic uint32_t *word, uint32_t want,
                               int peer)
{
    say_wait(env, peer + 1);
    const kolo_status st = sleep_until(env, word, want, peer);
    say_wait(env, 0);
    return st;
}

/* Poll until it is time to yield. True: the word has reached `want`. If the last wait ended at its
 * first yield, a peer shares this core. Then one yield after the bare polls lets the peer run. */
static bool comes_while_polling(struct kolo_exec_env *env, const _Atomic uint32_t *word,
                                uint32_t want)
{
    const int bare = env->crowded ? CROWDED_POLLS : BARE_POLLS;
    const int polls = env->crowded ? CROWDED_POLLS : PAUSED_POLLS;
    for (int i = 0; i < polls; i++) {
        if (kolo_reached(word, want)) {
            env->core_is_shared = false;
            return true;
        }
        if (i == bare && env->core_is_shared) {
            sched_yield();
            env->core_is_shared = kolo_reached(word, want);
            if (env->core_is_shared) {
                return true;
            }
        }
        if (i >= bare) {
            relax();
        }
    }
    return false;
}

static __attribute__((noinline)) kolo_status
wait_slow(struct kolo_exec_env *env, _Atomic uint32_t *word, uint32_t want, int peer)
{
    if (comes_while_polling(env, word, want)) {
        return KOLO_OK;
    }
    KOLO_UNCANCELLED;
    const double until = kolo_now_us() + YIELDING_US;
    for (int i = 0; i < YIELDS && kolo_now_us() < until; i++) {
        KOLO_AWAIT(check_aborted(env));
        kolo_wait_progress(env, &env->progressed_us);
        sched_yield();
        if (kolo_reached(word, want)) {
            env->core_is_shared = i == 0;
            return KOLO_OK;
        }
    }
    return wait_asleep(env, word, want, peer);
}

kolo_status kolo_wait(struct kolo_exec_env *env, _Atomic uint32_t *word, uint32_t want, int peer)
{
    return KOLO_LIKELY(kolo_reached(word, want)) ? KOLO_OK : wait_slow(env, word, want, peer);
}

/* Whether a wait sleeps in place of its first yield: a few waits after a yield to a program that does
 * not wait, and twice as many after each further one. */
static bool is_hogged(struct kolo_exec_env *env)
{
    if (env->hogged_waits > 0) {
        env->hogged_waits--;
        return true;
    }
    env->hogs -= env->hogs > 0 ? 1 : 0;
    return false;
}

/* Between two polls for messages. True: it is time to sleep. */
static bool yields_in_vain(struct kolo_exec_env *env)
{
    const double begin = kolo_now_us();
    sched_yield();
    const double took_us = kolo_now_us() - begin;
    if (took_us <= HOGGED_US) {
        return false;
    }
    env->hogs = env->hogs + 2 < HOGS_MAX ? env->hogs + 2 : HOGS_MAX;
    env->hogged_waits = 1u << env->hogs;
    return true;
}

/* Spin, then yield. INPROGRESS: it is time to sleep. `for_news`: the polls between two pauses look
 * for messages. */
static kolo_status pause_awake(struct kolo_exec_env *env, unsigned *spins, double *deadline,
                               unsigned yields, bool for_news)
{
    const unsigned crowded_polls = for_news ? CROWDED_NEWS_POLLS : CROWDED_POLLS;
    const unsigned polls = env->crowded ? crowded_polls : BARE_POLLS;
    const unsigned n = (*spins)++;
    *deadline = n == 0 ? 0 : *deadline;
    if (n < polls) {
        const unsigned first = env->crowded ? 1 : CROWDED_POLLS;
        if (for_news && n >= first) {
            const bool hogged = n == first && is_hogged(env);
            *spins = hogged || yields_in_vain(env) ? polls : *spins;
        } else {
            relax();
        }
        return KOLO_OK;
    }
    KOLO_AWAIT(check_aborted(env));
    kolo_wait_progress(env, &env->progressed_us);
    if (*deadline <=
        0) { /* the first pause after the polls: a loop may change between the two kinds */
        env->asked_us = kolo_now_us();
        *deadline = env->asked_us + env->timeout_us;
    }
    if (n < polls + yields && kolo_now_us() < *deadline - env->timeout_us + YIELDING_US) {
        sched_yield();
        return KOLO_OK;
    }
    say_wait(env, env->stuck_at + 1);
    KOLO_TRY(may_go_on(env, env->stuck_at, *deadline - env->timeout_us, &env->asked_us));
    return KOLO_INPROGRESS;
}

kolo_status kolo_pause(struct kolo_exec_env *env, unsigned *spins, double *deadline)
{
    const struct timespec nap = {0, 50 * 1000};
    const kolo_status st = pause_awake(env, spins, deadline, YIELDS, false);
    if (st == KOLO_INPROGRESS) {
        nanosleep(&nap, NULL);
    }
    return st < 0 ? st : KOLO_OK;
}

kolo_status kolo_pause_for_news(struct kolo_exec_env *env, unsigned *spins, double *deadline,
                                const struct kolo_news *news)
{
    const struct timespec longest = {0, sleep_ns(env, news->alone ? NEWS_NS : NAP_FOR_LINES_NS)};
    struct pollfd fds[KOLO_NEWS_MAX];
    const kolo_status st = pause_awake(env, spins, deadline, news->alone ? 0 : FEW_YIELDS, true);
    if (st != KOLO_INPROGRESS) {
        return st;
    }
    for (int i = 0; i < news->count; i++) {
        fds[i] = (struct pollfd){.fd = news->fd[i], .events = POLLIN};
    }
    (void)ppoll(fds, (nfds_t)news->count, &longest, NULL);
    return KOLO_OK;
}

void kolo_paused(struct kolo_exec_env *env)
{
    say_wait(env, 0);
}

void kolo_ring(struct kolo_head *head)
{
    atomic_fetch_add_explicit(&head->doorbell, 1, memory_order_seq_cst);
    syscall(SYS_futex, &head->doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

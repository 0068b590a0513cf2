// SPDX-License-Identifier: Apache-2.0
/* Helpers for every folder: status propagation, error text, log, time, small arithmetic. */
#ifndef KOLO_UTIL_H
#define KOLO_UTIL_H

#include <kolo/kolo.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pass a failure on to the caller. KOLO_INPROGRESS is no failure: the next line runs, as after
 * KOLO_OK. So KOLO_TRY is for calls that never return it, or whose caller asks again. */
#define KOLO_TRY(expr)                                                                             \
    do {                                                                                           \
        const kolo_status try_ = (expr);                                                           \
        if (try_ < 0) {                                                                            \
            return try_;                                                                           \
        }                                                                                          \
    } while (0)
/* Pass on anything but KOLO_OK: a failure, and KOLO_INPROGRESS too. The next line runs only when
 * the awaited thing is there; the caller tries again later. */
#define KOLO_AWAIT(expr)                                                                           \
    do {                                                                                           \
        const kolo_status await_ = (expr);                                                         \
        if (await_ != KOLO_OK) {                                                                   \
            return await_;                                                                         \
        }                                                                                          \
    } while (0)
#define KOLO_TRY_GOTO(st, expr, label)                                                             \
    do {                                                                                           \
        (st) = (expr);                                                                             \
        if ((st) < 0) {                                                                            \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

#define KOLO_LIKELY(x)    __builtin_expect(!!(x), 1)
#define KOLO_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define KOLO_LENGTH(a)    (sizeof(a) / sizeof((a)[0]))
#define KOLO_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* ---- errors: the code that detects one writes the text, its callers pass the status on ---- */

/* Keep the sentence for kolo_error_text() of this thread, log it at INFO, return `code`. %m works.
 */
kolo_status kolo_fail(kolo_status code, const char *format, ...) KOLO_PRINTF(2, 3);
/* OK if `value` is within [low, high], else INVALID: "rank is 7; it must be 0 to 3". */
kolo_status kolo_check_range(const char *name, long value, long low, long high);
/* strerror(error), with the value of the limit if a limit was reached. Valid until this thread's
 * next call. */
const char *kolo_why(int error);
/* Replace this thread's sentence without logging (to carry an error from another thread). */
void kolo_error_set(const char *text);

/* ---- log ---- */

enum kolo_level {
    KOLO_LEVEL_NONE,
    KOLO_LEVEL_VERSION,
    KOLO_LEVEL_WARN,
    KOLO_LEVEL_INFO,
    KOLO_LEVEL_TRACE
};
enum kolo_subsys {
    KOLO_SUB_INIT = 1,
    KOLO_SUB_NET = 2,
    KOLO_SUB_GRAPH = 4,
    KOLO_SUB_TUNE = 8,
    KOLO_SUB_PLAN = 16,
    KOLO_SUB_EXEC = 32,
    KOLO_SUB_SHM = 64,
    KOLO_SUB_COLL = 128,
    KOLO_SUB_ALL = 255
};

/* The variables of the log:
 *   KOLO_DEBUG         the level: VERSION, WARN, INFO or TRACE; default none
 *   KOLO_DEBUG_SUBSYS  the subsystems, a comma list; ^ inverts it; default all but COLL
 *   KOLO_DEBUG_FILE    the file; %h host, %p pid; default stdout */
bool kolo_log_on(enum kolo_level level, unsigned subsys);
void kolo_log_print(enum kolo_level level, const char *format, ...) KOLO_PRINTF(2, 3);
#define KOLO_LOG(level, subsys, ...)                                                               \
    do {                                                                                           \
        if (kolo_log_on(KOLO_LEVEL_##level, KOLO_SUB_##subsys)) {                                  \
            kolo_log_print(KOLO_LEVEL_##level, __VA_ARGS__);                                       \
        }                                                                                          \
    } while (0)
/* Open an output file that a variable names. Only this user may read a new file. With `append`,
 * writes go to the end of the file; otherwise the file is emptied. The path may also be a terminal,
 * /dev/null, /dev/stdout or /dev/stderr. -1: *why has the reason, for example that another user
 * made the file. */
int kolo_open_output(const char *path, bool append, const char **why);
/* The short host name used in log lines. */
const char *kolo_host_name(void);

/* The state of a process of this host, as in /proc: 'R', 'S', 'T' stopped, 'Z', ...; 0: it is gone;
 * '?': it cannot be looked at. */
char kolo_process_state(int pid);
/* Whether a process of this host has ended, or the kernel is ending it. Its descriptors may be closed
 * long before its state tells. */
bool kolo_process_is_ending(int pid);

/* ---- cancellation of threads ---- */

/* No pthread_cancel() acts between this line and the end of the block. A thread that ended in the
 * middle of a call would keep locks and turns for which other threads and ranks wait. Public
 * functions that may block begin with this line. The thread ends at its next cancellation point
 * after the function. */
#define KOLO_UNCANCELLED                                                                           \
    __attribute__((cleanup(kolo_cancel_again), unused)) const int cancel_ = kolo_cancel_never()
int kolo_cancel_never(void);
void kolo_cancel_again(const int *state);

/* ---- time, numbers, text ---- */

double kolo_now_us(void); /* monotonic */

static inline size_t kolo_round_up(size_t x, size_t multiple)
{
    return (x + multiple - 1) / multiple * multiple;
}
static inline size_t kolo_min(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t kolo_max(size_t a, size_t b)
{
    return a > b ? a : b;
}
/* (x mod n) in 0..n-1 for any x. */
static inline int kolo_mod(int x, int n)
{
    int m = x % n;
    return m < 0 ? m + n : m;
}
/* Smallest k with 2^k >= n (n >= 1). */
static inline int kolo_log2_ceil(int n)
{
    int k = 0;
    while ((1 << k) < n) {
        k++;
    }
    return k;
}
static inline bool kolo_is_pow2(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Parse "4k", "1M", "8": bytes with a binary suffix K, M, G, T (any case). False: anything else. */
bool kolo_parse_bytes(const char *text, size_t *out);
/* A whole decimal number within [lo, hi]. False otherwise. */
bool kolo_parse_int(const char *text, long lo, long hi, long *out);
/* The precision with which %.*g writes `value` in at least `least` digits and, if it is large,
 * rounded to a whole number, without an exponent. */
int kolo_digits(double value, int least);
/* The variable's value; NULL if it is unset or empty. */
const char *kolo_env(const char *name);
/* The variable's value as a whole number; `otherwise` if it is unset or empty. Errors: INVALID (it
 * is no number within [low, high]). */
kolo_status kolo_env_int(const char *name, long low, long high, long otherwise, long *out);
/* The variable's value, one of words[count]: *out gets its place in them, and stays as it is if the
 * variable is unset or empty. Errors: INVALID (it is another word). */
kolo_status kolo_env_word(const char *name, const char *const *words, int count, int *out);
/* FNV-1a over bytes; chain by passing the previous hash (start from 0). */
uint64_t kolo_hash(uint64_t seed, const void *bytes, size_t len);

/* A growing text. Without memory, an addition is dropped. */
struct kolo_text {
    char *chars; /* always terminated; NULL while empty */
    size_t len, cap;
};
void kolo_text_add(struct kolo_text *text, const char *format, ...) KOLO_PRINTF(2, 3);
void kolo_text_free(struct kolo_text *text);

#ifdef __cplusplus
}
#endif

#ifdef __clang_analyzer__ /* cannot see that kolo_fail() returns its code, which is never OK */
// NOLINTNEXTLINE(readability-identifier-naming)
#define kolo_fail(code, ...) ((void)kolo_fail(code, __VA_ARGS__), (kolo_status)(code))
#endif
#endif

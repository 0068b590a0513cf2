// SPDX-License-Identifier: Apache-2.0
/* Questions to a CUDA driver that no document answers: which calls wait while a stream waits for
 * another thread of the process, whom they hold up meanwhile, and what the driver's limits are.
 *
 * usage: probe [WORD]    (only the questions with this word in their name)
 *
 * Nothing of kolo is used. Each question has a process of its own, which is ended after a few
 * seconds: most of them are meant to hang. A line of the answer:
 *
 *     cuMemFree                     waits; meanwhile launch waits, query passes, copy waits
 *     cuMemAlloc 1 KiB              passes, 41 us
 *
 * "waits": until the stream goes on. The first part asks with a word in pinned memory, which a CPU
 * could set at any time, so that a driver that waits for it waits for nothing that it knows of.
 * KOLO_CUDA_PATH names another library than libcuda.so.1. The numbers are those of the CUDA Driver
 * API reference, 13.0. */
#include "probe_driver.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 700, GUEST_MS = 300, WATCHDOG_MS = 6000 };
enum { FEW = 1 << 10, MANY = 64 << 20, WORDS = 64 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void nap_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- patience: time, less that for which threads wanted a processor and had none ---- */

/* A call that other programs hold up does not wait for the GPU. The kernel counts how long each
 * thread was ready and did not run; where it does not, all time counts. */
struct patience {
    pid_t pid;
    double begin_us, starved_us;
};

/* The time for which the threads of a process have been ready without a processor. */
static double starved_us(pid_t pid)
{
    char path[320];
    double sum = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (struct dirent *e; threads != NULL && (e = readdir(threads)) != NULL;) {
        unsigned long long ns = 0;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid, e->d_name);
        FILE *file = e->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file != NULL) {
            sum += fscanf(file, "%*u %llu", &ns) == 1 ? (double)ns / 1e3 : 0;
            (void)fclose(file);
        }
    }
    if (threads != NULL) {
        (void)closedir(threads);
    }
    return sum;
}

static struct patience patience_with(pid_t pid)
{
    return (struct patience){.pid = pid, .begin_us = now_us(), .starved_us = starved_us(pid)};
}

/* Let a millisecond pass. Returns whether less than `ms` have counted. A sixteenth of the time counts
 * always: threads that spin on a busy machine are never quite fed. */
static bool has_patience(const struct patience *p, int ms)
{
    nap_ms(1);
    const double passed = now_us() - p->begin_us;
    if (passed < ms * 1e3 || passed > 16 * ms * 1e3) {
        return passed < ms * 1e3;
    }
    nap_ms(10); /* to ask costs more than to wait */
    return passed - (starved_us(p->pid) - p->starved_us) < ms * 1e3;
}

static void be_patient(int ms)
{
    const struct patience p = patience_with(getpid());
    while (has_patience(&p, ms)) {
    }
}

/* ---- what a question has: made before any stream waits ---- */

static struct {
    context context;
    uint32_t *word;       /* pinned: words[0] holds the stream that waits */
    address word_at;      /* the same for the GPU */
    stream waits, other;  /* neither orders with the default stream */
    address small, large; /* FEW and MANY bytes */
    void *pinned;         /* FEW bytes */
    module loaded, fresh; /* of the second, no kernel has been used */
    function ready, lazy; /* kernels that do nothing */
    event mark;           /* recorded */
    graph_exec replay;    /* of a graph with one node */
    graph form;
    struct ipc_handle foreign; /* of memory of another process */
    address opened;
} have;

/* Kernels that do nothing. The driver compiles them. */
static const char *const kernels = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                   ".visible .entry first()\n{\n ret;\n}\n"
                                   ".visible .entry second()\n{\n ret;\n}\n";

static int launch(function f, stream s)
{
    return f == NULL ? NOT_ASKED : cuda.launch_kernel(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
}

static void make_graph(void)
{
    if (cuda.stream_begin_capture(have.other, 2) == 0 &&
        cuda.memset_d8_async(have.small, 0, FEW, have.other) == 0 &&
        cuda.stream_end_capture(have.other, &have.form) == 0) {
        (void)cuda.graph_instantiate(&have.replay, have.form, 0);
    }
}

static bool make_all(void)
{
    int device = 0;
    if (cuda.init(0) != 0 || cuda.device_get(&device, 0) != 0 ||
        cuda.primary_ctx_retain(&have.context, device) != 0 ||
        cuda.ctx_push_current(have.context) != 0) {
        return false;
    }
    const bool made =
        cuda.mem_host_alloc((void **)&have.word, WORDS * sizeof(uint32_t), 3) == 0 &&
        cuda.mem_host_get_device_pointer(&have.word_at, have.word, 0) == 0 &&
        cuda.stream_create(&have.waits, 1) == 0 && cuda.stream_create(&have.other, 1) == 0 &&
        cuda.mem_alloc(&have.small, FEW) == 0 && cuda.mem_alloc(&have.large, MANY) == 0 &&
        cuda.mem_host_alloc(&have.pinned, FEW, 3) == 0 && cuda.event_create(&have.mark, 2) == 0 &&
        cuda.event_record(have.mark, have.other) == 0;
    if (made) {
        memset(have.word, 0, WORDS * sizeof(uint32_t));
        if (cuda.module_load_data(&have.loaded, kernels) == 0 &&
            cuda.module_load_data(&have.fresh, kernels) == 0) {
            (void)cuda.module_get_function(&have.ready, have.loaded, "first");
            (void)cuda.module_get_function(&have.lazy, have.fresh, "second");
            (void)launch(have.ready, have.other);
        }
        make_graph();
        (void)cuda.stream_synchronize(have.other);
    }
    return made;
}

/* Word 0 is the one that holds a stream. */
static int wait_for(stream s, size_t word, uint32_t value)
{
    struct stream_op op = {WAIT_32, 0, have.word_at + 4 * word, value, WHEN_EQUAL, 0, {0, 0}};
    return cuda.stream_batch_mem_op(s, 1, &op, 0);
}

static int store(stream s, size_t word, uint32_t value)
{
    struct stream_op op = {WRITE_32, 0, have.word_at + 4 * word, value, 0, 0, {0, 0}};
    return cuda.stream_batch_mem_op(s, 1, &op, 0);
}

static int hold(stream s)
{
    return wait_for(s, 0, 1);
}

/* ---- the calls that may wait ---- */

static int ask_alloc(void)
{
    address at = 0;
    return cuda.mem_alloc(&at, FEW);
}
static int ask_alloc_large(void)
{
    address at = 0;
    return cuda.mem_alloc(&at, MANY);
}
static int ask_free(void)
{
    return cuda.mem_free(have.small);
}
static int ask_free_large(void)
{
    return cuda.mem_free(have.large);
}
static int ask_host_alloc(void)
{
    void *at = NULL;
    return cuda.mem_host_alloc(&at, FEW, 3);
}
static int ask_host_free(void)
{
    return cuda.mem_free_host(have.pinned);
}
static int ask_stream(void)
{
    stream s = NULL;
    return cuda.stream_create(&s, 1);
}
static int ask_stream_urgent(void)
{
    stream s = NULL;
    return cuda.stream_create_with_priority(&s, 1, -1);
}
static int ask_stream_end(void)
{
    return cuda.stream_destroy(have.other);
}
static int ask_event(void)
{
    event e = NULL;
    return cuda.event_create(&e, 2);
}
static int ask_event_query(void)
{
    return cuda.event_query(have.mark);
}
static int ask_event_sync(void)
{
    return cuda.event_synchronize(have.mark);
}
static int ask_stream_query(void)
{
    return cuda.stream_query(have.other);
}
static int ask_stream_sync(void)
{
    return cuda.stream_synchronize(have.other);
}
static int ask_module(void)
{
    module m = NULL;
    return cuda.module_load_data(&m, kernels);
}
static int ask_module_end(void)
{
    return have.fresh == NULL ? NOT_ASKED : cuda.module_unload(have.fresh);
}
static int ask_func_load(void)
{
    return have.lazy == NULL ? NOT_ASKED : cuda.func_load(have.lazy);
}
static int ask_first_launch(void)
{
    return launch(have.lazy, have.other);
}
static int ask_launch(void)
{
    return launch(have.ready, have.other);
}
static int ask_put_pageable(void)
{
    static char from[FEW];
    return cuda.memcpy_htod_async(have.small, from, FEW, have.other);
}
static int ask_put_pinned(void)
{
    return cuda.memcpy_htod_async(have.small, have.pinned, FEW, have.other);
}
static int ask_get(void)
{
    return cuda.memcpy_dtoh_async(have.pinned, have.small, FEW, have.other);
}
static int ask_copy(void)
{
    return cuda.memcpy_dtod_async(have.small, have.large, FEW, have.other);
}
static int ask_memset(void)
{
    return cuda.memset_d8_async(have.small, 0, FEW, have.other);
}
static int ask_pointer(void)
{
    int kind = 0;
    return cuda.pointer_get_attribute(&kind, 2, have.small);
}
static int ask_write(void)
{
    return store(have.other, 1, 1);
}
static int ask_graph(void)
{
    graph_exec e = NULL;
    return have.form == NULL ? NOT_ASKED : cuda.graph_instantiate(&e, have.form, 0);
}
static int ask_graph_launch(void)
{
    return have.replay == NULL ? NOT_ASKED : cuda.graph_launch(have.replay, have.other);
}
static int ask_graph_end(void)
{
    return have.replay == NULL ? NOT_ASKED : cuda.graph_exec_destroy(have.replay);
}
static int ask_handle(void)
{
    struct ipc_handle h;
    return cuda.ipc_get_mem_handle(&h, have.small);
}
static int ask_open(void)
{
    return cuda.ipc_open_mem_handle(&have.opened, have.foreign, 1);
}
static int ask_close(void)
{
    return have.opened == 0 ? NOT_ASKED : cuda.ipc_close_mem_handle(have.opened);
}

/* ---- one thread asks, others try to pass ---- */

struct attempt {
    int (*ask)(void);
    _Atomic int over;
    int result;
    double us;
};

static void *run_attempt(void *arg)
{
    struct attempt *a = arg;
    (void)cuda.ctx_push_current(have.context);
    const double begin = now_us();
    a->result = a->ask();
    a->us = now_us() - begin;
    atomic_store(&a->over, 1);
    return NULL;
}

/* The thread may never come back: nobody joins it, and the process ends with it. */
static bool passes(struct attempt *a, int ms)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_attempt, a) != 0) {
        return false;
    }
    const struct patience p = patience_with(getpid());
    while (!atomic_load(&a->over) && has_patience(&p, ms)) {
    }
    return atomic_load(&a->over);
}

static void say_result(const struct attempt *a)
{
    const char *name = NULL;
    if (a->result == NOT_ASKED) {
        (void)printf("not asked: this driver lacks what it needs\n");
    } else if (a->result != 0 && (cuda.get_error_name(a->result, &name) != 0 || name == NULL)) {
        (void)printf("error %d, %.0f us\n", a->result, a->us);
    } else {
        (void)printf("passes, %.0f us%s%s\n", a->us, a->result != 0 ? ", " : "",
                     a->result != 0 ? name : "");
    }
}

static void say_guests(void)
{
    static struct {
        const char *name;
        struct attempt attempt;
    } guest[] = {{"launch", {.ask = ask_launch}},
                 {"query", {.ask = ask_pointer}},
                 {"copy", {.ask = ask_put_pinned}}};
    (void)printf("waits; meanwhile");
    for (size_t i = 0; i < sizeof guest / sizeof *guest; i++) {
        const bool passed = passes(&guest[i].attempt, GUEST_MS);
        (void)printf("%s %s %s", i > 0 ? "," : "", guest[i].name,
                     !passed                                ? "waits"
                     : guest[i].attempt.result == NOT_ASKED ? "is not asked"
                                                            : "passes");
    }
    (void)printf("\n");
}

static void ask_behind_wait(int (*ask)(void))
{
    struct attempt a = {.ask = ask};
    static struct attempt kept; /* outlives this frame: its thread may still run */
    kept = a;
    const int held = hold(have.waits);
    if (held != 0) {
        (void)printf("no wait could be queued: error %d\n", held);
    } else if (passes(&kept, PATIENCE_MS)) {
        say_result(&kept);
    } else {
        say_guests();
    }
}

/* ---- limits and times ---- */

static _Atomic int entered;

static int fill(void)
{
    int st = hold(have.waits);
    while (st == 0 && atomic_load(&entered) < 100000) {
        st = store(have.waits, 1, 1);
        atomic_fetch_add(&entered, 1);
    }
    return st;
}

static void ask_entries(void)
{
    static struct attempt a = {.ask = fill};
    int last = -1;
    (void)passes(&a, 1);
    while (!atomic_load(&a.over) && last != atomic_load(&entered)) {
        last = atomic_load(&entered);
        be_patient(PATIENCE_MS / 2);
    }
    (void)printf("%d entries, then the call ", atomic_load(&entered));
    if (atomic_load(&a.over)) {
        (void)printf("goes on: ");
        say_result(&a);
    } else {
        say_guests();
    }
}

/* How many of the streams that follow one that waits come to their own write. */
static void ask_streams(int priority)
{
    enum { STREAMS = 40 };
    stream s[STREAMS];
    int made = 0, stuck = 0, first = -1;
    while (made < STREAMS && cuda.stream_create_with_priority(&s[made], 1, priority) == 0) {
        made++;
    }
    int st = hold(have.waits);
    for (int i = 0; i < made && st == 0; i++) {
        st = store(s[i], (size_t)i + 1, 1);
    }
    be_patient(GUEST_MS);
    for (int i = 0; i < made; i++) {
        const bool there = __atomic_load_n(&have.word[i + 1], __ATOMIC_ACQUIRE) == 1;
        first = !there && first < 0 ? i : first;
        stuck += !there;
    }
    (void)printf("%d of %d behind one that waits are stuck", stuck, made);
    (void)printf(first < 0 ? "\n" : ", the first is number %d\n", first + 1);
}

static void ask_streams_8(void)
{
    ask_streams(0);
}
static void ask_streams_urgent(void)
{
    ask_streams(-1);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A CPU stores a word, a stream sees it and stores another one, which the CPU sees. */
static void ask_wait_latency(void)
{
    enum { ROUNDS = 200 };
    static double us[ROUNDS];
    volatile uint32_t *word = have.word;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        int st = wait_for(have.other, 0, i + 1);
        st = st == 0 ? store(have.other, 32, i + 1) : st;
        if (st != 0) {
            (void)printf("error %d\n", st);
            return;
        }
        nap_ms(1);
        const double begin = now_us();
        __atomic_store_n(&have.word[0], i + 1, __ATOMIC_RELEASE);
        while (word[32] != i + 1) {
        }
        us[i] = now_us() - begin;
    }
    qsort(us, ROUNDS, sizeof *us, by_size);
    (void)printf("%.1f us (quartiles %.1f to %.1f)\n", us[ROUNDS / 2], us[ROUNDS / 4],
                 us[ROUNDS * 3 / 4]);
}

static double called_us;

static void note_call(void *arg)
{
    called_us = now_us();
    atomic_store((_Atomic int *)arg, 1);
}

static void ask_host_func(void)
{
    enum { ROUNDS = 100 };
    static double us[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        static _Atomic int called;
        atomic_store(&called, 0);
        const double begin = now_us();
        if (cuda.launch_host_func(have.other, note_call, (void *)&called) != 0) {
            (void)printf("error\n");
            return;
        }
        while (!atomic_load(&called)) {
        }
        us[i] = called_us - begin;
    }
    qsort(us, ROUNDS, sizeof *us, by_size);
    (void)printf("%.1f us from the call to the function\n", us[ROUNDS / 2]);
}

/* Whether memory that lies where freed memory lay is told from it. */
static void ask_buffer_id(void)
{
    unsigned long long id[2] = {0, 0};
    address at[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        if (cuda.mem_alloc(&at[i], 4 << 20) != 0 ||
            cuda.pointer_get_attribute(&id[i], 7, at[i]) != 0 || cuda.mem_free(at[i]) != 0) {
            (void)printf("error\n");
            return;
        }
    }
    (void)printf("address %s, id %s\n", at[0] == at[1] ? "the same" : "another",
                 id[0] == id[1] ? "the same" : "another");
}

/* ---- memory of another process ---- */

static int to_sibling[2], from_sibling[2];

/* Give the handle of an allocation; at each byte that comes, free it and give that of the next. */
static void be_sibling(void)
{
    struct ipc_handle h;
    address at = 0;
    char go = 0;
    bool good = make_all();
    do {
        good = good && (at == 0 || cuda.mem_free(at) == 0) && cuda.mem_alloc(&at, 4 << 20) == 0 &&
               cuda.ipc_get_mem_handle(&h, at) == 0;
    } while (good && write(from_sibling[1], &h, sizeof h) == (ssize_t)sizeof h &&
             read(to_sibling[0], &go, 1) == 1);
    _exit(0);
}

static pid_t start_sibling(void)
{
    const bool piped = pipe(to_sibling) == 0 && pipe(from_sibling) == 0;
    const pid_t pid = piped ? fork() : -1;
    if (pid == 0) {
        (void)close(to_sibling[1]);
        (void)close(from_sibling[0]);
        be_sibling();
    }
    (void)close(from_sibling[1]);
    return pid;
}

static bool hear_handle(void)
{
    return read(from_sibling[0], &have.foreign, sizeof have.foreign) ==
           (ssize_t)sizeof have.foreign;
}

static void ask_twice(void)
{
    address a = 0, b = 0;
    const int first = cuda.ipc_open_mem_handle(&a, have.foreign, 1);
    const int second = cuda.ipc_open_mem_handle(&b, have.foreign, 1);
    (void)printf("results %d and %d, %s\n", first, second,
                 a == b ? "one address" : "two addresses");
}

static void ask_stale(void)
{
    address a = 0, b = 0;
    const int first = cuda.ipc_open_mem_handle(&a, have.foreign, 1);
    if (write(to_sibling[1], "", 1) != 1 || !hear_handle()) {
        (void)printf("the other process gave no second handle\n");
        return;
    }
    const int second = cuda.ipc_open_mem_handle(&b, have.foreign, 1);
    const int closed = cuda.ipc_close_mem_handle(a);
    (void)printf("results %d and %d; after closing the first (%d) %d\n", first, second, closed,
                 cuda.ipc_open_mem_handle(&b, have.foreign, 1));
}

/* ---- the list ---- */

enum needs { NOTHING, SIBLING, OPENED };
struct question {
    const char *name;
    int (*behind_wait)(void); /* asked while a stream waits, or: */
    void (*alone)(void);
    enum needs needs;
    const char *connections; /* CUDA_DEVICE_MAX_CONNECTIONS, or NULL */
};

static const struct question questions[] = {
    {"cuMemAlloc 1 KiB", ask_alloc, NULL, NOTHING, NULL},
    {"cuMemAlloc 64 MiB", ask_alloc_large, NULL, NOTHING, NULL},
    {"cuMemFree 1 KiB", ask_free, NULL, NOTHING, NULL},
    {"cuMemFree 64 MiB", ask_free_large, NULL, NOTHING, NULL},
    {"cuMemHostAlloc", ask_host_alloc, NULL, NOTHING, NULL},
    {"cuMemFreeHost", ask_host_free, NULL, NOTHING, NULL},
    {"cuStreamCreate", ask_stream, NULL, NOTHING, NULL},
    {"cuStreamCreateWithPriority", ask_stream_urgent, NULL, NOTHING, NULL},
    {"cuStreamDestroy", ask_stream_end, NULL, NOTHING, NULL},
    {"cuEventCreate", ask_event, NULL, NOTHING, NULL},
    {"cuEventQuery", ask_event_query, NULL, NOTHING, NULL},
    {"cuEventSynchronize", ask_event_sync, NULL, NOTHING, NULL},
    {"cuStreamQuery", ask_stream_query, NULL, NOTHING, NULL},
    {"cuStreamSynchronize", ask_stream_sync, NULL, NOTHING, NULL},
    {"cuModuleLoadData", ask_module, NULL, NOTHING, NULL},
    {"cuModuleUnload", ask_module_end, NULL, NOTHING, NULL},
    {"cuFuncLoad", ask_func_load, NULL, NOTHING, NULL},
    {"cuLaunchKernel, first", ask_first_launch, NULL, NOTHING, NULL},
    {"cuLaunchKernel, loaded", ask_launch, NULL, NOTHING, NULL},
    {"cuMemcpyHtoDAsync, pageable", ask_put_pageable, NULL, NOTHING, NULL},
    {"cuMemcpyHtoDAsync, pinned", ask_put_pinned, NULL, NOTHING, NULL},
    {"cuMemcpyDtoHAsync, pinned", ask_get, NULL, NOTHING, NULL},
    {"cuMemcpyDtoDAsync", ask_copy, NULL, NOTHING, NULL},
    {"cuMemsetD8Async", ask_memset, NULL, NOTHING, NULL},
    {"cuPointerGetAttribute", ask_pointer, NULL, NOTHING, NULL},
    {"cuStreamBatchMemOp, a store", ask_write, NULL, NOTHING, NULL},
    {"cuGraphInstantiate", ask_graph, NULL, NOTHING, NULL},
    {"cuGraphLaunch", ask_graph_launch, NULL, NOTHING, NULL},
    {"cuGraphExecDestroy", ask_graph_end, NULL, NOTHING, NULL},
    {"cuIpcGetMemHandle", ask_handle, NULL, NOTHING, NULL},
    {"cuIpcOpenMemHandle", ask_open, NULL, SIBLING, NULL},
    {"cuIpcCloseMemHandle", ask_close, NULL, OPENED, NULL},
    {"entries of a stream", NULL, ask_entries, NOTHING, NULL},
    {"streams, 8 connections", NULL, ask_streams_8, NOTHING, "8"},
    {"streams, 32 connections", NULL, ask_streams_8, NOTHING, "32"},
    {"urgent streams, 8 connections", NULL, ask_streams_urgent, NOTHING, "8"},
    {"a store, a stream, a store", NULL, ask_wait_latency, NOTHING, NULL},
    {"cuLaunchHostFunc", NULL, ask_host_func, NOTHING, NULL},
    {"id of memory at an old address", NULL, ask_buffer_id, NOTHING, NULL},
    {"a handle opened twice", NULL, ask_twice, SIBLING, NULL},
    {"a handle of memory made anew", NULL, ask_stale, SIBLING, NULL},
};

static void answer(const struct question *q)
{
    if (q->connections != NULL) {
        (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", q->connections, 1);
    }
    const pid_t sibling = q->needs != NOTHING ? start_sibling() : 0;
    if (!make_all() || (sibling != 0 && !hear_handle()) ||
        (q->needs == OPENED && ask_open() != 0)) {
        (void)printf("not asked: the driver refused what it needs\n");
    } else if (q->behind_wait != NULL) {
        ask_behind_wait(q->behind_wait);
    } else {
        q->alone();
    }
    (void)fflush(stdout);
    if (sibling > 0) {
        (void)kill(sibling, SIGKILL);
    }
    _exit(0);
}

/* Returns whether the process ended by itself. */
static bool await_end(pid_t pid)
{
    const struct patience p = patience_with(pid);
    do {
        int status = 0;
        if (waitpid(pid, &status, WNOHANG) == pid) {
            return WIFEXITED(status);
        }
    } while (has_patience(&p, WATCHDOG_MS));
    (void)kill(-pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return false;
}

int main(int argc, char **argv)
{
    const char *missing = probe_load();
    if (missing != NULL) {
        (void)fprintf(stderr, "probe: %s\n", missing);
        return 77; /* skipped */
    }
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        const struct question *q = &questions[i];
        if (argc > 1 && strstr(q->name, argv[1]) == NULL) {
            continue;
        }
        (void)printf("%-32s", q->name);
        (void)fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0) {
            (void)setpgid(0, 0); /* the sibling ends with it */
            answer(q);
        }
        if (pid < 0 || !await_end(pid)) {
            (void)printf("no answer in %d s\n", WATCHDOG_MS / 1000);
        }
    }
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* Starts the ranks: the launcher's processes, or with -t and -g the threads of each of them. The
 * options are checked before any rank joins. */
#include "perf.h"

#include <pthread.h>
#include <stdlib.h>

static struct kolo_config config_of(const struct perf_options *options)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.name = "perf";
    if (options->deterministic) {
        config.deterministic = 1;
    }
    if (options->timeout_s > 0) {
        config.timeout_ms = (int)options->timeout_s * 1000;
    }
    return config;
}

static int complain(const struct perf_collective *collective, const char *what, kolo_status status)
{
    fprintf(stderr, "%s: %s: %s: %s\n", collective->name, what, kolo_status_name(status),
            kolo_error_text());
    return status == KOLO_ERR_TIMEOUT ? PERF_EXIT_TIMEOUT : PERF_EXIT_KOLO;
}

static void *run_thread(void *arg)
{
    struct perf_rank *rank = arg;
    const struct perf_job *job = &rank->job;
    if (job->id != NULL) {
        const struct kolo_config config = config_of(&rank->options);
        rank->status = kolo_comm_create(job->id, job->nranks, job->rank, &config, &rank->comm);
        if (rank->status < 0) {
            rank->exit_code = complain(rank->collective, "joining", rank->status);
            return NULL;
        }
    }
    perf_sweep(rank);
    kolo_comm_destroy(rank->comm);
    return NULL;
}

/* The exit status of the rank that failed first. The ranks that it aborted do not count. */
static int exit_of(const struct perf_rank *ranks, int nranks)
{
    int code = PERF_EXIT_OK;
    for (int r = 0; r < nranks; r++) {
        if (ranks[r].exit_code != PERF_EXIT_OK && ranks[r].status != KOLO_ERR_ABORTED) {
            return ranks[r].exit_code;
        }
        code = ranks[r].exit_code > code ? ranks[r].exit_code : code;
    }
    return code;
}

/* Run the ranks' threads. If a thread cannot start, all ranks are aborted, because they would wait
 * for it. Ranks that are about to join cannot be aborted, so the process ends. */
static int run_started(struct perf_rank *ranks, pthread_t *threads, int nranks)
{
    int started = 0;
    while (started < nranks &&
           pthread_create(&threads[started], NULL, run_thread, &ranks[started]) == 0) {
        started++;
    }
    if (started < nranks) {
        fprintf(stderr, "%s: no thread for rank %d\n", ranks[0].collective->name, started);
        ranks[started].exit_code = PERF_EXIT_INTERNAL;
        if (ranks[started].job.id != NULL) {
            exit(PERF_EXIT_INTERNAL);
        }
    }
    for (int r = started; r < nranks; r++) {
        kolo_comm_abort(ranks[r].comm);
        kolo_comm_destroy(ranks[r].comm);
    }
    for (int r = 0; r < started; r++) {
        pthread_join(threads[r], NULL);
    }
    return exit_of(ranks, nranks);
}

/* Create the communicator of this process's threads at once. */
static kolo_status create_here(struct perf_rank *ranks, int nranks)
{
    const struct kolo_config config = config_of(&ranks[0].options);
    struct kolo_comm **comms = calloc((size_t)nranks, sizeof(struct kolo_comm *));
    if (comms == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    const kolo_status status = kolo_comm_create_local(nranks, &config, comms);
    for (int r = 0; r < nranks; r++) {
        ranks[r].comm = comms[r];
    }
    free(comms);
    return status;
}

/* Run the threads of this process. They join by the id. Without an id they are all the ranks. */
static int run_threads(const struct perf_rank *process)
{
    const int nthreads = process->job.per_process;
    struct perf_rank *ranks = calloc((size_t)nthreads, sizeof(*ranks));
    pthread_t *threads = calloc((size_t)nthreads, sizeof(*threads));
    int code = PERF_EXIT_INTERNAL;
    if (ranks != NULL && threads != NULL) {
        for (int r = 0; r < nthreads; r++) {
            ranks[r] = *process;
            ranks[r].job.rank += r;
        }
        const kolo_status status = process->job.id == NULL ? create_here(ranks, nthreads) : KOLO_OK;
        code = status < 0 ? complain(process->collective, "starting the ranks", status)
                          : run_started(ranks, threads, nthreads);
    }
    free(threads);
    free(ranks);
    return code;
}

/* Make an id on the first process, and tell it to all. Processes that disagree on the number of
 * threads cannot join: kolo says so. */
static kolo_status make_id(struct kolo_comm *comm, struct kolo_id *id, struct perf_job *job)
{
    kolo_status status = kolo_comm_rank(comm) == 0 ? kolo_id_create(id) : KOLO_OK;
    if (status >= 0) {
        status = kolo_broadcast(id, id, sizeof(*id), KOLO_UINT8, 0, comm, NULL);
    }
    job->id = id;
    job->nranks = kolo_comm_size(comm) * job->per_process;
    job->rank = kolo_comm_rank(comm) * job->per_process;
    return status;
}

/* Read the least bandwidth that the environment asks for; -1: none. A wrong one must not pass. */
static bool read_least(const struct perf_collective *collective, double *out)
{
    const char *text = getenv("KOLO_TESTS_MIN_BW");
    *out = -1;
    if (text == NULL || *text == '\0' || perf_real_of(text, 0, 1L << 40, out)) {
        return true;
    }
    fprintf(stderr, "%s: KOLO_TESTS_MIN_BW is \"%s\"; it must be a number of GB/s\n",
            collective->name, text);
    return false;
}

int perf_main(const struct perf_collective *collective, int argc, char **argv)
{
    struct perf_rank rank = {.collective = collective, .argc = argc, .argv = argv};
    switch (perf_options_parse(collective, argc, argv, &rank.options, stdout, stderr)) {
    case PERF_HELP:
        return PERF_EXIT_OK;
    case PERF_BAD:
        return PERF_EXIT_OPTION;
    default:
        break;
    }
    if (!read_least(collective, &rank.summary.busbw_min)) {
        return PERF_EXIT_OPTION;
    }
    const struct kolo_config config = config_of(&rank.options);
    const kolo_status status = kolo_comm_create_env(&config, &rank.comm);
    if (status < 0) {
        return complain(collective, "joining", status);
    }
    rank.job.per_process = (int)(rank.options.threads * rank.options.gpus);
    if (rank.job.per_process == 1) {
        const int code = perf_sweep(&rank);
        kolo_comm_destroy(rank.comm);
        return code;
    }
    struct kolo_id id;
    const bool by_id = kolo_comm_size(rank.comm) > 1 || rank.options.parallel_init != 0;
    const kolo_status made = by_id ? make_id(rank.comm, &id, &rank.job) : KOLO_OK;
    const int code = made < 0 ? complain(collective, "starting the ranks", made) : PERF_EXIT_OK;
    kolo_comm_destroy(rank.comm);
    return made < 0 ? code : run_threads(&rank);
}

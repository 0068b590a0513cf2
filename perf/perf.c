// SPDX-License-Identifier: Apache-2.0
/* Starts the ranks. This process is one of the launcher's ranks, or it is alone and its threads are
 * the ranks (-t). Options are checked before any rank joins. */
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

/* Run the ranks' threads. If a thread cannot start, all ranks are aborted: they would wait for it.
 */
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

static int run_threads(const struct perf_rank *template)
{
    const int nranks = (int)template->options.threads;
    struct kolo_comm **comms = calloc((size_t)nranks, sizeof(struct kolo_comm *));
    struct perf_rank *ranks = calloc((size_t)nranks, sizeof(*ranks));
    pthread_t *threads = calloc((size_t)nranks, sizeof(*threads));
    int code = PERF_EXIT_INTERNAL;
    if (comms != NULL && ranks != NULL && threads != NULL) {
        const struct kolo_config config = config_of(&template->options);
        const kolo_status status = kolo_comm_create_local(nranks, &config, comms);
        for (int r = 0; r < nranks; r++) {
            ranks[r] = *template;
            ranks[r].comm = comms[r];
        }
        code = status < 0 ? complain(template->collective, "starting the ranks", status)
                          : run_started(ranks, threads, nranks);
    }
    free(threads);
    free(ranks);
    free(comms);
    return code;
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
    const struct kolo_config config = config_of(&rank.options);
    const kolo_status status = kolo_comm_create_env(&config, &rank.comm);
    if (status < 0) {
        return complain(collective, "joining", status);
    }
    const int nranks = kolo_comm_size(rank.comm);
    int code = PERF_EXIT_OK;
    if (rank.options.threads == 1) {
        code = perf_sweep(&rank);
    } else if (nranks > 1) {
        code = PERF_EXIT_OPTION;
        fprintf(stderr, "%s: -t/--nthreads: %ld is not allowed in a job of %d processes; give 1\n",
                collective->name, rank.options.threads, nranks);
    }
    kolo_comm_destroy(rank.comm);
    return rank.options.threads > 1 && nranks == 1 ? run_threads(&rank) : code;
}

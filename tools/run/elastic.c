// SPDX-License-Identifier: Apache-2.0
/* `kolo run --elastic`: a job that goes on without ranks that fail, and takes others in.
 *
 * The launcher only starts replacements. Ranks meet in a folder that it makes, which outlives each of
 * them: an old rank puts the id there by which a new one enters (kolo_comm_enter()). The folder is its
 * user's alone, because who reads an id can enter. */
#include "tools/run/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[PATH_MAX];

bool run_elastic_range(const char *text, int most, struct run_options *out)
{
    char least[16] = "";
    long min = 0;
    long max = 0;
    const char *colon = strchr(text, ':');
    if (colon == NULL || colon - text >= (int)sizeof least) {
        return false;
    }
    memcpy(least, text, (size_t)(colon - text));
    if (!kolo_parse_int(least, 1, most, &min) || !kolo_parse_int(colon + 1, min, most, &max)) {
        return false;
    }
    out->min_ranks = (int)min;
    out->nranks = (int)max;
    return true;
}

bool run_elastic_prepare(void)
{
    const char *parent = getenv("TMPDIR");
    (void)snprintf(folder, sizeof folder, "%s/kolo-elastic-XXXXXX",
                   parent != NULL && parent[0] == '/' ? parent : "/tmp");
    if (mkdtemp(folder) == NULL) {
        (void)fprintf(stderr, "kolo run: %s: %s\n", folder, strerror(errno));
        folder[0] = '\0';
        return false;
    }
    return true;
}

void run_elastic_end(void)
{
    DIR *dir = folder[0] != '\0' ? opendir(folder) : NULL;
    if (dir != NULL) {
        for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
        (void)closedir(dir);
        (void)rmdir(folder);
    }
    folder[0] = '\0';
}

void run_elastic_environment(const struct run_state *run, int rank)
{
    char text[32];
    if (run->options.min_ranks == 0) { /* a job inside an elastic one is not elastic */
        (void)unsetenv("KOLO_ELASTIC");
        (void)unsetenv("KOLO_ELASTIC_DIR");
        (void)unsetenv("KOLO_RESTARTS");
        return;
    }
    (void)snprintf(text, sizeof text, "%d:%d", run->options.min_ranks, run->options.nranks);
    (void)setenv("KOLO_ELASTIC", text, 1);
    (void)setenv("KOLO_ELASTIC_DIR", folder, 1);
    (void)snprintf(text, sizeof text, "%d", run->ranks[rank].restarts);
    (void)setenv("KOLO_RESTARTS", text, 1);
}

static int count_finished(const struct run_state *run)
{
    int count = 0;
    for (int i = 0; i < run->nstarted; i++) {
        count += run->ranks[i].exited && run->ranks[i].status == 0;
    }
    return count;
}

bool run_elastic_given_up(const struct run_state *run, char why[RUN_WHY_BYTES])
{
    char path[PATH_MAX + sizeof "/failed"];
    (void)snprintf(path, sizeof path, "%s/failed", folder);
    FILE *file = run->options.min_ranks > 0 ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return false;
    }
    why[fread(why, 1, RUN_WHY_BYTES - 1, file)] = '\0';
    (void)fclose(file);
    return true;
}

bool run_elastic_goes_on(const struct run_state *run)
{
    const int left = run->nstarted - run->nexited + count_finished(run);
    return run->options.min_ranks > 0 && left >= run->options.min_ranks;
}

pid_t run_elastic_replace(struct run_state *run, int rank)
{
    struct run_rank *failed = &run->ranks[rank];
    const pid_t old = failed->pid;
    failed->given_up = true;
    (void)kill(-old, SIGKILL); /* what it started; the zombie keeps the number from strangers */
    /* Once a rank has finished, the others are about to: nobody takes a new one in. */
    if (run->nrestarts >= run->options.max_restarts || count_finished(run) > 0) {
        return 0;
    }
    run_end_streams(run, failed);
    failed->restarts++;
    const int error = run_start_rank(run, rank);
    if (error != 0) {
        (void)fprintf(stderr, "kolo run: cannot start rank %d again: %s\n", rank, strerror(error));
        return 0;
    }
    run->nrestarts++;
    run->nexited--;
    failed->given_up = false;
    failed->exited = false;
    failed->status = 0;
    return old;
}

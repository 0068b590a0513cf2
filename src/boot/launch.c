// SPDX-License-Identifier: Apache-2.0
/* A table of launchers: the variables that hold rank and size, and the variables that name the job.
 * The rows of mpirun were checked with Open MPI 4.1 and MPICH 4.0; the others are documented for
 * torchrun (pytorch.org/docs/stable/elastic/run.html) and srun (slurm.schedmd.com/srun.html).
 *
 * Hydra (MPICH) names no job. But every rank inherits the proxy's control socket, also behind a
 * wrapper script. Its inode number is the same in all ranks and differs between jobs. */
#include "boot/launch.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Slurm numbers the batch script, interactive and external steps from here on. Each of them is one
 * process, whatever SLURM_NTASKS says. */
#define FIRST_SPECIAL_STEP 0xfffffff0L

enum { MAX_JOB_VARIABLES = 4, NAME_CHARS = 24 };

struct launcher {
    const char *name;
    const char *prefix; /* of the meeting's name */
    const char *rank, *size, *local_rank, *local_size;
    const char *nodes;                       /* holds the number of hosts; NULL: no such variable */
    const char *job[MAX_JOB_VARIABLES];      /* the variables that together name the job */
    bool (*is_used)(void);                   /* NULL: used if `rank` or `size` is set */
    bool (*name_job)(struct kolo_text *out); /* names the job if none of `job` is set */
};

static bool by_hydra(void)
{
    return kolo_env("PMI_RANK") != NULL && kolo_env("MPI_LOCALNRANKS") != NULL;
}

static bool by_srun(void)
{
    const char *step = kolo_env("SLURM_STEP_ID");
    long number = 0;
    return step != NULL && kolo_env("SLURM_PROCID") != NULL &&
           !(kolo_parse_int(step, 0, LONG_MAX, &number) && number >= FIRST_SPECIAL_STEP);
}

static bool name_by_control_socket(struct kolo_text *out)
{
    const char *text = kolo_env("HYDI_CONTROL_FD");
    long fd = -1;
    struct stat info;
    if (text == NULL || !kolo_parse_int(text, 0, INT_MAX, &fd) || fstat((int)fd, &info) != 0 ||
        !S_ISSOCK(info.st_mode)) {
        return false;
    }
    kolo_text_add(out, "socket %llu", (unsigned long long)info.st_ino);
    return true;
}

static const struct launcher launchers[] = {
    {"kolo run",
     "kolo",
     "KOLO_RANK",
     "KOLO_NRANKS",
     "KOLO_LOCAL_RANK",
     "KOLO_LOCAL_SIZE",
     NULL,
     {"KOLO_JOB"},
     NULL,
     NULL},
    {"torchrun",
     "torch",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     NULL,
     {"TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
     NULL,
     NULL},
    {"mpirun (Open MPI)",
     "ompi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports",
      "OMPI_MCA_orte_hnp_uri"},
     NULL,
     NULL},
    {"mpiexec (hydra)",
     "hydra",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     NULL,
     {"PMI_JOBID"},
     by_hydra,
     name_by_control_socket},
    {"srun",
     "srun",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     NULL,
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     by_srun,
     NULL},
    {"a PMI launcher",
     "pmi",
     "PMI_RANK",
     "PMI_SIZE",
     "PMI_LOCAL_RANK",
     "PMI_LOCAL_SIZE",
     NULL,
     {"PMI_JOBID"},
     NULL,
     NULL},
};

static bool is_used(const struct launcher *launcher)
{
    if (launcher->is_used != NULL) {
        return launcher->is_used();
    }
    return kolo_env(launcher->rank) != NULL || kolo_env(launcher->size) != NULL;
}

static kolo_status read_number(const char *name, long lo, long hi, int *out)
{
    long number = 0;
    KOLO_TRY(kolo_env_int(name, lo, hi, lo, &number));
    *out = (int)number;
    return KOLO_OK;
}

/* Require `name` if `other` is set. */
static kolo_status need_variable(const char *name, const char *other)
{
    if (kolo_env(name) == NULL) {
        const char *value = kolo_env(other);
        return kolo_fail(KOLO_ERR_INVALID, "%s is \"%s\" but %s is not set: set both or neither",
                         other, value != NULL ? value : "", name);
    }
    return KOLO_OK;
}

static kolo_status read_ranks(const struct launcher *launcher, struct kolo_launch *out)
{
    KOLO_TRY(need_variable(launcher->size, launcher->rank));
    KOLO_TRY(need_variable(launcher->rank, launcher->size));
    KOLO_TRY(read_number(launcher->size, 1, KOLO_BOOT_MAX_RANKS, &out->nranks));
    KOLO_TRY(read_number(launcher->rank, 0, out->nranks - 1, &out->rank));
    out->local_size = out->nranks;
    if (launcher->local_size != NULL && kolo_env(launcher->local_size) != NULL) {
        KOLO_TRY(read_number(launcher->local_size, 1, out->nranks, &out->local_size));
    }
    out->local_rank = out->rank % out->local_size; /* the default: consecutive ranks share a host */
    if (kolo_env(launcher->local_rank) != NULL) {
        KOLO_TRY(read_number(launcher->local_rank, 0, out->local_size - 1, &out->local_rank));
    }
    return KOLO_OK;
}

static kolo_status count_hosts(const struct launcher *launcher, struct kolo_launch *launch)
{
    int nodes = 1;
    if (launcher->nodes != NULL && kolo_env(launcher->nodes) != NULL) {
        KOLO_TRY(read_number(launcher->nodes, 1, KOLO_BOOT_MAX_RANKS, &nodes));
    }
    launch->several = nodes > 1 || launch->local_size < launch->nranks ||
                      kolo_env("KOLO_ROOT") != NULL || kolo_env("KOLO_ID_FILE") != NULL;
    return KOLO_OK;
}

/* The name of a meeting point is short: a readable beginning and a hash of the whole. */
static void name_meeting(const char *prefix, const struct kolo_text *job, struct kolo_meet *out)
{
    (void)snprintf(out->name, sizeof out->name, "%s-%.*s-%016llx", prefix, NAME_CHARS, job->chars,
                   (unsigned long long)kolo_hash(0, job->chars, job->len));
}

static kolo_status read_job(const struct launcher *launcher, struct kolo_launch *out)
{
    struct kolo_text job = {0};
    bool named = false;
    for (size_t i = 0; i < MAX_JOB_VARIABLES && launcher->job[i] != NULL; i++) {
        const char *value = kolo_env(launcher->job[i]);
        named = named || value != NULL;
        kolo_text_add(&job, i == 0 ? "%s" : ":%s", value != NULL ? value : "");
    }
    if (!named && launcher->name_job != NULL) {
        named = launcher->name_job(&job);
    }
    const bool is_full = job.chars != NULL;
    if (named && is_full) {
        name_meeting(launcher->prefix, &job, &out->meet);
    }
    kolo_text_free(&job);
    if (named && !is_full) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the name of the job");
    }
    if (!named && out->several) { /* the address or the id names the job */
        (void)snprintf(out->meet.name, sizeof out->meet.name, "%s", launcher->prefix);
    } else if (!named && out->nranks > 1) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "%s is set but %s is not: nothing tells this job from another (KOLO_RANK, "
                         "KOLO_NRANKS and KOLO_JOB would)",
                         launcher->rank, launcher->job[0]);
    }
    return KOLO_OK;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c | 0x20 : c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* The error text never holds the value of the secret. */
static kolo_status read_secret(struct kolo_meet *out)
{
    const char *text = kolo_env("KOLO_SECRET");
    if (text == NULL) {
        return KOLO_OK;
    }
    if (strlen(text) != 2 * sizeof out->secret) {
        return kolo_fail(KOLO_ERR_INVALID, "KOLO_SECRET has %zu characters, not %zu", strlen(text),
                         2 * sizeof out->secret);
    }
    for (size_t i = 0; i < sizeof out->secret; i++) {
        const int high = hex_digit(text[2 * i]);
        const int low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return kolo_fail(KOLO_ERR_INVALID, "KOLO_SECRET is not hexadecimal at character %zu",
                             2 * i + (high < 0 ? 0 : 1));
        }
        out->secret[i] = (unsigned char)(16 * high + low);
    }
    return KOLO_OK;
}

static kolo_status detect_launcher(struct kolo_launch *out)
{
    for (size_t i = 0; i < KOLO_LENGTH(launchers); i++) {
        if (is_used(&launchers[i])) {
            out->launcher = launchers[i].name;
            KOLO_TRY(read_ranks(&launchers[i], out));
            KOLO_TRY(count_hosts(&launchers[i], out));
            return read_job(&launchers[i], out);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_launch_detect(struct kolo_launch *out)
{
    struct kolo_launch found = {.nranks = 1, .local_size = 1, .launcher = "no launcher"};
    KOLO_TRY(detect_launcher(&found));
    KOLO_TRY(read_secret(&found.meet));
    if (found.meet.name[0] == '\0') { /* alone */
        (void)snprintf(found.meet.name, sizeof found.meet.name, "alone-%016llx",
                       (unsigned long long)kolo_process_id());
    }
    KOLO_LOG(INFO, INIT, "started by %s: rank %d of %d, %d of %d on this host, meeting at \"%s\"",
             found.launcher, found.rank, found.nranks, found.local_rank, found.local_size,
             found.meet.name);
    *out = found;
    return KOLO_OK;
}

kolo_status kolo_launch_next(int timeout_ms, struct kolo_launch *out)
{
    static _Atomic unsigned count;
    struct kolo_launch found;
    KOLO_TRY(kolo_launch_detect(&found));
    const size_t len = strlen(found.meet.name);
    found.number = atomic_fetch_add(&count, 1);
    found.timeout_ms = timeout_ms;
    (void)snprintf(found.meet.name + len, sizeof found.meet.name - len, "#%u", found.number);
    if (found.several && found.nranks > 1) {
        KOLO_TRY(kolo_launch_hosts(&found));
    }
    *out = found;
    return KOLO_OK;
}

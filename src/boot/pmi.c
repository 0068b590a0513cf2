// SPDX-License-Identifier: Apache-2.0
/* Passing an id by PMIx, by PMI-2 or by a file. The declarations follow the PMIx 4 standard and
 * Slurm's pmi2.h, reduced to the parts in use. */
#include "boot/pmi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_CHARS = 2 * sizeof(struct kolo_id) + 1, KEY_CHARS = 512 };

/* ---- an id as text ---- */

static void to_text(const struct kolo_id *id, char out[ID_CHARS])
{
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", (unsigned)(unsigned char)id->bytes[i]);
    }
}

static kolo_status from_text(const char *text, struct kolo_id *out)
{
    unsigned value = 0;
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        if (text == NULL || strnlen(text, ID_CHARS) != ID_CHARS - 1 ||
            sscanf(text + 2 * i, "%2x", &value) != 1) {
            return kolo_fail(KOLO_ERR_INVALID, "the launcher passed on an invalid id");
        }
        memcpy(out->bytes + i, &(unsigned char){(unsigned char)value}, 1);
    }
    return KOLO_OK;
}

static void *find_symbol(void *library, const char *name)
{
    return library != NULL ? dlsym(library, name) : NULL;
}

/* ---- PMIx ---- */

struct pmix_proc {
    char nspace[256];
    uint32_t rank;
};
struct pmix_value {
    uint16_t type;
    union {
        char *string;
        unsigned char room[32];
    } data;
};
enum { PMIX_STRING = 3, PMIX_GLOBAL = 3 };

static struct {
    int (*init)(struct pmix_proc *self, void *info, size_t ninfo);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t nprocs, const void *info, size_t ninfo);
    int (*get)(const struct pmix_proc *proc, const char *key, const void *info, size_t ninfo,
               struct pmix_value **out);
    int (*finalize)(const void *info, size_t ninfo);
    struct pmix_proc self;
} pmix;

static kolo_status pmix_failed(const char *what, int code)
{
    return code == 0 ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "%s failed with %d", what, code);
}

static kolo_status open_pmix(void)
{
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    *(void **)&pmix.init = find_symbol(library, "PMIx_Init");
    *(void **)&pmix.put = find_symbol(library, "PMIx_Put");
    *(void **)&pmix.commit = find_symbol(library, "PMIx_Commit");
    *(void **)&pmix.fence = find_symbol(library, "PMIx_Fence");
    *(void **)&pmix.get = find_symbol(library, "PMIx_Get");
    *(void **)&pmix.finalize = find_symbol(library, "PMIx_Finalize");
    if (pmix.init == NULL || pmix.put == NULL || pmix.commit == NULL || pmix.fence == NULL ||
        pmix.get == NULL || pmix.finalize == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "PMIx: libpmix.so.2 cannot be used: %s", dlerror());
    }
    return pmix_failed("PMIx_Init", pmix.init(&pmix.self, NULL, 0));
}

static kolo_status pass_pmix(int rank, const char *key, char text[ID_CHARS])
{
    struct pmix_value *got = NULL;
    if (rank == 0) {
        struct pmix_value value = {.type = PMIX_STRING, .data.string = text};
        KOLO_TRY(pmix_failed("PMIx_Put", pmix.put(PMIX_GLOBAL, key, &value)));
        KOLO_TRY(pmix_failed("PMIx_Commit", pmix.commit()));
    }
    KOLO_TRY(pmix_failed("PMIx_Fence", pmix.fence(NULL, 0, NULL, 0)));
    if (rank == 0) {
        return KOLO_OK;
    }
    struct pmix_proc first = pmix.self;
    first.rank = 0;
    KOLO_TRY(pmix_failed("PMIx_Get", pmix.get(&first, key, NULL, 0, &got)));
    if (got == NULL || got->type != PMIX_STRING || got->data.string == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "PMIx_Get gave no text for %s", key);
    }
    (void)snprintf(text, ID_CHARS, "%s", got->data.string); /* PMIx keeps `got`: a few bytes */
    return KOLO_OK;
}

/* A launcher counts a process that exits between Init and Finalize as failed. PMIx counts both
 * calls, so they do not disturb an MPI library in this process. */
static kolo_status share_pmix(int rank, const char *key, char text[ID_CHARS])
{
    KOLO_TRY(open_pmix());
    const kolo_status st = pass_pmix(rank, key, text);
    return st == KOLO_OK ? pmix_failed("PMIx_Finalize", pmix.finalize(NULL, 0)) : st;
}

/* ---- PMI-2 ---- */

static struct {
    int (*initialized)(void);
    int (*init)(int *spawned, int *size, int *rank, int *appnum);
    int (*put)(const char *key, const char *value);
    int (*fence)(void);
    int (*get)(const char *job, int source, const char *key, char *value, int room, int *len);
} pmi2;

static kolo_status open_pmi2(void)
{
    int spawned = 0;
    int size = 0;
    int rank = 0;
    int app = 0;
    void *library = dlopen("libpmi2.so.0", RTLD_NOW | RTLD_LOCAL);
    *(void **)&pmi2.initialized = find_symbol(library, "PMI2_Initialized");
    *(void **)&pmi2.init = find_symbol(library, "PMI2_Init");
    *(void **)&pmi2.put = find_symbol(library, "PMI2_KVS_Put");
    *(void **)&pmi2.fence = find_symbol(library, "PMI2_KVS_Fence");
    *(void **)&pmi2.get = find_symbol(library, "PMI2_KVS_Get");
    if (pmi2.initialized == NULL || pmi2.init == NULL || pmi2.put == NULL || pmi2.fence == NULL ||
        pmi2.get == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "PMI-2: libpmi2.so.0 cannot be used: %s", dlerror());
    }
    return pmi2.initialized() ? KOLO_OK
                              : pmix_failed("PMI2_Init", pmi2.init(&spawned, &size, &rank, &app));
}

static kolo_status share_pmi2(int rank, const char *key, char text[ID_CHARS])
{
    int len = 0;
    KOLO_TRY(open_pmi2());
    if (rank == 0) {
        KOLO_TRY(pmix_failed("PMI2_KVS_Put", pmi2.put(key, text)));
    }
    KOLO_TRY(pmix_failed("PMI2_KVS_Fence", pmi2.fence()));
    return rank == 0 ? KOLO_OK
                     : pmix_failed("PMI2_KVS_Get", pmi2.get(NULL, -1, key, text, ID_CHARS, &len));
}

/* ---- PMIx or PMI-2 ---- */

bool kolo_pmi_is_there(void)
{
    return kolo_env("PMIX_NAMESPACE") != NULL || kolo_env("PMI_FD") != NULL;
}

kolo_status kolo_pmi_share(int rank, unsigned number, struct kolo_id *id)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char key[KEY_CHARS] = "";
    char text[ID_CHARS] = "";
    (void)snprintf(key, sizeof key, "kolo.id.%u", number);
    if (rank == 0) {
        to_text(id, text);
    }
    pthread_mutex_lock(&lock);
    kolo_status st = kolo_env("PMIX_NAMESPACE") != NULL ? share_pmix(rank, key, text)
                                                        : share_pmi2(rank, key, text);
    pthread_mutex_unlock(&lock);
    if (st == KOLO_OK && rank != 0) {
        st = from_text(text, id);
    }
    explicit_bzero(text, sizeof text);
    return st;
}

/* ---- a file ---- */

static void name_file(const char *path, unsigned number, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, number == 0 ? "%s" : "%s.%u", path, number);
}

static kolo_status write_id(const char *name, const struct kolo_id *id)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno == EEXIST
                   ? kolo_fail(KOLO_ERR_INVALID,
                               "KOLO_ID_FILE %s is there already: remove it, or name another for "
                               "this job",
                               name)
                   : kolo_fail(KOLO_ERR_SYSTEM, "KOLO_ID_FILE %s: %s", name, strerror(errno));
    }
    const bool whole = write(fd, id->bytes, sizeof id->bytes) == (ssize_t)sizeof id->bytes;
    const int error = errno;
    close(fd);
    if (!whole) {
        (void)unlink(name);
        return kolo_fail(KOLO_ERR_SYSTEM, "KOLO_ID_FILE %s: %s", name, strerror(error));
    }
    return KOLO_OK;
}

/* INPROGRESS: the file does not exist yet, or is not complete. */
static kolo_status read_id(const char *name, struct kolo_id *out)
{
    struct stat info;
    const int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT || errno == ESTALE
                   ? KOLO_INPROGRESS
                   : kolo_fail(KOLO_ERR_SYSTEM, "KOLO_ID_FILE %s: %s", name, strerror(errno));
    }
    kolo_status st = KOLO_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & 077) != 0) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "KOLO_ID_FILE %s must be a file of this user that nobody else can read",
                       name);
    } else if (read(fd, out->bytes, sizeof out->bytes) != (ssize_t)sizeof out->bytes) {
        st = KOLO_INPROGRESS;
    }
    close(fd);
    return st;
}

kolo_status kolo_id_file_share(const char *path, int rank, unsigned number, int timeout_ms,
                               struct kolo_id *id)
{
    char name[PATH_MAX];
    const double deadline = kolo_now_us() + timeout_ms * 1e3;
    name_file(path, number, name);
    if (rank == 0) {
        return write_id(name, id);
    }
    for (;;) {
        const kolo_status st = read_id(name, id);
        if (st != KOLO_INPROGRESS) {
            return st;
        }
        if (kolo_now_us() > deadline) {
            return kolo_fail(KOLO_ERR_TIMEOUT,
                             "KOLO_ID_FILE %s did not come in %d ms: is it on a file system that "
                             "all hosts share with rank %d, and has rank 0 started?",
                             name, timeout_ms, rank);
        }
        (void)usleep(10000);
    }
}

void kolo_id_file_remove(const char *path, unsigned number)
{
    char name[PATH_MAX];
    name_file(path, number, name);
    (void)unlink(name);
}

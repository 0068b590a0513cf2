// SPDX-License-Identifier: Apache-2.0
/* Numbers, text, environment and names of types, operations and codecs. */
#include "util/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *kolo_why(int error)
{
    static _Thread_local char text[128];
    struct rlimit files;
    if (error != EMFILE || getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return strerror(error);
    }
    (void)snprintf(text, sizeof text, "%s: this process may have %llu (ulimit -n), and needs more",
                   strerror(error), (unsigned long long)files.rlim_cur);
    return text;
}

/* /proc/PID/stat from the state on, in line[512]. NULL: there is no such process, or it cannot be
 * looked at, as without a free descriptor; then *gone tells which. */
static const char *read_stat(int pid, char *line, bool *gone)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    line[0] = '\0';
    FILE *file = fopen(path, "re");
    *gone = file != NULL || errno == ENOENT || errno == ESRCH;
    if (file == NULL) {
        return NULL;
    }
    const bool read = fgets(line, 512, file) != NULL;
    (void)fclose(file);
    const char *end = read ? strrchr(line, ')') : NULL; /* the name may contain any character */
    return end != NULL && end[1] == ' ' ? end + 2 : NULL;
}

char kolo_process_state(int pid)
{
    char line[512];
    bool gone = false;
    const char *stat = read_stat(pid, line, &gone);
    return stat != NULL ? stat[0] : gone ? (char)0 : '?';
}

bool kolo_process_is_ending(int pid)
{
    enum { PF_EXITING = 4 }; /* linux/sched.h; of the first thread */
    char line[512];
    unsigned flags = 0;
    bool gone = false;
    const char *stat = read_stat(pid, line, &gone);
    if (stat == NULL) {
        return gone;
    }
    return stat[0] == 'Z' || stat[0] == 'X' ||
           (sscanf(stat, "%*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & PF_EXITING) != 0);
}

int kolo_cancel_never(void)
{
    int state = 0;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

void kolo_cancel_again(const int *state)
{
    (void)pthread_setcancelstate(*state, NULL);
}

double kolo_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int kolo_digits(double value, int least)
{
    enum { MOST = 17 };
    int digits = 1;
    for (double next = 10; digits < MOST && (digits < least || value >= next - 0.5); next *= 10) {
        digits++;
    }
    return digits;
}

const char *kolo_env(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

kolo_status kolo_check_range(const char *name, long value, long low, long high)
{
    return value >= low && value <= high
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID, "%s is %ld; it must be %ld to %ld", name, value, low,
                           high);
}

kolo_status kolo_env_int(const char *name, long low, long high, long otherwise, long *out)
{
    const char *text = kolo_env(name);
    long value = otherwise;
    if (text != NULL && !kolo_parse_int(text, low, high, &value)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is \"%.40s\"; it must be %ld to %ld", name, text,
                         low, high);
    }
    *out = value;
    return KOLO_OK;
}

kolo_status kolo_env_word(const char *name, const char *const *words, int count, int *out)
{
    const char *text = kolo_env(name);
    struct kolo_text all = {0};
    for (int i = 0; text != NULL && i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            kolo_text_free(&all);
            return KOLO_OK;
        }
        kolo_text_add(&all, "%s%s", i == 0 ? "" : i < count - 1 ? ", " : " or ", words[i]);
    }
    const kolo_status st = text == NULL
                               ? KOLO_OK
                               : kolo_fail(KOLO_ERR_INVALID, "%s is \"%.40s\"; it must be %s", name,
                                           text, all.chars != NULL ? all.chars : "another word");
    kolo_text_free(&all);
    return st;
}

bool kolo_parse_bytes(const char *text, size_t *out)
{
    static const char suffixes[] = "kmgt";
    char *end = NULL;
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    unsigned shift = 0;
    if (*end != '\0') {
        const char *suffix = strchr(suffixes, *end | 0x20);
        if (suffix == NULL || end[1] != '\0') {
            return false;
        }
        shift = 10 * (unsigned)(suffix - suffixes + 1);
    }
    if (number > (SIZE_MAX >> shift)) {
        return false;
    }
    *out = (size_t)number << shift;
    return true;
}

bool kolo_parse_int(const char *text, long lo, long hi, long *out)
{
    char *end = NULL;
    if (text == NULL || text[0] == '\0') {
        return false;
    }
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < lo || value > hi) {
        return false;
    }
    *out = value;
    return true;
}

uint64_t kolo_hash(uint64_t seed, const void *bytes, size_t len)
{
    const unsigned char *byte = bytes;
    uint64_t hash = seed != 0 ? seed : UINT64_C(14695981039346656037);
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

void kolo_text_add(struct kolo_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0) {
        return;
    }
    if (text->len + (size_t)need + 1 > text->cap) {
        const size_t cap = 2 * (text->len + (size_t)need + 1);
        char *chars = realloc(text->chars, cap);
        if (chars == NULL) {
            return;
        }
        text->chars = chars;
        text->cap = cap;
    }
    va_start(args, format);
    (void)vsnprintf(text->chars + text->len, text->cap - text->len, format, args);
    va_end(args);
    text->len += (size_t)need;
}

void kolo_text_free(struct kolo_text *text)
{
    free(text->chars);
    *text = (struct kolo_text){0};
}

static const struct {
    const char *name;
    size_t bytes;
} types[KOLO_TYPES] = {
    [KOLO_INT8] = {"int8", 1},
    [KOLO_UINT8] = {"uint8", 1},
    [KOLO_INT16] = {"int16", 2},
    [KOLO_UINT16] = {"uint16", 2},
    [KOLO_INT32] = {"int32", 4},
    [KOLO_UINT32] = {"uint32", 4},
    [KOLO_INT64] = {"int64", 8},
    [KOLO_UINT64] = {"uint64", 8},
    [KOLO_FLOAT16] = {"float16", 2},
    [KOLO_BFLOAT16] = {"bfloat16", 2},
    [KOLO_FLOAT32] = {"float32", 4},
    [KOLO_FLOAT64] = {"float64", 8},
    [KOLO_FLOAT8_E4M3] = {"float8_e4m3", 1},
    [KOLO_FLOAT8_E5M2] = {"float8_e5m2", 1},
    [KOLO_BOOL] = {"bool", 1},
    [KOLO_INT32_INT32] = {"int32_int32", 8},
    [KOLO_INT64_INT64] = {"int64_int64", 16},
    [KOLO_FLOAT32_INT32] = {"float32_int32", 8},
    [KOLO_FLOAT64_INT32] = {"float64_int32", 16},
};

static const char *const ops[KOLO_OPS] = {
    [KOLO_SUM] = "sum",       [KOLO_PROD] = "prod", [KOLO_MIN] = "min",   [KOLO_MAX] = "max",
    [KOLO_AVG] = "avg",       [KOLO_LAND] = "land", [KOLO_LOR] = "lor",   [KOLO_LXOR] = "lxor",
    [KOLO_BAND] = "band",     [KOLO_BOR] = "bor",   [KOLO_BXOR] = "bxor", [KOLO_MINLOC] = "minloc",
    [KOLO_MAXLOC] = "maxloc",
};

size_t kolo_type_bytes(enum kolo_type type)
{
    return (unsigned)type < KOLO_TYPES ? types[type].bytes : 0;
}

const char *kolo_type_name(enum kolo_type type)
{
    return (unsigned)type < KOLO_TYPES ? types[type].name : "unknown";
}

const char *kolo_op_name(kolo_op op)
{
    return op < KOLO_OPS ? ops[op] : "premulsum";
}

const char *kolo_codec_name(enum kolo_codec codec)
{
    static const char *const names[] = {[KOLO_CODEC_NONE] = "none",
                                        [KOLO_CODEC_INT8] = "int8",
                                        [KOLO_CODEC_BF16] = "bf16",
                                        [KOLO_CODEC_INT4] = "int4",
                                        [KOLO_CODEC_FP8] = "fp8"};
    return (unsigned)codec < KOLO_CODECS ? names[codec] : "unknown";
}

/* ---- files to be written ---- */

/* Output files that a variable names. They may lie in a directory to which other users can write,
 * for example /tmp. There another user can put a link to one of our files, a file of their own, or
 * a pipe that nobody reads. */

/* Open without following a link, unless root or this user made it. Never blocks. */
static int open_path(const char *path, int flags)
{
    struct stat link;
    flags |= O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    const int fd = open(path, flags | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ELOOP && lstat(path, &link) == 0 &&
        (link.st_uid == 0 || link.st_uid == geteuid())) {
        return open(path, flags, 0600);
    }
    return fd;
}

/* NULL, or why nothing may be written there. */
static const char *objection_to(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return strerror(errno);
    }
    if (!S_ISCHR(info.st_mode) && !S_ISREG(info.st_mode)) {
        return "it is not a file";
    }
    if (S_ISREG(info.st_mode) && info.st_uid != 0 && info.st_uid != geteuid()) {
        return "it belongs to another user";
    }
    if (S_ISREG(info.st_mode) && info.st_nlink > 1) {
        return "it has another name, too";
    }
    return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0 ? NULL : strerror(errno);
}

int kolo_open_output(const char *path, bool append, const char **why)
{
    const int stream = strcmp(path, "/dev/stdout") == 0   ? STDOUT_FILENO
                       : strcmp(path, "/dev/stderr") == 0 ? STDERR_FILENO
                                                          : -1;
    const int fd =
        stream >= 0 ? fcntl(stream, F_DUPFD_CLOEXEC, 3) : open_path(path, append ? O_APPEND : 0);
    if (fd < 0) {
        *why = errno == ELOOP   ? "it is a symbolic link of another user"
               : errno == ENXIO ? "it is a pipe that nobody reads"
                                : strerror(errno);
        return -1;
    }
    *why = stream >= 0 ? NULL : objection_to(fd);
    if (*why == NULL && stream < 0 && !append && ftruncate(fd, 0) != 0 && errno != EINVAL) {
        *why = strerror(errno);
    }
    if (*why != NULL) {
        close(fd);
        return -1;
    }
    return fd;
}

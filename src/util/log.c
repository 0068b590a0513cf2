// SPDX-License-Identifier: Apache-2.0
/* Error text of a thread, and the log in NCCL's form: "host:pid:tid [dev] KOLO INFO message".
 *
 * One write(2) writes a whole line, so that ranks that share a terminal do not mix their lines.
 * Source of the form: NCCL 2.30 debug.cc prefix. */
#include "util/descriptor.h"
#include "util/escape.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char error_text[1024];

static void (*_Atomic warn)(const char *text); /* kolo_warn_with() */

static struct {
    pthread_once_t once;
    enum kolo_level level;
    unsigned subsys;
    int fd;
    struct kolo_own_fd file; /* where fd is no standard stream */
    char host[64];
} logger = {.once = PTHREAD_ONCE_INIT, .fd = 1};

/* Report an unknown word. Without this, a misspelt variable would look like a silent job. */
static void complain_of(const char *name, const char *word, int len, const char *allowed)
{
    char copy[64], shown[4 * sizeof copy];
    (void)snprintf(copy, sizeof copy, "%.*s", len, word);
    kolo_escape_line(copy, shown, sizeof shown);
    (void)fprintf(stderr, "kolo: %s: \"%s\" is not known; it may be %s\n", name, shown, allowed);
}

static unsigned subsys_mask(const char *list)
{
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = {{"INIT", KOLO_SUB_INIT}, {"NET", KOLO_SUB_NET},   {"GRAPH", KOLO_SUB_GRAPH},
                 {"TUNE", KOLO_SUB_TUNE}, {"PLAN", KOLO_SUB_PLAN}, {"EXEC", KOLO_SUB_EXEC},
                 {"SHM", KOLO_SUB_SHM},   {"COLL", KOLO_SUB_COLL}, {"ALL", KOLO_SUB_ALL}};
    const bool invert = list[0] == '^';
    unsigned mask = 0;
    for (const char *word = list + invert; *word != '\0'; word += strspn(word, ",")) {
        const size_t len = strcspn(word, ",");
        bool known = false;
        for (size_t i = 0; i < KOLO_LENGTH(names); i++) {
            if (strlen(names[i].name) == len && strncasecmp(word, names[i].name, len) == 0) {
                mask |= names[i].bit;
                known = true;
            }
        }
        if (!known) {
            complain_of("KOLO_DEBUG_SUBSYS", word, (int)len,
                        "INIT, NET, GRAPH, TUNE, PLAN, EXEC, SHM, COLL or ALL");
        }
        word += len;
    }
    return invert ? KOLO_SUB_ALL & ~mask : mask;
}

static int open_log_file(const char *pattern)
{
    struct kolo_text path = {0};
    for (const char *c = pattern; *c != '\0'; c++) {
        if (c[0] == '%' && c[1] == 'h') {
            kolo_text_add(&path, "%s", logger.host);
            c++;
        } else if (c[0] == '%' && c[1] == 'p') {
            kolo_text_add(&path, "%d", (int)getpid());
            c++;
        } else {
            kolo_text_add(&path, "%c", *c);
        }
    }
    const char *why = "out of memory";
    const int fd = path.chars == NULL ? -1 : kolo_open_output(path.chars, true, &why);
    if (fd < 0) {
        char shown[1024];
        kolo_escape_line(path.chars != NULL ? path.chars : pattern, shown, sizeof shown);
        (void)fprintf(stderr,
                      "kolo: KOLO_DEBUG_FILE: \"%s\" is not written: %s; the log goes to "
                      "standard output\n",
                      shown, why);
    }
    kolo_text_free(&path);
    return fd < 0 ? 1 : fd;
}

static void set_up(void)
{
    static const char *const levels[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
    const char *level = kolo_env("KOLO_DEBUG");
    const char *list = kolo_env("KOLO_DEBUG_SUBSYS");
    const char *file = kolo_env("KOLO_DEBUG_FILE");
    size_t at = 0;
    while (level != NULL && at < KOLO_LENGTH(levels) && strcasecmp(level, levels[at]) != 0) {
        at++;
    }
    if (at < KOLO_LENGTH(levels)) {
        logger.level = (enum kolo_level)at;
    } else {
        complain_of("KOLO_DEBUG", level, (int)strlen(level), "NONE, VERSION, WARN, INFO or TRACE");
    }
    logger.subsys = list != NULL ? subsys_mask(list) : KOLO_SUB_ALL & ~(unsigned)KOLO_SUB_COLL;
    if (gethostname(logger.host, sizeof logger.host - 1) != 0) {
        strcpy(logger.host, "localhost");
    }
    logger.host[strcspn(logger.host, ".")] = '\0';
    if (file != NULL && logger.level > KOLO_LEVEL_VERSION) {
        logger.fd = open_log_file(file);
        logger.file = kolo_own_fd(logger.fd);
    }
}

bool kolo_log_on(enum kolo_level level, unsigned subsys)
{
    pthread_once(&logger.once, set_up);
    if (level == KOLO_LEVEL_WARN && atomic_load_explicit(&warn, memory_order_relaxed) != NULL) {
        return true;
    }
    return level <= logger.level && (level <= KOLO_LEVEL_WARN || (subsys & logger.subsys) != 0);
}

const char *kolo_host_name(void)
{
    pthread_once(&logger.once, set_up);
    return logger.host;
}

/* The program may have closed the log, and opened a file of its own at that number. */
static bool is_open(void)
{
    static _Atomic bool told;
    const bool open = logger.fd <= STDERR_FILENO || kolo_own_fd_is(&logger.file);
    if (!open && !told) {
        told = true;
        (void)fprintf(stderr, "kolo: KOLO_DEBUG_FILE: the program has closed the log; it ends\n");
    }
    return open;
}

static void write_line(const char *line, size_t len)
{
    if (!is_open()) {
        return;
    }
    while (len > 0) {
        const ssize_t n = write(logger.fd, line, len);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return;
        }
        if (n > 0) {
            line += n;
            len -= (size_t)n;
        }
    }
}

static void print_line(enum kolo_level level, const char *message)
{
    struct kolo_text line = {0};
    const int pid = (int)getpid();
    const int tid = (int)syscall(SYS_gettid);
    pthread_once(&logger.once, set_up);
    if (level == KOLO_LEVEL_VERSION) {
        kolo_text_add(&line, "%s\n", message);
    } else if (level == KOLO_LEVEL_WARN) {
        const time_t now = time(NULL);
        struct tm local;
        char stamp[32] = "";
        if (localtime_r(&now, &local) != NULL) {
            (void)strftime(stamp, sizeof stamp, "[%F %T] ", &local);
        }
        kolo_text_add(&line, "\n%s%s:%d:%d [-1] KOLO WARN %s\n", stamp, logger.host, pid, tid,
                      message);
    } else {
        kolo_text_add(&line, "%s:%d:%d [-1] KOLO %s %s\n", logger.host, pid, tid,
                      level == KOLO_LEVEL_INFO ? "INFO" : "TRACE", message);
    }
    if (line.chars != NULL) {
        write_line(line.chars, line.len);
    }
    kolo_text_free(&line);
}

static void tell(enum kolo_level level, const char *message)
{
    void (*const fn)(const char *text) = atomic_load_explicit(&warn, memory_order_acquire);
    if (level == KOLO_LEVEL_WARN && fn != NULL) {
        fn(message);
    }
    if (level <= logger.level) {
        print_line(level, message);
    }
}

void kolo_warn_with(void (*fn)(const char *text))
{
    atomic_store_explicit(&warn, fn, memory_order_release);
}

void kolo_log_print(enum kolo_level level, const char *format, ...)
{
    const int saved = errno;
    char *message = NULL;
    va_list args;
    va_start(args, format);
    errno = saved;
    const int len = vasprintf(&message, format, args);
    const size_t room = len >= 0 ? 4 * (size_t)len + 1 : 0; /* if every character is escaped */
    char *shown = room > 0 ? malloc(room) : NULL;
    if (shown != NULL) {
        kolo_escape_line(message, shown, room);
        tell(level, shown);
    }
    free(shown);
    free(len >= 0 ? message : NULL);
    va_end(args);
    errno = saved;
}

void kolo_log_line(const char *text)
{
    KOLO_LOG(INFO, ALL, "%s", text);
}

#undef kolo_fail /* of the static analyzer */
kolo_status kolo_fail(kolo_status code, const char *format, ...)
{
    const int saved = errno;
    char text[sizeof error_text];
    va_list args;
    va_start(args, format);
    errno = saved;
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kolo_escape_line(text, error_text, sizeof error_text); /* programs print it as a line */
    KOLO_LOG(INFO, ALL, "%s: %s", kolo_status_name(code), error_text);
    errno = saved;
    return code;
}

void kolo_error_set(const char *text)
{
    if (text != error_text) {
        kolo_escape_line(text, error_text, sizeof error_text);
    }
}

const char *kolo_error_text(void)
{
    return error_text;
}

const char *kolo_status_name(kolo_status status)
{
    switch (status) {
    case KOLO_OK:
        return "KOLO_OK";
    case KOLO_INPROGRESS:
        return "KOLO_INPROGRESS";
    case KOLO_ERR_INVALID:
        return "KOLO_ERR_INVALID";
    case KOLO_ERR_UNSUPPORTED:
        return "KOLO_ERR_UNSUPPORTED";
    case KOLO_ERR_MISMATCH:
        return "KOLO_ERR_MISMATCH";
    case KOLO_ERR_PEER:
        return "KOLO_ERR_PEER";
    case KOLO_ERR_TIMEOUT:
        return "KOLO_ERR_TIMEOUT";
    case KOLO_ERR_LINK:
        return "KOLO_ERR_LINK";
    case KOLO_ERR_ABORTED:
        return "KOLO_ERR_ABORTED";
    case KOLO_ERR_SYSTEM:
        return "KOLO_ERR_SYSTEM";
    case KOLO_ERR_FORKED:
        return "KOLO_ERR_FORKED";
    case KOLO_ERR_VERSION:
        return "KOLO_ERR_VERSION";
    case KOLO_ERR_INTERNAL:
        return "KOLO_ERR_INTERNAL";
    }
    return "unknown status";
}

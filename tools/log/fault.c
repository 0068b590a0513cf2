// SPDX-License-Identifier: Apache-2.0
/* Keeps the first warning of each kind, the errors that calls returned, settings, and the plug-in
 * for the network. Two warnings are of one kind if they differ in words with digits only. */
#include "tools/log/take.h"
#include "tools/log/text.h"
#include "util/grow.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAULTS_MAX = 256, FAULTS_SHOWN = 12, TEXT_MAX = 300 };

/* ---- one fault ---- */

/* The text without the words that have digits. The caller frees it. */
static char *kind_of(const char *at, const char *end)
{
    char *kind = malloc((size_t)(end - at) + 1);
    size_t len = 0;
    while (kind != NULL && at < end) {
        const char *stop = at;
        bool digits = false;
        while (stop < end && *stop != ' ') {
            digits |= isdigit((unsigned char)*stop) != 0;
            stop++;
        }
        if (digits) {
            kind[len++] = '#';
        } else {
            memcpy(kind + len, at, (size_t)(stop - at));
            len += (size_t)(stop - at);
        }
        if (stop < end) {
            kind[len++] = ' ';
        }
        at = stop + (stop < end);
    }
    if (kind != NULL) {
        kind[len] = '\0';
    }
    return kind;
}

static char *safe_copy(const char *at, const char *end)
{
    struct kolo_text text = {0};
    const size_t len = (size_t)(end - at);
    kolo_log_text_safe(&text, at, len < TEXT_MAX ? len : TEXT_MAX);
    kolo_text_add(&text, "%s", len > TEXT_MAX ? "..." : "");
    return text.chars;
}

static kolo_status add_fault(struct kolo_log *log, const struct kolo_log_line *l, const char *at,
                             const char *end)
{
    while (end > at && isspace((unsigned char)end[-1])) {
        end--;
    }
    char *kind = kind_of(at, end);
    for (int i = 0; i < log->nfaults && kind != NULL; i++) {
        if (strcmp(log->fault[i].kind, kind) == 0) {
            log->fault[i].count++;
            free(kind);
            return KOLO_OK;
        }
    }
    if (kind != NULL && log->nfaults == FAULTS_MAX) {
        free(kind);
        return KOLO_OK;
    }
    struct kolo_log_fault *grown =
        kolo_grow(log->fault, log->nfaults, &log->fault_room, sizeof *log->fault);
    log->fault = grown != NULL ? grown : log->fault;
    char *text = kind != NULL && grown != NULL ? safe_copy(at, end) : NULL;
    if (text == NULL) {
        free(kind);
        return kolo_log_fail_memory(log);
    }
    struct kolo_log_fault fault = {.kind = kind, .text = text, .line = log->line, .count = 1};
    fault.file = log->file;
    fault.warning = l != NULL && l->warn;
    if (l != NULL && l->host[0] != '\0') {
        (void)snprintf(fault.who, sizeof fault.who, "%s:%d", l->host, l->pid);
    }
    grown[log->nfaults++] = fault;
    return KOLO_OK;
}

void kolo_log_faults_free(struct kolo_log *log)
{
    for (int i = 0; i < log->nfaults; i++) {
        free(log->fault[i].kind);
        free(log->fault[i].text);
    }
    free(log->fault);
    kolo_text_free(&log->settings);
}

/* ---- messages ---- */

/* "transport.cc:148 -> 2": a call that returned an error. 7 is "in progress". */
static bool is_return(const struct kolo_log_line *l)
{
    static const char arrow[] = " -> ";
    const char *at = memmem(l->at, (size_t)(l->end - l->at), arrow, 4);
    if (at == NULL || at == l->at || !isdigit((unsigned char)at[-1]) || at + 4 >= l->end) {
        return false;
    }
    const char *file = at;
    while (file > l->at && isdigit((unsigned char)file[-1])) {
        file--;
    }
    const char code = at[4];
    const bool ends = at + 5 == l->end || !isdigit((unsigned char)at[5]);
    return file > l->at && file[-1] == ':' && ends && code >= '1' && code <= '8' && code != '7' &&
           memchr(l->at, ' ', (size_t)(at - l->at)) == NULL;
}

/* What the library says at INFO and people should know. */
static bool is_telling(const struct kolo_log_line *l)
{
    static const char *const words[] = {
        "P2P not supported between",
        "P2P is disabled between",
        "Failed to load",
        "Could not load",
        "plugin failed",
        "Cannot initialize CollNet",
        "Call to connect",
        "Could not find a path",
        "Connection closed by",
        "disabling GDR",
        "Falling back to",
        "falling back to",
        "Could not enable P2P",
        "Mismatched",
        "No space left",
        "Failed to initialize",
        "Abort COMPLETE",
    };
    for (size_t i = 0; i < KOLO_LENGTH(words); i++) {
        if (kolo_line_contains(l, words[i])) {
            return !kolo_line_contains(l, "Failed to initialize NET plugin IB") &&
                   !kolo_line_contains(l, "Failed to initialize any GIN"); /* no such device */
        }
    }
    return false;
}

/* Copy the words at `at` up to the end, or up to "(" or a point, as a name. */
static void copy_name(const char *at, const char *end, char out[KOLO_LOG_NAME])
{
    size_t len = 0;
    while (at + len < end && len + 1 < KOLO_LOG_NAME && at[len] != '(' && at[len] != ',') {
        out[len] = (unsigned char)at[len] < ' ' ? '?' : at[len];
        len++;
    }
    while (len > 0 && strchr(" .\"'`", out[len - 1]) != NULL) {
        len--;
    }
    out[len] = '\0';
}

static void take_setting(struct kolo_log *log, const struct kolo_log_line *l)
{
    static const char words[] = " set by environment to ";
    const char *value = kolo_line_behind(l, words);
    struct kolo_text line = {0};
    if (value == NULL || memchr(l->at, ' ', (size_t)(l->end - l->at)) !=
                             value - strlen(words)) { /* one word before */
        return;
    }
    const char *end = l->end;
    while (end > value && (isspace((unsigned char)end[-1]) || end[-1] == '.')) {
        end--;
    }
    kolo_log_text_safe(&line, l->at, (size_t)(value - strlen(words) - l->at));
    kolo_text_add(&line, "=");
    kolo_log_text_safe(&line, value, end - value < 80 ? (size_t)(end - value) : 80);
    kolo_text_add(&line, "\n");
    const char *there = log->settings.chars;
    if (line.chars != NULL && log->settings.len < 4096 &&
        (there == NULL || strstr(there, line.chars) == NULL)) {
        kolo_text_add(&log->settings, "%s", line.chars);
    }
    kolo_text_free(&line);
}

kolo_status kolo_log_take_fault(struct kolo_log *log, const struct kolo_log_line *l)
{
    const char *at = NULL;
    log->warn_lines += l->warn;
    if (l->warn || is_return(l) || is_telling(l)) {
        return add_fault(log, l, l->at, l->end);
    }
    take_setting(log, l);
    if ((at = kolo_line_behind(l, "Loaded net plugin ")) != NULL) {
        copy_name(at, l->end, log->plugin);
    } else if ((at = kolo_line_behind(l, "Using network ")) != NULL) {
        copy_name(at, l->end, log->network);
    }
    return KOLO_OK;
}

kolo_status kolo_log_take_foreign(struct kolo_log *log, const char *begin, const char *end)
{
    static const char *const words[] = {
        "Watchdog caught collective operation timeout",
        "Test NCCL failure",
        "NCCL error in:",
        "ncclSystemError: ",
        "ncclUnhandledCudaError: ",
        "ncclInternalError: ",
        "ncclInvalidUsage: ",
        "ncclRemoteError: ",
    };
    for (size_t i = 0; i < KOLO_LENGTH(words); i++) {
        if (memmem(begin, (size_t)(end - begin), words[i], strlen(words[i])) != NULL) {
            return add_fault(log, NULL, begin, end);
        }
    }
    return KOLO_OK;
}

/* ---- issues ---- */

static const char *advice_on(const char *text)
{
    static const struct {
        const char *words, *advice;
    } known[] = {
        {"No transport found", ": P2P, shared memory and the network were all refused"},
        {"Duplicate GPU", ": two ranks use one GPU (CUDA_VISIBLE_DEVICES, local rank)"},
        {"No space left", ": /dev/shm is full (in Docker: --shm-size)"},
        {"shared memory segment", ": is /dev/shm large enough (in Docker: --shm-size)?"},
        {"Connection refused", ": the peer is gone, or a firewall is between"},
        {"Connection closed", ": the peer ended first; see its log"},
        {"No route to host", ": the interface does not reach the peer (NCCL_SOCKET_IFNAME)"},
        {"error 12", ": the peer does not answer over RDMA (link, GID, MTU)"},
        {"Initializing plugin failed", ": NCCL goes on without the plug-in"},
        {"ithout nvidia-peermem", ""},
    };
    for (size_t i = 0; i < KOLO_LENGTH(known); i++) {
        if (strstr(text, known[i].words) != NULL) {
            return known[i].advice;
        }
    }
    return "";
}

static const char *error_name(const char *text)
{
    static const char *const names[] = {"",
                                        "CUDA error",
                                        "system error",
                                        "internal error",
                                        "invalid argument",
                                        "usage",
                                        "error of a peer",
                                        "",
                                        "timeout"};
    const char *code = strstr(text, " -> ");
    const int number = code != NULL ? code[4] - '0' : 0;
    return number >= 1 && number <= 8 ? names[number] : "";
}

static const char *text_of(const struct kolo_text *text)
{
    return text->chars != NULL ? text->chars : "";
}

static void add_issue(struct kolo_log *log, const struct kolo_log_fault *f)
{
    const struct kolo_log_line text = {.at = f->text, .end = f->text + strlen(f->text)};
    struct kolo_text where = {0};
    if (f->count > 1) {
        kolo_text_add(&where, " (%ld times)", f->count);
    }
    kolo_text_add(&where, "%s line %ld", f->count > 1 ? ", first at" : " at", f->line);
    if (log->files > 1) {
        kolo_text_add(&where, " of ");
        kolo_log_text_safe(&where, f->file, strlen(f->file));
    }
    if (f->who[0] != '\0') {
        kolo_text_add(&where, " by %s", f->who);
    }
    if (is_return(&text)) {
        kolo_log_issue(log, "a call failed%s: %s (%s)", text_of(&where), f->text,
                       error_name(f->text));
    } else {
        kolo_log_issue(log, "%s%s: %s%s", f->warning ? "warning" : "message", text_of(&where),
                       f->text, advice_on(f->text));
    }
    kolo_text_free(&where);
}

void kolo_log_check_faults(struct kolo_log *log)
{
    int shown = 0, returns = 0;
    for (int i = 0; i < log->nfaults; i++) {
        const struct kolo_log_fault *f = &log->fault[i];
        const struct kolo_log_line text = {.at = f->text, .end = f->text + strlen(f->text)};
        if (is_return(&text) && returns++ > 0) {
            continue; /* the callers of the call that failed */
        }
        if (shown++ < FAULTS_SHOWN) {
            add_issue(log, f);
        }
    }
    if (shown > FAULTS_SHOWN) {
        kolo_log_issue(log, "%d more kinds of warnings and errors", shown - FAULTS_SHOWN);
    }
    if (log->plugin[0] != '\0' && log->network[0] != '\0' &&
        strstr(log->network, log->plugin) == NULL) {
        kolo_log_issue(log,
                       "the plug-in for the network, %s, was loaded and failed: the network is %s",
                       log->plugin, log->network);
    }
    if (log->warn_lines > 0) {
        kolo_log_issue(log, "%d line%s", log->warn_lines,
                       log->warn_lines == 1 ? " is a warning" : "s are warnings");
    }
}

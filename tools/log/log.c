// SPDX-License-Identifier: Apache-2.0
/* `kolo log FILE...`: the ranks, rings, trees and carriers in logs, and the oddities in them. */
#include "tools/log/log.h"

#include "tools/output.h"
#include "topology/draw/picture.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const char usage[] =
    "Usage: kolo log [--comm WHICH] [--json] [--svg FILE] FILE...\n"
    "Read logs of NCCL, RCCL or kolo (NCCL_DEBUG=INFO, KOLO_DEBUG=INFO) of one job: one file, or one\n"
    "for each host or rank; - is standard input. Lists the communicators. Prints ranks, hosts, rings,\n"
    "trees and the carriers of edges of the largest one, and notes on missing, slow or failed parts.\n"
    "The exit status is 1 if the files have no line of use.\n"
    "  -c, --comm WHICH  show this communicator: its number in the list, or its commId\n"
    "  -j, --json        print one JSON object\n"
    "  -s, --svg FILE    also draw rings, trees and the matrix of carriers as SVG into FILE\n"
    "  -h, --help        print this help\n";
// clang-format on

struct log_options {
    const char *svg, *comm;
    bool json, help;
};

static bool parse_options(int argc, char **argv, struct log_options *out)
{
    static const struct option longs[] = {{"comm", required_argument, NULL, 'c'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"svg", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option = 0;
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":c:js:h", longs, NULL)) != -1) {
        if (option == 'c') {
            out->comm = optarg;
        } else if (option == 'j') {
            out->json = true;
        } else if (option == 's') {
            out->svg = optarg;
        } else if (option == 'h') {
            out->help = true;
        } else {
            return kolo_option_refuse("kolo log", argc, argv, option);
        }
    }
    if (optind == argc && !out->help) {
        (void)fprintf(stderr, "kolo log: which file? (see kolo log --help)\n");
        return false;
    }
    return true;
}

enum { BYTES_MAX = 1 << 30 };

/* Read all of a file, a pipe or, for "-", standard input. */
static kolo_status read_all(const char *path, char **out, size_t *len)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *bytes = NULL;
    size_t have = 0, room = 0;
    if (file == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: %s", path, strerror(errno));
    }
    kolo_status st = KOLO_OK;
    while (st == KOLO_OK && feof(file) == 0) {
        if (have == room) {
            room = room == 0 ? 1 << 16 : 2 * room;
            char *grown = room <= BYTES_MAX ? realloc(bytes, room) : NULL;
            bytes = grown != NULL ? grown : bytes;
            st = grown != NULL ? KOLO_OK
                               : kolo_fail(KOLO_ERR_INVALID, "%s: too large to read", path);
            continue;
        }
        have += fread(bytes + have, 1, room - have, file);
        if (ferror(file) != 0) {
            st = kolo_fail(KOLO_ERR_INVALID, "%s: %s", path, strerror(errno));
        }
    }
    if (file != stdin) {
        (void)fclose(file);
    }
    if (st < 0) {
        free(bytes);
        return st;
    }
    *out = bytes;
    *len = have;
    return KOLO_OK;
}

static kolo_status read_file(struct kolo_log *log, const char *path)
{
    char *bytes = NULL;
    size_t len = 0;
    KOLO_TRY(read_all(path, &bytes, &len));
    const kolo_status st =
        kolo_log_read(log, strcmp(path, "-") == 0 ? "standard input" : path, bytes, len);
    free(bytes);
    return st;
}

/* Say on stderr which files have no line of use, and what they are. */
static void complain(const struct kolo_log *log)
{
    for (const char *at = log->kinds.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        (void)fprintf(stderr, "kolo log: %.*s\n", (int)len, at);
        at += len + 1;
    }
}

static int show_log(const struct kolo_log *log, const struct log_options *options)
{
    struct kolo_text text = {0};
    int status = 0;
    if (options->svg == NULL || strcmp(options->svg, "-") != 0) {
        if (options->json) {
            kolo_log_print_json(log, &text);
        } else {
            kolo_log_print_text(log, &text);
        }
        status = kolo_output_write("kolo log", "-", &text);
        kolo_text_free(&text);
    }
    if (status == 0 && options->svg != NULL && kolo_log_shown(log) != NULL) {
        kolo_picture_job(&kolo_log_shown(log)->job, NULL, &text);
        status = kolo_output_write("kolo log", options->svg, &text);
        kolo_text_free(&text);
    }
    return status;
}

int kolo_tool_log(int argc, char **argv)
{
    struct log_options options = {0};
    struct kolo_log log = {0};
    kolo_status st = KOLO_OK;
    if (!parse_options(argc, argv, &options)) {
        return 2;
    }
    if (options.help) {
        return fputs(usage, stdout) < 0;
    }
    log.wanted = options.comm;
    for (int i = optind; i < argc && st == KOLO_OK; i++) {
        st = read_file(&log, argv[i]);
    }
    if (st == KOLO_OK) {
        st = kolo_log_finish(&log);
    }
    int status = 1;
    if (st < 0) {
        (void)fprintf(stderr, "kolo log: %s\n", kolo_error_text());
    } else {
        status = show_log(&log, &options);
        if (!kolo_log_is_useful(&log)) {
            complain(&log);
            status = 1;
        }
    }
    kolo_log_free(&log);
    return status;
}

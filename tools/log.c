// SPDX-License-Identifier: Apache-2.0
/* `kolo log FILE...`: the ranks, rings, trees and carriers in logs, and the oddities in them. */
#include "log.h"

#include "output.h"
#include "topology/draw/picture.h"
#include "topology/formats/file.h"
#include "topology/machine/graph.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const char usage[] =
    "Usage: kolo log [--json] [--svg FILE] FILE...\n"
    "Read logs of NCCL, RCCL or kolo (NCCL_DEBUG=INFO, KOLO_DEBUG=INFO) of one job: one file, or one\n"
    "for each host or rank. Prints ranks, hosts, rings, trees, the carriers of edges, and notes on\n"
    "missing or slow parts.\n"
    "  -j, --json        print one JSON object\n"
    "  -s, --svg FILE    also draw rings, trees and the matrix of carriers as SVG into FILE\n"
    "  -h, --help        print this help\n";
// clang-format on

struct log_options {
    const char *svg;
    bool json, help;
};

static bool parse_options(int argc, char **argv, struct log_options *out)
{
    static const struct option longs[] = {{"json", no_argument, NULL, 'j'},
                                          {"svg", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option = 0;
    opterr = 0;
    optind = 0;
    while ((option = getopt_long(argc, argv, ":js:h", longs, NULL)) != -1) {
        if (option == 'j') {
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

static kolo_status read_file(struct kolo_log *log, const char *path)
{
    char *bytes = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_file_read(path, &bytes, &len));
    const kolo_status st = kolo_log_read(log, path, bytes, len);
    free(bytes);
    return st;
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
    if (status == 0 && options->svg != NULL) {
        kolo_picture_job(&log->job, NULL, &text);
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
    }
    kolo_log_free(&log);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* `kolo topo`: the machine as hwloc sees it, and the layout kolo would choose with rank i on PU i
 * (mod the number of PUs): the ring, the groups and both trees as log lines in NCCL's form and as
 * small drawings, or as SVG. All of it from a file too, so that a layout can be looked at without
 * the machine. */
#include "topo.h"

#include "topology/topology.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 65536, MAX_DRAWN = 64, CHANNELS = 2 };

static const char usage[] =
    "Usage: kolo topo [--file HWLOC_XML] [-n RANKS] [--svg FILE]\n"
    "Show this machine, and the ring, the groups and the trees kolo lays on it.\n"
    "  -f, --file FILE   an hwloc XML file in place of this machine (also KOLO_TOPO_FILE)\n"
    "  -n, --ranks N     lay out N ranks, rank i on cpu i mod cpus (default: one rank a cpu)\n"
    "  -s, --svg FILE    also draw the layout as SVG into FILE (- is standard output, nothing else "
    "then)\n"
    "  -h, --help        this text\n";

struct options {
    const char *file;
    const char *svg;
    int nranks; /* 0: as many as PUs */
    bool help;
};

static bool set_ranks(const char *text, int *out)
{
    long value = 0;
    if (!kolo_parse_int(text, 1, MAX_RANKS, &value)) {
        (void)fprintf(stderr, "kolo topo: option -n: \"%s\" is not a number of 1 to %d\n", text,
                      MAX_RANKS);
        return false;
    }
    *out = (int)value;
    return true;
}

/* The option as the user wrote it: getopt has just passed it. */
static bool refuse(int argc, char **argv, int seen)
{
    const char *written = optind > 0 && optind <= argc ? argv[optind - 1] : "?";
    const bool is_long = strncmp(written, "--", 2) == 0;
    const char *problem = "is unknown (see kolo topo --help)";
    if (seen == ':') {
        problem = "needs a value";
    } else if (is_long && optopt != 0) {
        problem = "takes no value";
    }
    if (is_long) {
        (void)fprintf(stderr, "kolo topo: option %.*s %s\n", (int)strcspn(written, "="), written,
                      problem);
    } else {
        (void)fprintf(stderr, "kolo topo: option -%c %s\n", optopt, problem);
    }
    return false;
}

static bool parse_options(int argc, char **argv, struct options *out)
{
    static const struct option longs[] = {
        {"file", required_argument, NULL, 'f'},
        {"ranks", required_argument, NULL, 'n'},
        {"svg", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option = 0;
    opterr = 0; /* our own messages */
    optind = 0; /* start afresh: the dispatcher may have used getopt */
    while ((option = getopt_long(argc, argv, ":f:n:s:h", longs, NULL)) != -1) {
        if (option == 'f') {
            out->file = optarg;
        } else if (option == 's') {
            out->svg = optarg;
        } else if (option == 'h') {
            out->help = true;
        } else if (option != 'n') {
            return refuse(argc, argv, option);
        } else if (!set_ranks(optarg, &out->nranks)) {
            return false;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "kolo topo: unexpected argument \"%s\"\n", argv[optind]);
        return false;
    }
    return true;
}

static void plan_layout(const struct kolo_host *host, int nranks, struct kolo_place *place,
                        int *order)
{
    for (int rank = 0; rank < nranks; rank++) {
        const int cpu = kolo_host_pu_os(host, rank % kolo_host_pus(host));
        place[rank] = kolo_host_place(host, cpu);
    }
    kolo_order_ranks(nranks, NULL, place, order);
}

/* Nothing when out of memory. */
static void print_groups(const struct kolo_layout *layout, struct kolo_text *out)
{
    struct kolo_groups groups;
    if (kolo_groups_make(layout->nranks, NULL, layout->place, &groups) == KOLO_OK) {
        kolo_line_groups(out, layout->nranks, &groups);
        kolo_text_add(out, "\n");
        kolo_groups_free(&groups);
    }
}

static void print_lines(const struct kolo_layout *layout, struct kolo_text *out)
{
    for (int channel = 0; channel < CHANNELS; channel++) {
        kolo_line_ring(out, channel, CHANNELS, layout->nranks, layout->order);
        kolo_text_add(out, "\n");
    }
    print_groups(layout, out);
    for (int rank = 0; rank < layout->nranks; rank++) {
        struct kolo_tree trees[CHANNELS];
        for (int which = 0; which < CHANNELS; which++) {
            kolo_tree_build(layout->nranks, layout->order, which, rank, &trees[which]);
        }
        kolo_line_trees(out, rank, CHANNELS, trees);
        kolo_text_add(out, "\n");
    }
}

static void print_drawings(const struct kolo_layout *layout, struct kolo_text *out)
{
    kolo_text_add(out, "\nring; ( ) share an L3, | next package:\n");
    kolo_draw_ring(layout, out);
    for (int which = 0; which < CHANNELS && layout->nranks <= MAX_DRAWN; which++) {
        kolo_text_add(out, "\ntree %d:\n", which);
        kolo_draw_tree(layout, which, out);
    }
}

/* 0 or 1, the exit status. */
static int write_text(const char *path, const struct kolo_text *text)
{
    const bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdout : fopen(path, "we");
    if (file == NULL || text->chars == NULL) {
        (void)fprintf(stderr, "kolo topo: cannot write %s: %s\n", path, strerror(errno));
        if (file != NULL && !standard) {
            (void)fclose(file);
        }
        return 1;
    }
    const bool written = fwrite(text->chars, 1, text->len, file) == text->len;
    if ((standard ? fflush(file) : fclose(file)) != 0 || !written) {
        (void)fprintf(stderr, "kolo topo: cannot write %s: %s\n", path, strerror(errno));
        return 1;
    }
    return 0;
}

static int show(const struct kolo_host *host, const struct options *options,
                const struct kolo_layout *layout)
{
    struct kolo_text text = {0};
    int status = 0;
    if (options->svg == NULL || strcmp(options->svg, "-") != 0) {
        kolo_host_print(host, &text);
        kolo_text_add(&text, "\n");
        print_lines(layout, &text);
        print_drawings(layout, &text);
        status = write_text("-", &text);
        kolo_text_free(&text);
    }
    if (status == 0 && options->svg != NULL) {
        kolo_draw_svg(layout, &text);
        status = write_text(options->svg, &text);
        kolo_text_free(&text);
    }
    return status;
}

static int run(const struct kolo_host *host, const struct options *options)
{
    const int nranks = options->nranks > 0 ? options->nranks : kolo_host_pus(host);
    struct kolo_place *place = calloc((size_t)nranks, sizeof *place);
    int *order = calloc((size_t)nranks, sizeof *order);
    int status = 1;
    if (place != NULL && order != NULL) {
        plan_layout(host, nranks, place, order);
        status = show(host, options, &(struct kolo_layout){nranks, order, NULL, place});
    } else {
        (void)fprintf(stderr, "kolo topo: no memory for %d ranks\n", nranks);
    }
    free(order);
    free(place);
    return status;
}

int kolo_tool_topo(int argc, char **argv)
{
    struct options options = {0};
    struct kolo_host *host = NULL;
    if (!parse_options(argc, argv, &options)) {
        return 2;
    }
    if (options.help) {
        return fputs(usage, stdout) < 0;
    }
    const kolo_status found =
        options.file != NULL ? kolo_host_load(options.file, &host) : kolo_host_discover(&host);
    if (found < 0) {
        (void)fprintf(stderr, "kolo topo: %s\n", kolo_error_text());
        return 1;
    }
    const int status = run(host, &options);
    kolo_host_destroy(host);
    return status;
}

// SPDX-License-Identifier: Apache-2.0
/* `kolo topo` shows this machine, or the machine of a file in any known format. It also shows the
 * layout that kolo would choose there: the planner's channels on GPUs, else ranks on CPUs.
 *
 * The output is text, SVG, JSON, kolo's own dump, or a topology file for NCCL. `--diff` shows the
 * differences of two machines. */
#include "tools/topo/topo.h"

#include "tools/output.h"
#include "tools/topo/parts.h"
#include "topology/draw/draw.h"
#include "topology/draw/picture.h"
#include "topology/formats/file.h"
#include "topology/formats/write.h"
#include "topology/layout/wiring.h"
#include "topology/machine/host.h"
#include "topology/source.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 65536, MAX_HOSTS = 65536, MAX_LINES = 64 };

// clang-format off
static const char usage[] =
    "Usage: kolo topo [OPTIONS] [FILE]\n"
    "       kolo topo --diff A B\n"
    "Show a machine and its layout: rings and trees with their bound on GPUs, else ranks on CPUs. The\n"
    "machine is this one, or that of FILE. FILE is hwloc XML 2 or 3, NCCL or RCCL topology XML, the text\n"
    "of nvidia-smi topo -m, or kolo's dump. If FILE is NCCL's graph XML, its channels are shown.\n"
    "  -f, --file FILE   the same as FILE (also KOLO_TOPO_FILE)\n"
    "  -m, --merge FILE  add the data that FILE has on the same machine, matched by bus address; a matrix\n"
    "                    has none, and is matched by the order of its GPUs\n"
    "  -p, --probe       test P2P between this machine's GPUs with data, and plan without failed links\n"
    "  -g, --gpus LIST   plan on these GPUs alone: 0,2,5, with the numbers that kolo topo shows\n"
    "      --nvlink GBS  take an NVLink as GBS GB/s each way; without it the source's value counts,\n"
    "                    or that of the GPU's generation: 20 Ampere, 20.6 Hopper, 40.1 Blackwell\n"
    "  -H, --hosts N     plan for N hosts like this one\n"
    "  -n, --ranks N     lay out N ranks on CPUs, rank i on cpu i mod cpus (default: one a cpu)\n"
    "  -s, --svg FILE    also draw it as SVG into FILE (- is standard output, without the text)\n"
    "  -j, --json        print machine and plan as one JSON object\n"
    "  -x, --xml         print kolo's dump, which can be read again\n"
    "      --nccl-xml    print a file for NCCL_TOPO_FILE (of graph XML: for NCCL_GRAPH_FILE)\n"
    "      --diff        print the differences of machine B from machine A; status 1 if there are any\n"
    "  -h, --help        print this help\n";
// clang-format on

enum form { FORM_TEXT, FORM_JSON, FORM_XML, FORM_NCCL, FORM_DIFF };

struct topo_options {
    const char *file, *second, *merge, *svg, *gpus;
    int nranks; /* 0: as many as PUs */
    int nhosts;
    double nvlink_gbs; /* 0: as the machine is */
    enum form form;
    bool help, probe;
};

static bool set_number(const char *name, const char *text, long most, int *out)
{
    long value = 0;
    if (!kolo_parse_int(text, 1, most, &value)) {
        (void)fprintf(stderr, "kolo topo: option %s: \"%s\" is not a number of 1 to %ld\n", name,
                      text, most);
        return false;
    }
    *out = (int)value;
    return true;
}

static bool set_nvlink(const char *text, double *out)
{
    char *end = NULL;
    const double gbs = strtod(text, &end);
    if (end == text || *end != '\0' || !(gbs > 0) || gbs > 10000) {
        (void)fprintf(stderr,
                      "kolo topo: option --nvlink: \"%s\" is not a rate in GB/s, such as 40.1\n",
                      text);
        return false;
    }
    *out = gbs;
    return true;
}

static bool take_arguments(int argc, char **argv, struct topo_options *out)
{
    const int most = out->file != NULL ? 0 : out->form == FORM_DIFF ? 2 : 1;
    const int count = argc - optind;
    if (count > most) {
        (void)fprintf(stderr, "kolo topo: unexpected argument \"%s\"\n", argv[optind + most]);
        return false;
    }
    if (out->form == FORM_DIFF && count < 2) {
        (void)fprintf(stderr, "kolo topo: --diff wants two files\n");
        return false;
    }
    out->file = count > 0 ? argv[optind] : out->file;
    if (out->probe && out->file != NULL) {
        (void)fprintf(stderr, "kolo topo: --probe tries this machine's GPUs, not those of %s\n",
                      out->file);
        return false;
    }
    out->second = count > 1 ? argv[optind + 1] : NULL;
    return true;
}

static bool take_option(int option, struct topo_options *out)
{
    switch (option) {
    case 'f':
        out->file = optarg;
        return true;
    case 'm':
        out->merge = optarg;
        return true;
    case 's':
        out->svg = optarg;
        return true;
    case 'g':
        out->gpus = optarg;
        return true;
    case 'p':
        out->probe = true;
        return true;
    case 'h':
        out->help = true;
        return true;
    case 'j':
        out->form = FORM_JSON;
        return true;
    case 'x':
        out->form = FORM_XML;
        return true;
    case 'N':
        out->form = FORM_NCCL;
        return true;
    case 'D':
        out->form = FORM_DIFF;
        return true;
    case 'L':
        return set_nvlink(optarg, &out->nvlink_gbs);
    case 'H':
        return set_number("-H", optarg, MAX_HOSTS, &out->nhosts);
    default:
        return set_number("-n", optarg, MAX_RANKS, &out->nranks);
    }
}

static bool parse_options(int argc, char **argv, struct topo_options *out)
{
    static const struct option longs[] = {
        {"file", required_argument, NULL, 'f'},   {"merge", required_argument, NULL, 'm'},
        {"probe", no_argument, NULL, 'p'},        {"ranks", required_argument, NULL, 'n'},
        {"hosts", required_argument, NULL, 'H'},  {"svg", required_argument, NULL, 's'},
        {"gpus", required_argument, NULL, 'g'},   {"json", no_argument, NULL, 'j'},
        {"xml", no_argument, NULL, 'x'},          {"nccl-xml", no_argument, NULL, 'N'},
        {"nvlink", required_argument, NULL, 'L'}, {"diff", no_argument, NULL, 'D'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    int option = 0;
    opterr = 0; /* this program prints its own messages */
    optind = 0; /* start again: the dispatcher may have used getopt */
    out->nhosts = 1;
    while ((option = getopt_long(argc, argv, ":f:m:n:g:H:s:pjxh", longs, NULL)) != -1) {
        if (option == ':' || option == '?') {
            return kolo_option_refuse("kolo topo", argc, argv, option);
        }
        if (!take_option(option, out)) {
            return false;
        }
    }
    return take_arguments(argc, argv, out);
}

/* ---- output ---- */

struct shown {
    const struct topo_options *options;
    struct kolo_host *host; /* NULL: the file has no CPUs */
    struct kolo_graph *graph;
    struct kolo_topo_probe probe;
    struct kolo_wiring wiring; /* valid if the graph has GPUs */
    struct kolo_job job;
    bool planned;
};

/* Open the host: this machine, or a file that has CPUs. */
static kolo_status open_host(struct shown *s)
{
    const char *file = s->options->file != NULL ? s->options->file : kolo_env("KOLO_TOPO_FILE");
    if (file != NULL && kolo_file_is_hwloc(file)) {
        return kolo_host_load(file, &s->host);
    }
    return strcmp(s->graph->source, "this machine") == 0 ? kolo_host_discover(&s->host) : KOLO_OK;
}

/* Mark the GPUs in `list`, such as "0,2,5". False: another form, or a GPU that does not exist. */
static bool mark_gpus(const struct kolo_graph *graph, char *list, bool *used)
{
    char *rest = NULL;
    long gpu = -1;
    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        if (!kolo_parse_int(word, 0, graph->ngpus - 1, &gpu)) {
            return false;
        }
        used[graph->gpu[gpu]] = true;
    }
    return gpu >= 0;
}

static kolo_status keep_gpus(struct kolo_graph *graph, const char *list)
{
    char *copy = strdup(list);
    bool *used = calloc((size_t)graph->nnodes + 1, sizeof *used);
    kolo_status st = copy != NULL && used != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the GPUs");
    if (st == KOLO_OK && !mark_gpus(graph, copy, used)) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "option --gpus: \"%s\" is not a list such as 0,2,5 of the %d GPUs", list,
                       graph->ngpus);
    }
    if (st == KOLO_OK) {
        kolo_graph_keep(graph, used);
    }
    free(copy);
    free(used);
    return st;
}

static kolo_status open_machine(struct shown *s)
{
    const char *file = s->options->file;
    if (file == NULL) {
        KOLO_TRY(kolo_graph_discover(&s->graph));
    } else {
        KOLO_TRY(kolo_graph_load(file, &s->graph));
    }
    if (s->options->merge != NULL) {
        struct kolo_graph *hint = NULL;
        KOLO_TRY(kolo_graph_load(s->options->merge, &hint));
        const kolo_status st = kolo_graph_merge(s->graph, hint);
        kolo_graph_destroy(hint);
        KOLO_TRY(st);
    }
    if (s->options->nvlink_gbs > 0) {
        kolo_graph_set_nvlink(s->graph, s->options->nvlink_gbs);
    }
    if (s->options->probe) {
        KOLO_TRY(kolo_topo_probe(s->graph, &s->probe));
    }
    if (s->options->gpus != NULL) {
        KOLO_TRY(keep_gpus(s->graph, s->options->gpus));
    }
    KOLO_TRY(open_host(s));
    if (s->graph->ngpus > 0 && s->graph->ngpus <= KOLO_FABRIC_GPUS_MAX) {
        KOLO_TRY(kolo_wiring_make(s->graph, s->options->nhosts, &s->wiring));
        s->planned = true;
        KOLO_TRY(kolo_wiring_job(&s->wiring, &s->job));
    }
    return KOLO_OK;
}

static void close_machine(struct shown *s)
{
    free(s->probe.pair);
    kolo_job_free(&s->job);
    if (s->planned) {
        kolo_wiring_free(&s->wiring);
    }
    kolo_graph_destroy(s->graph);
    kolo_host_destroy(s->host);
}

static void add_text(const struct shown *s, struct kolo_text *out)
{
    const bool devices = s->graph->ngpus > 0 || s->graph->nnics > 0;
    if (s->host != NULL && !s->planned) {
        (void)kolo_topo_cpus(s->host, s->options->nranks, out, NULL);
    } else if (s->host != NULL) {
        kolo_host_print(s->host, out);
    }
    if (devices || s->host == NULL) {
        kolo_text_add(out, s->host != NULL ? "\n" : "");
        kolo_graph_print(s->graph, out);
    }
    if (s->options->probe) {
        kolo_topo_probe_print(s->graph, &s->probe, out);
    }
    if (!s->planned) {
        if (s->graph->ngpus == 0 && s->host == NULL) {
            kolo_text_add(out,
                          "plan: no GPU is known here (merge a file that has them: --merge)\n");
        }
        return;
    }
    kolo_text_add(out, "\n");
    kolo_wiring_print(&s->wiring, out);
    if (s->job.nranks <= MAX_LINES) {
        kolo_wiring_print_log(&s->job, out);
    }
}

static void add_json(const struct shown *s, struct kolo_text *out)
{
    kolo_text_add(out, "{\"machine\": ");
    kolo_graph_write_json(s->graph, out);
    if (s->options->probe) {
        kolo_text_add(out, ",\n \"p2p\": ");
        kolo_topo_probe_json(&s->probe, out);
    }
    if (s->planned) {
        kolo_text_add(out, ",\n \"plan\": ");
        kolo_wiring_json(&s->wiring, &s->job, out);
    }
    kolo_text_add(out, "}\n");
}

static void add_svg(const struct shown *s, struct kolo_text *out)
{
    if (s->planned) {
        kolo_picture_job(&s->job, s->graph, out);
    } else if (s->host != NULL && s->graph->nnics + s->graph->ngpus == 0) {
        (void)kolo_topo_cpus(s->host, s->options->nranks, NULL, out);
    } else {
        kolo_picture_machine(s->graph, out);
    }
}

static int fail_library(void)
{
    (void)fprintf(stderr, "kolo topo: %s\n", kolo_error_text());
    return 1;
}

static int write_output(const struct shown *s)
{
    struct kolo_text text = {0};
    int status = 0;
    if (s->options->svg == NULL || strcmp(s->options->svg, "-") != 0) {
        switch (s->options->form) {
        case FORM_JSON:
            add_json(s, &text);
            break;
        case FORM_XML:
            kolo_graph_write(s->graph, &text);
            break;
        case FORM_NCCL:
            if (kolo_graph_write_nccl(s->graph, &text) < 0) {
                kolo_text_free(&text);
                return fail_library();
            }
            break;
        default:
            add_text(s, &text);
        }
        status = kolo_output_write("kolo topo", "-", &text);
        kolo_text_free(&text);
    }
    if (status == 0 && s->options->svg != NULL) {
        add_svg(s, &text);
        status = kolo_output_write("kolo topo", s->options->svg, &text);
        kolo_text_free(&text);
    }
    return status;
}

static int show_machine(const struct topo_options *options)
{
    struct shown s = {.options = options};
    const int status = open_machine(&s) < 0 ? fail_library() : write_output(&s);
    close_machine(&s);
    return status;
}

/* Show a file of NCCL's graphs. Returns -1 if the file is no such file. */
static int show_graphs(const struct topo_options *options)
{
    static const char *const forms[] = {
        [FORM_TEXT] = "", [FORM_JSON] = "json", [FORM_XML] = "xml", [FORM_NCCL] = "xml"};
    const char *refused = options->merge != NULL    ? "--merge"
                          : options->gpus != NULL   ? "--gpus"
                          : options->nhosts > 1     ? "--hosts"
                          : options->nranks > 0     ? "--ranks"
                          : options->nvlink_gbs > 0 ? "--nvlink"
                                                    : NULL;
    const struct kolo_topo_graphs show = {options->file, options->svg, refused,
                                          forms[options->form]};
    return options->file != NULL ? kolo_topo_graphs(&show) : -1;
}

/* Exit status as of diff: 0 equal, 1 different, 2 an error. */
static int show_diff(const struct topo_options *options)
{
    struct kolo_graph *a = NULL, *b = NULL;
    struct kolo_text text = {0};
    int status = 2;
    if (kolo_graph_load(options->file, &a) < 0 || kolo_graph_load(options->second, &b) < 0) {
        (void)fail_library();
    } else {
        const int count = kolo_topo_diff(a, b, &text);
        if (count == 0) {
            kolo_text_add(&text, "alike\n");
        }
        status = kolo_output_write("kolo topo", "-", &text) != 0 || count < 0 ? 2 : count > 0;
    }
    kolo_text_free(&text);
    kolo_graph_destroy(a);
    kolo_graph_destroy(b);
    return status;
}

int kolo_tool_topo(int argc, char **argv)
{
    struct topo_options options = {0};
    if (!parse_options(argc, argv, &options)) {
        return 2;
    }
    if (options.help) {
        return fputs(usage, stdout) < 0;
    }
    if (options.form == FORM_DIFF) {
        return show_diff(&options);
    }
    const int status = show_graphs(&options);
    return status >= 0 ? status : show_machine(&options);
}

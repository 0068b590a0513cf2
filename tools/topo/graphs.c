// SPDX-License-Identifier: Apache-2.0
/* `kolo topo` of NCCL's graph XML: the rings and trees of a file, in each form that a machine has.
 * As XML the file is printed as it is, once it has been read without an error. */
#include "topology/formats/graphs.h"

#include "tools/output.h"
#include "tools/topo/parts.h"
#include "topology/draw/picture.h"
#include "topology/formats/file.h"
#include "topology/layout/wiring.h"
#include "util/escape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_form(const struct kolo_topo_graphs *show, const struct kolo_job *job,
                     const char *bytes, struct kolo_text *out)
{
    if (strcmp(show->form, "xml") == 0) {
        kolo_text_add(out, "%s", bytes);
    } else if (strcmp(show->form, "json") == 0) {
        kolo_text_add(out, "{\"source\": \"");
        kolo_text_json(out, show->file);
        kolo_text_add(out, "\", \"format\": \"NCCL graph XML\",\n \"plan\": ");
        kolo_job_json(job, out);
        kolo_text_add(out, "}\n");
    } else {
        kolo_text_add(out, "%s (NCCL graph XML): %d ranks, %d channels\n", show->file, job->nranks,
                      job->nchannels);
        kolo_wiring_print_log(job, out);
    }
}

static int write_job(const struct kolo_topo_graphs *show, const struct kolo_job *job,
                     const char *bytes)
{
    struct kolo_text text = {0};
    int status = 0;
    if (show->svg == NULL || strcmp(show->svg, "-") != 0) {
        add_form(show, job, bytes, &text);
        status = kolo_output_write("kolo topo", "-", &text);
        kolo_text_free(&text);
    }
    if (status == 0 && show->svg != NULL) {
        kolo_picture_job(job, NULL, &text);
        status = kolo_output_write("kolo topo", show->svg, &text);
        kolo_text_free(&text);
    }
    return status;
}

int kolo_topo_graphs(const struct kolo_topo_graphs *show)
{
    char *bytes = NULL;
    size_t len = 0;
    struct kolo_job job = {0};
    int status = -1;
    if (kolo_file_read(show->file, &bytes, &len) < 0) {
        return -1; /* opening it as a machine reports the error */
    }
    if (kolo_graphs_is(bytes, len)) {
        status = 1;
        if (show->refused != NULL) {
            (void)fprintf(stderr,
                          "kolo topo: %s is NCCL's graph XML, which has no machine for %s\n",
                          show->file, show->refused);
        } else if (kolo_graphs_read(show->file, bytes, len, &job) < 0) {
            (void)fprintf(stderr, "kolo topo: %s\n", kolo_error_text());
        } else {
            status = write_job(show, &job, bytes);
        }
    }
    kolo_job_free(&job);
    free(bytes);
    return status;
}

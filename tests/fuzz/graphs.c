// SPDX-License-Identifier: Apache-2.0
// covers: topology/formats/read_graphs.c
/* NCCL's graph XML. */
#include "topology/formats/graphs.h"

#include "target.h"
#include "topology/draw/picture.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kolo_job job;
    struct kolo_text text = {0};
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (kolo_graphs_read("graphs", copy, size, &job) == KOLO_OK) {
        kolo_picture_job(&job, NULL, &text);
        kolo_job_free(&job);
    }
    kolo_text_free(&text);
    free(copy);
    return 0;
}

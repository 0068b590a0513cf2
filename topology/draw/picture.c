// SPDX-License-Identifier: Apache-2.0
/* The picture of a job: machine, rings, trees and matrix, one below the other. */
#include "topology/draw/picture.h"

#include "topology/draw/picture_parts.h"

void kolo_picture_job(const struct kolo_job *job, const struct kolo_graph *graph,
                      struct kolo_text *out)
{
    struct kolo_canvas canvas = {0};
    if (graph != NULL) {
        kolo_picture_add_machine(graph, &canvas);
    }
    kolo_picture_add_rings(job, &canvas);
    kolo_picture_add_trees(job, &canvas);
    kolo_picture_add_matrix(job, &canvas);
    kolo_canvas_finish(&canvas, out);
}

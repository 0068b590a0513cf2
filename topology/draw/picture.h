// SPDX-License-Identifier: Apache-2.0
/* Pictures, as SVG: the machine, the rings, the trees, and the matrix of what carries each edge.
 * Colours are Okabe and Ito's for the colour-blind; what a colour says, a letter, a dash or a width
 * says too, so that grey print tells as much. */
#ifndef KOLO_TOPOLOGY_DRAW_PICTURE_H
#define KOLO_TOPOLOGY_DRAW_PICTURE_H

#include "topology/layout/job.h"
#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One document: the machine (NULL: without), distinct rings, the first two distinct trees side by
 * side, and up to 64 ranks the matrix. Beyond 64 ranks hosts stand for their ranks. */
void kolo_picture_job(const struct kolo_job *job, const struct kolo_graph *graph,
                      struct kolo_text *out);
/* The machine alone. */
void kolo_picture_machine(const struct kolo_graph *graph, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif

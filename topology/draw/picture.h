// SPDX-License-Identifier: Apache-2.0
/* Pictures as SVG: the machine, the rings, the trees, and the matrix of edges. The matrix shows the
 * carrier of each edge (NVLink, shared memory, network ...). Colours are Okabe and Ito's, which
 * colour-blind readers can tell apart. A letter, a dash or a width repeats each colour's meaning,
 * so grey print loses nothing. */
#ifndef KOLO_TOPOLOGY_DRAW_PICTURE_H
#define KOLO_TOPOLOGY_DRAW_PICTURE_H

#include "topology/layout/job.h"
#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One document: the machine (NULL: none), the distinct rings, the first two distinct trees side by
 * side, and the matrix for up to 64 ranks. Beyond 64 ranks a host stands for its ranks. */
void kolo_picture_job(const struct kolo_job *job, const struct kolo_graph *graph,
                      struct kolo_text *out);
/* A document with the machine alone. */
void kolo_picture_machine(const struct kolo_graph *graph, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif

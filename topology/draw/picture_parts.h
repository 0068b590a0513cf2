// SPDX-License-Identifier: Apache-2.0
/* The parts of a picture. Each part is added below the content of the canvas. */
#ifndef KOLO_TOPOLOGY_DRAW_PICTURE_PARTS_H
#define KOLO_TOPOLOGY_DRAW_PICTURE_PARTS_H

#include "topology/draw/canvas.h"
#include "topology/layout/job.h"
#include "topology/machine/graph.h"

enum { KOLO_PICTURE_RANKS = 64, KOLO_PICTURE_HOSTS = 256, KOLO_PICTURE_RINGS = 8 };

void kolo_picture_add_machine(const struct kolo_graph *graph, struct kolo_canvas *canvas);
void kolo_picture_add_rings(const struct kolo_job *job, struct kolo_canvas *canvas);
void kolo_picture_add_trees(const struct kolo_job *job, struct kolo_canvas *canvas);
void kolo_picture_add_matrix(const struct kolo_job *job, struct kolo_canvas *canvas);

/* The dots in the pictures of a job. A dot is a rank, or a host if the job has over 64 ranks. */
struct kolo_dots {
    int count;
    bool hosts;
    int *host_of; /* [count]; -1 unknown */
};
/* False: no memory, or more hosts than can be drawn. */
bool kolo_dots_make(const struct kolo_job *job, struct kolo_dots *out);
void kolo_dots_free(struct kolo_dots *dots);
/* The dot of a rank; -1: the host of the rank is unknown. */
int kolo_dot_of(const struct kolo_job *job, const struct kolo_dots *dots, int rank);

/* Colour, letter and words for the carrier of an edge. */
struct kolo_look {
    const char *colour, *letter, *words;
};
const struct kolo_look *kolo_look_of(enum kolo_job_carrier carrier);

#endif

// SPDX-License-Identifier: Apache-2.0
/* Compute while kolo communicates, as training does. kolo sums the gradient of one layer over the
 * ranks. Meanwhile the program computes the gradient of the next layer.
 *
 *   cc overlap.c -o overlap $(pkg-config --cflags --libs kolo)
 *   kolo run -n 2 ./overlap */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 8, WEIGHTS = 100000 };

static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

/* A stand-in for the backward pass of a layer. */
static void compute(float *gradient, int layer, int rank)
{
    for (int i = 0; i < WEIGHTS; i++) {
        gradient[i] = (float)(layer * 10 + rank);
    }
}

int main(void)
{
    static float gradient[LAYERS][WEIGHTS];
    struct kolo_comm *comm = NULL;
    kolo_stream stream = NULL;
    must(kolo_comm_create_env(NULL, &comm));
    must(kolo_stream_create(&stream));

    /* On a stream a call is queued and returns. A thread of kolo runs the calls of one stream in
     * order. Do not read or write the buffers before kolo_stream_sync(). */
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        compute(gradient[layer], layer, kolo_comm_rank(comm));
        must(kolo_all_reduce(gradient[layer], gradient[layer], WEIGHTS, KOLO_FLOAT32, KOLO_SUM,
                             comm, stream));
    }

    /* KOLO_INPROGRESS is no error: some layers may not be done yet. kolo_stream_sync() returns the
     * error of a queued call, for example the death of a rank. */
    const int busy = kolo_stream_query(stream) == KOLO_INPROGRESS;
    must(kolo_stream_sync(stream));
    printf("rank %d: layer 0 sums up to %g, layer %d to %g%s\n", kolo_comm_rank(comm),
           gradient[0][0], LAYERS - 1, gradient[LAYERS - 1][WEIGHTS - 1],
           busy ? "; the last sums were still going on" : "");
    kolo_stream_destroy(stream);
    kolo_comm_destroy(comm);
}

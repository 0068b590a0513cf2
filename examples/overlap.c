// SPDX-License-Identifier: Apache-2.0
/* Computing while kolo communicates: the gradient of each layer is summed over the ranks while that
 * of the next one is computed, as training does.
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

/* What stands for the backward pass of a layer. */
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

    /* With a stream a call queues and returns; calls on one stream run in order, on a thread of
     * kolo. Until kolo_stream_sync() the buffers are kolo's: neither read nor written here. */
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        compute(gradient[layer], layer, kolo_comm_rank(comm));
        must(kolo_all_reduce(gradient[layer], gradient[layer], WEIGHTS, KOLO_FLOAT32, KOLO_SUM,
                             comm, stream));
    }

    /* KOLO_INPROGRESS is no error: all but the last layers may well be done already. An error of a
     * queued call, such as the death of a rank, comes out of the sync. */
    const int busy = kolo_stream_query(stream) == KOLO_INPROGRESS;
    must(kolo_stream_sync(stream));
    printf("rank %d: layer 0 sums up to %g, layer %d to %g%s\n", kolo_comm_rank(comm),
           gradient[0][0], LAYERS - 1, gradient[LAYERS - 1][WEIGHTS - 1],
           busy ? "; the last sums were still going on" : "");
    kolo_stream_destroy(stream);
    kolo_comm_destroy(comm);
}

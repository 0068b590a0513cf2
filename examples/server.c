// SPDX-License-Identifier: Apache-2.0
/* A server that takes messages from any rank, in the order they arrive. Rank 0 hands out numbers to
 * square. The other ranks ask for a number whenever they are free. The tag is the kind of message.
 *
 *   cc server.c -o server $(pkg-config --cflags --libs kolo)
 *   kolo run -n 4 ./server */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>

enum { JOBS = 100 };
enum tag { ASK, RESULT, JOB, END };

static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

static void serve(struct kolo_comm *comm)
{
    int given = 0;
    long sum = 0;
    for (int workers = kolo_comm_size(comm) - 1; workers > 0;) {
        /* Receive from any rank, with any tag: `from` gets the source and the tag. A message may be
         * shorter than its buffer: an ASK is empty here. from.bytes gets its length. */
        struct kolo_recv_info from = {.size = sizeof from};
        long number = 0;
        must(kolo_recv_tag(&number, 1, KOLO_INT64, KOLO_ANY_SOURCE, KOLO_ANY_TAG, &from, comm,
                           NULL));
        if (from.tag == RESULT) {
            sum += number;
            continue;
        }
        const int answer = given < JOBS ? JOB : END;
        number = given + 1;
        must(kolo_send_tag(&number, 1, KOLO_INT64, from.source, answer, comm, NULL));
        given += answer == JOB;
        workers -= answer == END;
    }
    printf("%d squares sum up to %ld\n", given, sum);
}

static void work(struct kolo_comm *comm)
{
    int done = 0;
    for (;; done++) {
        struct kolo_recv_info from = {.size = sizeof from};
        long number = 0;
        must(kolo_send_tag(NULL, 0, KOLO_INT64, 0, ASK, comm, NULL));
        must(kolo_recv_tag(&number, 1, KOLO_INT64, 0, KOLO_ANY_TAG, &from, comm, NULL));
        if (from.tag == END) {
            break;
        }
        number *= number;
        must(kolo_send_tag(&number, 1, KOLO_INT64, 0, RESULT, comm, NULL));
    }
    printf("rank %d did %d of them\n", kolo_comm_rank(comm), done);
}

int main(void)
{
    struct kolo_comm *comm = NULL;
    must(kolo_comm_create_env(NULL, &comm));
    (kolo_comm_rank(comm) == 0 ? serve : work)(comm);
    kolo_comm_destroy(comm);
}

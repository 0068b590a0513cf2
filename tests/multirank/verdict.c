// SPDX-License-Identifier: Apache-2.0
/* A rank of a job in which one rank, the victim, goes wrong in a known way at a known call. Every
 * rank works until a call fails, and then prints
 *
 *   <rank> <status> <rank at fault> <text>
 *
 * usage: verdict WORK FAULT VICTIM CALLS DELAY_US TIMEOUT_MS     (verdict_test.py draws these)
 *
 * The victim does FAULT after CALLS calls; with DELAY_US above 0 a thread does it that much later,
 * wherever the rank then is. "pause" is a stop that the test ends: all ranks make MORE calls then,
 * and end without a failure. */
#include <kolo/kolo.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 1 << 18, FEW = 2, MORE = 200 };

static float in[MANY], out[MANY];

static struct {
    const char *work, *fault;
    int victim, calls, delay_us, timeout_ms;
    struct kolo_comm *comm;
} job;

static void nap_us(long us)
{
    const struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static void go_wrong(void)
{
    if (strcmp(job.fault, "kill") == 0) {
        (void)kill(getpid(), SIGKILL);
    } else if (strcmp(job.fault, "stop") == 0 || strcmp(job.fault, "pause") == 0) {
        (void)kill(getpid(), SIGSTOP);
    } else if (strcmp(job.fault, "exec") == 0) {
        (void)execlp("sleep", "sleep", "30", (char *)NULL);
    } else if (strcmp(job.fault, "late") == 0) {
        nap_us(job.timeout_ms * 2000L);
    } else if (strcmp(job.fault, "leave") == 0) {
        kolo_comm_destroy(job.comm);
        exit(0);
    } else if (strcmp(job.fault, "stay") == 0) { /* it leaves the communicator and lives on */
        kolo_comm_destroy(job.comm);
        nap_us(job.timeout_ms * 2000L);
        exit(0);
    }
}

static void *go_wrong_later(void *arg)
{
    (void)arg;
    nap_us(job.delay_us);
    go_wrong();
    return NULL;
}

/* A token goes round: each rank waits for the one before it. */
static kolo_status pass_token(struct kolo_comm *comm, size_t count)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm);
    const int to = (me + 1) % n, from = (me + n - 1) % n;
    kolo_status st = KOLO_OK;
    if (me == 0) {
        st = kolo_send(in, count, KOLO_FLOAT32, to, comm, NULL);
    }
    if (st == KOLO_OK) {
        st = kolo_recv(out, count, KOLO_FLOAT32, from, comm, NULL);
    }
    if (st == KOLO_OK && me != 0) {
        st = kolo_send(in, count, KOLO_FLOAT32, to, comm, NULL);
    }
    return st;
}

/* Each rank sends to the next before it receives: sends wait for those behind. */
static kolo_status send_first(struct kolo_comm *comm)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm);
    kolo_status st = KOLO_OK;
    if (me < n - 1) {
        st = kolo_send(in, MANY, KOLO_FLOAT32, me + 1, comm, NULL);
    }
    if (st == KOLO_OK && me > 0) {
        st = kolo_recv(out, MANY, KOLO_FLOAT32, me - 1, comm, NULL);
    }
    return st;
}

/* Both neighbours at once. */
static kolo_status exchange(struct kolo_comm *comm, size_t count)
{
    const int n = kolo_comm_size(comm), me = kolo_comm_rank(comm);
    kolo_status st = kolo_group_begin();
    st = st == KOLO_OK ? kolo_send(in, count, KOLO_FLOAT32, (me + 1) % n, comm, NULL) : st;
    st = st == KOLO_OK ? kolo_recv(out, count, KOLO_FLOAT32, (me + n - 1) % n, comm, NULL) : st;
    const kolo_status ended = kolo_group_end();
    return st == KOLO_OK ? ended : st;
}

static kolo_status one(struct kolo_comm *comm, int i)
{
    const int n = kolo_comm_size(comm), root = i % n;
    const size_t part = MANY / (size_t)n;
    if (strcmp(job.work, "small") == 0) {
        return kolo_all_reduce(in, out, FEW, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
    if (strcmp(job.work, "large") == 0) {
        return kolo_all_reduce(in, out, MANY, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
    if (strcmp(job.work, "token") == 0) {
        return pass_token(comm, i % 2 == 0 ? FEW : MANY);
    }
    if (strcmp(job.work, "sends") == 0) {
        return send_first(comm);
    }
    if (strcmp(job.work, "exchange") == 0) {
        return exchange(comm, i % 2 == 0 ? FEW : MANY);
    }
    switch (i % 6) { /* all */
    case 0:
        return kolo_broadcast(in, out, part, KOLO_FLOAT32, root, comm, NULL);
    case 1:
        return kolo_all_gather(in, out, part, KOLO_FLOAT32, comm, NULL);
    case 2:
        return kolo_reduce(in, out, part, KOLO_FLOAT32, KOLO_SUM, root, comm, NULL);
    case 3:
        return kolo_barrier(comm, NULL);
    case 4:
        return kolo_all_to_all(in, out, part, KOLO_FLOAT32, comm, NULL);
    default:
        return kolo_reduce_scatter(in, out, part, KOLO_FLOAT32, KOLO_SUM, comm, NULL);
    }
}

static int report(struct kolo_comm *comm, kolo_status st)
{
    char line[700];
    struct kolo_failure failure = {.size = sizeof failure};
    const kolo_status told = kolo_comm_failure(comm, &failure);
    (void)snprintf(line, sizeof line, "%d %s %d %s\n", kolo_comm_rank(comm), kolo_status_name(st),
                   told == KOLO_OK ? failure.rank : -2, failure.text);
    (void)fputs(line, stdout);
    (void)fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    pthread_t thread;
    if (argc != 7) {
        return 2;
    }
    job.work = argv[1];
    job.fault = argv[2];
    job.victim = atoi(argv[3]);
    job.calls = atoi(argv[4]);
    job.delay_us = atoi(argv[5]);
    config.timeout_ms = job.timeout_ms = atoi(argv[6]);
    if (kolo_comm_create_env(&config, &job.comm) != KOLO_OK) {
        (void)printf("%s KOLO_ERR_START -1 %s\n", getenv("KOLO_RANK"), kolo_error_text());
        return 1;
    }
    const bool is_victim = kolo_comm_rank(job.comm) == job.victim;
    const bool ends = strcmp(job.fault, "pause") == 0;
    kolo_status st = KOLO_OK;
    for (int i = 0; st == KOLO_OK && (!ends || i < job.calls + MORE); i++) {
        if (is_victim && i == job.calls && job.delay_us == 0) {
            go_wrong();
        } else if (is_victim && i == job.calls) {
            (void)pthread_create(&thread, NULL, go_wrong_later, NULL);
        }
        st = one(job.comm, i);
    }
    const int result = report(job.comm, st);
    kolo_comm_destroy(job.comm);
    return result;
}

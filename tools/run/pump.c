// SPDX-License-Identifier: Apache-2.0
/* Passes on the output of ranks, by whole lines so that they do not mix, and the terminal's input
 * to rank 0. An incomplete line (a prompt, a progress bar) is shown after a moment if it needs no
 * prefix. The next writer on that stream then begins a new line. */
#include "tools/run/run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 65536, MAX_LINE = 16 << 20, IDLE_MS = 100 };

/* For each of our streams (1, 2): the rank's stream whose line is incomplete. */
static const struct run_stream *unfinished[3];

/* ---- our output ---- */

static void write_all(struct run_state *run, int to, const char *bytes, size_t len)
{
    while (len > 0 && !run->output_is_closed) {
        const ssize_t n = write(to, bytes, len);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = to, .events = POLLOUT};
            (void)poll(&wait, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            run->output_is_closed = true;
        }
    }
}

static void show_bytes(struct run_state *run, const struct run_stream *stream, const char *bytes,
                       size_t len)
{
    if (len == 0) {
        return;
    }
    if (unfinished[stream->to] != NULL && unfinished[stream->to] != stream) {
        write_all(run, stream->to, "\n", 1);
    }
    write_all(run, stream->to, bytes, len);
    const bool is_end = bytes[len - 1] == '\n' || bytes[len - 1] == '\r';
    unfinished[stream->to] = is_end ? NULL : stream;
}

static size_t count_lines(const char *bytes, size_t len)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) {
        count += bytes[i] == '\n' || i + 1 == len;
    }
    return count;
}

/* Show each line with its prefix, in one write. A last line without an end gets one. */
static void show_prefixed(struct run_state *run, const struct run_stream *stream, const char *bytes,
                          size_t len)
{
    char prefix[16];
    const int width = snprintf(prefix, sizeof prefix, "[%d] ", stream->prefix);
    char *text = malloc(len + count_lines(bytes, len) * sizeof prefix + 1);
    char *at = text;
    if (text == NULL) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (i == 0 || bytes[i - 1] == '\n') {
            at = mempcpy(at, prefix, (size_t)width);
        }
        *at++ = bytes[i];
    }
    if (bytes[len - 1] != '\n') {
        *at++ = '\n';
    }
    show_bytes(run, stream, text, (size_t)(at - text));
    free(text);
}

/* Show the first `len` bytes that the stream holds, and keep the rest. */
static void show_held(struct run_state *run, struct run_stream *stream, size_t len)
{
    if (len == 0) {
        return;
    }
    if (stream->prefix >= 0) {
        show_prefixed(run, stream, stream->bytes, len);
    } else {
        show_bytes(run, stream, stream->bytes, len);
    }
    stream->len -= len;
    memmove(stream->bytes, stream->bytes + len, stream->len);
}

/* ---- their output ---- */

static bool make_room(struct run_stream *stream)
{
    if (stream->cap - stream->len >= CHUNK) {
        return true;
    }
    const size_t cap = 2 * stream->cap + CHUNK;
    char *bytes = realloc(stream->bytes, cap);
    if (bytes == NULL) {
        return false;
    }
    stream->bytes = bytes;
    stream->cap = cap;
    return true;
}

static void end_stream(struct run_state *run, struct run_stream *stream)
{
    show_held(run, stream, stream->len);
    close(stream->fd);
    stream->fd = -1;
    free(stream->bytes);
    stream->bytes = NULL;
    stream->cap = 0;
}

/* The length of the whole lines. A carriage return also ends a line if lines get no prefix. */
static size_t whole_lines(const struct run_stream *stream, size_t fresh)
{
    const char *bytes = stream->bytes;
    for (size_t i = stream->len; i > stream->len - fresh; i--) {
        if (bytes[i - 1] == '\n' || (bytes[i - 1] == '\r' && stream->prefix < 0)) {
            return i;
        }
    }
    return stream->len < MAX_LINE ? 0 : stream->len;
}

/* Read once. False: no more data at the moment. */
static bool read_stream(struct run_state *run, struct run_stream *stream)
{
    if (!make_room(stream)) {
        show_held(run, stream, stream->len); /* a cut line is better than no line */
        return false;
    }
    const ssize_t n = read(stream->fd, stream->bytes + stream->len, CHUNK);
    if (n > 0) {
        stream->len += (size_t)n;
        stream->since_us = kolo_now_us();
        show_held(run, stream, whole_lines(stream, (size_t)n));
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        end_stream(run, stream);
    }
    return false;
}

void run_drain(struct run_state *run, struct run_rank *rank)
{
    for (int i = 0; i < 2; i++) {
        while (rank->streams[i].fd >= 0 && read_stream(run, &rank->streams[i])) {
        }
    }
}

void run_end_streams(struct run_state *run, struct run_rank *rank)
{
    run_drain(run, rank);
    for (int i = 0; i < 2; i++) {
        if (rank->streams[i].fd >= 0) {
            end_stream(run, &rank->streams[i]);
        }
    }
}

void run_finish_output(struct run_state *run)
{
    for (int rank = 0; rank < run->nstarted; rank++) {
        run_end_streams(run, &run->ranks[rank]);
    }
    if (run->input.to >= 0) {
        close(run->input.to);
        run->input.to = -1;
    }
}

/* Show incomplete lines that have waited long enough. Returns whether others still wait. */
static bool show_idle(struct run_state *run)
{
    bool some = false;
    for (int rank = 0; rank < run->nstarted; rank++) {
        for (int i = 0; i < 2; i++) {
            struct run_stream *stream = &run->ranks[rank].streams[i];
            if (stream->len == 0 || stream->prefix >= 0) {
                continue;
            }
            if (kolo_now_us() - stream->since_us >= IDLE_MS * 1e3) {
                show_held(run, stream, stream->len);
            } else {
                some = true;
            }
        }
    }
    return some;
}

/* ---- our input ---- */

static void close_input(struct run_input *input)
{
    close(input->to);
    input->to = -1;
}

/* The descriptor to poll: the terminal, if we own it and hold no input, else rank 0's pipe. */
static struct pollfd input_poll(const struct run_input *input)
{
    if (input->to < 0) {
        return (struct pollfd){.fd = -1};
    }
    if (input->len > 0) {
        return (struct pollfd){.fd = input->to, .events = POLLOUT};
    }
    return (struct pollfd){.fd = tcgetpgrp(0) == getpgrp() ? 0 : -1, .events = POLLIN};
}

static void pass_input(struct run_input *input)
{
    if (input->len == 0) {
        const ssize_t n = read(0, input->bytes, sizeof input->bytes);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
            close_input(input);
        }
        input->len = n > 0 ? (size_t)n : 0;
        return;
    }
    const ssize_t n = write(input->to, input->bytes, input->len);
    if (n > 0) {
        input->len -= (size_t)n;
        memmove(input->bytes, input->bytes + n, input->len);
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
        close_input(input);
    }
}

/* ---- the pump ---- */

void run_pump(struct run_state *run, int wake_fd, int timeout_ms)
{
    const size_t count = 2 * (size_t)run->nstarted;
    struct pollfd *polls = calloc(count + 2, sizeof *polls);
    if (polls == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        polls[i] = (struct pollfd){.fd = run->ranks[i / 2].streams[i % 2].fd, .events = POLLIN};
    }
    polls[count] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    polls[count + 1] = input_poll(&run->input);
    const bool some_wait = show_idle(run);
    const bool soon = some_wait && (timeout_ms < 0 || timeout_ms > IDLE_MS);
    if (poll(polls, count + 2, soon ? IDLE_MS : timeout_ms) > 0) {
        for (size_t i = 0; i < count; i++) {
            if (polls[i].revents != 0) {
                (void)read_stream(run, &run->ranks[i / 2].streams[i % 2]);
            }
        }
        if (polls[count + 1].revents != 0) {
            pass_input(&run->input);
        }
    }
    free(polls);
}

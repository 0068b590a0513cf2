// SPDX-License-Identifier: Apache-2.0
/* The records of a board in the form of PyTorch's flight recorder, version 2.4, so that what reads
 * those (torch.distributed.flight_recorder, torchfrtrace) reads these.
 *
 * Source: torch/csrc/distributed/c10d/FlightRecorder.hpp of PyTorch 2.13 for the members;
 * torch/distributed/flight_recorder/components/types.py for the names that are known there. */
#ifndef KOLO_CORE_FAILURE_FLIGHT_RECORDER_H
#define KOLO_CORE_FAILURE_FLIGHT_RECORDER_H

#include "core/comm.h"

/* JSON of what one rank has done: its last calls, and under "kolo" what PyTorch has no place for:
 * process, state, whom it waits for, what ended the communicator. */
void kolo_flight_recorder_text(const struct kolo_board *board, const struct kolo_board_slot *slot,
                               struct kolo_text *out);
/* Replace the file `path` by `text`, whole or not at all. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_flight_recorder_write(const char *path, const struct kolo_text *text);
/* `pattern` with %h host, %p process, %r rank, %c communicator; with neither %p nor %r the rank is
 * added at the end. */
void kolo_flight_recorder_path(const char *pattern, const struct kolo_board *board,
                               const struct kolo_board_slot *slot, struct kolo_text *out);

/* Write records when the communicator fails, if KOLO_RECORD_FILE is set. Each rank writes its own
 * records. The rank that saw the failure also writes those of dead ranks of its host. A file that
 * cannot be written is a warning. A folder that is not there is reported now, on standard error. */
void kolo_flight_recorder_start(struct kolo_comm *c);

/* "runs", "waits", "stopped", "dead", "left" or "comes": what the rank of a slot does. */
const char *kolo_board_slot_state(const struct kolo_board_slot *slot);

#endif

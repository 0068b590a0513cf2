// SPDX-License-Identifier: Apache-2.0
// covers: tools/log/read.c tools/log/text.c tools/log/comm.c
/* Logs: what is read is printed in every form and drawn. */
#include "tools/log/log.h"

#include "target.h"
#include "topology/draw/picture.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kolo_log log = {0};
    struct kolo_text text = {0};
    char *copy = malloc(size + 1); /* bounds are seen */
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (kolo_log_read(&log, "log", copy, size) == KOLO_OK && kolo_log_finish(&log) == KOLO_OK) {
        const struct kolo_log_comm *comm = kolo_log_shown(&log);
        if (log.all.bytes > log.all.limit || (comm != NULL && comm->job.bytes > comm->job.limit)) {
            abort();
        }
        kolo_log_print_text(&log, &text);
        for (size_t i = 0; i < text.len; i++) {
            if ((text.chars[i] < ' ' && text.chars[i] >= 0 && text.chars[i] != '\n') ||
                text.chars[i] == 0x7f) {
                abort();
            }
        }
        kolo_log_print_json(&log, &text);
        if (comm != NULL) {
            kolo_picture_job(&comm->job, NULL, &text);
        }
    }
    kolo_text_free(&text);
    kolo_log_free(&log);
    free(copy);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* The file of the tuning table. Measured rows replace the rows of the same ranks, collectives and
 * sizes. All other rows stay, so that a machine can be tuned piece by piece. */
#include "core/setup/tune_table.h"
#include "plugin/catalogue.h"
#include "tools/tune/tune.h"
#include "topology/draw/draw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

kolo_status tune_file_path(const struct tune_options *options, const struct kolo_host *host,
                           struct kolo_text *out)
{
    if (options->out != NULL) {
        kolo_text_add(out, "%s", options->out);
    } else {
        kolo_table_path(host, out);
    }
    return out->chars != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID, "where to write? neither -o nor HOME is set");
}

/* ---- composing ---- */

/* Add a row, unless no call can reach it. */
static void add_row(const struct kolo_row *row, struct kolo_text *out)
{
    const struct kolo_table_source source = {"table", kolo_algo_count_all, kolo_algo_at};
    struct kolo_text longer = {0};
    struct kolo_table *table = NULL;
    kolo_text_add(&longer, "%s", out->chars);
    kolo_table_write_row(row, &longer);
    if (longer.chars != NULL && kolo_table_parse(longer.chars, &source, &table) == KOLO_OK) {
        kolo_table_write_row(row, out);
    }
    kolo_table_destroy(table);
    kolo_text_free(&longer);
}

/* Add the parts of an old row for sizes that were not measured now. */
static void add_rest(const struct kolo_row *old, const struct tune_points *points,
                     struct kolo_text *out)
{
    size_t low = 0, high = 0;
    tune_range(points, old->coll, &low, &high);
    const bool is_same = old->ranks_low == points->nranks && old->ranks_high == points->nranks;
    if (!is_same || high <= old->low || low >= old->high) {
        add_row(old, out);
        return;
    }
    struct kolo_row below = *old, above = *old;
    below.high = low;
    above.low = high;
    if (below.low < below.high) {
        add_row(&below, out);
    }
    if (above.low < above.high) {
        add_row(&above, out);
    }
}

kolo_status tune_file_compose(const char *path, const struct kolo_host *host,
                              const struct tune_points *points, struct kolo_text *out)
{
    struct kolo_text machine = {0};
    struct kolo_table *old = NULL;
    struct kolo_row *rows = calloc(KOLO_TABLE_ROWS, sizeof *rows);
    char *text = NULL;
    kolo_status st = rows != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for rows");
    if (st == KOLO_OK && access(path, F_OK) == 0) {
        st = kolo_table_load(path, host, &text, &old);
    }
    if (st == KOLO_OK) {
        kolo_host_fingerprint(host, &machine);
        kolo_table_write_head(old != NULL ? kolo_table_machine(old) : machine.chars, out);
        kolo_text_add(out,
                      "# collective ranks bytes algorithm tile buffers, then what was measured "
                      "(kolo tune)\n");
    }
    const int count = st == KOLO_OK ? tune_rows(points, rows, KOLO_TABLE_ROWS) : 0;
    for (int i = 0; i < count; i++) {
        add_row(&rows[i], out);
    }
    for (int i = 0; st == KOLO_OK && old != NULL && i < kolo_table_rows(old); i++) {
        add_rest(kolo_table_row(old, i), points, out);
    }
    kolo_text_free(&machine);
    kolo_table_destroy(old);
    free(rows);
    free(text);
    return st;
}

/* ---- writing ---- */

/* Make the missing folders above the file. */
static void make_folders(const char *path)
{
    char *folder = strdup(path);
    for (char *at = folder != NULL ? strchr(folder + 1, '/') : NULL; at != NULL;
         at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(folder, 0777); /* opening the file reports an error */
        *at = '/';
    }
    free(folder);
}

static bool write_all(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return false;
    }
    const bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written;
}

kolo_status tune_file_write(const char *path, const char *text)
{
    struct kolo_text temporary = {0};
    kolo_status st = KOLO_OK;
    make_folders(path);
    kolo_text_add(&temporary, "%s.%d", path, (int)getpid());
    if (temporary.chars == NULL || !write_all(temporary.chars, text) ||
        rename(temporary.chars, path) != 0) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "cannot write table %s: %s", path, strerror(errno));
        (void)unlink(temporary.chars != NULL ? temporary.chars : "");
    }
    kolo_text_free(&temporary);
    return st;
}

// SPDX-License-Identifier: Apache-2.0
/* The table of measured choices of a communicator.
 *
 * Rank 0 reads it, and its text goes to all, so that all choose alike, whatever files they see.
 * KOLO_TUNE_FILE names a file, which then has to be right: the communicator is refused, on every
 * rank with the same words. Otherwise the file of this machine is taken, if there is one; what is
 * wrong with it is told as a warning, and the choice is by price. */
#include "core/setup/tune_table.h"

#include "core/setup/join.h"
#include "plugin/catalogue.h"
#include "topology/draw/draw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct kolo_table_source source_of(const char *name)
{
    return (struct kolo_table_source){name, kolo_algo_count_all, kolo_algo_at};
}

void kolo_table_path(const struct kolo_host *host, struct kolo_text *out)
{
    struct kolo_text print = {0};
    const char *config = kolo_env("XDG_CONFIG_HOME"), *home = kolo_env("HOME");
    kolo_host_fingerprint(host, &print);
    if (print.chars != NULL && config != NULL && config[0] == '/') {
        kolo_text_add(out, "%s/kolo/%.16s.tune", config, print.chars);
    } else if (print.chars != NULL && home != NULL) {
        kolo_text_add(out, "%s/.config/kolo/%.16s.tune", home, print.chars);
    }
    kolo_text_free(&print);
}

/* ---- reading ---- */

static kolo_status read_text(const char *path, char **out)
{
    struct stat status;
    FILE *file = fopen(path, "re");
    if (file == NULL || fstat(fileno(file), &status) != 0) {
        const kolo_status st = kolo_fail(KOLO_ERR_SYSTEM, "table %s: %s", path, strerror(errno));
        if (file != NULL) {
            (void)fclose(file);
        }
        return st;
    }
    char *text = calloc(1, KOLO_TABLE_BYTES + 1);
    const size_t len = text != NULL ? fread(text, 1, KOLO_TABLE_BYTES, file) : 0;
    const bool whole = text != NULL && ferror(file) == 0 && fgetc(file) == EOF;
    (void)fclose(file);
    if (!whole || !S_ISREG(status.st_mode) || strlen(text) != len) {
        free(text);
        return kolo_fail(KOLO_ERR_INVALID, "table %s is no text file of at most %d bytes", path,
                         KOLO_TABLE_BYTES);
    }
    *out = text;
    return KOLO_OK;
}

static kolo_status check_machine(const char *path, const struct kolo_host *host,
                                 const struct kolo_table *table)
{
    struct kolo_text here = {0};
    kolo_status st = KOLO_OK;
    kolo_host_fingerprint(host, &here);
    if (here.chars == NULL || !kolo_table_fits(table, here.chars)) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "table %s was made on another machine: %s; this one is %s ("
                       "\"machine any\" in its head fits every machine)",
                       path, kolo_table_machine(table), here.chars != NULL ? here.chars : "?");
    }
    kolo_text_free(&here);
    return st;
}

kolo_status kolo_table_load(const char *path, const struct kolo_host *host, char **text,
                            struct kolo_table **out)
{
    const struct kolo_table_source source = source_of(path);
    struct kolo_table *table = NULL;
    char *read = NULL;
    KOLO_TRY(read_text(path, &read));
    kolo_status st = kolo_table_parse(read, &source, &table);
    st = st == KOLO_OK && host != NULL ? check_machine(path, host, table) : st;
    if (st != KOLO_OK) {
        free(read);
        kolo_table_destroy(table);
        return st;
    }
    *text = read;
    *out = table;
    return KOLO_OK;
}

/* ---- a communicator's ---- */

static void refuse_table(struct kolo_comm *c, kolo_status status, struct kolo_ready *out)
{
    c->joining.table_text = strdup(kolo_error_text());
    out->table_status = status;
}

/* The file of this machine: there may be none, and a bad one is only told of. */
static void find_table(struct kolo_comm *c, const struct kolo_host *host)
{
    struct kolo_text path = {0};
    kolo_table_path(host, &path);
    if (path.chars != NULL && access(path.chars, F_OK) == 0 &&
        kolo_table_load(path.chars, host, &c->joining.table_text, &c->selection.table) != KOLO_OK) {
        KOLO_LOG(WARN, TUNE, "the measured choices are not used: %s", kolo_error_text());
    }
    if (c->selection.table != NULL) {
        KOLO_LOG(INFO, TUNE, "table %s: %d rows", path.chars, kolo_table_rows(c->selection.table));
    }
    kolo_text_free(&path);
}

void kolo_table_make(struct kolo_comm *c, const struct kolo_host *host, struct kolo_ready *out)
{
    const char *given = kolo_env("KOLO_TUNE_FILE");
    if (given == NULL && host != NULL) {
        find_table(c, host);
    } else if (given != NULL && strcmp(given, "none") != 0) {
        const kolo_status st =
            kolo_table_load(given, host, &c->joining.table_text, &c->selection.table);
        if (st != KOLO_OK) {
            refuse_table(c, st, out);
        } else {
            KOLO_LOG(INFO, TUNE, "table %s: %d rows", given, kolo_table_rows(c->selection.table));
        }
    }
    out->table_bytes =
        c->joining.table_text != NULL ? (uint32_t)strlen(c->joining.table_text) + 1 : 0;
}

kolo_status kolo_table_take(struct kolo_comm *c, const struct kolo_ready *first, const char *text)
{
    const struct kolo_table_source source = source_of("the table that rank 0 read");
    if (first->table_bytes == 0 || (c->selection.table != NULL && first->table_status == KOLO_OK)) {
        return KOLO_OK;
    }
    if (first->table_status != KOLO_OK) {
        return kolo_fail(first->table_status, "%s", text);
    }
    return kolo_table_parse(text, &source, &c->selection.table);
}

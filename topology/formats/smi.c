// SPDX-License-Identifier: Apache-2.0
/* Reads the text of `nvidia-smi topo -m`.
 *
 *         GPU0  GPU1  mlx5_0  CPU Affinity  NUMA Affinity  GPU NUMA ID
 *   GPU0   X    NV2   PIX     0-19,40-59    0              N/A
 *
 * nvidia-smi separates columns by tabs, and an empty field is two tabs. Where people have turned
 * tabs into blanks, words are counted. If a row has fewer words than devices, each word belongs to
 * the title above it. */
#include "topology/formats/smi.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = KOLO_SMI_DEVICES_MAX + 16, LINE_MAX_BYTES = 64 * WORDS_MAX };

/* A field of a line. Its text begins at column `at` of the line without escape sequences. */
struct word {
    int at;
    char text[KOLO_SMI_CELL];
};

struct smi_line {
    struct word *word;
    int count;
    bool tabs;
};

struct smi_titles {              /* the header's titles behind the devices; -1: absent */
    int cpus, numa;              /* their places in a row with tabs */
    int cpus_at, numa_at, id_at; /* their columns */
};

struct smi_reading {
    struct kolo_smi *m;
    struct smi_line header, row;
    struct smi_titles titles;
    char *clean; /* a line without escape sequences */
};

static kolo_status fail_line(const struct kolo_smi *m, const char *what, const char *text)
{
    return kolo_fail(KOLO_ERR_INVALID, "%s:%d: %s: \"%.40s\"", m->path, m->line, what, text);
}

bool kolo_smi_is_gpu(const char *name)
{
    return strncmp(name, "GPU", 3) == 0 && isdigit((unsigned char)name[3]);
}

/* The beginning of the next line; the end of the text if there is none. */
static const char *next_line(const char *at)
{
    at += strcspn(at, "\n");
    return *at == '\n' ? at + 1 : at;
}

/* Copy a line without escape sequences for underlining. */
static void clean_line(const char *line, char *out)
{
    size_t len = 0;
    while (*line != '\0' && *line != '\n' && len + 1 < LINE_MAX_BYTES) {
        if (*line == '\033' || (line[0] == '[' && (line[1] == '4' || line[1] == '0') &&
                                line[2] == 'm')) { /* some copies have lost the escape itself */
            line += *line == '\033';
            line += *line == '[';
            line += strspn(line, "0123456789;");
            line += *line != '\0' && *line != '\n';
        } else {
            out[len++] = *line++;
        }
    }
    out[len] = '\0';
}

static void take_word(struct smi_line *out, const char *line, const char *from, const char *end)
{
    while (from < end && strchr(" \r", *from) != NULL) {
        from++;
    }
    while (end > from && strchr(" \r", end[-1]) != NULL) {
        end--;
    }
    struct word *w = &out->word[out->count++];
    const size_t len =
        (size_t)(end - from) < sizeof w->text ? (size_t)(end - from) : sizeof w->text - 1;
    w->at = (int)(from - line);
    memcpy(w->text, from, len);
    w->text[len] = '\0';
}

/* Split a line into words. Tabs separate them, and an empty field is a word, too; or blanks do. */
static void split_line(const char *line, bool tabs, struct smi_line *out)
{
    out->count = 0;
    out->tabs = tabs;
    for (const char *at = line; out->count < WORDS_MAX;) {
        if (!tabs) {
            at += strspn(at, " \t\r");
        }
        const char *end = at + strcspn(at, tabs ? "\t" : " \t\r");
        if (!tabs && end == at) {
            break;
        }
        take_word(out, line, at, end);
        if (*end == '\0') {
            break;
        }
        at = end + 1;
    }
}

/* ---- the header ---- */

static bool is_title(const struct smi_line *l, int i, const char *first, const char *second)
{
    const char *text = l->word[i].text;
    if (l->tabs) {
        return strncmp(text, first, strlen(first)) == 0 && text[strlen(first)] == ' ';
    }
    return strcmp(text, first) == 0 && i + 1 < l->count && strcmp(l->word[i + 1].text, second) == 0;
}

/* Find the titles behind the devices. Returns the number of devices. */
static int read_titles(const struct smi_line *l, struct smi_titles *out)
{
    int devices = -1;
    *out = (struct smi_titles){-1, -1, -1, -1, -1};
    for (int i = 0; i < l->count; i++) {
        const bool cpus = is_title(l, i, "CPU", "Affinity"),
                   numa = is_title(l, i, "NUMA", "Affinity");
        const bool id = is_title(l, i, "GPU", "NUMA");
        if (cpus || numa || id) {
            devices = devices < 0 ? i : devices;
            int *at = cpus ? &out->cpus_at : numa ? &out->numa_at : &out->id_at;
            *at = l->word[i].at;
            out->cpus = cpus ? i : out->cpus;
            out->numa = numa ? i : out->numa;
        }
    }
    if (devices < 0) {
        devices = l->count;
        while (devices > 0 && l->word[devices - 1].text[0] == '\0') {
            devices--;
        }
    }
    return devices;
}

static kolo_status read_header(struct smi_reading *r)
{
    struct kolo_smi *m = r->m;
    struct smi_line *h = &r->header;
    if (h->tabs && h->count > 0 && h->word[0].text[0] == '\0') { /* the column of names */
        memmove(&h->word[0], &h->word[1], (size_t)--h->count * sizeof h->word[0]);
    }
    m->n = read_titles(h, &r->titles);
    const size_t n = m->n > 0 ? (size_t)m->n : 0;
    if (m->n < 1 || m->n > KOLO_SMI_DEVICES_MAX) {
        return kolo_fail(KOLO_ERR_INVALID, "%s:%d: a matrix of %d devices; 1 to %d are read",
                         m->path, m->line, m->n, KOLO_SMI_DEVICES_MAX);
    }
    m->name = calloc(n, sizeof *m->name);
    m->cpus = calloc(n, sizeof *m->cpus);
    m->numa = calloc(n, sizeof *m->numa);
    m->seen = calloc(n, sizeof *m->seen);
    m->near = malloc(n * n);
    m->links = calloc(n * n, 1);
    if (m->name == NULL || m->cpus == NULL || m->numa == NULL || m->seen == NULL ||
        m->near == NULL || m->links == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", m->path);
    }
    memset(m->near, KOLO_SMI_CUT, n * n);
    for (int i = 0; i < m->n; i++) {
        memcpy(m->name[i], h->word[i].text, KOLO_SMI_CELL);
        m->numa[i] = -1;
    }
    return KOLO_OK;
}

/* ---- rows ---- */

static bool parse_cell(const char *text, unsigned char *near, unsigned char *links)
{
    static const struct {
        const char *name;
        enum kolo_smi_near near;
    } names[] = {{"X", KOLO_SMI_SELF},    {"PIX", KOLO_SMI_PIX},     {"PXB", KOLO_SMI_PXB},
                 {"PHB", KOLO_SMI_NODE},  {"NODE", KOLO_SMI_NODE},   {"SYS", KOLO_SMI_SYS},
                 {"SOC", KOLO_SMI_SYS},   {"N/A", KOLO_SMI_UNKNOWN}, {"ERR!", KOLO_SMI_UNKNOWN},
                 {"OK", KOLO_SMI_UNKNOWN}};
    long count = 0;
    for (size_t i = 0; i < KOLO_LENGTH(names); i++) {
        if (strcmp(text, names[i].name) == 0) {
            *near = (unsigned char)names[i].near;
            *links = 0;
            return true;
        }
    }
    if (strncmp(text, "NV", 2) != 0 || !kolo_parse_int(text + 2, 1, 255, &count)) {
        return false;
    }
    *near = KOLO_SMI_UNKNOWN; /* the cell shows NVLink instead of the PCI distance */
    *links = (unsigned char)count;
    return true;
}

/* The title whose column is nearest to a word: a device 0..n-1, n the CPUs, n+1 the NUMA node. */
static int column_of(const struct smi_reading *r, int at)
{
    const struct smi_titles *t = &r->titles;
    const int ends[3] = {t->cpus_at, t->numa_at, t->id_at};
    int best = 0;
    for (int i = 1; i < r->m->n; i++) {
        best = abs(r->header.word[i].at - at) < abs(r->header.word[best].at - at) ? i : best;
    }
    int least = abs(r->header.word[best].at - at);
    for (int i = 0; i < 3; i++) {
        if (ends[i] >= 0 && abs(ends[i] - at) < least) {
            least = abs(ends[i] - at);
            best = r->m->n + i;
        }
    }
    return best;
}

static void take_end(struct kolo_smi *m, int row, int column, const char *text)
{
    long numa = -1;
    if (column == m->n && strcmp(text, "N/A") != 0) {
        memcpy(m->cpus[row], text, KOLO_SMI_CELL);
    } else if (column == m->n + 1 && kolo_parse_int(text, 0, 1 << 20, &numa)) {
        m->numa[row] = (int)numa;
    }
}

/* The columns of the words behind a row's name. */
static void find_columns(const struct smi_reading *r, int *out)
{
    const struct smi_line *l = &r->row;
    const struct smi_titles *t = &r->titles;
    const int n = r->m->n, words = l->count - 1;
    const int titles = (t->cpus_at >= 0) + (t->numa_at >= 0) + (t->id_at >= 0);
    const bool ordered = l->tabs || words >= n;
    for (int i = 0; i < words; i++) {
        out[i] = ordered ? i : column_of(r, l->word[i + 1].at);
    }
    for (int i = n; i < words && ordered; i++) { /* CPUs, NUMA node and the GPU's own node */
        const bool by_title = !l->tabs && t->numa_at >= 0 && words - n < titles;
        out[i] = by_title  ? column_of(r, l->word[i + 1].at)
                 : l->tabs ? (i == t->cpus   ? n
                              : i == t->numa ? n + 1
                                             : n + 2)
                           : i + (t->cpus_at < 0);
    }
}

static kolo_status read_row(struct smi_reading *r, int row)
{
    struct kolo_smi *m = r->m;
    int column[WORDS_MAX];
    int cells = 0;
    m->seen[row] = true;
    find_columns(r, column);
    for (int i = 0; i + 1 < r->row.count; i++) {
        const char *text = r->row.word[i + 1].text;
        if (column[i] >= m->n) {
            take_end(m, row, column[i], text);
            continue;
        }
        const size_t cell = (size_t)row * (size_t)m->n + (size_t)column[i];
        if (text[0] == '\0') {
            continue;
        }
        if (!parse_cell(text, &m->near[cell], &m->links[cell])) {
            return fail_line(m, "a cell is none of X NV# PIX PXB PHB NODE SYS", text);
        }
        cells++;
    }
    if (cells < m->n) {
        m->first_short = m->short_rows++ == 0 ? row : m->first_short;
    }
    return KOLO_OK;
}

static int device_named(const struct kolo_smi *m, const char *name)
{
    for (int i = 0; i < m->n; i++) {
        if (!m->seen[i] && strcmp(m->name[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_legend(const char *word)
{
    return strcmp(word, "Legend:") == 0 || strcmp(word, "NIC") == 0;
}

/* Rows may stand in any order, with blank lines between them, up to the legend. */
static kolo_status read_rows(struct smi_reading *r, const char *line)
{
    struct kolo_smi *m = r->m;
    int left = m->n;
    while (*line != '\0' && left > 0) {
        line = next_line(line);
        m->line++;
        clean_line(line, r->clean);
        split_line(r->clean, strchr(r->clean, '\t') != NULL && r->header.tabs, &r->row);
        const char *name = r->row.count > 0 ? r->row.word[0].text : "";
        if (name[0] == '\0') {
            continue;
        }
        if (is_legend(name)) {
            break;
        }
        const int row = device_named(m, name);
        if (row < 0) {
            return fail_line(m, "a row of no device of the header", name);
        }
        KOLO_TRY(read_row(r, row));
        left--;
    }
    for (int i = 0; i < m->n; i++) {
        if (!m->seen[i]) {
            m->first_short = m->short_rows++ == 0 ? i : m->first_short;
        }
    }
    return KOLO_OK;
}

/* ---- the whole ---- */

/* Fill cells that are cut from their mirror images, and make the two counts of a pair alike. */
static kolo_status mirror(struct kolo_smi *m)
{
    const size_t n = (size_t)m->n;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            unsigned char *a = &m->near[i * n + j], *b = &m->near[j * n + i];
            unsigned char *la = &m->links[i * n + j], *lb = &m->links[j * n + i];
            if (*a == KOLO_SMI_CUT || *b == KOLO_SMI_CUT) {
                *a = *b = *a == KOLO_SMI_CUT ? *b : *a;
                *la = *lb = *la > *lb ? *la : *lb;
            }
            if (*a == KOLO_SMI_CUT &&
                (kolo_smi_is_gpu(m->name[i]) || kolo_smi_is_gpu(m->name[j]))) {
                return kolo_fail(KOLO_ERR_INVALID,
                                 "%s: the matrix is cut: no cell tells how %.40s and %.40s are "
                                 "joined",
                                 m->path, m->name[j], m->name[i]);
            }
            m->unequal += *la != *lb;
            *la = *lb = *la < *lb ? *la : *lb;
        }
    }
    return KOLO_OK;
}

/* Lines like "  NIC0: mlx5_0" below the matrix give the names of the header's NICs. */
static void rename_nics(struct smi_reading *r, const char *text)
{
    struct kolo_smi *m = r->m;
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        clean_line(line, r->clean);
        split_line(r->clean, false, &r->row);
        char *word = r->row.count > 1 ? r->row.word[0].text : NULL;
        const size_t len = word != NULL ? strlen(word) : 0;
        if (len < 5 || strncmp(word, "NIC", 3) != 0 || word[len - 1] != ':') {
            continue;
        }
        word[len - 1] = '\0';
        for (int i = 0; i < m->n; i++) {
            if (strcmp(m->name[i], word) == 0) {
                memcpy(m->name[i], r->row.word[1].text, KOLO_SMI_CELL);
            }
        }
    }
}

static kolo_status read_text(struct smi_reading *r, const char *text)
{
    struct kolo_smi *m = r->m;
    const char *line = text;
    for (m->line = 1; *line != '\0'; line = next_line(line), m->line++) {
        clean_line(line, r->clean);
        split_line(r->clean, strchr(r->clean, '\t') != NULL, &r->header);
        const int first = r->header.count > 1 && r->header.word[0].text[0] == '\0';
        if (r->header.count > first && strcmp(r->header.word[first].text, "GPU0") == 0) {
            break;
        }
        r->header.count = 0;
    }
    KOLO_TRY(read_header(r));
    KOLO_TRY(read_rows(r, line));
    KOLO_TRY(mirror(m));
    rename_nics(r, text);
    return KOLO_OK;
}

kolo_status kolo_smi_read(const struct kolo_xml_source *source, struct kolo_smi *out)
{
    *out = (struct kolo_smi){.path = source->path};
    struct smi_reading r = {.m = out};
    r.header.word = malloc(WORDS_MAX * sizeof *r.header.word);
    r.row.word = malloc(WORDS_MAX * sizeof *r.row.word);
    r.clean = malloc(LINE_MAX_BYTES);
    const kolo_status st = r.header.word != NULL && r.row.word != NULL && r.clean != NULL
                               ? read_text(&r, source->bytes)
                               : kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", source->path);
    free(r.header.word);
    free(r.row.word);
    free(r.clean);
    return st;
}

void kolo_smi_free(struct kolo_smi *smi)
{
    free(smi->name);
    free(smi->cpus);
    free(smi->numa);
    free(smi->seen);
    free(smi->near);
    free(smi->links);
}

// SPDX-License-Identifier: Apache-2.0
/* Reads a machine from a file. The first element or the first line tells the format. */
#include "topology/formats/file.h"

#include "topology/formats/graphs.h"
#include "topology/formats/read.h"
#include "topology/machine/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kolo_status fail_file(const char *path, const char *what)
{
    return kolo_fail(KOLO_ERR_INVALID, "topology file %s: %s", path, what);
}

static kolo_status read_all(int fd, const char *path, char *bytes, size_t len)
{
    size_t have = 0;
    while (have < len) {
        const ssize_t got = read(fd, bytes + have, len - have);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fail_file(path, got < 0 ? strerror(errno) : "it became shorter");
        }
        have += (size_t)got;
    }
    bytes[len] = '\0';
    return KOLO_OK;
}

kolo_status kolo_file_read(const char *path, char **out, size_t *len_out)
{
    struct stat status;
    kolo_status st = KOLO_OK;
    char *bytes = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0) {
        st = fail_file(path, strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        st = fail_file(path, "it is not a regular file");
    } else if (status.st_size == 0) {
        st = fail_file(path, "it is empty");
    } else if (status.st_size > KOLO_FILE_BYTES_MAX) {
        st = fail_file(path, "it is larger than 64 MiB");
    } else if ((bytes = malloc((size_t)status.st_size + 1)) == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %s", path);
    } else {
        st = read_all(fd, path, bytes, (size_t)status.st_size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (st < 0) {
        free(bytes);
        return st;
    }
    *out = bytes;
    *len_out = (size_t)status.st_size;
    return KOLO_OK;
}

struct file_format {
    const char *root, *name;
    kolo_status (*read)(const struct kolo_xml_source *source, struct kolo_graph *graph);
};

/* Find the first element, behind comments, declarations and blanks. NULL: the file is not XML. */
static const char *first_element(const char *bytes, const char *end)
{
    const char *at = bytes;
    while (at < end) {
        at += strspn(at, " \t\r\n\xef\xbb\xbf");
        const char *close = NULL;
        if (at >= end || *at != '<') {
            return NULL;
        }
        if (strncmp(at, "<!--", 4) == 0) {
            close = strstr(at, "-->");
        } else if (at[1] == '?' || at[1] == '!') {
            close = strchr(at, '>');
            const char *inner = strchr(at, '[');
            close = at[1] == '!' && inner != NULL && inner < close ? strstr(inner, "]>") : close;
        } else {
            return at + 1;
        }
        if (close == NULL) {
            return NULL;
        }
        at = strchr(close, '>') + 1;
    }
    return NULL;
}

static bool is_called(const char *at, const char *name)
{
    const size_t len = strlen(name);
    return strncmp(at, name, len) == 0 && strchr(" \t\r\n>/", at[len]) != NULL;
}

static const struct file_format *find_format(const char *bytes, size_t len)
{
    static const struct file_format formats[] = {
        {"system", "NCCL topology XML", kolo_read_nccl},
        {"kolo-topology", "kolo's dump", kolo_read_own},
        {NULL, "nvidia-smi topo -m", kolo_read_smi},
    };
    const char *root = first_element(bytes, bytes + len);
    for (size_t i = 0; root != NULL && i < KOLO_LENGTH(formats); i++) {
        if (formats[i].root != NULL && is_called(root, formats[i].root)) {
            return &formats[i];
        }
    }
    return root == NULL && strstr(bytes, "GPU0") != NULL ? &formats[KOLO_LENGTH(formats) - 1]
                                                         : NULL;
}

static kolo_status fail_format(const char *path, const char *bytes, size_t len)
{
    const char *root = first_element(bytes, bytes + len);
    return fail_file(path, root != NULL && is_called(root, "graphs")
                               ? "it is NCCL's graph XML, which holds rings and trees, not a "
                                 "machine (kolo topo shows it)"
                               : "it is none of: hwloc XML 2 or 3, NCCL or RCCL topology XML, the "
                                 "text of nvidia-smi topo -m, kolo's own dump");
}

bool kolo_graphs_is(const char *bytes, size_t len)
{
    const char *root = first_element(bytes, bytes + len);
    return root != NULL && is_called(root, "graphs");
}

bool kolo_file_is_hwloc(const char *path)
{
    char head[16384]; /* comments may precede the first element */
    FILE *file = fopen(path, "re");
    const size_t len = file != NULL ? fread(head, 1, sizeof head - 1, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    head[len] = '\0';
    const char *root = len > 0 ? first_element(head, head + len) : NULL;
    const bool is_other = root != NULL && find_format(head, len) != NULL;
    return !is_other && !(root == NULL && strstr(head, "GPU0") != NULL);
}

static kolo_status read_hwloc(const char *path, const char *bytes, size_t len,
                              struct kolo_graph **out)
{
    struct kolo_host *host = NULL;
    KOLO_TRY(kolo_host_read(path, bytes, len, &host));
    const kolo_status st = kolo_graph_of_host(host, out);
    kolo_host_destroy(host);
    return st;
}

kolo_status kolo_graph_read(const char *path, const char *bytes, size_t len,
                            struct kolo_graph **out)
{
    const struct file_format *format = find_format(bytes, len);
    const char *root = first_element(bytes, bytes + len);
    if (root != NULL && is_called(root, "topology")) {
        return read_hwloc(path, bytes, len, out);
    }
    if (format == NULL) {
        return fail_format(path, bytes, len);
    }
    struct kolo_graph *graph = kolo_graph_create(path, format->name, kolo_xml_limit(len));
    if (graph == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", path);
    }
    const struct kolo_xml_source source = {path, bytes, len};
    return kolo_graph_end(graph, format->read(&source, graph), out);
}

kolo_status kolo_graph_load(const char *path, struct kolo_graph **out)
{
    char *bytes = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_file_read(path, &bytes, &len));
    const kolo_status st = kolo_graph_read(path, bytes, len, out);
    free(bytes);
    return st;
}

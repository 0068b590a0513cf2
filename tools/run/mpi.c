// SPDX-License-Identifier: Apache-2.0
/* `kolo run --mpi`: becomes the program, with the library that serves its MPI before all others.
 *
 * There is one such library for each binary interface of MPI. The program's own links tell which one
 * fits: the program's loader lists them without running it. A program that loads MPI later, as Python
 * does, needs the name of its MPI library. That library is loaded early, too, so that it is the one
 * whose functions kolo calls. */
#include "tools/run/run.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_CANNOT = 126, STATUS_ABSENT = 127 };

static const struct {
    const char *soname; /* the begin of it */
    const char *interface;
} known[] = {{"libmpi_abi.so.", "abi"}, /* first: such a library may itself use another one */
             {"libmpi.so.40", "ompi"},
             {"libmpi.so.12", "mpich"},
             {"libmpich.so.12", "mpich"}};

/* ---- which MPI ---- */

struct found {
    size_t row; /* of known[]; its length: none */
    char path[PATH_MAX];
};

static void consider(const char *soname, const char *path, struct found *out)
{
    for (size_t i = 0; i < out->row; i++) {
        if (strncmp(soname, known[i].soname, strlen(known[i].soname)) == 0) {
            out->row = i;
            (void)snprintf(out->path, sizeof out->path, "%s", path);
        }
    }
}

/* The loader that an ELF program asks for. False: it asks for none, or it is no ELF program. */
static bool loader_of(const char *program, char *out, size_t room)
{
    Elf64_Ehdr head;
    bool has = false;
    const int fd = open(program, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    if (pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
        memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64) {
        for (int i = 0; i < head.e_phnum && !has; i++) {
            Elf64_Phdr part;
            const off_t at = (off_t)head.e_phoff + (off_t)i * head.e_phentsize;
            if (pread(fd, &part, sizeof part, at) == (ssize_t)sizeof part &&
                part.p_type == PT_INTERP && part.p_filesz > 0 && part.p_filesz < room) {
                memset(out, 0, room);
                has = pread(fd, out, part.p_filesz, (off_t)part.p_offset) > 0;
            }
        }
    }
    close(fd);
    return has;
}

/* Read "name => path (address)" of each library that the loader lists. */
static void read_list(FILE *list, struct found *out)
{
    char line[2 * PATH_MAX], soname[NAME_MAX + 1], path[PATH_MAX];
    while (fgets(line, sizeof line, list) != NULL) {
        if (sscanf(line, " %255s => %4095s (", soname, path) == 2) {
            consider(soname, path, out);
        }
    }
}

static void list_links(const char *loader, const char *program, struct found *out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)execl(loader, loader, "--list", program, (char *)NULL);
        _exit(STATUS_ABSENT);
    }
    close(ends[1]);
    FILE *list = fdopen(ends[0], "r");
    if (list != NULL) {
        read_list(list, out);
        (void)fclose(list);
    }
    if (pid > 0) {
        (void)waitpid(pid, NULL, 0);
    }
}

/* The path of a command, as execvp(3) would find it. */
static bool path_of(const char *command, char *out, size_t room)
{
    const char *rest = getenv("PATH");
    if (strchr(command, '/') != NULL || rest == NULL) {
        return snprintf(out, room, "%s", command) < (int)room;
    }
    for (;; rest++) {
        const size_t len = strcspn(rest, ":");
        (void)snprintf(out, room, "%.*s/%s", len > 0 ? (int)len : 1, len > 0 ? rest : ".", command);
        if (access(out, X_OK) == 0) {
            return true;
        }
        rest += len;
        if (*rest == '\0') {
            return false;
        }
    }
}

static bool find_mpi(const struct run_options *options, struct found *out)
{
    char program[PATH_MAX], loader[PATH_MAX];
    const char *named = options->mpi;
    out->row = KOLO_LENGTH(known);
    if (named[0] != '\0') {
        const char *slash = strrchr(named, '/');
        consider(slash != NULL ? slash + 1 : named, named, out);
    } else if (path_of(options->command[0], program, sizeof program) &&
               loader_of(program, loader, sizeof loader)) {
        list_links(loader, program, out);
    }
    if (out->row < KOLO_LENGTH(known)) {
        return true;
    }
    if (named[0] != '\0') {
        (void)fprintf(stderr,
                      "kolo run: --mpi=%s: the name must begin with libmpi.so.40 (Open MPI), "
                      "libmpi.so.12 (MPICH, Intel MPI), libmpich.so.12 or libmpi_abi.so.\n",
                      named);
    } else {
        (void)fprintf(stderr,
                      "kolo run: %s is not linked with an MPI library that kolo knows; name the "
                      "one that it loads: --mpi=/path/to/libmpi.so.40\n",
                      options->command[0]);
    }
    return false;
}

/* ---- which library of kolo ---- */

/* Look where this program lies: in the build's folder, in the place of the installation, and beside
 * a moved one. */
static bool find_own(const char *interface, char *out, size_t room)
{
    char self[PATH_MAX] = "";
    const char *const folders[] = {"/../src/mpi", "/../lib/kolo", NULL};
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = len > 0 ? strrchr(self, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
    }
    for (size_t i = 0; i < KOLO_LENGTH(folders); i++) {
        const int wrote =
            folders[i] != NULL
                ? snprintf(out, room, "%s%s/libkolo_mpi_%s.so", self, folders[i], interface)
                : snprintf(out, room, "%s/libkolo_mpi_%s.so", KOLO_MPI_FOLDER, interface);
        if (wrote > 0 && (size_t)wrote < room && access(out, R_OK) == 0) {
            return true;
        }
    }
    (void)fprintf(stderr,
                  "kolo run: there is no libkolo_mpi_%s.so: kolo was built without the header of "
                  "that MPI\n",
                  interface);
    return false;
}

int run_mpi(const struct run_options *options)
{
    struct found mpi;
    char own[PATH_MAX];
    struct kolo_text preload = {0};
    if (!find_mpi(options, &mpi) || !find_own(known[mpi.row].interface, own, sizeof own)) {
        return STATUS_CANNOT;
    }
    const char *before = getenv("LD_PRELOAD");
    kolo_text_add(&preload, "%s:%s", own, mpi.path);
    if (before != NULL && before[0] != '\0') {
        kolo_text_add(&preload, ":%s", before);
    }
    if (preload.chars == NULL || setenv("LD_PRELOAD", preload.chars, 1) != 0) {
        (void)fputs("kolo run: out of memory\n", stderr);
        return STATUS_CANNOT;
    }
    (void)execvp(options->command[0], options->command);
    const int why = errno;
    (void)fprintf(stderr, "kolo run: %s: %s\n", options->command[0], strerror(why));
    return why == ENOENT ? STATUS_ABSENT : STATUS_CANNOT;
}

// SPDX-License-Identifier: Apache-2.0
/* A fuzzer's target without libFuzzer, for every run of the tests: each file of the folders named
 * is given whole, cut at many places, and with single bytes changed. What libFuzzer once found lies
 * among the files. Ends by a crash, or with what it did.
 *
 * usage: replay FOLDER|FILE... */
#include "target.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUTS = 60, CHANGES = 120, BYTES_MAX = 1 << 20 };

static int given;

static void give(const uint8_t *data, size_t size)
{
    (void)LLVMFuzzerTestOneInput(data, size);
    given++;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void give_variants(uint8_t *data, size_t size)
{
    unsigned random = 1;
    give(data, size);
    for (int i = 0; i < CUTS; i++) {
        give(data, size * (size_t)i / CUTS);
    }
    for (int i = 0; i < CHANGES && size > 0; i++) {
        const size_t at = next_random(&random) % size;
        const uint8_t was = data[at];
        data[at] = (uint8_t)next_random(&random);
        give(data, size);
        data[at] = was;
    }
}

static int give_file(const char *path)
{
    static uint8_t data[BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return 1;
    }
    const size_t size = fread(data, 1, sizeof data, file);
    (void)fclose(file);
    give_variants(data, size);
    return 0;
}

static int give_folder(const char *path)
{
    DIR *folder = opendir(path);
    int status = 0;
    if (folder == NULL) {
        return give_file(path);
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char name[4096];
        (void)snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        status |= entry->d_name[0] != '.' ? give_file(name) : 0;
    }
    (void)closedir(folder);
    return status;
}

int main(int argc, char **argv)
{
    int status = argc < 2;
    for (int i = 1; i < argc; i++) {
        status |= give_folder(argv[i]);
    }
    (void)printf("1..1\n%s 1 - %d inputs are read without a fault\n", status == 0 ? "ok" : "not ok",
                 given);
    return status;
}

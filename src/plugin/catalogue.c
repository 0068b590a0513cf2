// SPDX-License-Identifier: Apache-2.0
/* The plug-in loader, and the catalogue of algorithms, transports and tuners.
 *
 * Loading has three steps. First the path and the permissions are checked, before any code of the
 * file runs. Then the file is linked with RTLD_NOW | RTLD_LOCAL. Then its one symbol is checked:
 * ABI, size, name, slots.
 *
 * An accepted plug-in is never unloaded, because plans and communicators point into it. */
#include "plugin/catalogue.h"

#include "plan/plan.h"
#include "plugin/load.h"
#include "transports/transports.h"
#include "util/library.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OF_A_KIND = 64 };

/* ---- the catalogue ---- */

/* An entry is written under `lock`. Then its count is stored (release), which publishes it. */
static struct {
    pthread_mutex_t lock;
    _Atomic(int) algos, transports, tuners;
    struct kolo_algo algo[MAX_OF_A_KIND];
    struct kolo_transport transport[MAX_OF_A_KIND]; /* the built-in ones too */
    struct kolo_tuner tuner[MAX_OF_A_KIND];
    char *file[3 * MAX_OF_A_KIND]; /* loaded files */
    int files;
} catalogue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t built_in_once = PTHREAD_ONCE_INIT;

static void add_built_in(void)
{
    for (int i = 0; i < kolo_transports_count; i++) {
        kolo_transport_overlay(kolo_transports[i], &catalogue.transport[i]);
    }
    atomic_store_explicit(&catalogue.transports, kolo_transports_count, memory_order_release);
}

int kolo_algo_count_all(void)
{
    return kolo_algos_count + atomic_load_explicit(&catalogue.algos, memory_order_acquire);
}

const struct kolo_algo *kolo_algo_at(int index)
{
    if (index < 0 || index >= kolo_algo_count_all()) {
        return NULL;
    }
    return index < kolo_algos_count ? kolo_algos[index] : &catalogue.algo[index - kolo_algos_count];
}

int kolo_transport_count_all(void)
{
    pthread_once(&built_in_once, add_built_in);
    return atomic_load_explicit(&catalogue.transports, memory_order_acquire);
}

const struct kolo_transport *kolo_transport_at(int index)
{
    return index < 0 || index >= kolo_transport_count_all() ? NULL : &catalogue.transport[index];
}

int kolo_tuner_count_all(void)
{
    return atomic_load_explicit(&catalogue.tuners, memory_order_acquire);
}

const struct kolo_tuner *kolo_tuner_at(int index)
{
    return index < 0 || index >= kolo_tuner_count_all() ? NULL : &catalogue.tuner[index];
}

const struct kolo_algo *kolo_algo_find(const char *name)
{
    for (int i = 0; i < kolo_algo_count_all(); i++) {
        if (strcmp(kolo_algo_at(i)->base.name, name) == 0) {
            return kolo_algo_at(i);
        }
    }
    return NULL;
}

const struct kolo_transport *kolo_transport_find(const char *name)
{
    for (int i = 0; i < kolo_transport_count_all(); i++) {
        if (strcmp(kolo_transport_at(i)->base.name, name) == 0) {
            return kolo_transport_at(i);
        }
    }
    return NULL;
}

const struct kolo_tuner *kolo_tuner_find(const char *name)
{
    for (int i = 0; i < kolo_tuner_count_all(); i++) {
        if (strcmp(kolo_tuner_at(i)->base.name, name) == 0) {
            return kolo_tuner_at(i);
        }
    }
    return NULL;
}

/* ---- the symbol ---- */

static kolo_status name_is_taken(const struct kolo_plugin_found *found, const char *name)
{
    return kolo_fail(KOLO_ERR_INVALID, "plug-in refused: %s: the %s \"%s\" exists already",
                     found->path, found->kind, name);
}

static kolo_status kind_is_full(const struct kolo_plugin_found *found)
{
    return kolo_fail(KOLO_ERR_SYSTEM,
                     "plug-in refused: %s: at most %d plug-ins of one kind can be loaded",
                     found->path, MAX_OF_A_KIND);
}

static kolo_status add_algo(const struct kolo_plugin_found *found)
{
    struct kolo_algo algo;
    KOLO_TRY(kolo_plugin_read_algo(found, &algo));
    if (kolo_algo_find(algo.base.name) != NULL) {
        return name_is_taken(found, algo.base.name);
    }
    const int count = atomic_load(&catalogue.algos);
    if (count == MAX_OF_A_KIND) {
        return kind_is_full(found);
    }
    catalogue.algo[count] = algo;
    atomic_store_explicit(&catalogue.algos, count + 1, memory_order_release);
    return KOLO_OK;
}

static kolo_status add_transport(const struct kolo_plugin_found *found)
{
    struct kolo_transport transport;
    KOLO_TRY(kolo_plugin_read_transport(found, &transport));
    if (kolo_transport_find(transport.base.name) != NULL) {
        return name_is_taken(found, transport.base.name);
    }
    const int count = kolo_transport_count_all();
    if (count == MAX_OF_A_KIND) {
        return kind_is_full(found);
    }
    catalogue.transport[count] = transport;
    atomic_store_explicit(&catalogue.transports, count + 1, memory_order_release);
    return KOLO_OK;
}

static kolo_status add_tuner(const struct kolo_plugin_found *found)
{
    struct kolo_tuner tuner;
    KOLO_TRY(kolo_plugin_read_tuner(found, &tuner));
    if (kolo_tuner_find(tuner.base.name) != NULL) {
        return name_is_taken(found, tuner.base.name);
    }
    const int count = kolo_tuner_count_all();
    if (count == MAX_OF_A_KIND) {
        return kind_is_full(found);
    }
    catalogue.tuner[count] = tuner;
    atomic_store_explicit(&catalogue.tuners, count + 1, memory_order_release);
    return KOLO_OK;
}

static const struct {
    const char *kind, *symbol;
    kolo_status (*add)(const struct kolo_plugin_found *found);
} kinds[] = {
    {"algo", "kolo_algo_v1", add_algo},
    {"transport", "kolo_transport_v1", add_transport},
    {"tuner", "kolo_tuner_v1", add_tuner},
};

/* The size of `symbol` in the file's symbol table. */
static size_t symbol_bytes(const void *symbol)
{
    Dl_info file;
    void *entry = NULL;
    const bool there = dladdr1(symbol, &file, &entry, RTLD_DL_SYMENT) != 0 && entry != NULL;
    return there ? ((const ElfW(Sym) *)entry)->st_size : 0;
}

/* The kind of the plug-in in `object`: an index into kinds. -1: it has none or several. */
static int find_symbol(void *object, struct kolo_plugin_found *found)
{
    int kind = -1;
    for (int i = 0; i < (int)KOLO_LENGTH(kinds); i++) {
        const void *symbol = dlsym(object, kinds[i].symbol);
        if (symbol != NULL && kind >= 0) {
            return -1;
        }
        if (symbol != NULL) {
            kind = i;
            found->kind = kinds[i].kind;
            found->symbol = symbol;
            found->bytes = symbol_bytes(symbol);
        }
    }
    return kind;
}

/* Under the lock. */
static bool is_loaded(const char *path)
{
    for (int i = 0; i < catalogue.files; i++) {
        if (strcmp(catalogue.file[i], path) == 0) {
            return true;
        }
    }
    return false;
}

static kolo_status link_and_add(const char *path)
{
    struct kolo_plugin_found found = {.path = path};
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "plug-in refused: %s", dlerror());
    }
    const int kind = find_symbol(object, &found);
    kolo_status status = KOLO_OK;
    if (kind < 0) {
        status = kolo_fail(KOLO_ERR_INVALID,
                           "plug-in refused: %s exports none or several of kolo_algo_v1, "
                           "kolo_transport_v1 and kolo_tuner_v1",
                           path);
    } else {
        status = kinds[kind].add(&found);
    }
    if (status < 0) {
        dlclose(object);
        return status;
    }
    KOLO_LOG(INFO, INIT, "Plugin %s: %s %s", path, found.kind,
             ((const struct kolo_plugin *)found.symbol)->name);
    return KOLO_OK;
}

/* Under the lock. On success the catalogue owns `path`. */
static kolo_status load_plugin(char *path)
{
    KOLO_TRY(link_and_add(path));
    catalogue.file[catalogue.files++] = path;
    return KOLO_OK;
}

kolo_status kolo_plugin_load_file(const char *path)
{
    char *real = NULL;
    char why[KOLO_WHY_BYTES];
    const kolo_status allowed = kolo_code_path(path, false, &real, why);
    if (allowed != KOLO_OK) {
        return kolo_fail(allowed, "plug-in refused: %s", why);
    }
    pthread_mutex_lock(&catalogue.lock);
    const bool loaded = is_loaded(real);
    const kolo_status status = loaded ? KOLO_OK : load_plugin(real);
    pthread_mutex_unlock(&catalogue.lock);
    if (loaded || status < 0) {
        free(real);
    }
    return status;
}

/* ---- KOLO_PLUGIN ---- */

static struct {
    pthread_once_t once;
    kolo_status status;
    char *text; /* of its error */
} listed = {PTHREAD_ONCE_INIT, KOLO_OK, NULL};

static void load_listed(void)
{
    const char *list = kolo_code_variable("KOLO_PLUGIN");
    char *copy = list != NULL ? strdup(list) : NULL;
    char *rest = NULL;
    for (char *path = copy != NULL ? strtok_r(copy, ":", &rest) : NULL;
         path != NULL && listed.status == KOLO_OK; path = strtok_r(NULL, ":", &rest)) {
        listed.status = kolo_plugin_load_file(path);
    }
    free(copy);
    listed.text = listed.status < 0 ? strdup(kolo_error_text()) : NULL;
}

kolo_status kolo_plugins_load(void)
{
    pthread_once(&listed.once, load_listed);
    if (listed.status < 0) {
        kolo_error_set(listed.text != NULL ? listed.text : "a plug-in was refused");
    }
    return listed.status;
}

// SPDX-License-Identifier: Apache-2.0
// A rank of lost_test.py: `lost VICTIM TIMEOUT_MS`. All make a call on GPU memory and say so; then
// the victim makes none any more, and the others say how their calls ended.
#include "gpu.h"

#include <kolo/kolo.h>

#include <unistd.h>

using namespace gpu;

int main(int, char **argv)
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = 0;
    config.timeout_ms = atoi(argv[2]);
    if (kolo_comm_create_env(&config, &comm) != KOLO_OK) {
        printf("%s\n", kolo_error_text());
        return 1;
    }
    {
        const Stream stream;
        constexpr size_t kFloats = 1 << 19; // several tiles
        const Memory buffer(4 * kFloats);
        const auto call = [&] {
            return kolo_all_reduce(buffer.Get(), buffer.Get(), kFloats, KOLO_FLOAT32, KOLO_SUM,
                                   comm, stream.Get());
        };
        const kolo_status first = call();
        stream.Sync();
        printf("%s\n", kolo_status_name(first));
        fflush(stdout);
        if (kolo_comm_rank(comm) == atoi(argv[1])) {
            for (;;) {
                pause();
            }
        }
        (void)call(); // whether it still can be enqueued is a matter of time
        (void)call();
        stream.Sync();
        kolo_failure failure = {};
        failure.size = sizeof failure;
        if (kolo_comm_failure(comm, &failure) != KOLO_OK) {
            return 1;
        }
        printf("%s %d\n", kolo_status_name(failure.status), failure.rank);
    }
    kolo_comm_destroy(comm);
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Ranks for live_test.py: `live DEVICES`, rank r on GPU DEVICES[r] ("0,1,2,2"; "-" is host memory).
// The processes of a launcher are the ranks, or without one as many threads as there are DEVICES.
// They make one call on host memory, whose result they check.
#include <kolo/kolo.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace
{

std::vector<int> Devices(const char *list)
{
    std::vector<int> devices;
    std::istringstream text(list);
    for (std::string word; std::getline(text, word, ',');) {
        devices.push_back(word == "-" ? KOLO_HOST : std::stoi(word));
    }
    return devices;
}

bool Use(kolo_comm *comm)
{
    const int ranks = kolo_comm_size(comm);
    std::vector<int> data(100000, kolo_comm_rank(comm));
    const kolo_status st =
        kolo_all_reduce(data.data(), data.data(), data.size(), KOLO_INT32, KOLO_SUM, comm, nullptr);
    kolo_comm_destroy(comm);
    return st == KOLO_OK && data == std::vector<int>(data.size(), ranks * (ranks - 1) / 2);
}

bool Run(int rank, const std::vector<int> &devices, const kolo_id *id)
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = devices[static_cast<size_t>(rank)];
    config.timeout_ms = 30000;
    const kolo_status st =
        id != nullptr ? kolo_comm_create(id, static_cast<int>(devices.size()), rank, &config, &comm)
                      : kolo_comm_create_env(&config, &comm);
    if (st != KOLO_OK || !Use(comm)) {
        fprintf(stderr, "rank %d: %s\n", rank, kolo_error_text());
        return false;
    }
    return true;
}

} // namespace

int main(int, char **argv)
{
    const std::vector<int> devices = Devices(argv[1]);
    const char *rank = getenv("KOLO_RANK");
    if (rank != nullptr) {
        return Run(atoi(rank), devices, nullptr) ? 0 : 1;
    }
    kolo_id id;
    std::vector<std::thread> threads;
    std::vector<char> good(devices.size());
    if (kolo_id_create(&id) != KOLO_OK) {
        return 1;
    }
    for (size_t r = 0; r < devices.size(); r++) {
        threads.emplace_back([&, r] { good[r] = Run(static_cast<int>(r), devices, &id); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return good == std::vector<char>(good.size(), 1) ? 0 : 1;
}
